"""Measures Foreload's reader against fio, and its decoding in one thread against libjpeg-turbo alone.

reader: fio replays the extents (widened to 4 KiB, as O_DIRECT needs) that Foreload's reader reads from packed shards,
in the same order, at the same depth, with the page cache dropped before every run. Both are counted in bytes from the
storage, and Foreload is compared with the fastest set-up of fio. decode: `foreload bench` with one decoding thread, CPU
time of the whole process, against libjpeg-turbo on files in memory. Rounds alternate, each beginning with another
program.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, datasets, environments, options, programs, report, rounds, storage
from harness.aims import at_least, at_most
from harness.environments import ROOT, Unavailable
from harness.rounds import Standing

HERE = Path(__file__).resolve().parent
PARTS = ("reader", "decode")
READER = at_least(0.95)
"""Bytes per second of Foreload's reader, as a share of the fastest fio's."""
READER_CPU = at_most(10.0)
"""Microseconds of CPU per read."""
# glibc requests huge pages for large allocations: fio 3.33 has no option for transparent ones, and those of hugetlbfs,
# which root must reserve, gave the same figures. Registered files cannot be used with a replayed log.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
REGISTERED = ["--fixedbufs=1"]
BATCHES = ["--iodepth_batch_submit=8", "--iodepth_batch_complete_min=1", "--iodepth_batch_complete_max=32"]
# The options and environment of fio's set-ups, all with io_uring and O_DIRECT.
FIO = {
    "fio": ([], {}),
    "fio, huge pages": ([], HUGE_PAGES),
    "fio, huge pages, registered buffers": (REGISTERED, HUGE_PAGES),
    "fio, huge pages, registered buffers, batches": ([*REGISTERED, *BATCHES, "--gtod_reduce=1"], HUGE_PAGES),
}
# fio ends without counting the last reads in flight; a larger difference means a different amount of work.
SAME_WORK = 0.01

Run = Callable[[], dict]


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--shards", type=Path, help="tar shards, for the reader (default: `tar` next to --data)"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--depth", type=int, default=32, help="reads in flight")
    parser.add_argument("--epochs", type=int, default=4, help="epochs the reader reads in each round")
    parser.add_argument("--images", type=int, default=1000, help="images libjpeg-turbo decodes in each round")
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER)
    parser.add_argument("--foreload", type=Path, default=ROOT / ".venv" / "bin" / "foreload")
    chosen = parser.parse_args()
    chosen.shards = chosen.shards or datasets.shards_beside(chosen.data)
    return chosen


def alternate(
    runs: dict[str, Run], count: int, before: Callable[[], None] = lambda: None
) -> dict[str, Standing]:
    """Return the results of every program over `count` rounds, in turn, each round beginning with another one."""
    standings = {name: Standing() for name in runs}

    def turn(name: str, number: int) -> None:
        before()
        standings[name].runs.append(runs[name]())
        report.log(f"round {number}: {name}: {standings[name].runs[-1]}")

    rounds.alternate(standings, turn, count)
    return standings


def build_reader() -> Path:
    """Build the program that runs only Foreload's reader; return its path."""
    if shutil.which("cargo") is None:
        raise Unavailable("cargo is missing: install Rust from https://rustup.rs")
    command = ["cargo", "build", "--release", "--bench", "reader", "--message-format=json"]
    said = programs.output_of(command, cwd=ROOT)
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return Path(next(m["executable"] for m in messages if m.get("target", {}).get("name") == "reader"))


def drop_page_cache(folder: Path) -> None:
    """Evict the shards from the page cache, and as root everything else, too."""
    os.sync()
    storage.forget_all(folder)
    if os.geteuid() == 0:
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        except OSError as error:
            report.log(f"page cache dropped for the shards alone: {error}")


