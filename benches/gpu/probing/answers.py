"""Decides which of the probe's lines are answers."""

from __future__ import annotations


def unanswered(lines: list[dict]) -> list[dict]:
    """Return the questions that ended their process, or did not end. If a deliberately damaged file ended a process,
    that counts as an answer, and an important one.
    """
    return [line for line in lines if "ended" in line and not _is_crash_on_damage(line)]


def _is_crash_on_damage(line: dict) -> bool:
    return line["step"].startswith("damage") and line["ended"].startswith("signal")
