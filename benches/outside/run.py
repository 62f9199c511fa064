"""Compares a Rust program that depends on foreload, built with cargo's default release profile, with foreload's own
program.

Both load the same epochs with the same settings; the processor time of the whole process is compared.

make program
cargo build --release --target-dir target/outside --manifest-path benches/outside/Cargo.toml
.venv/bin/python benches/outside/run.py --data data/folder
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, options, programs, report
from harness.environments import ROOT

OURS = ROOT / "target/release/foreload"
THEIRS = ROOT / "target/outside/release/outside"
AIM = 1.1
"""The largest ratio of its processor time to that of foreload's own program."""


def cpu_seconds(words: list[object]) -> float:
    """Return the processor time of a program."""

    def taken() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = taken()
    programs.output_of(words)
    return taken() - before


def main() -> int:
    parser = options.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=2)
    chosen = parser.parse_args()
    both = {
        "own": [OURS, "bench", chosen.data, "--epochs", chosen.epochs, "--batch-size", 64],
        "outside": [THEIRS, chosen.data, chosen.epochs],
    }
    taken: dict[str, list[float]] = {name: [] for name in both}
    for number in range(chosen.rounds):
        for name in sorted(both, reverse=number % 2 == 1):
            taken[name].append(cpu_seconds(both[name]))
        report.log(
            f"round {number + 1} of {chosen.rounds}: {taken['own'][-1]:.2f} {taken['outside'][-1]:.2f} s"
        )
    ratio = report.spread(
        [theirs / ours for theirs, ours in zip(taken["outside"], taken["own"], strict=True)]
    )
    check = aims.check(ratio["median"], AIM, "processor time of the program outside, of foreload's own")
    result = {
        "machine": report.machine(),
        **options.settings(chosen, "rounds epochs"),
        "seconds": taken,
        "checks": [check],
    }
    rows = [[name, report.show(report.spread(values), 2)] for name, values in taken.items()]
    table = report.table(["program", "CPU s"], rows)
    text = ["# Outside", report.machine_line(result["machine"]), table, *aims.lines([check])]
    report.deliver(result, "\n\n".join(text), chosen)
    return options.exit_code(chosen, failed=False, missed=not check["met"])


if __name__ == "__main__":
    sys.exit(main())
