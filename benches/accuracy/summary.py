"""Mean and spread of each pipeline's runs, and the paired differences to torchvision, seed by seed."""

from __future__ import annotations

import math
import statistics

REFERENCE = "torchvision"
PIPELINES = {
    "torchvision": "torchvision",
    "exact": "**Foreload** exact",
    "fast": "**Foreload** fast",
}
# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL = 1.959964
"""What t comes to with ever more degrees of freedom."""


def student(freedom: int) -> float:
    """Return Student's t, two-sided 95 %; beyond the table by an expansion around the normal (error < 1e-4)."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def summarise(runs: list[dict], half_width: float) -> dict:
    """Return mean and deviation by pipeline, and paired differences of Foreload's, over seeds that all ran.

    An interval decides whose half-width, in percentage points, is at most `half_width`.
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
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, deviation = statistics.mean(differences), statistics.stdev(differences)
    half = student(len(differences) - 1) * deviation / math.sqrt(len(differences))
    return {
        "mean": mean,
        "deviation": deviation,
        "interval": [mean - half, mean + half],
        "half_width": half,
        "includes_zero": abs(mean) <= half,
        "decided": half <= half_width,
        "values": differences,
    }
