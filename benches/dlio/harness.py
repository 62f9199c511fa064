"""Runs DLIO as its users do, through MPI, on a drive or on an emulated parallel file system, and reads its results."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import foreload
import report
from environments import ROOT, Unavailable, last_lines, python_of

HERE = Path(__file__).resolve().parent

LOADERS = {
    "stock": {},
    "foreload": {
        "reader.data_loader_classname": "foreload.dlio.ForeloadDataLoader",
        "reader.data_loader_sampler": "index",
    },
}
"""What each loader sets in a workload's YAML."""

TIMEOUT = 1800


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
    """Run DLIO to its end and return what it printed.

    Raises:
        Unavailable: It failed, or did not end in time.
    """
    # This is the Foreload of this Python.
    paths = [str(path) for path in (Path(foreload.__file__).parents[1], *modules)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"no end after {TIMEOUT} s: {shlex.join(words)}") from error
    if done.returncode != 0:
        raise Unavailable(f"exit code {done.returncode}: {last_lines(done.stdout, 600)}")
    return done.stdout


def measure(workload: str, loader: str, output: Path, ranks: int, settings: dict[str, object]) -> dict:
    """Do one run; return accelerator utilisation and samples/s by epoch, and Foreload's counters."""
    words = command(workload, output, ranks, LOADERS[loader] | settings)
    report.log(f"{workload}, {loader}: {shlex.join(words[-len(settings) :])}")
    said = run(words)
    # If DLIO does not find the class it was given it silently takes its own loader.
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
    """Return what Python statements print in DLIO's environment."""
    words = [str(python_of("dlio")), "-c", statements]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def settings_of(workload: str) -> dict:
    """Return a workload's YAML."""
    path = HERE / "workload" / f"{workload}.yaml"
    return json.loads(ask(f"import json, yaml; print(json.dumps(yaml.safe_load(open({str(path)!r}))))"))


@contextmanager
def slow_view(program: Path, folder: Path, mountpoint: Path, rates: str) -> Iterator[dict]:
    """Mount `folder` as an emulated parallel file system; the dictionary has its counters afterwards."""
    mountpoint.mkdir(parents=True)
    words = [program, folder, mountpoint, rates]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if process.stdout.readline() != "ready\n":
        raise Unavailable(f"no slow file system: {last_lines(process.communicate()[1])}")
    counters: dict = {}
    try:
        yield counters
    finally:
        said, _ = process.communicate()
        counters |= json.loads(said)


@contextmanager
def out_of_page_cache(*folders: Path, every: float = 1.0) -> Iterator[None]:
    """Keep telling the kernel to forget the pages of all files below, so that memory does not serve the next epoch."""
    over = threading.Event()

    def sweep() -> None:
        while True:
            for folder in folders:
                for place, _, names in os.walk(folder):
                    for name in names:
                        forget(Path(place, name))
            if over.wait(every):
                return

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def forget(path: Path) -> None:
    """Drop a file's pages; those that are written but not on the drive yet stay."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
