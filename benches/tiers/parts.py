"""The parts of the benchmark: the jobs of each, its figures, and their bounds."""

from __future__ import annotations

import random
import statistics
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from forms import forms
from harness.aims import check
from harness.parts import Part

if TYPE_CHECKING:
    from run import Bench

FRACTIONS = (0.25, 0.5, 0.75, 1.0)
EPOCHS = 3
MEMORY_AND_DRIVE = ((0.3, 0.0), (0.2, 0.5), (0.5, 0.6))
FILLS = (("folder", "use"), ("tar", "use"), ("tar", "ahead"))
MOST_FIRST = {"use": 1.02, "ahead": 1.10}
RANKS = 4
STEPS = 250


def lru_misses(capacity: float, samples: int = 20_000, epochs: int = EPOCHS) -> list[float]:
    """Return the share of the samples that a least-recently-used cache misses in each epoch of a full reshuffle."""
    draw = random.Random(1)
    kept: OrderedDict[int, None] = OrderedDict()
    room, misses = round(capacity * samples), []
    for _ in range(epochs):
        missed = 0
        for sample in draw.sample(range(samples), samples):
            if sample in kept:
                kept.move_to_end(sample)
                continue
            missed += 1
            kept[sample] = None
            if len(kept) > room:
                kept.popitem(last=False)
        misses.append(missed / samples)
    return misses


def slow(epoch: dict) -> int:
    """Return the bytes that were read from the slow tier in an epoch, including staged ones."""
    return epoch["source_bytes"]


def pace(bench: Bench, bytes_per_second: float, data: str = "tar") -> float:
    """Return the duration in milliseconds of a training step that consumes this many bytes per second."""
    of_a_batch = bench.batch * bench.facts[data] / bench.facts["images"]
    return 1000 * of_a_batch / bytes_per_second