def fio(log: Path, depth: int, options: list[str], environment: dict) -> dict:
    """Replay an I/O log with fio; return throughput and CPU time as fio reports them."""
    command = ["fio", "--name=replay", f"--read_iolog={log}", "--replay_no_stall=1", "--ioengine=io_uring"]
    command += ["--direct=1", f"--iodepth={depth}", "--thread", "--output-format=json", *options]
    answer = programs.json_of(command, os.environ | environment)
    job = answer["jobs"][0]
    if job["error"]:
        raise Unavailable(f"fio ended with error {job['error']}")
    read = job["read"]
    asked = sum(int(line.split()[3]) for line in log.read_text().splitlines() if " read " in line)
    if abs(read["io_bytes"] - asked) > SAME_WORK * asked:
        raise Unavailable(f"fio read {read['io_bytes']} bytes, the log has {asked}")
    return {
        "reads": read["total_ios"],
        "bytes": read["io_bytes"],
        "seconds": read["runtime"] / 1000,
        "cpu_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000,
    }


def measure_reader(chosen: argparse.Namespace, scratch: Path) -> dict:
    """Return throughput and CPU time per read of Foreload's readers and of fio on the same extents."""
    if not any(chosen.shards.glob("*.tar")):
        raise Unavailable(f"{chosen.shards}: no tar shards; `foreload synth DIR --layout tar` makes some")
    program = build_reader()
    arguments = [program, chosen.shards, "--epochs", chosen.epochs, "--depth", chosen.depth]
    log = scratch / "extents.log"
    programs.output_of([*arguments, "--iolog", log])
    runs: dict[str, Run] = {
        "Foreload, io_uring": lambda: programs.json_of([*arguments, "--io", "uring"]),
        "Foreload, pread threads": lambda: programs.json_of([*arguments, "--io", "pread"]),
    }
    entries = {}
    try:
        if shutil.which("fio") is None:
            environments.ensure_libraries(("fio",))
        for name, (more, environment) in FIO.items():
            runs[name] = functools.partial(fio, log, chosen.depth, more, environment)
    except Unavailable as reason:
        entries["fio"] = {"failure": str(reason)}
    results = alternate(runs, chosen.rounds, lambda: drop_page_cache(chosen.shards))
    entries = {name: reader_entry(result) for name, result in results.items()} | entries
    speed = {name: aims.median(entry, "megabytes_per_s") for name, entry in entries.items()}
    fastest = max((speed[name] for name in FIO if speed.get(name)), default=None)
    for name, entry in entries.items():
        if fastest and speed[name]:
            entry["ratio_to_fio"] = speed[name] / fastest
    own = entries["Foreload, io_uring"]
    if "ratio_to_fio" in own:
        cpu = aims.median(own, "cpu_microseconds_per_read")
        own["target_met"] = READER.met(own["ratio_to_fio"]) and READER_CPU.met(cpu)
    return {"depth": chosen.depth, "programs": entries}


def reader_entry(standing: Standing) -> dict:
    if standing.failure:
        return {"failure": standing.failure}
    runs = standing.runs
    return {
        "failure": None,
        "reads": runs[-1]["reads"],
        "bytes_per_read": runs[-1]["bytes"] / runs[-1]["reads"],
        "path": runs[-1].get("io"),
        "reads_per_s": report.spread([run["reads"] / run["seconds"] for run in runs]),
        "megabytes_per_s": report.spread([run["bytes"] / run["seconds"] / 1e6 for run in runs]),
        "cpu_microseconds_per_read": report.spread([1e6 * run["cpu_seconds"] / run["reads"] for run in runs]),
    }


def foreload_epoch(chosen: argparse.Namespace, decode: str) -> dict:
    """Run the second epoch of `foreload bench` with one decoding thread; return the CPU time of the whole process."""
    if not chosen.foreload.exists():
        raise Unavailable(f"{chosen.foreload} is missing: run `make setup` first")
    command = [chosen.foreload, "bench", chosen.data, "--threads", 1, "--batch-size", 64, "--epochs", 2]
    epoch = programs.json_of([*command, "--decode", decode, "--json"])["epochs"][-1]
    return {key: epoch[key] for key in ("images", "seconds", "cpu_seconds")}


