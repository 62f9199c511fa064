"""What the runs say: mean and spread of each pipeline, and the paired differences to torchvision, seed by seed."""

from __future__ import annotations

import math
import statistics

REFERENCE = "torchvision"
PIPELINES = {
    "torchvision": "torchvision",
    "exact": "**Foreload** exact",
    "fast": "**Foreload** fast",
}
TOLERANCE = 0.5
"""Percentage points."""

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
MOST_SEEDS = len(STUDENT) + 1


def summarise(runs: list[dict]) -> dict:
    """Per pipeline mean and deviation, per Foreload pipeline the paired difference; of the seeds all of them ran."""
    of = {name: {run["seed"]: run for run in runs if run["pipeline"] == name} for name in PIPELINES}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in of.values())))
    if len(seeds) < 2:
        return {"seeds": seeds, "pipelines": {}, "differences": {}}
    values = {name: [by_seed[seed]["accuracy"] for seed in seeds] for name, by_seed in of.items()}
    own = {name: [by_seed[seed]["own_accuracy"] for seed in seeds] for name, by_seed in of.items()}
    return {
        "seeds": seeds,
        "pipelines": {
            name: {
                "mean": statistics.mean(values[name]),
                "deviation": statistics.stdev(values[name]),
                "own_mean": statistics.mean(own[name]),
                "values": values[name],
            }
            for name in PIPELINES
        },
        "differences": {
            name: paired(values[name], values[REFERENCE]) for name in PIPELINES if name != REFERENCE
        },
    }


def paired(ours: list[float], theirs: list[float]) -> dict:
    """Mean difference by seed, its 95 % interval, and whether that says the same accuracy."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.mean(differences)
    half = STUDENT[len(differences) - 2] * statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "mean": mean,
        "interval": [mean - half, mean + half],
        "includes_zero": abs(mean) <= half,
        "within_tolerance": abs(mean) + half <= TOLERANCE,
        "values": differences,
    }
