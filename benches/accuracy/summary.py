"""Mean and spread of each pipeline's runs, and the paired differences to torchvision, seed by seed."""

from __future__ import annotations

import statistics

from harness import aims

REFERENCE = "torchvision"
PIPELINES = {
    "torchvision": "torchvision",
    "exact": "**Foreload** exact",
    "fast": "**Foreload** fast",
}


def summarise(runs: list[dict], half_width: float) -> dict:
    """Return mean and deviation by pipeline, and paired differences of Foreload's, over seeds that all pipelines ran.

    An interval is narrow enough to decide if its half-width, in percentage points, is at most `half_width`.
    """
    of = {name: {run["seed"]: run for run in runs if run["pipeline"] == name} for name in PIPELINES}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in of.values())))
    if len(seeds) < 2:
        return {"seeds": seeds, "pipelines": {}, "differences": {}}
    compared = {name: [by_seed[seed] for seed in seeds] for name, by_seed in of.items()}
    values = {name: [run["accuracy"] for run in of_one] for name, of_one in compared.items()}
    return {
        "seeds": seeds,
        "pipelines": {
            name: {
                "mean": statistics.mean(values[name]),
                "deviation": statistics.stdev(values[name]),
                "own_mean": statistics.mean(run["own_accuracy"] for run in compared[name]),
                "processor_seconds": statistics.mean(run["processor_seconds"] for run in compared[name]),
                "values": values[name],
            }
            for name in PIPELINES
        },
        "differences": {
            name: paired(values[name], values[REFERENCE], half_width)
            for name in PIPELINES
            if name != REFERENCE
        },
    }


def paired(ours: list[float], theirs: list[float], half_width: float) -> dict:
    """Return the mean difference by seed, its 95 % interval, and whether that is narrow enough to decide."""
    found = aims.paired(ours, theirs)
    mean, half = found["mean"], found["half_width"]
    found |= {"interval": [mean - half, mean + half], "includes_zero": abs(mean) <= half}
    return found | {"decided": half <= half_width}
