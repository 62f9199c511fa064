"""DLIO's accelerator utilisation by epoch: its own PyTorch loader and Foreload, from slow storage and from the drive.

The slow storage is a view of the data through FUSE (`tests/slow-fs`), which bypasses the page cache. On the drive, the
pages of the data are dropped all the time (and always those of the cache), so that no epoch is served from memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dlio_runs
from harness import aims, datasets, environments, options, report, rounds, storage

WORKLOADS = ("resnet50_small", "unet3d_small")
PACKAGES = ("dlio-benchmark", "torch", "numpy", "mpi4py", "mpich")
TARGETED = "resnet50_small"
TARGET = 90.0
MARGIN = 10.0
PATCHED = (
    "In favour of its own loader DLIO is patched (`benches/dlio/launch.py`): `get_global_map_index` makes, for each "
    "sample, a text of the whole list of files for a log that is not written; here it does not."
)
AS_IT_IS = "DLIO is not patched in favour of its own loader (`FORELOAD_DLIO_AS_IT_IS`)."


@dataclass(frozen=True)
class Case:
    """A line of the table."""

    name: str
    loader: str
    slow: bool
    cached: bool = False


CASES = (
    Case("DLIO's PyTorch loader, slow storage", "stock", slow=True),
    Case("Foreload, slow storage", "foreload", slow=True),
    Case("**Foreload, slow storage, cache on the drive**", "foreload", slow=True, cached=True),
    Case("DLIO's PyTorch loader, drive", "stock", slow=False),
    Case("Foreload, drive", "foreload", slow=False),
)


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, "dlio")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--ranks", type=int, default=1, help="processes, each an accelerator")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rates", default="open=2ms,read=1ms,bandwidth=150MB", help="of the slow storage")
    parser.add_argument("--cache-size", default="8GB")
    parser.add_argument("--slow-fs", type=Path, default=storage.SLOW_FS)
    chosen = parser.parse_args()
    if chosen.epochs < 2:
        parser.error(f"--epochs: is {chosen.epochs}, must be at least 2: the first fills the cache")
    if chosen.require_targets and TARGETED not in chosen.workloads:
        parser.error(f"--require-targets: is of {TARGETED}, which --workloads leaves out")
    return chosen


def make_data(workload: str, data: Path) -> Path:
    folder = data / workload
    if not folder.exists():
        report.log(f"making {folder.name}")
        with tempfile.TemporaryDirectory() as output, datasets.whole(folder) as new:
            settings = {"dataset.data_folder": new, "workflow.generate_data": True, "workflow.train": False}
            dlio_runs.run(dlio_runs.command(workload, Path(output), 1, settings))
    return folder


def run_case(case: Case, workload: str, folder: Path, chosen: argparse.Namespace, scratch: Path) -> dict:
    cache = scratch / "cache"
    settings: dict[str, object] = {"train.epochs": chosen.epochs}
    if case.cached:
        settings |= {"foreload.cache_dir": cache, "foreload.cache_size": chosen.cache_size}
    if case.slow:
        mounted = storage.slow_view(chosen.slow_fs, folder, scratch / "slow", chosen.rates)
    else:
        mounted = nullcontext({})
    with mounted as counters, storage.out_of_page_cache(folder, cache):
        settings["dataset.data_folder"] = scratch / "slow" if case.slow else folder
        found = dlio_runs.measure(workload, case.loader, scratch / "output", chosen.ranks, settings)
    return found | {"slow_storage": counters}


def run_workload(workload: str, chosen: argparse.Namespace) -> dict:
    """Run all lines of a workload; a line that fails has the reason instead of figures."""
    folder = make_data(workload, chosen.data)
    files = [path for path in (folder / "train").iterdir() if path.is_file()]
    cases = {}
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=chosen.data) as scratch:
            measured = partial(run_case, case, workload, folder, chosen, Path(scratch))
            cases[case.name] = rounds.attempt(measured)
    return {
        "settings": dlio_runs.settings_of(workload),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "cases": cases,
    }


def check(result: dict) -> list[dict]:
    """Check the target: from the second epoch on, Foreload with a cache is well above DLIO's own loader."""
    found = result["workloads"].get(TARGETED)
    if found is None:
        return []
    stock, cached = (found["cases"][CASES[place].name].get("au", [])[1:] for place in (0, 2))
    # A run that failed has no figure; nan meets no target.
    most, least = max(stock, default=nan), min(cached, default=nan)
    text = f"{least:.1f} % at least from the second epoch on, from slow storage with a cache"
    beside = f"DLIO's own loader {most:.1f} % at most, must be {MARGIN:.0f} points below"
    return [
        {"met": least >= TARGET, "says": f"{TARGETED}: {text}, must be {TARGET:.0f} %"},
        {"met": most <= least - MARGIN, "says": f"{TARGETED}: {beside}"},
    ]


def versions() -> dict[str, str]:
    answer = dlio_runs.ask(f"import importlib.metadata as m; print(*map(m.version, {PACKAGES!r}))")
    return dict(zip(PACKAGES, answer.split(), strict=True))


def slow_storage(case: dict, found: dict, epochs: int) -> list[str]:
    """Return the share of the bytes that were read from the slow storage in an average epoch, and its requests per
    sample.
    """
    counters = case["slow_storage"]
    if not counters:
        return ["-", "-"]
    share = counters["bytes"] / found["bytes"] / epochs
    return [f"{share:.2f}", f"{(counters['opens'] + counters['reads']) / found['files'] / epochs:.1f}"]


def as_text(result: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    parts = [
        "# DLIO",
        report.machine_line(result["machine"]),
        f"{versions}; {result['ranks']} process(es); slow storage: {result['rates']}",
        PATCHED if result["patched"] else AS_IT_IS,
        "Foreload hands over the files' bytes, DLIO's loader parses them.",
    ]
    epochs = range(1, result["epochs"] + 1)
    head = ["accelerator utilisation, %", *(f"epoch {epoch}" for epoch in epochs)]
    head += ["samples/s, last epoch", "slow storage: datasets an epoch", "requests a sample and epoch"]
    for name, found in result["workloads"].items():
        settings = found["settings"]
        parts.append(f"## {name}")
        parts.append(
            f"{found['files']} {settings['dataset']['format']} files, {found['bytes'] / 1e6:.0f} MB; batch "
            f"{settings['reader']['batch_size']}, {settings['train']['computation_time']} s of compute a step; "
            f"{settings['reader']['read_threads']} worker processes of DLIO's own loader."
        )
        rows = []
        for line, case in found["cases"].items():
            if "failure" in case:
                rows.append([line, *("-" for _ in epochs), "-", "-", case["failure"].replace("|", "/")])
                continue
            row = [line, *(f"{value:.1f}" for value in case["au"]), f"{case['samples_per_second'][-1]:.0f}"]
            rows.append([*row, *slow_storage(case, found, len(epochs))])
        parts.append(report.table(head, rows))
    return "\n\n".join([*parts, "\n".join(aims.lines(result["checks"]))])


def main() -> int:
    chosen = parse_arguments()
    environments.ensure("dlio")
    chosen.data.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": report.machine(),
        "versions": versions(),
        "patched": "FORELOAD_DLIO_AS_IT_IS" not in os.environ,
        "ranks": chosen.ranks,
        "epochs": chosen.epochs,
        "rates": chosen.rates,
        "workloads": {name: run_workload(name, chosen) for name in chosen.workloads},
    }
    result["checks"] = check(result)
    report.deliver(result, as_text(result), chosen)
    return options.exit_code(chosen, False, not all(one["met"] for one in result["checks"]))


if __name__ == "__main__":
    sys.exit(main())