def bytes_read(bench: Bench) -> dict:
    rows, checks = [], []
    for data, fill in FILLS:
        total = bench.facts[data]
        # With staging ahead, training uses half of the bandwidth that staging may use.
        step = pace(bench, bench.bandwidth / 4) if fill == "ahead" else 0
        options = {"stage_bandwidth": bench.bandwidth // 2} if fill == "ahead" else {}
        for share in FRACTIONS:
            with bench.cache() as cache:
                epochs = bench.epochs(
                    getattr(bench, data),
                    epochs=EPOCHS,
                    cache=cache,
                    cache_size=int(share * total),
                    fill=fill,
                    consume_ms=step,
                    **options,
                )
            read = [slow(epoch) / total for epoch in epochs]
            rows.append([f"{data}, {fill}", f"{share:.2f}", *(f"{part:.3f}" for part in read)])
            name = f"{data}, {fill}, c = {share}"
            checks.append(check(read[0], MOST_FIRST[fill], f"{name}: first epoch"))
            checks.append(check(max(read[1:]), 1 - share + 0.02, f"{name}: every later epoch"))
            cut = 1 - sum(read) / EPOCHS
            # Staging ahead may read a part of the first epoch twice; the promised reduction holds for all other reads.
            wanted = (EPOCHS - 1) * share / EPOCHS - 0.02
            checks.append(check(cut, wanted, f"{name}: cut over {EPOCHS} epochs", at_least=True))
    for share in FRACTIONS:
        misses = lru_misses(share)
        rows.append(["LRU (page cache), computed", f"{share:.2f}", *(f"{part:.3f}" for part in misses)])
    head = ["filled", "cache / dataset", *(f"epoch {number + 1}" for number in range(EPOCHS))]
    return {"head": head, "rows": rows, "checks": checks}


def listed(bench: Bench) -> dict:
    """Measure the effect of each tier of a list: memory alone, memory before a directory, and a directory alone."""
    rows, checks = [], []
    total = bench.facts["folder"]
    for ram, nvme in MEMORY_AND_DRIVE:
        with bench.cache() as cache:
            options = {"cache_ram": int(ram * total)} if ram else {}
            options |= {"cache": cache, "cache_size": int(nvme * total)} if nvme else {}
            epochs = bench.epochs(bench.folder, epochs=EPOCHS, fill="use", **options)
        for number, epoch in enumerate(epochs):
            given = {name: tier["bytes"] / total for name, tier in epoch["cache"]["tiers"].items()}
            shares = (slow(epoch) / total, given.get("ram", 0.0), given.get("nvme", 0.0))
            rows.append([f"{ram:.2f} + {nvme:.2f}", str(number + 1), *(f"{share:.3f}" for share in shares)])
        name = f"memory {ram} and drive {nvme}"
        checks.append(check(slow(epochs[0]) / total, MOST_FIRST["use"], f"{name}: first epoch"))
        bound = max(0.0, 1 - ram - nvme) + 0.02
        checks.append(check(max(slow(epoch) for epoch in epochs[1:]) / total, bound, f"{name}: later epochs"))
    head = ["memory + drive / dataset", "epoch", "source", "ram", "nvme"]
    return {"head": head, "rows": rows, "checks": checks}


def staging(bench: Bench) -> dict:
    """Measure staging during training, each alone, one after the other, and training without staging."""
    total = bench.facts["tar"]
    shards = sum(path.stat().st_size for path in Path(bench.tar).glob("*.tar"))
    step = pace(bench, bench.bandwidth / 2)
    found = bench.json("calibrate", bench.tar, "--emulate-pfs", bench.spec)
    large = found["source"]["large"]
    alone = shards / (large["bytes"] / large["seconds"])
    direct = bench.epochs(bench.tar, consume_ms=step)[0]["seconds"]
    with bench.cache() as cache:
        size = {"cache": cache, "cache_size": 2 * total}
        beside, warm = bench.epochs(bench.tar, epochs=2, consume_ms=step, fill="ahead", **size)
    training = warm["seconds"]
    rows = [
        ["staging alone (shards at the measured bandwidth)", f"{alone:.2f}"],
        ["training alone, all on NVMe", f"{training:.2f}"],
        ["staging during training", f"{beside['seconds']:.2f}"],
        ["copy, then train", f"{alone + training:.2f}"],
        ["training from the slow tier", f"{direct:.2f}"],
    ]
    bound = 1.15 * max(alone, training)
    says = "during training, seconds, against 1.15 times the longer of the two"
    return {
        "head": ["first epoch", "seconds"],
        "rows": rows,
        "checks": [check(beside["seconds"], bound, says)],
    }


def warm(bench: Bench) -> dict:
    """Measure the second epoch of a job on the slow tier, compared with the same job on NVMe."""
    tiered, local = [], []
    for _ in range(bench.rounds):
        with bench.cache() as cache:
            options = {"cache": cache, "cache_size": 2 * bench.facts["tar"], "fill": "use"}
            tiered.append(bench.epochs(bench.tar, epochs=2, **options)[1]["seconds"])
        local.append(bench.epochs(bench.tar, slow=False, epochs=2)[1]["seconds"])
    ratio = statistics.median(tiered) / statistics.median(local)
    rows = [
        ["slow tier, all in the cache", f"{statistics.median(tiered):.3f}"],
        ["the dataset on NVMe", f"{statistics.median(local):.3f}"],
    ]
    checks = [check(ratio, 1.03, "second epoch compared with NVMe, ratio of medians")]
    return {"head": ["second epoch", "seconds"], "rows": rows, "checks": checks}


def stall(bench: Bench) -> dict:
    """Measure the share of an epoch spent waiting when the slow tier has a fifth more bandwidth than needed."""
    rows, checks = [], []
    # The job always waits for the first batch; if that is small, the wait is a small part of the epoch.
    bench = replace(bench, batch=max(1, bench.facts["images"] // STEPS))
    for data in ("folder", "tar"):
        step = pace(bench, bench.bandwidth / 1.2, data)
        for share in (0.0, 0.5):
            with bench.cache() as cache:
                options = {"cache": cache, "cache_size": int(share * bench.facts[data])} if share else {}
                epochs = bench.epochs(getattr(bench, data), epochs=2, consume_ms=step, **options)
            waits = [epoch["wait_seconds"] / epoch["seconds"] for epoch in epochs]
            rows.append([data, f"{share:.2f}", *(f"{100 * wait:.2f} %" for wait in waits)])
            checks.append(check(waits[1], 0.01, f"{data}, c = {share}: share of the second epoch waited"))
    return {"head": ["data", "cache / dataset", "epoch 1", "epoch 2"], "rows": rows, "checks": checks}


def processes(bench: Bench) -> dict:
    rows, checks = [], []
    for data in ("folder", "tar"):
        total = bench.facts[data]
        with bench.cache() as cache:
            arguments = bench.arguments(
                getattr(bench, data),
                epochs=2,
                cache=cache,
                cache_size=2 * total,
                fill="use",
                threads=1,
                world_size=RANKS,
                consume_ms=pace(bench, bench.bandwidth / 2, data),
            )
            started = [bench.start(*arguments, "--rank", rank) for rank in range(RANKS)]
            found = [bench.wait(process)["epochs"] for process in started]
        read = [sum(slow(rank[epoch]) for rank in found) / total for epoch in range(2)]
        rows.append([data, *(f"{part:.3f}" for part in read)])
        checks.append(check(read[0], 1.02, f"{data}: all ranks together, first epoch"))
        checks.append(check(sum(read), 1.04, f"{data}: all ranks together, both epochs"))
    head = [f"{RANKS} processes, one cache", "epoch 1 / dataset", "epoch 2 / dataset"]
    return {"head": head, "rows": rows, "checks": checks}


def overhead(bench: Bench) -> dict:
    rates: dict[str, list[float]] = {"through the cache": [], "the same files directly": []}
    with bench.cache() as cache:
        options = {"cache": cache, "cache_size": 2 * bench.facts["tar"], "fill": "use"}
        bench.epochs(bench.tar, slow=False, epochs=2, **options)
        runs = {"through the cache": options, "the same files directly": {}}
        for number in range(bench.rounds):
            for name in sorted(runs, reverse=number % 2 == 1):
                epochs = bench.epochs(bench.tar, slow=False, epochs=3, **runs[name])
                rates[name].append(statistics.median(epoch["images_per_s"] for epoch in epochs))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    cost = 1 - medians["through the cache"] / medians["the same files directly"]
    rows = [[name, f"{median:.0f}"] for name, median in medians.items()]
    return {"head": ["read", "images/s"], "rows": rows, "checks": [check(cost, 0.03, "throughput lost")]}


def prediction(bench: Bench) -> dict:
    rows, checks = [], []
    settings = [("tar", "use", 0.5, 0.0), ("folder", "use", 0.25, 0.0), ("tar", "ahead", 1.0, 1.5)]
    for data, fill, share, training in settings:
        path, size = getattr(bench, data), int(share * bench.facts[data])
        step = pace(bench, bench.bandwidth / training, data) if training else 0
        rates = bench.scratch / f"rates-{data}.json"
        with bench.cache() as cache:
            measure = ["calibrate", path, "--cache", cache, "--emulate-pfs", bench.spec, "--out", rates]
            bench.json(*measure, "--image-size", bench.image_size)
        plan = ["plan", path, "--rates", rates, "--cache-size", size, "--epochs", EPOCHS, "--fill", fill]
        plan += ["--batch-size", bench.batch, "--consume", f"{step:.3f}ms"]
        expected = bench.json(*plan)["plan"]
        with bench.cache() as cache:
            epochs = bench.epochs(
                path,
                epochs=EPOCHS,
                consume_ms=step,
                cache=cache,
                cache_size=size,
                fill=fill,
            )
        name = f"{data}, {fill}, c = {share}"
        for which, epoch in (("first", epochs[0]), ("later", epochs[-1])):
            predicted, measured = expected[which]["seconds"], epoch["seconds"]
            limit = expected[which]["limit"]
            rows.append([f"{name}, {which}", f"{predicted:.2f}", f"{measured:.2f}", limit])
            error = abs(predicted / measured - 1)
            checks.append(check(error, 0.15, f"{name}, {which} epoch: predicted compared with measured"))
    return {"head": ["job", "predicted s", "measured s", "limit"], "rows": rows, "checks": checks}


PARTS = {
    "bytes": Part(bytes_read, "Bytes of the slow tier, as a share of the dataset"),
    "listed": Part(listed, "Memory and a drive together: what each tier gave, as a share of the dataset"),
    "staging": Part(staging, "Staging during training"),
    "warm": Part(warm, "Training from the cache compared with training from NVMe"),
    "stall": Part(stall, "Waiting with a fifth of the bandwidth to spare"),
    "processes": Part(processes, f"{RANKS} processes with one cache"),
    "overhead": Part(overhead, "What the tiers cost"),
    "prediction": Part(prediction, "Predictions"),
    "forms": Part(forms, "Copies in the format that auto chooses compared with unchanged copies"),
}
