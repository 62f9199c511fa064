"""Runs all Rust tests, even after one has failed, and prints the twenty slowest.

Usage: `.venv/bin/python tests/environment/rust_tests.py`. Cargo runs one test program after another, and the large ones
wait for threads, files and servers much of their time. This script runs three programs at a time, each with more
threads than there are cores. It prints a program's output when the program has ended.

`make test-all`, CI and `make thorough` set `FORELOAD_ALL=1`. Without it the tests of GPUs and the tests in `LONG` are
skipped, so that `make test` takes only minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

CARGO = ["cargo", "test", "--locked"]
AT_A_TIME = 3
ALL = os.environ.get("FORELOAD_ALL") == "1"
LONGEST = "gpu"
"""The slowest program: its tests take turns with the stand-in of the driver. It starts first, and with a higher
priority than the others.
"""
LONG = {
    "data": (
        "dataset::large_directories_are_complete",
        "scale::ten_million_samples_fit",
        "index_file::anything_may_happen_to_the_file_while_it_is_used",
        "simulate::the_published_scenarios_come_out",
        "simulate_caches::private_caches_hit_by_the_known_future",
        "simulate_caches::uses_of_a_sample_are_binomial",
    ),
    "foreload_data": ("pack::place::tests::what_another_process_finishes_meanwhile_is_finished",),
    "foreload_engine": ("serve::window::tests::random::nobody_waits_for_ever",),
    "foreload_pixels": ("decode::jpeg::bits::tests::unstuffing_undoes_stuffing_wherever_the_ff_lies",),
    "foreload_store": ("tier::plan::tests::what_is_used_soonest_is_kept_where_an_epoch_uses_a_part",),
    "foreload_stream": ("reservoir::tests::each_sample_and_each_place_of_arrival_is_kept_as_often",),
    "images": (
        "augment::cuda::usual_sizes_make_the_same_bytes",
        "decode::conceal::damaged_files_give_what_libjpeg_gives",
        "decode::corpus::every_damaged_file_gives_what_libjpeg_gives",
        "decode::corpus::every_file_gives_libjpegs_pixels_or_a_clear_error",
    ),
    "load": (
        "cached_parts::batches_of_a_packed_dataset_are_the_same_of_fewer_bytes",
        "cached_parts::damage_costs_a_read_where_it_is_read_and_no_byte",
        "cached_parts::what_memory_has_no_room_for_is_read_in_parts",
        "campaign::no_byte_is_wrong_whatever_happens",
        "cli::bench_measures_something_or_refuses_and_says_what_is_noise",
        "cli::calibrate_measures_what_is_there_and_leaves_nothing_behind",
        "cli::synth_makes_imagenet_like_files_whatever_the_threads",
        "cli::synth_touches_nothing_that_is_there_and_leaves_nothing_half_done",
        "cli::tar_shards_hold_the_same_images_with_their_classes",
        "forms::a_small_quota_holds_at_every_instant",
        "http::secrets::credentials_are_in_no_file_and_no_output",
        "http::secrets::secrets_in_a_manifest_are_in_no_file_and_no_output",
        "pack::parts::batches_are_the_same_of_fewer_bytes",
        "repeats::a_smaller_cache_keeps_what_comes_again_soonest",
        "segments::faults::what_fails_may_be_tried_again_and_nothing_is_lost",
        "segments::quota::the_quota_holds_at_every_instant",
        "tier_list::one_rank_of_several_keeps_in_memory_what_it_uses_soonest",
    ),
}
"""Tests that take three seconds or more on one core, by their program."""
TIMED = re.compile(r"^test (\S+) .* <([0-9.]+)s>$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """A test program: its cargo target, its path, and the directory of its package, in which cargo runs it."""

    target: str
    path: Path
    package: Path

    @property
    def name(self) -> str:
        """Return the program's name for messages."""
        return f"{self.package.name}: {self.target}"


def programs() -> list[Program]:
    """Compile all test programs if necessary; return them, the slowest and largest first."""
    command = [
        *CARGO,
        "--no-run",
        "--lib",
        "--bins",
        "--tests",
        "--message-format",
        "json-render-diagnostics",
    ]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = []
    for message in map(json.loads, told.splitlines()):
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            package = Path(message["manifest_path"]).parent
            found.append(Program(message["target"]["name"], Path(message["executable"]), package))
    return sorted(found, key=lambda program: (program.target != LONGEST, -program.path.stat().st_size))


def left_out(program: Program) -> list[str]:
    """Return the arguments for libtest that skip the tests of `LONG`."""
    return [word for test in LONG.get(program.target, ()) for word in ("--skip", test)]


def run(program: Program) -> tuple[Program, bool, str, float]:
    """Run a program; return it, whether all its tests passed, its output, and the seconds that it took.

    libtest reports the time of a test only if unstable options are allowed. The compiler must not see that variable, or
    it would recompile crates that depend on it.
    """
    began = time.monotonic()
    first = [] if program.target == LONGEST else ["nice", "-n", "5"]
    command = [*first, program.path, "-Z", "unstable-options", "--report-time"]
    if not ALL:
        command += left_out(program)
    threads = os.environ.get("RUST_TEST_THREADS", str(3 * len(os.sched_getaffinity(0))))
    environment = os.environ | {
        "RUSTC_BOOTSTRAP": "1",
        "RUST_TEST_THREADS": threads,
        "CARGO_MANIFEST_DIR": str(program.package),
    }
    done = subprocess.run(
        command,
        cwd=program.package,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return program, done.returncode == 0, done.stdout, time.monotonic() - began


def main() -> int:
    """Return 0 if all tests have passed."""
    failed, took = [], []
    chosen = [program for program in programs() if ALL or program.target != LONGEST]
    with ThreadPoolExecutor(AT_A_TIME) as at_once:
        running = [at_once.submit(run, program) for program in chosen]
        for program, passed, printed, seconds in (ended.result() for ended in as_completed(running)):
            print(f"{program.name}, {seconds:.1f} s\n{printed}", flush=True)
            took += [(float(seconds), test) for test, seconds in TIMED.findall(printed)]
            if not passed:
                failed.append(program.name)
    known = {test for _, test in took}
    if ALL:
        missing = [test for tests in LONG.values() for test in tests if test not in known]
        failed += [f"{test}: is in the list of long tests, and in no program" for test in missing]
    else:
        long = sum(map(len, LONG.values()))
        print(f"Left out: the tests of GPUs, and {long} that take long. make test-all runs them.")
    print("The tests of Rust that took longest, in seconds:")
    for seconds, test in sorted(took, reverse=True)[:20]:
        print(f"{seconds:8.3f} {test}")
    if subprocess.run([*CARGO, "--doc", "--package", "foreload"]).returncode != 0:
        failed.append("examples in documentation")
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
