"""The common code of all reports: the machine, Markdown tables, files of results."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMD_FLAGS = ("avx2", "avx512bw", "avx512vbmi", "avx512_vbmi2", "asimd")


def machine() -> dict:
    """Return processor, cores, memory, kernel, time and command, so that a result can be evaluated later.

    If another script calls this one, it sets FORELOAD_COMMAND to the command for readers.
    """
    cpuinfo = Path("/proc/cpuinfo").read_text()
    facts = dict(line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = facts.get("flags", facts.get("Features", "")).split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": facts.get("model name", platform.processor()),
        "simd": [flag for flag in SIMD_FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "system": system_name(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": os.environ.get("FORELOAD_COMMAND") or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def system_name() -> str:
    """Return the distribution's own name for itself."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()


def commit() -> str:
    """Return the measured commit, marked if the tree has changes; FORELOAD_COMMIT if there is no repository."""
    if told := os.environ.get("FORELOAD_COMMIT"):
        return told
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"


def machine_line(facts: dict) -> str:
    """Return one sentence on the machine for the head of a table."""
    memory = facts["memory_bytes"] / 2**30
    simd = " ".join(facts["simd"]) or "no SIMD noted"
    return (
        f"{facts['processor']}, {facts['cores']} cores ({simd}), {memory:.0f} GiB, {facts['system']}, "
        f"Linux {facts['kernel']}; {facts['date']}, commit {facts['commit']}: `{facts['command']}`"
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; the first column is aligned to the left, figures to the right."""
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, marks, *rows])


def spread(values: list[float]) -> dict:
    """Return median, least and greatest of a list of measurements, and the list itself."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def show(spread_of: dict, digits: int) -> str:
    """Return `median (least-greatest)`."""
    return f"{spread_of['median']:.{digits}f} ({spread_of['min']:.{digits}f}-{spread_of['max']:.{digits}f})"


def keep(result: dict, text: str, output: Path) -> None:
    """Write both forms of a result (.md and .json); if the program is interrupted, the earlier files stay complete."""
    output.parent.mkdir(parents=True, exist_ok=True)
    replace(output.with_suffix(".json"), json.dumps(result, indent=1) + "\n")
    replace(output.with_suffix(".md"), text + "\n")


def replace(path: Path, text: str) -> None:
    """Replace a file atomically."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


def begun(
    output: Path | None, result: dict, same: tuple[str, ...], defaults: dict | None = None
) -> dict | None:
    """Return the result that is already in `output`; end the program if it differs in a setting that must be the
    `same`.

    A setting that is missing in an earlier result had its value in `defaults`.
    """
    path = output and output.with_suffix(".json")
    if not path or not path.exists():
        return None
    known = json.loads(path.read_text())
    if defaults:
        known["settings"] = defaults | known["settings"]
    for name in same:
        if known.get(name) != result[name]:
            differs = f"{path}: {name}: was {known.get(name)}, is {result[name]}"
            sys.exit(f"{differs}: remove the file, or choose another --output")
    return known


def deliver(result: dict, text: str, chosen: argparse.Namespace) -> None:
    """Print the result (table, or one JSON object), and write both forms if an output is given."""
    if chosen.output:
        keep(result, text, chosen.output)
    print(json.dumps(result) if chosen.json else text)


def digits(value: float | None, count: int) -> str:
    """Return a number as text, nothing for none."""
    return "" if value is None else f"{value:.{count}f}"


def missing(entry: dict, width: int) -> list[str]:
    """Return a table row with `width` columns for a loader that was not measured."""
    return [entry["title"], f"not measured: {entry['failure']}".replace("|", "/"), *[""] * (width - 2)]


def loader(entry: dict, *more: str, mark: str = "", cpu: int = 2) -> list[str]:
    """Return a loader's line: title, images/s, CPU seconds per 1 000 images with `cpu` digits, and `more`."""
    if "images_per_s" not in entry:
        return missing(entry | {"title": entry["title"] + mark}, 3 + len(more))
    title = entry["title"] + mark + (" (COLOURS DIFFER)" if entry.get("colours_agree") is False else "")
    return [title, show(entry["images_per_s"], 0), show(entry["cpu_seconds_per_1000"], cpu), *more]


class Lines:
    """A file of results with one line of JSON per result: added lines stay, however the program ends."""

    def __init__(self, path: Path | None) -> None:
        self.file = path.open("w") if path else None

    def add(self, line: dict) -> None:
        """Write a line at once."""
        if self.file:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


def log(message: str) -> None:
    """Print progress to stderr; stdout has only the result."""
    print(message, file=sys.stderr, flush=True)
