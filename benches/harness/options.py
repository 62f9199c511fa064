"""The common options of the benchmarks' command lines."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import environments
from harness.environments import ROOT

PYTHON = ROOT / ".venv" / "bin" / "python"


def parser(
    about: str | None, data: str | None = "folder", several: bool = False, targets: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with --output and --json, with --data unless `data` is None, and with --require-targets unless
    `targets` is false. `data` is the default folder below `data/`; with `several`, --data accepts more than one.
    """
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        folder, more = ROOT / "data" / data, {"nargs": "+"} if several else {}
        what = f"{'folders' if several else 'folder'} of the data (default: data/{data})"
        made.add_argument("--data", type=Path, default=[folder] if several else folder, help=what, **more)
    if targets:
        made.add_argument("--require-targets", action="store_true", help="exit code 1 if an aim is missed")
    made.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    made.add_argument("--json", action="store_true", help="print one JSON object instead of Markdown")
    return made


def add_environments(to: argparse.ArgumentParser) -> None:
    to.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER, help="folder of environments")
    to.add_argument("--foreload-python", type=Path, default=PYTHON, help="an interpreter with Foreload")


def add_loaders(to: argparse.ArgumentParser, rounds: int) -> None:
    """Add the options of all comparisons of loaders."""
    to.add_argument("--rounds", type=int, default=rounds, help="timed rounds of every loader")
    to.add_argument("--warmup", type=int, default=8, help="batches before all epochs")
    to.add_argument("--batch-size", type=int, default=64)
    to.add_argument("--threads", type=int, default=2, help="cores, and worker threads or processes")
    add_environments(to)


def settings(chosen: argparse.Namespace, keys: str) -> dict:
    """Return the named options, in the format of a result."""
    return {key: getattr(chosen, key) for key in keys.split()}


def requirements(names: set[str | None]) -> dict[str, list[str]]:
    """Return the packages of the named environments, in the format of a result."""
    return {name: list(environments.RECIPES[name].requirements) for name in sorted(names - {None})}


def exit_code(chosen: argparse.Namespace, failed: bool, missed: bool) -> int:
    """Return 1 if Foreload failed, or missed a required aim."""
    return int(bool(failed or (chosen.require_targets and missed)))
