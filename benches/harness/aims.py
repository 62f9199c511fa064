"""Aims: the bound of a figure, whether it is met, and how reports show that."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

COLOUR_TOLERANCE = 0.15
"""The largest difference of a loader's normalised channel mean from the median of all: a larger one means other
pixels."""
# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL = 1.959964
"""Student's t for an infinite number of degrees of freedom."""


@dataclass(frozen=True)
class Aim:
    """The bound of a figure: the most that it may be, or the least."""

    bound: float
    is_least: bool = False

    def met(self, value: float | None) -> bool | None:
        """Return whether a figure reaches the aim; None for a figure that is missing."""
        if value is None:
            return None
        return value >= self.bound if self.is_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.bound:g}"


def at_most(bound: float) -> Aim:
    return Aim(bound)


def at_least(bound: float) -> Aim:
    return Aim(bound, is_least=True)


def word(met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: "not measured"}[met]


def check(value: float, bound: float, says: str, *, at_least: bool = False) -> dict:
    """Return a figure with its bound, in the format of a benchmark's checks."""
    told = f"{says}: {value:.3f}, wanted {'≥' if at_least else '≤'} {bound:.3f}"
    return {"value": value, "bound": bound, "met": Aim(bound, at_least).met(value), "says": told}


def lines(checks: Iterable[dict]) -> list[str]:
    """Return a Markdown list of checks."""
    return [f"- {'met' if one['met'] else '**missed**'}: {one['says']}" for one in checks]


def judge_colours(measured: Iterable[dict]) -> None:
    """Mark the loaders whose channel means are near the median of all: a loader that does less has other pixels."""
    measured = list(measured)
    for entry in measured:
        typical = [statistics.median(other["mean"][channel] for other in measured) for channel in range(3)]
        off = max(abs(own - other) for own, other in zip(entry["mean"], typical, strict=True))
        entry["colours_agree"] = off <= COLOUR_TOLERANCE


def median(entry: dict | None, key: str) -> float | None:
    return (entry or {}).get(key, {}).get("median")


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def student(freedom: int) -> float:
    """Return Student's t, two-sided 95 %; beyond the table it expands around the normal (error < 1e-4)."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def paired(ours: list[float], theirs: list[float]) -> dict:
    """Return the mean of paired differences, their deviation and the half-width of the mean's 95 % interval."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    found = {
        "mean": statistics.mean(differences),
        "deviation": None,
        "half_width": None,
        "values": differences,
    }
    if len(differences) > 1:
        found["deviation"] = statistics.stdev(differences)
        found["half_width"] = student(len(differences) - 1) * found["deviation"] / len(differences) ** 0.5
    return found
