"""Benchmarks of several parts: each gives a table with checks. If a part fails, its reason is reported and the others
run.

A part is a function of the benchmark's state that returns `{"head": …, "rows": …, "checks": …}`, where the checks are
those of `aims.check`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import aims, programs, report, rounds


@dataclass(frozen=True)
class Part:
    """One part: what it measures, and the introduction of its table."""

    measure: Callable[[Any], dict]
    title: str
    note: str = ""


class Skipped(Exception):
    """The error that a part has nothing to measure here, with the reason."""


def add_option(parser: argparse.ArgumentParser, parts: Iterable[str]) -> None:
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts))


def run(parts: Mapping[str, Part], names: Iterable[str], bench: object) -> dict[str, dict]:
    """Return the results of the named parts; a part that is skipped or fails has the reason in place of a table."""
    found = {}
    for name in names:
        report.log(f"{name}: {parts[name].title}")
        try:
            found[name] = rounds.attempt(lambda name=name: parts[name].measure(bench))
        except Skipped as reason:
            report.log(f"skipped: {reason}")
            found[name] = {"skipped": programs.reason(reason).removeprefix("Skipped: ")}
    return found


def as_text(title: str, about: Iterable[str], result: dict, parts: Mapping[str, Part]) -> str:
    """Return the report in Markdown; `about` are paragraphs about the method."""
    told = [f"# {title}", report.machine_line(result["machine"]), *about]
    for name, found in result["parts"].items():
        told.append(f"## {parts[name].title}")
        if missing := found.get("failure") or found.get("skipped"):
            told.append(f"Not measured: {missing}")
            continue
        told += [parts[name].note] if parts[name].note else []
        told += [report.table(found["head"], found["rows"])]
        told += ["\n".join(aims.lines(found["checks"]))] if found["checks"] else []
    return "\n\n".join(told)


def failed(result: dict) -> bool:
    return any("failure" in part for part in result["parts"].values())


def missed(result: dict) -> bool:
    return any(not check["met"] for part in result["parts"].values() for check in part.get("checks", []))
