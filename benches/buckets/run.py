"""Times Foreload's buckets and a DataLoader with diffusers' bucket sampler: same images, sizes, cores and batches."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, datasets, options, report, rounds
from harness.environments import Unavailable
from harness.rounds import Entrant

HERE = Path(__file__).resolve().parent
AIM = aims.at_least(4.0)
"""The ratio of the peer's CPU time to Foreload's, and that of Foreload's images per second to the peer's."""
ENTRANTS = {
    "foreload": Entrant("**Foreload**", HERE / "peers" / "foreload_buckets.py"),
    "diffusers": Entrant("DataLoader, diffusers' sampler", HERE / "peers" / "diffusers_sampler.py", "torch"),
}
LOOKS = ("dtype", "mean", "std", "buckets", "epoch_images")


def main() -> int:
    parser = options.parser(__doc__)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs in each round")
    options.add_loaders(parser, rounds=3)
    chosen = parser.parse_args()
    rounds.use_cores(chosen.threads)
    datasets.ensure_known(chosen.data, chosen.foreload_python.parent / "foreload")
    datasets.warm(datasets.jpegs(chosen.data))

    def check(_: str, result: dict) -> None:
        per_epoch = result["images"] / len(result["epoch_seconds"])
        if per_epoch != result["epoch_images"]:
            raise Unavailable(f"delivered {per_epoch} of {result['epoch_images']} images in an epoch")

    make = {
        name: functools.partial(one.program, chosen.data, chosen, "--epochs", chosen.epochs)
        for name, one in ENTRANTS.items()
    }
    standings = rounds.hold(make, check, chosen.rounds)
    entries = rounds.entries(standings, {name: one.title for name, one in ENTRANTS.items()}, LOOKS)
    ours, theirs = entries["foreload"], entries["diffusers"]
    ratios = {}
    if not ours["failure"] and not theirs["failure"]:
        median = aims.median
        ratios["less CPU"] = median(theirs, "cpu_seconds_per_1000") / median(ours, "cpu_seconds_per_1000")
        ratios["images/s"] = median(ours, "images_per_s") / median(theirs, "images_per_s")
    met = {name: AIM.met(ratio) for name, ratio in ratios.items()}
    result = {
        "machine": report.machine(),
        **options.settings(chosen, "rounds epochs batch_size threads"),
        "peers": entries,
        "ratios": ratios,
        "met": met,
    }
    table = report.table(
        ["loader", "images/s", "CPU s per 1 000"], [report.loader(one) for one in entries.values()]
    )
    lines = [
        f"{ratio:.2f} times {name}, asked {AIM.bound:g}: {aims.word(met[name])}"
        for name, ratio in ratios.items()
    ]
    report.deliver(
        result, "\n\n".join(["# Buckets", report.machine_line(result["machine"]), table, *lines]), chosen
    )
    return options.exit_code(chosen, failed=not ratios, missed=not all(met.values()))


if __name__ == "__main__":
    sys.exit(main())
