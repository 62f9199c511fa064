"""The NVMe tier from Python: the same batches, fewer bytes from the source, for loaders, ranks and DALI."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

import foreload
import kills
import numpy as np
import pytest
from conftest import THOROUGH, paths
from foreload import dali
from job import Process
from waiting import until

SETTINGS = dict(batch_size=10, image_size=32, seed=4, dtype="uint8")
KILLS = 50 if THOROUGH else 4
"""How often a process is killed while it converts copies to another storage format."""


def run(loader: foreload.ImageLoader, epoch: int) -> tuple[str, dict]:
    """Return a hash of all bytes of an epoch, and its cache's counters."""
    loader.set_epoch(epoch)
    digest = hashlib.sha256()
    batches = iter(loader)
    for batch in batches:
        for tensor in (batch.images, batch.labels, batch.sample_ids):
            digest.update(np.from_dlpack(tensor).tobytes())
    return digest.hexdigest(), batches.stats().get("cache", {})


@pytest.mark.parametrize("fill", ["auto", "use", "ahead"])
def test_batches_are_the_same_and_the_next_loader_reads_nothing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = foreload.ImageLoader(dataset, **SETTINGS)
    settings = dict(cache=foreload.Directory("cache", "50MB", fill=fill), **SETTINGS)
    first = foreload.ImageLoader(dataset, **settings)
    for epoch in range(2):
        assert run(first, epoch)[0] == run(plain, epoch)[0]
    # Stored samples are published when a loader ends.
    del first
    again = foreload.ImageLoader(dataset, **settings)
    digest, cache = run(again, 5)
    assert digest == run(plain, 5)[0]
    assert (cache["source_reads"], cache["tiers"]["nvme"]["hits"]) == (0, 60)
    assert cache["tiers"]["nvme"]["held_samples"] == 60
    assert cache["tiers"]["nvme"]["quota"] == 50_000_000
    assert cache["last_error"] is None


@pytest.mark.parametrize(
    "cache",
    [
        foreload.Ram("20MB"),
        [foreload.Ram("20MB"), foreload.Directory("cache", "50MB")],
        ({"Ram": {"size": 20_000_000}}, {"path": "cache", "size": "50MB"}),
    ],
)
def test_memory_is_a_tier_of_its_own_name(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: object
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = foreload.ImageLoader(dataset, **SETTINGS)
    loader = foreload.ImageLoader(dataset, cache=cache, **SETTINGS)
    assert run(loader, 0)[0] == run(plain, 0)[0]
    digest, found = run(loader, 1)
    assert digest == run(plain, 1)[0]
    names = ["ram"] if isinstance(cache, foreload.Ram) else ["ram", "nvme"]
    assert list(found["tiers"]) == names
    assert (found["source_reads"], found["tiers"]["ram"]["hits"]) == (0, 60)
    assert found["tiers"]["ram"]["quota"] == 20_000_000
    # If the directory can hold all samples, it holds all, and the next run finds them there.
    if "nvme" in names:
        del loader
        assert (
            run(foreload.ImageLoader(dataset, cache=cache, **SETTINGS), 2)[1]["tiers"]["nvme"]["hits"] == 60
        )


def test_the_form_of_copies_is_said_and_counted(dataset: Path, tmp_path: Path) -> None:
    digest = run(foreload.ImageLoader(dataset, **SETTINGS), 0)[0]
    cache = foreload.Directory(tmp_path / "cache", "50MB", form="packed")
    loader = foreload.ImageLoader(dataset, cache=cache, **SETTINGS)
    assert run(loader, 0)[0] == digest
    files = sum(path.stat().st_size for path in paths(dataset))

    def tier() -> dict:
        again, stats = run(loader, 0)
        assert again == digest
        return stats["tiers"]["nvme"]

    converted = lambda tier: tier["hits"] == 60 and tier["bytes"] not in (0, files)  # noqa: E731
    found = until("copies have another form", tier, converted)
    assert {"converted_samples", "unconvertible_samples"} <= set(found)
    with pytest.raises(foreload.ConfigError, match=r"cache\.form: is .small., must be one of auto, as-is"):
        foreload.ImageLoader(dataset, cache=foreload.Directory(tmp_path, "50MB", form="small"), **SETTINGS)


def _convert(dataset: Path, cache: Path, notes: Path) -> None:
    """Train until killed, with a cache whose copies are converted to another storage format meanwhile."""
    directory = foreload.Directory(cache, "12MB", form="packed")
    loader = foreload.ImageLoader(dataset, cache=directory, **SETTINGS)
    for epoch in itertools.count():
        damaged = run(loader, epoch)[1]["tiers"]["nvme"]["damaged"]
        (notes / f"{epoch}-{damaged}").touch()


@pytest.mark.timeout(600)
def test_a_kill_amid_a_conversion_leaves_a_sound_cache(dataset: Path, tmp_path: Path) -> None:
    rng = random.Random(kills.seed())
    digest = run(foreload.ImageLoader(dataset, **SETTINGS), 0)[0]
    for number in range(KILLS):
        (notes := tmp_path / f"notes-{number}").mkdir()
        process = Process(_convert, dataset, tmp_path / "cache", notes)
        until(f"an epoch of run {number} is over, and no copy is damaged", (notes / "0-0").exists)
        kills.end_within(rng, (0, 0.3), process)
        cache = foreload.Directory(tmp_path / "cache", "12MB", form="as-is")
        again, stats = run(foreload.ImageLoader(dataset, cache=cache, **SETTINGS), 0)
        assert again == digest
        tier = stats["tiers"]["nvme"]
        assert (tier["damaged"], tier["fallbacks"]) == (0, 0), stats
        assert tier["held_bytes"] <= tier["quota"]


def test_memory_that_is_not_there_is_named(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, cache=foreload.Ram("500TB"), **SETTINGS)
    with pytest.raises(
        foreload.ConfigError, match=r"^config: Ram.size: is 500000000000000 bytes, must be at most"
    ):
        next(iter(loader))


def test_a_loader_without_a_cache_has_no_such_counters(dataset: Path) -> None:
    assert run(foreload.ImageLoader(dataset, **SETTINGS), 0)[1] == {}


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_a_spoilt_cache_is_noticed_and_named(dataset: Path, tmp_path: Path) -> None:
    settings = dict(cache=foreload.Directory(tmp_path / "cache", 50_000_000), **SETTINGS)
    digest = run(foreload.ImageLoader(dataset, **settings), 0)[0]
    segments = list((tmp_path / "cache").glob("*/*.seg"))
    assert segments
    for segment in segments:
        data = bytearray(segment.read_bytes())
        data[len(data) // 3] ^= 1
        segment.write_bytes(data)
    loader = foreload.ImageLoader(dataset, **settings)
    again, cache = run(loader, 0)
    assert again == digest
    assert cache["tiers"]["nvme"]["damaged"] == len(segments)
    assert cache["source_reads"] >= len(segments)
    assert str(tmp_path / "cache") in cache["last_error"]
    # The next epoch does not repeat the warning.
    cache = run(loader, 1)[1]
    assert (cache["tiers"]["nvme"]["damaged"], cache["last_error"]) == (0, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(size="1GB"), "config: cache.path: "),
        (dict(path="cache"), "config: cache.size: "),
        (dict(path="cache", size="much"), "config: cache.size: "),
        (dict(path="cache", size="1GB", fill="never"), "config: cache.fill: "),
    ],
)
def test_settings_that_cannot_work_are_refused(dataset: Path, settings: dict, message: str) -> None:
    with pytest.raises(foreload.ConfigError, match=rf"^{message}"):
        foreload.ImageLoader(dataset, cache=settings)


