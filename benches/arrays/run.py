"""Times Foreload, and h5py, zarr-python and NumPy in a DataLoader, on generated arrays.

The data have the shapes of known workloads (climate, HEP-CNN, CosmoFlow, unet3d), but fewer samples and files than the
originals: climate has `--gigabytes`, the others a quarter of it. The page cache is dropped all the time. The slow
storage is a view of the data through FUSE (`tests/slow-fs`), with latencies and a limited bandwidth.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, datasets, environments, options, programs, report, rounds, storage
from harness import parts as harness_parts
from harness.aims import check
from harness.environments import Unavailable
from harness.parts import Part
from harness.rounds import Entrant, Standing

HERE = Path(__file__).resolve().parent
OWN = "foreload"
LESS_CPU = 2.0
"""How many times less CPU Foreload uses for arrays without filters, at least."""
CODEC_CPU = 1.1
"""Foreload's CPU time for compressed arrays, as a multiple of the library's, at most."""
SLOW_SPEED = 2.0
"""Foreload's throughput from slow storage, as a multiple of the library's, at least."""
PEER_WAITS, OWN_WAITS = 0.15, 0.02
"""The shares of an epoch that the library waits, at least, and that Foreload with a cache waits, at most."""
SMALLEST = 100_000
"""The aims are for samples of at least this many bytes."""


@dataclass(frozen=True)
class Workload:
    """A generated dataset."""

    title: str
    container: str
    source: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    axis: str = "rows"
    batch: int = 4
    share: float = 0.25
    """Its size, as a share of `--gigabytes`."""
    files: int = 4
    """The number of files; 0 for `--files`."""
    codec: str = "none"

    @property
    def sample_bytes(self) -> int:
        count = 1
        for edge in self.shape:
            count *= edge
        return count * {"float32": 4, "uint16": 2}[self.dtype]


CLIMATE = (768, 1152, 16)
WORKLOADS = {
    "climate": Workload("climate, HDF5", "hdf5", "/climate/data", CLIMATE, batch=2, share=1.0),
    "climate-zarr": Workload("climate, zarr", "zarr", "/data", CLIMATE, batch=2),
    "climate-npy": Workload("climate, npy", "npy", "data.npy", CLIMATE, batch=2),
    "hep-cnn": Workload("HEP-CNN, HDF5", "hdf5", "/data", (3, 224, 224), batch=64, files=0),
    "cosmoflow": Workload("CosmoFlow, HDF5", "hdf5", "/full", (128, 128, 128, 4), "uint16", "file"),
    "unet3d": Workload("unet3d, npz", "npz", "x", (1, 128, 256, 256), axis="file"),
}
ROW = (64, 4096)
"""The shape of a sample, and of a chunk, of the part on codecs: 1 MiB."""
CODECS = {
    f"{container}-{codec}": Workload(
        f"{container}, {codec}", container, "/data", ROW, batch=16, share=0.125, codec=codec
    )
    for container, codecs in (
        ("hdf5", ("gzip", "lz4", "zstd", "blosc", "bitshuffle")),
        ("zarr", ("gzip", "zstd", "blosc")),
    )
    for codec in codecs
}
PEERS = {"hdf5": "h5py", "zarr": "zarr-python", "npy": "numpy.memmap", "npz": "numpy.load"}
FORELOAD = Entrant("**Foreload**", HERE / "peers" / "foreload_arrays.py")
LIBRARY = Entrant("", HERE / "peers" / "libraries_torch.py", "arrays-torch")
HEAD = [
    "",
    "MB a sample",
    "Foreload, CPU s per 1 000",
    "library",
    "ratio",
    "Foreload, samples/s",
    "library",
    "ratio",
]


class Bench:
    """The common state of all parts: the command line and the generated data."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen

    def folder(self, name: str, workload: Workload) -> Path:
        """Write a dataset if it does not exist, and return its folder."""
        chosen = self.chosen
        total = max(4, int(chosen.gigabytes * workload.share * 1e9 / workload.sample_bytes))
        files = total if workload.axis == "file" else min(workload.files or chosen.files, total)
        folder = chosen.data / f"{name}-{total}-{files}"
        if not folder.is_dir():
            python = environments.ensure("arrays", chosen.envs)
            report.log(f"writing {folder.name}: {total * workload.sample_bytes / 1e9:.1f} GB")
            shape = ",".join(map(str, workload.shape))
            words = [workload.container, workload.codec, workload.source, workload.axis, workload.dtype]
            with datasets.whole(folder) as new:
                program = [python, HERE / "writers" / "generated.py", new, *words, shape, total, files]
                programs.output_of(program, timeout=environments.INSTALL_TIMEOUT)
        return folder

    @contextmanager
    def slow(self, folder: Path) -> Iterator[Path]:
        """Mount a dataset as slow storage."""
        chosen = self.chosen
        with (
            tempfile.TemporaryDirectory(prefix="scratch-", dir=chosen.data) as scratch,
            storage.slow_view(chosen.slow_fs, folder, Path(scratch, "slow"), chosen.rates),
        ):
            yield Path(scratch, "slow")

    @contextmanager
    def cache(self) -> Iterator[Path]:
        """Return an empty folder for a cache, which is on the same drive as the data."""
        with tempfile.TemporaryDirectory(prefix="cache-", dir=self.chosen.data) as folder:
            yield Path(folder)

    def hold(
        self, folder: Path, workload: Workload, variants: dict[str, str], *swept: Path
    ) -> dict[str, Standing]:
        """Run Foreload and the library in rounds, and check that both give the same samples.

        The pages of `swept` are kept out of the page cache.
        """
        samples = json.loads((folder / "about.json").read_text())["samples"]
        known: list[tuple] = []

        def judge(name: str, result: dict) -> None:
            rounds.check_images(result, samples, 1)
            known.append((name, result["digest"], result["shape"]))
            if known[-1][1:] != known[0][1:]:
                raise Unavailable(f"gives other samples than {known[0][0]}")

        chosen = argparse.Namespace(**{**vars(self.chosen), "batch_size": workload.batch})
        entrants = {
            name: functools.partial(
                replace(FORELOAD if name.startswith(OWN) else LIBRARY, variant=variant).program,
                folder,
                chosen,
                *("--epochs", chosen.epochs),
            )
            for name, variant in variants.items()
        }
        with storage.out_of_page_cache(*swept):
            return rounds.hold(entrants, judge, chosen.rounds, title=workload.title)


