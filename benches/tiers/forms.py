"""The cost and the gain of `form="auto"`, in jobs with different bottlenecks."""

from __future__ import annotations

import statistics
from itertools import product
from typing import TYPE_CHECKING

from harness.aims import check

if TYPE_CHECKING:
    from run import Bench

FORMS = ("as-is", "auto")
EPOCHS = 8
IMAGE_SIZE = 224
"""The usual size, because arithmetic is measured, too."""
SIZES = {"small": 0.5, "large": 2.5}
"""The bytes of the cache, as a share of the dataset."""
STEPS = {"busy": 0.0, "idle": 60.0}
"""Milliseconds of a training step: none, so that processors limit the job, or so many that they are idle."""
MOST = 1.05


def run(bench: Bench, form: str, *, slow: bool, size: float, step: float) -> list[dict]:
    with bench.cache() as cache:
        return bench.epochs(
            bench.folder,
            slow=slow,
            epochs=EPOCHS,
            consume_ms=step,
            cache=cache,
            cache_size=int(size * bench.facts["folder"]),
            cache_form=form,
            image_size=IMAGE_SIZE,
        )


def cpu(epoch: dict) -> float:
    """Return the processor seconds per 1000 images of an epoch, over all threads."""
    return 1000 * epoch["cpu_seconds"] / epoch["images"]


def forms(bench: Bench) -> dict:
    """Time whole jobs with unchanged copies and with `form="auto"`, in alternating rounds."""
    rows, checks = [], []
    for slow, (size_name, size), (step_name, step) in product((True, False), SIZES.items(), STEPS.items()):
        storage = "slow" if slow else "fast"
        jobs: dict[str, list[list[dict]]] = {form: [] for form in FORMS}
        for number in range(bench.rounds):
            for form in FORMS if number % 2 == 0 else reversed(FORMS):
                jobs[form].append(run(bench, form, slow=slow, size=size, step=step))
        seconds = {
            form: statistics.median(sum(epoch["seconds"] for epoch in job) for job in found)
            for form, found in jobs.items()
        }
        last = {form: statistics.median(cpu(job[-1]) for job in found) for form, found in jobs.items()}
        converted = statistics.median(sum(converted_in(epoch) for epoch in job) for job in jobs["auto"])
        ratio = seconds["auto"] / seconds["as-is"]
        name = f"{storage} storage, {size_name} cache, processors {step_name}"
        rows.append(
            [
                name,
                *(f"{seconds[form]:.2f}" for form in FORMS),
                f"{ratio:.3f}",
                *(f"{last[form]:.3f}" for form in FORMS),
                f"{last['auto'] / last['as-is']:.2f}",
                f"{converted / bench.facts['images']:.2f}",
            ]
        )
        checks.append(check(ratio, MOST, f"{name}: seconds of the job, auto compared with as-is"))
    head = ["job", *(f"s, {form}" for form in FORMS), "ratio"]
    head += [*(f"CPU s per 1000 in the last epoch, {form}" for form in FORMS), "ratio", "samples converted"]
    return {"head": head, "rows": rows, "checks": checks}


def converted_in(epoch: dict) -> int:
    """Return the number of copies that were converted to another storage format in an epoch."""
    return sum(tier["converted_samples"] for tier in epoch["cache"]["tiers"].values())
