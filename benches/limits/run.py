"""Measures Foreload's reader against fio, and its decoding in one thread against bare libjpeg-turbo.

reader: fio replays the very extents (widened to 4 KiB, as O_DIRECT needs) that Foreload's reader reads
from packed shards, in the same order, at the same depth, page cache dropped before every run. Both are
counted in bytes from the storage, and Foreload is held against the fastest set-up of fio.
decode: `foreload bench` with one decoding thread, CPU time of the whole process, against libjpeg-turbo on
files in memory. Rounds alternate, each beginning with another program.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import environments
import photographs
import report
from environments import ROOT, Unavailable

HERE = Path(__file__).resolve().parent
PARTS = ("reader", "decode")
READER_TARGET = 0.95
CPU_TARGET_MICROSECONDS = 10.0
# glibc asks for huge pages for large allocations: fio 3.33 has no option for transparent ones, and those of hugetlbfs,
# which root must set aside, gave the same figures. Registered files exclude a replayed log.
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
# fio ends without counting the last reads in flight; a larger difference is another amount of work.
SAME_WORK = 0.01

Run = Callable[[], dict]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "folder", help="image folder")
    parser.add_argument(
        "--shards", type=Path, help="tar shards, for the reader (default: `tar` beside the folder)"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--depth", type=int, default=32, help="reads in flight")
    parser.add_argument("--epochs", type=int, default=4, help="epochs the reader reads in each round")
    parser.add_argument("--images", type=int, default=1000, help="images libjpeg-turbo decodes in each round")
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER)
    parser.add_argument(
        "--foreload", type=Path, default=ROOT / ".venv" / "bin" / "foreload", help="the program"
    )
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    chosen = parser.parse_args()
    chosen.shards = chosen.shards or photographs.shards_beside(chosen.data)
    return chosen


def run_json(command: list[str | Path], environment: dict | None = None) -> dict:
    """Run a program whose stdout ends in a JSON object."""
    done = subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, check=False
    )
    start = done.stdout.find("{")
    if done.returncode != 0 or start < 0:
        raise Unavailable(
            f"exit code {done.returncode}: {environments.last_lines(done.stderr or done.stdout)}"
        )
    return json.loads(done.stdout[start:])


def alternate(runs: dict[str, Run], rounds: int, before: Callable[[], None]) -> dict[str, list[dict] | str]:
    """Return results of every program over all rounds, in turn; the reason in place of them for one that failed."""
    results: dict[str, list[dict] | str] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if isinstance(results[name], str):
                continue
            before()
            try:
                results[name].append(runs[name]())
                report.log(f"round {number + 1}: {name}: {results[name][-1]}")
            except Unavailable as reason:
                results[name] = str(reason).replace(f"{ROOT}/", "")
                report.log(f"{name}: {reason}")
    return results


def build_reader() -> Path:
    """Build the program that runs Foreload's reader alone; return its path."""
    if shutil.which("cargo") is None:
        raise Unavailable("cargo is missing: install Rust from https://rustup.rs")
    command = ["cargo", "build", "--release", "--bench", "reader", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"cargo build failed: {environments.last_lines(done.stderr)}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Path(next(m["executable"] for m in messages if m.get("target", {}).get("name") == "reader"))


def drop_page_cache(folder: Path) -> None:
    """Evict the shards from the page cache, and as root everything else too."""
    os.sync()
    for path in folder.iterdir():
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
    if os.geteuid() == 0:
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        except OSError as error:
            report.log(f"page cache dropped for the shards alone: {error}")


def fio(log: Path, depth: int, options: list[str], environment: dict) -> dict:
    """Replay an I/O log with fio; return throughput by its own clock and CPU time by its own accounting."""
    command = ["fio", "--name=replay", f"--read_iolog={log}", "--replay_no_stall=1", "--ioengine=io_uring"]
    command += ["--direct=1", f"--iodepth={depth}", "--thread", "--output-format=json", *options]
    answer = run_json(command, os.environ | environment)
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
    subprocess.run([str(part) for part in [*arguments, "--iolog", log]], check=True)
    runs: dict[str, Run] = {
        "Foreload, io_uring": lambda: run_json([*arguments, "--io", "uring"]),
        "Foreload, pread threads": lambda: run_json([*arguments, "--io", "pread"]),
    }
    failures = {}
    try:
        if shutil.which("fio") is None:
            environments.ensure_libraries(("fio",))
        for name, (options, environment) in FIO.items():
            runs[name] = functools.partial(fio, log, chosen.depth, options, environment)
    except Unavailable as reason:
        failures["fio"] = str(reason)
    results = alternate(runs, chosen.rounds, lambda: drop_page_cache(chosen.shards)) | failures
    entries = {name: reader_entry(result) for name, result in results.items()}
    measured = [entries[name] for name in FIO if "reads" in entries.get(name, {})]
    rivals = [entry["megabytes_per_s"]["median"] for entry in measured]
    if rivals:
        for entry in entries.values():
            if "reads" in entry:
                entry["ratio_to_fio"] = entry["megabytes_per_s"]["median"] / max(rivals)
    own = entries["Foreload, io_uring"]
    if "ratio_to_fio" in own:
        own["target_met"] = (
            own["ratio_to_fio"] >= READER_TARGET
            and own["cpu_microseconds_per_read"]["median"] <= CPU_TARGET_MICROSECONDS
        )
    return {"depth": chosen.depth, "programs": entries}


def reader_entry(result: list[dict] | str) -> dict:
    """Return medians of one program's rounds."""
    if isinstance(result, str):
        return {"failure": result}
    return {
        "failure": None,
        "reads": result[-1]["reads"],
        "bytes_per_read": result[-1]["bytes"] / result[-1]["reads"],
        "path": result[-1].get("io"),
        "reads_per_s": report.spread([run["reads"] / run["seconds"] for run in result]),
        "megabytes_per_s": report.spread([run["bytes"] / run["seconds"] / 1e6 for run in result]),
        "cpu_microseconds_per_read": report.spread(
            [1e6 * run["cpu_seconds"] / run["reads"] for run in result]
        ),
    }


def foreload_epoch(chosen: argparse.Namespace, decode: str) -> dict:
    """Run the second epoch of `foreload bench` with one decoding thread; return the CPU time of the whole process."""
    if not chosen.foreload.exists():
        raise Unavailable(f"{chosen.foreload} is missing: run `make setup` first")
    command = [chosen.foreload, "bench", chosen.data, "--threads", 1, "--batch-size", 64, "--epochs", 2]
    epoch = run_json([*command, "--decode", decode, "--json"])["epochs"][-1]
    return {key: epoch[key] for key in ("images", "seconds", "cpu_seconds")}


def measure_decode(chosen: argparse.Namespace) -> dict:
    """Return images per CPU second of Foreload (decode, augment, all the rest) and of bare libjpeg-turbo."""
    python = environments.ensure("reference", chosen.envs)
    bare = [python, HERE / "decode.py", chosen.data, "--images", chosen.images]
    runs: dict[str, Run] = {
        "Foreload fast, whole pipeline": lambda: foreload_epoch(chosen, "fast"),
        "Foreload exact, whole pipeline": lambda: foreload_epoch(chosen, "exact"),
        "libjpeg-turbo, full RGB alone": lambda: run_json(bare),
        "libjpeg-turbo + resize of the crop": lambda: run_json([*bare, "--resize"]),
    }
    for path in photographs.jpegs(chosen.data):
        path.read_bytes()
    results = alternate(runs, chosen.rounds, lambda: None)
    entries = {}
    for name, result in results.items():
        if isinstance(result, str):
            entries[name] = {"failure": result}
        else:
            rates = [run["images"] / run["cpu_seconds"] for run in result]
            wall = [run["images"] / run["seconds"] for run in result]
            entries[name] = {
                "failure": None,
                "images_per_cpu_second": report.spread(rates),
                "images_per_s": report.spread(wall),
            }
    base = entries["libjpeg-turbo, full RGB alone"]
    if base["failure"] is None:
        for entry in entries.values():
            if entry["failure"] is None:
                own, other = entry["images_per_cpu_second"], base["images_per_cpu_second"]
                entry["ratio_to_libjpeg_turbo"] = own["median"] / other["median"]
    return {"programs": entries}


def as_text(result: dict) -> str:
    """Return the report in Markdown."""
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
            asked = f"asked {READER_TARGET} of fio and at most {CPU_TARGET_MICROSECONDS:.0f} µs"
            parts.append(f"Foreload, io_uring: {asked}: {'met' if own['target_met'] else 'MISSED'}")
    if "decode" in result:
        part = result["decode"]
        parts.append("Decoding in one thread, page cache warm: median (range)")
        head = ["program", "images per CPU second", "images/s", "of libjpeg-turbo"]
        parts.append(part.get("failure") or report.table(head, rows(part, decode_row)))
    return "\n\n".join(parts)


def rows(part: dict, show: Callable[[dict], list[str]]) -> list[list[str]]:
    """Return lines of a table, failures with their reason."""
    return [
        [name, *(show(entry) if entry["failure"] is None else [f"not measured: {entry['failure']}"])]
        for name, entry in part["programs"].items()
    ]


def reader_row(entry: dict) -> list[str]:
    """Return the figures of one reader."""
    return [
        report.show(entry["reads_per_s"], 0),
        report.show(entry["megabytes_per_s"], 0),
        report.show(entry["cpu_microseconds_per_read"], 1),
        f"{entry['ratio_to_fio']:.2f}" if "ratio_to_fio" in entry else "",
    ]


def decode_row(entry: dict) -> list[str]:
    """Return the figures of one decoder."""
    return [
        report.show(entry["images_per_cpu_second"], 0),
        report.show(entry["images_per_s"], 0),
        f"{entry['ratio_to_libjpeg_turbo']:.2f}" if "ratio_to_libjpeg_turbo" in entry else "",
    ]


def main() -> int:
    """Measure and report; return 1 when something could not be measured, or a required target was missed."""
    chosen = parse_arguments()
    photographs.ensure_known(chosen.data, chosen.foreload)
    result = {"benchmark": "limits", "machine": report.machine()}
    with tempfile.TemporaryDirectory(prefix="foreload-limits-") as scratch:
        for part in chosen.parts:
            try:
                result[part] = (
                    measure_reader(chosen, Path(scratch)) if part == "reader" else measure_decode(chosen)
                )
            except Unavailable as reason:
                result[part] = {"failure": str(reason), "programs": {}}
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    entries = [entry for part in chosen.parts for entry in result[part]["programs"].values()]
    missed = chosen.require_targets and any(entry.get("target_met") is False for entry in entries)
    failed = any(result[part].get("failure") for part in chosen.parts) or any(
        entry["failure"] for entry in entries
    )
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
