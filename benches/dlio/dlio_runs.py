"""Runs DLIO as its users do, through MPI, on a drive or on an emulated parallel file system, and reads its results."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import foreload
from harness import programs, report
from harness.environments import ROOT, Unavailable, python_of

HERE = Path(__file__).resolve().parent

LOADERS = {
    "stock": {},
    "foreload": {
        "reader.data_loader_classname": "foreload.dlio.ForeloadDataLoader",
        "reader.data_loader_sampler": "index",
    },
}
"""The settings of each loader in a workload's YAML."""


def command(
    workload: str, output: Path, ranks: int, settings: dict[str, object], config: Path = HERE
) -> list[str]:
    """Parse the command line; `settings` are those of the workload, by their names in its YAML."""
    python = python_of("dlio")
    words = [python.with_name("mpiexec"), "-n", ranks, python, HERE / "launch.py", f"--config-dir={config}"]
    words += [f"workload={workload}", f"hydra.run.dir={output}"]
    words += [f"++workload.{name}={value}" for name, value in settings.items()]
    return [str(word) for word in words]


def run(words: list[str], modules: Iterable[Path] = ()) -> str:
    """Run DLIO to its end and return its output.

    Raises:
        Unavailable: It failed, or did not end in time.
    """
    # This is the Foreload of this Python.
    paths = [str(path) for path in (Path(foreload.__file__).parents[1], *modules)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        return programs.output_of(words, variables, together=True)
    except Unavailable as reason:
        raise Unavailable(f"{reason} ({shlex.join(words)})") from reason


def measure(workload: str, loader: str, output: Path, ranks: int, settings: dict[str, object]) -> dict:
    """Do one run; return accelerator utilisation and samples/s by epoch, and Foreload's counters."""
    words = command(workload, output, ranks, LOADERS[loader] | settings)
    report.log(f"{workload}, {loader}: {shlex.join(words[-len(settings) :])}")
    said = run(words)
    # If DLIO does not find the given class, it silently uses its own loader.
    if ("custom data loader class ForeloadDataLoader" in said) != (loader == "foreload"):
        raise Unavailable(f"{loader}: DLIO ran another loader")
    metric = json.loads((output / "summary.json").read_text())["metric"]
    found = {
        "command": shlex.join(words).replace(f"{ROOT}/", ""),
        "au": metric["train_au_percentage"],
        "samples_per_second": metric["train_throughput_samples_per_second"],
    }
    counters = output / "0_foreload.json"
    if counters.exists():
        found["counters"] = json.loads(counters.read_text())
    return found


def ask(statements: str) -> str:
    return programs.output_of([python_of("dlio"), "-c", statements])


def settings_of(workload: str) -> dict:
    path = HERE / "workload" / f"{workload}.yaml"
    return json.loads(ask(f"import json, yaml; print(json.dumps(yaml.safe_load(open({str(path)!r}))))"))