def test_a_cache_inside_of_the_dataset_is_refused(own_dataset: Path) -> None:
    loader = foreload.ImageLoader(
        own_dataset, cache=foreload.Directory(own_dataset / "cache", "1GB"), **SETTINGS
    )
    with pytest.raises(foreload.ConfigError, match=r"^config: cache.path: "):
        iter(loader)
    assert not (own_dataset / "cache").exists()


def test_dali_source_reads_through_the_cache(dataset: Path, tmp_path: Path) -> None:
    source = dali.ImageSource(
        dataset, batch_size=10, decoded=False, cache=foreload.Directory(tmp_path / "cache", "50MB"), seed=1
    )
    found = {}
    for epoch in range(2):
        for step in range(6):
            files, _ = source(SimpleNamespace(epoch_idx=epoch, iteration=step))
            found.setdefault(epoch, set()).update(file.tobytes() for file in files)
    assert found[0] == found[1] == {path.read_bytes() for path in paths(dataset)}
    # The cache is written during training, at the latest when the source ends.
    del source
    until("the cache is written", lambda: list((tmp_path / "cache").glob("*/*.seg")))


def test_a_forked_child_drops_a_loader_that_stages(dataset: Path, tmp_path: Path) -> None:
    settings = dict(cache=foreload.Directory(tmp_path / "cache", "50MB", "ahead"), **SETTINGS)
    loader = foreload.ImageLoader(dataset, **settings)
    digest = run(loader, 0)[0]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del loader
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert run(loader, 0)[0] == digest


def _rank(dataset: Path, cache: Path, rank: int, steps: int, out: multiprocessing.Queue) -> None:
    """One rank of four: it runs an epoch, or a part of one, and is then killed by SIGKILL."""
    loader = foreload.ImageLoader(
        dataset,
        rank=rank,
        world_size=4,
        cache=foreload.Directory(cache, "50MB"),
        **(SETTINGS | dict(batch_size=3)),
    )
    batches = iter(loader)
    ids = []
    for batch in batches:
        ids.extend(np.from_dlpack(batch.sample_ids).tolist())
        if len(ids) == 3 * steps:
            os.kill(os.getpid(), signal.SIGKILL)
    out.put((ids, batches.stats()["cache"]))


def test_four_ranks_share_a_cache_and_survive_one_that_is_killed(dataset: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for killed_after in (2, 0):
        out = context.Queue()
        ranks = [
            context.Process(
                target=_rank, args=(dataset, tmp_path / "cache", rank, killed_after * (rank == 2), out)
            )
            for rank in range(4)
        ]
        for process in ranks:
            process.start()
        found = [out.get(timeout=60) for _ in range(3 if killed_after else 4)]
        for process in ranks:
            process.join()
        ids = sorted(sample for ids, _ in found for sample in ids)
        read = sum(cache["source_reads"] for _, cache in found)
        if killed_after:
            assert len(ids) == len(set(ids)) == 45
        else:
            assert ids == list(range(60))
            # At least three quarters were stored, however much the killed rank had published.
            assert read <= 15
