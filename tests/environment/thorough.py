"""Runs the parts of `make thorough` one after another, and prints a table of the parts with their time and result.

A part that has passed on this commit, with the same `FORELOAD_*` variables, is not run again: results are stored in
`target/thorough` by commit, if the working tree has no changes. A part that fails does not stop the others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "check": "formatting, lints, house rules",
    "check-rest": "lints of other features and of the bindings, documentation, features, bindings",
    "docs": "the documentation site, with its links",
    "test-rust": "all tests of Rust",
    "test-python": "pytest, with DALI, launchers and DLIO",
    "test-stand-in": "the tests of GPUs on the stand-ins",
    "test-inside": "pytest within the frameworks",
    "test-objects": "object stores",
    "test-wheel": "the wheel in an environment of its own",
    "test-program": "the program without features",
    "test-damage": "damaged fixtures, compared with their own libraries",
}
"""The targets of the Makefile, in the order in which they run."""

COUNTED = re.compile(r"(\d+) (passed|failed|skipped|ignored|errors?)\b")
"""The counts that libtest and pytest print at the end of a program or run."""
SUMMARY = re.compile(r"^test result: |^=+ .* in [0-9.]+s")


def output_of(command: list[str]) -> str:
    """Return the output of a command."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def commit() -> str | None:
    """Return the commit that is checked out, or None if the working tree has changes."""
    return None if output_of(["git", "status", "--porcelain"]) else output_of(["git", "rev-parse", "HEAD"])


def variables() -> dict[str, str]:
    """Return the environment variables that affect the tests."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("FORELOAD_")}


def counts(lines: list[str]) -> str:
    """Return the sums of the counts in all summaries among these lines."""
    sums: dict[str, int] = {}
    for line in filter(SUMMARY.match, lines):
        for number, what in COUNTED.findall(line):
            sums[what] = sums.get(what, 0) + int(number)
    return ", ".join(f"{number} {what}" for what, number in sums.items() if number)


def run(part: str, log: Path) -> dict:
    """Run a part; print and store its output; return its result."""
    began, lines = time.monotonic(), []
    command = ["make", "--no-print-directory", part]
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        for line in process.stdout:
            print(line, end="", flush=True)
            kept.write(line)
            lines.append(line)
    return {
        "passed": process.returncode == 0,
        "minutes": (time.monotonic() - began) / 60,
        "counts": counts(lines),
        "log": str(log.relative_to(ROOT)),
        "variables": variables(),
    }


def table(results: dict[str, dict]) -> str:
    """Return the results as a table in Markdown."""
    lines = ["| part | what | result | minutes | tests |", "| --- | --- | --- | ---: | --- |"]
    for part, result in results.items():
        passed = "passed" if result["passed"] else f"**failed**, see {result['log']}"
        lines.append(f"| {part} | {PARTS[part]} | {passed} | {result['minutes']:.1f} | {result['counts']} |")
    return "\n".join(lines)


def main() -> None:
    """Run the given parts, or all, except those that have passed on this commit."""
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [part for part in wanted if part not in PARTS]:
        sys.exit(f"PART={unknown[0]} is no part; the parts are {', '.join(PARTS)}")
    if os.environ.get("FORELOAD_THOROUGH") != "1":
        sys.exit("call it by make thorough, which sets what the parts need")
    checked_out = commit()
    directory = ROOT / "target" / "thorough" / (checked_out or "changed")
    directory.mkdir(parents=True, exist_ok=True)
    if checked_out is None:
        print("the working tree has changes: all parts run, and results count for no commit")
    kept = directory / "results.json"
    results = json.loads(kept.read_text()) if checked_out and kept.exists() else {}
    for part in wanted:
        known = results.get(part, {})
        if not known.get("passed") or known["variables"] != variables():
            results[part] = run(part, directory / f"{part}.log")
            if commit() != checked_out:
                sys.exit(f"the working tree changed while {part} ran: its result counts for no commit")
            kept.with_suffix(".new").write_text(json.dumps(results, indent=1))
            kept.with_suffix(".new").replace(kept)
    results = {part: results[part] for part in PARTS if part in results}
    print(f"\n{checked_out or 'changed working tree'}\n\n{table(results)}")
    sys.exit(any(not results[part]["passed"] for part in wanted))


if __name__ == "__main__":
    main()