def measure_decode(chosen: argparse.Namespace) -> dict:
    """Return images per CPU second of Foreload (decode, augment, everything else) and of libjpeg-turbo alone."""
    python = environments.ensure("reference", chosen.envs)
    bare = [python, HERE / "decode.py", chosen.data, "--images", chosen.images]
    runs: dict[str, Run] = {
        "Foreload fast, whole pipeline": lambda: foreload_epoch(chosen, "fast"),
        "Foreload exact, whole pipeline": lambda: foreload_epoch(chosen, "exact"),
        "libjpeg-turbo, full RGB alone": lambda: programs.json_of(bare, programs.python_path()),
        "libjpeg-turbo + resize of the crop": lambda: programs.json_of(
            [*bare, "--resize"], programs.python_path()
        ),
    }
    datasets.warm(datasets.jpegs(chosen.data))
    entries = {}
    for name, standing in alternate(runs, chosen.rounds).items():
        entries[name] = {"failure": standing.failure}
        if not standing.failure:
            for key, of in (("images_per_cpu_second", "cpu_seconds"), ("images_per_s", "seconds")):
                entries[name][key] = report.spread([run["images"] / run[of] for run in standing.runs])
    base = aims.median(entries["libjpeg-turbo, full RGB alone"], "images_per_cpu_second")
    for entry in entries.values():
        own = aims.median(entry, "images_per_cpu_second")
        if base and own:
            entry["ratio_to_libjpeg_turbo"] = own / base
    return {"programs": entries}


def as_text(result: dict) -> str:
    parts = [report.machine_line(result["machine"])]
    if "reader" in result:
        part = result["reader"]
        parts.append(
            f"Reading extents of packed shards, cold, queue depth {part.get('depth')}: median (range)"
        )
        head = ["program", "reads/s", "MB/s", "CPU µs a read", "of the fastest fio"]
        parts.append(part.get("failure") or report.table(head, rows(part, reader_row)))
        own = part.get("programs", {}).get("Foreload, io_uring", {})
        if "target_met" in own:
            asked = f"asked {READER.bound} of fio and at most {READER_CPU.bound:.0f} µs"
            parts.append(f"Foreload, io_uring: {asked}: {aims.word(own['target_met'])}")
    if "decode" in result:
        part = result["decode"]
        parts.append("Decoding in one thread, page cache warm: median (range)")
        head = ["program", "images per CPU second", "images/s", "of libjpeg-turbo"]
        parts.append(part.get("failure") or report.table(head, rows(part, decode_row)))
    return "\n\n".join(parts)


def rows(part: dict, show: Callable[[dict], list[str]]) -> list[list[str]]:
    return [
        [name, *(show(entry) if entry["failure"] is None else [f"not measured: {entry['failure']}"])]
        for name, entry in part["programs"].items()
    ]


def reader_row(entry: dict) -> list[str]:
    digits = {"reads_per_s": 0, "megabytes_per_s": 0, "cpu_microseconds_per_read": 1}
    shown = [report.show(entry[key], count) for key, count in digits.items()]
    return [*shown, report.digits(entry.get("ratio_to_fio"), 2)]


def decode_row(entry: dict) -> list[str]:
    shown = [report.show(entry[key], 0) for key in ("images_per_cpu_second", "images_per_s")]
    return [*shown, report.digits(entry.get("ratio_to_libjpeg_turbo"), 2)]


def main() -> int:
    """Measure and report; return 1 if something could not be measured, or a required target was missed."""
    chosen = parse_arguments()
    datasets.ensure_known(chosen.data, chosen.foreload)
    result = {"benchmark": "limits", "machine": report.machine()}
    with tempfile.TemporaryDirectory(prefix="foreload-limits-") as scratch:
        measures = {
            "reader": lambda: measure_reader(chosen, Path(scratch)),
            "decode": lambda: measure_decode(chosen),
        }
        for part in chosen.parts:
            result[part] = {"programs": {}} | rounds.attempt(measures[part])
    report.deliver(result, as_text(result), chosen)
    entries = [entry for part in chosen.parts for entry in result[part]["programs"].values()]
    missed = any(entry.get("target_met") is False for entry in entries)
    failed = any(result[part].get("failure") for part in chosen.parts)
    return options.exit_code(chosen, failed or any(entry["failure"] for entry in entries), missed)


if __name__ == "__main__":
    sys.exit(main())