def figures(standings: dict[str, Standing], name: str) -> dict:
    """Return the figures of a loader; the reason ends the part if it was not measured."""
    found = standings[name].figures()
    if "images_per_s" not in found:
        raise Unavailable(f"{name}: {found['failure']}")
    return found


def compared(
    workload: Workload, standings: dict[str, Standing], own: str = OWN
) -> tuple[list[str], float, float]:
    """Return a row of the table, the ratio of CPU times (Foreload's below), and that of throughputs."""
    ours, theirs = figures(standings, own), figures(standings, "library")
    cpu = [aims.median(each, "cpu_seconds_per_1000") for each in (ours, theirs)]
    speed = [aims.median(each, "images_per_s") for each in (ours, theirs)]
    row = [f"{workload.title}, {PEERS[workload.container]}", f"{workload.sample_bytes / 1e6:.2f}"]
    row += [f"{cpu[0]:.2f}", f"{cpu[1]:.2f}", f"{cpu[1] / cpu[0]:.2f}"]
    row += [f"{speed[0]:.1f}", f"{speed[1]:.1f}", f"{speed[0] / speed[1]:.2f}"]
    return row, cpu[1] / cpu[0], speed[0] / speed[1]


def missing(workload: Workload, error: BaseException) -> tuple[list[str], dict]:
    """Return the row and the check of a dataset that was not measured."""
    row = report.missing({"title": workload.title, "failure": programs.reason(error)}, len(HEAD))
    return row, {"met": False, "says": f"{workload.title}: not measured"}


def table(bench: Bench, workloads: dict[str, Workload], judge: Callable[[Workload, float], dict]) -> dict:
    """Measure datasets on the drive; a dataset that fails has the reason in its row."""
    rows, checks = [], []
    for name, workload in workloads.items():
        try:
            folder = bench.folder(name, workload)
            row, cpu, _ = compared(workload, bench.hold(folder, workload, {OWN: "", "library": ""}, folder))
            verdict = judge(workload, cpu)
        except rounds.FAILURES as error:
            row, verdict = missing(workload, error)
        rows.append(row)
        checks.append(verdict)
    return {"head": HEAD, "rows": rows, "checks": checks}


def unfiltered(bench: Bench) -> dict:
    def judge(workload: Workload, cpu: float) -> dict:
        return check(cpu, LESS_CPU, f"{workload.title}: times less CPU", at_least=True)

    chosen = {name: WORKLOADS[name] for name in bench.chosen.workloads}
    return table(bench, {name: each for name, each in chosen.items() if each.sample_bytes >= SMALLEST}, judge)


def codecs(bench: Bench) -> dict:
    def judge(workload: Workload, cpu: float) -> dict:
        return check(1 / cpu, CODEC_CPU, f"{workload.title}: CPU time, as a multiple of the library's")

    return table(bench, CODECS, judge)


