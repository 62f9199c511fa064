"""A figure beside its bound."""

from __future__ import annotations


def check(value: float, bound: float, says: str, *, at_least: bool = False) -> dict:
    """A figure beside what it should be."""
    met = value >= bound if at_least else value <= bound
    sign = "≥" if at_least else "≤"
    return {
        "value": value,
        "bound": bound,
        "met": met,
        "says": f"{says}: {value:.3f}, wanted {sign} {bound:.3f}",
    }