def slow(bench: Bench) -> dict:
    """Measure throughput from slow storage, without a cache, and in epochs that find all samples in the cache.

    Its bandwidth is more than either loader reaches: where the bandwidth is the limit, all loaders are equally fast. It
    bypasses the page cache, so files on it cannot be mapped: npy is left out.
    """
    rows, checks = [], []
    for name in bench.chosen.workloads:
        workload = WORKLOADS[name]
        if workload.container == "npy":
            continue
        try:
            with bench.slow(bench.folder(name, workload)) as folder, bench.cache() as cache:
                variants = {OWN: "", f"{OWN} with a cache": f"cache={cache}", "library": ""}
                standings = bench.hold(folder, workload, variants, cache)
            alone, _, speed = compared(workload, standings)
            cached = compared(workload, standings, f"{OWN} with a cache")[0]
        except rounds.FAILURES as error:
            row, verdict = missing(workload, error)
            rows.append(row)
            checks.append(verdict)
            continue
        rows += [alone, [f"{cached[0]}, cache", *cached[1:]]]
        says = f"{workload.title}: times the throughput from slow storage"
        checks.append(check(speed, SLOW_SPEED, says, at_least=True))
    return {"head": HEAD, "rows": rows, "checks": checks}


def share(bench: Bench) -> dict:
    """Measure the share of the climate-like epoch that a consumer waits, at a pace where h5py's is a fifth."""
    workload = WORKLOADS["climate"]
    with bench.slow(bench.folder("climate", workload)) as folder, bench.cache() as cache:
        alone = figures(bench.hold(folder, workload, {"library": ""}), "library")
        pace = 0.8 * 1000 * workload.batch / aims.median(alone, "images_per_s")
        variants = {"library": f"pace={pace:.1f}", OWN: f"pace={pace:.1f}"}
        variants[f"{OWN} with a cache"] = f"cache={cache},pace={pace:.1f}"
        standings = bench.hold(folder, workload, variants, cache)
    titles = {
        "library": "h5py in a DataLoader",
        OWN: "Foreload",
        f"{OWN} with a cache": "**Foreload**, cache",
    }
    shares = {}
    for name, standing in standings.items():
        figures(standings, name)
        shares[name] = report.spread([each for run in standing.runs for each in run["waiting"]])
    rows = [[titles[name], f"{pace:.0f}", report.show(found, 3)] for name, found in shares.items()]
    cached = shares[f"{OWN} with a cache"]["median"]
    return {
        "head": ["climate, slow storage", "ms of work a batch", "share of the epoch spent waiting"],
        "rows": rows,
        "checks": [
            check(shares["library"]["median"], PEER_WAITS, "h5py in a DataLoader: share", at_least=True),
            check(cached, OWN_WAITS, "Foreload with a cache: share"),
        ],
    }


PARTS = {
    "unfiltered": Part(unfiltered, "Without filters", "Times less CPU, and times the throughput."),
    "codecs": Part(codecs, "By codec", "Samples of 1 MiB, a chunk each."),
    "slow": Part(slow, "From slow storage"),
    "share": Part(share, "The share of an epoch that is spent reading"),
}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, "arrays")
    parser.add_argument(
        "--gigabytes", type=float, default=4, help="size of the climate-like data, at most 10"
    )
    parser.add_argument("--files", type=int, default=256, help="files of HEP-CNN; the original has 2048")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--epochs", type=int, default=3, help="timed epochs in each round")
    parser.add_argument("--rates", default="open=2ms,read=1ms,bandwidth=2GB", help="of the slow storage")
    parser.add_argument("--slow-fs", type=Path, default=storage.SLOW_FS)
    harness_parts.add_option(parser, PARTS)
    options.add_loaders(parser, rounds=3)
    chosen = parser.parse_args()
    if chosen.gigabytes > 10:
        parser.error(f"--gigabytes: is {chosen.gigabytes:g}, must be at most 10")
    return chosen


def as_text(result: dict) -> str:
    chosen = result["settings"]
    about = (
        f"Climate-like data of {chosen['gigabytes']:g} GB in 4 files, HEP-CNN in {chosen['files']} files (2048 in the "
        f"original); {chosen['threads']} worker threads or processes; {chosen['rounds']} alternating rounds of "
        f"{chosen['epochs']} epochs, medians. "
        f"Slow storage: {chosen['rates']}. The page cache is dropped all the time."
    )
    return harness_parts.as_text("Arrays", [about], result, PARTS)


def main() -> int:
    """Write, measure, report; return 1 if a part failed, or a required aim was missed."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    chosen.data.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": "arrays",
        "machine": report.machine(),
        "settings": options.settings(chosen, "gigabytes files workloads epochs rates rounds threads"),
        "requirements": options.requirements({"arrays", "arrays-torch"}),
        "parts": harness_parts.run(PARTS, chosen.parts, Bench(chosen)),
    }
    report.deliver(result, as_text(result), chosen)
    return options.exit_code(chosen, harness_parts.failed(result), harness_parts.missed(result))


if __name__ == "__main__":
    sys.exit(main())
