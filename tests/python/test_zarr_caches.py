"""Caches of zarr: copies are used, and no value is old after chunks changed, vanished or appeared."""

from __future__ import annotations

import ctypes
import itertools
import json
import random
import shutil
import socket
import subprocess
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import foreload
import kills
import numpy as np
import pytest
from foreload import fields as F
from job import Process
from numpy import from_dlpack as array
from waiting import until

pytestmark = [
    pytest.mark.filterwarnings("ignore:cached copies are out of date"),
    pytest.mark.filterwarnings("ignore:files of the dataset change during training"),
    pytest.mark.filterwarnings("ignore:the dataset .* has changed since it was indexed"),
]
ROWS, EDGES = 7, (4, 6)
FILL = -1
SERVER = Path(__file__).resolve().parents[2] / "target" / "debug" / "range-server"
"""The web server of the tests, which `make stand-in` builds."""
FIXTURE = Path(__file__).parents[1] / "fixtures" / "zarr" / "v3-sharded" / "files"


class Store:
    """A group of version 2 with the arrays `x` and `deep/y`, and a column `labels`. One chunk of `x` is absent."""

    def __init__(self, root: Path, rows: int = 1, separator: str = ".", packed: bool = False) -> None:
        self.root, self.separator, self.packed = root, separator, packed
        self.chunks = {"x": (rows, 2, 6), "deep/y": (1, 4, 3), "labels": (4,)}
        self.values = {
            "x": np.arange(ROWS * 24, dtype="<i4").reshape(ROWS, *EDGES) % 50,
            "deep/y": np.arange(ROWS * 24, dtype="<i4").reshape(ROWS, *EDGES) % 31,
            "labels": np.arange(ROWS, dtype="<i4") % 3,
        }
        for key, chunk in self.chunks.items():
            (root / key).mkdir(parents=True)
            about = {
                "zarr_format": 2,
                "shape": self.values[key].shape,
                "chunks": chunk,
                "dtype": "<i4",
                "order": "C",
            }
            about |= {"filters": None, "fill_value": FILL, "dimension_separator": separator}
            about["compressor"] = {"id": "zlib", "level": 1} if packed else None
            (root / key / ".zarray").write_text(json.dumps(about))
            for index in itertools.product(
                *(range(-(-n // c)) for n, c in zip(about["shape"], chunk, strict=True))
            ):
                self.write(key, index, 0)
        for folder in (root, root / "deep"):
            (folder / ".zgroup").write_text('{"zarr_format": 2}')
        self.remove("x", (1, 0, 0))

    def place(self, key: str, index: tuple[int, ...]) -> tuple[Path, tuple[slice, ...]]:
        """Return the file of a chunk, and the part of the array in it."""
        places = zip(index, self.chunks[key], strict=True)
        return self.root / key / self.separator.join(map(str, index)), tuple(
            slice(i * c, i * c + c) for i, c in places
        )

    def write(self, key: str, index: tuple[int, ...], more: int) -> None:
        """Write a chunk; all its elements become larger. If it is not compressed, its file is overwritten."""
        path, part = self.place(key, index)
        self.values[key][part] += more
        chunk = np.zeros(self.chunks[key], "<i4")
        own = self.values[key][part]
        chunk[tuple(map(slice, own.shape))] = own
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.packed:
            # A compressed chunk that is overwritten with another length is an error until the dataset is indexed again.
            path.with_name("new").write_bytes(zlib.compress(chunk.tobytes(), 1))
            path.with_name("new").rename(path)
        else:
            path.write_bytes(chunk.tobytes())

    def remove(self, key: str, index: tuple[int, ...]) -> None:
        """Remove a chunk, whose elements then have the fill value."""
        path, part = self.place(key, index)
        path.unlink()
        self.values[key][part] = FILL

    def loader(self, scratch: Path, cache: Any = None, root: Any = None, **more: Any) -> foreload.Loader:
        """Return a loader of all arrays, also of a store at another address."""
        asked = [F.Array("x"), F.Array("deep/y", name="y"), F.Integer("labels", name="label")]
        settings = {"batch_size": 2, "last_batch": "partial", "seed": 3, "device": "cpu"} | more
        return foreload.Loader(
            root or self.root, fields=asked, index_dir=scratch / "index", cache=cache, **settings
        )

    def epoch(self, loader: foreload.Loader) -> dict[str, Any]:
        """Compare all values of an epoch with the store, and return the counters of the cache."""
        batches, seen = iter(loader), []
        for batch in batches:
            samples = array(batch.sample_ids).tolist()
            seen += samples
            for name, key in {"x": "x", "y": "deep/y", "label": "labels"}.items():
                np.testing.assert_array_equal(
                    array(batch[name]), self.values[key][samples], f"{key} of {samples}"
                )
        assert sorted(seen) == list(range(ROWS))
        return batches.stats().get("cache", {})


TIERS = {
    "ram": lambda scratch: foreload.Ram("4MB"),
    "directory": lambda scratch: foreload.Directory(scratch / "cache", "10MB"),
    "both": lambda scratch: [foreload.Ram("4MB"), foreload.Directory(scratch / "cache", "10MB")],
}
KINDS = {
    "one-file-a-chunk": {},
    "directories": {"separator": "/"},
    "compressed": {"separator": "/", "packed": True},
    "chunks-of-three-rows": {"rows": 3, "packed": True},
    "plain-chunks-of-three-rows": {"rows": 3, "separator": "/"},
}


def reads_nothing(epoch: Callable[[], int]) -> None:
    """Check that epochs soon read nothing from the source: copies in a directory are used once they are published."""
    until("an epoch reads nothing", epoch, lambda reads: reads == 0)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store of each kind."""
    return Store(tmp_path / "data.zarr", **KINDS[request.param])


@pytest.mark.parametrize("tier", TIERS)
def test_the_second_epoch_reads_nothing_from_the_source(store: Store, tier: str, tmp_path: Path) -> None:
    loader = store.loader(tmp_path, TIERS[tier](tmp_path))
    assert store.epoch(loader)["source_reads"] == ROWS
    reads_nothing(lambda: store.epoch(loader)["source_reads"])
    if tier == "directory":
        again = store.epoch(store.loader(tmp_path, TIERS[tier](tmp_path)))
        assert (again["source_reads"], again["tiers"]["nvme"]["hits"]) == (0, ROWS)


def change_chunks(store: Store) -> None:
    store.write("x", (0, 1, 0), 1000)
    store.write("deep/y", (5, 0, 1), 1000)


def change_a_replaced_chunk(store: Store) -> None:
    path, _ = store.place("deep/y", (2, 0, 0))
    old = path.with_name("old")
    path.rename(old)
    store.write("deep/y", (2, 0, 0), 1000)
    old.unlink()


def change_the_column(store: Store) -> None:
    store.write("labels", (1,), 1)


CHANGES: dict[str, Callable[[Store], None]] = {
    "changed": change_chunks,
    "replaced": change_a_replaced_chunk,
    "column": change_the_column,
    "vanished": lambda store: store.remove("x", (2, 0, 0)),
    "appeared": lambda store: store.write("x", (1, 0, 0), 1000),
}


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest, store: Store) -> Callable[[], None]:
    """Return a change of a chunk."""
    if store.chunks["x"][0] == 3 and request.param == "vanished":
        return lambda: store.remove("x", (2, 1, 0))
    return lambda: CHANGES[request.param](store)


@pytest.mark.parametrize("tier", [None, *TIERS])
def test_no_value_is_old_in_the_next_epoch(
    store: Store, change: Callable[[], None], tier: str | None, tmp_path: Path
) -> None:
    """The next epoch has the new values, or fails; the next run has the new values."""
    loader = store.loader(tmp_path, TIERS[tier](tmp_path) if tier else None)
    store.epoch(loader)
    store.epoch(loader)
    change()
    with suppress(foreload.Error):
        store.epoch(loader)
    del loader
    again = store.loader(tmp_path, TIERS[tier](tmp_path) if tier else None)
    store.epoch(again)
    store.epoch(again)


def test_no_value_is_old_in_the_next_run(store: Store, change: Callable[[], None], tmp_path: Path) -> None:
    loader = store.loader(tmp_path, TIERS["directory"](tmp_path))
    store.epoch(loader)
    del loader
    change()
    loader = store.loader(tmp_path, TIERS["directory"](tmp_path))
    found = store.epoch(loader)
    assert found["tiers"]["nvme"]["damaged"] == 0, "copies are out of date, not damaged"
    del loader
    # A segment of which most copies are out of date is removed with all of them.
    reads_nothing(lambda: store.epoch(store.loader(tmp_path, TIERS["directory"](tmp_path)))["source_reads"])


def _train(store: Store, scratch: Path) -> None:
    """Read epochs until killed."""
    loader = store.loader(scratch, TIERS["directory"](scratch))
    for _epoch in itertools.count():
        store.epoch(loader)
        (scratch / "begun").touch()


def test_a_killed_run_leaves_a_sound_cache(store: Store, tmp_path: Path) -> None:
    process = Process(_train, store, tmp_path)
    until("an epoch is over", (tmp_path / "begun").exists)
    kills.end_within(random.Random(kills.seed()), (0, 0.2), process)
    store.write("x", (0, 1, 0), 1000)
    found = store.epoch(store.loader(tmp_path, TIERS["directory"](tmp_path)))
    assert found["tiers"]["nvme"]["damaged"] == 0
    again = store.epoch(store.loader(tmp_path, TIERS["directory"](tmp_path)))
    assert again["source_reads"] == 0


@pytest.mark.parametrize("tier", TIERS)
def test_copies_of_sharded_arrays_follow_their_shards(tier: str, tmp_path: Path) -> None:
    root = tmp_path / "data.zarr"
    shutil.copytree(FIXTURE, root)

    def loader() -> foreload.Loader:
        settings = {"batch_size": 2, "shuffle": False, "last_batch": "partial", "device": "cpu"}
        more = {"index_dir": tmp_path / "index", "cache": TIERS[tier](tmp_path)}
        return foreload.Loader(root, fields=[F.Array("x")], **settings, **more)

    def epoch(of: foreload.Loader) -> tuple[np.ndarray, int]:
        batches = iter(of)
        rows = np.concatenate([array(batch["x"]).copy() for batch in batches])
        return rows, batches.stats()["cache"]["source_reads"]

    run = loader()
    first, reads = epoch(run)
    assert reads == 7
    reads_nothing(lambda: epoch(run)[1])
    np.testing.assert_array_equal(first, epoch(run)[0])
    shard = root / "x" / "c" / "1" / "0" / "0"
    other = root / "x" / "c" / "0" / "0" / "0"
    data = shard.read_bytes()
    shard.write_bytes(other.read_bytes())
    expected = first.copy()
    expected[3:6] = first[:3]
    # The shard has chunks of other sizes, or it is accepted.
    with suppress(foreload.Error):
        np.testing.assert_array_equal(epoch(run)[0], expected)
    np.testing.assert_array_equal(epoch(loader())[0], expected)
    shard.unlink()
    expected[3:6] = 2.5
    with pytest.raises(foreload.Error, match=r"data\.zarr"):
        epoch(run)
    np.testing.assert_array_equal(epoch(loader())[0], expected)
    shard.write_bytes(data)
    np.testing.assert_array_equal(epoch(loader())[0], first)


def test_copies_of_a_store_on_a_server_are_compared_in_each_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "served" / "data.zarr", separator="/")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([SERVER, tmp_path / "served"], **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1].rstrip("/")

        def epoch() -> int:
            loader = store.loader(tmp_path, TIERS["directory"](tmp_path), root=f"{address}/data.zarr")
            return store.epoch(loader)["source_reads"]

        assert epoch() == ROWS
        assert epoch() == 0
        # Without an ETag, a server's times have whole seconds.
        time.sleep(2.1)
        change_chunks(store)
        assert epoch() > 0
        time.sleep(2.1)
        store.write("x", (1, 0, 0), 1000)
        assert epoch() > 0
        server.stdin.close()


def test_unknown_names_are_refused_with_those_that_exist(store: Store, tmp_path: Path) -> None:
    for name in ("/deep/z", "y", "labls"):
        with pytest.raises(
            foreload.ConfigError, match=rf'has "{name}", .*there are .*"deep/y", "labels", "x"'
        ):
            foreload.Loader(store.root, fields=[F.Array(name)], index_dir=tmp_path / "index")


def test_an_array_that_a_store_lacks_is_absent_if_it_is_optional(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "a.zarr"), Store(tmp_path / "b.zarr")]
    shutil.rmtree(stores[1].root / "deep")
    roots = [store.root for store in stores]
    settings = {"batch_size": 14, "shuffle": False, "index_dir": tmp_path / "index", "device": "cpu"}
    settings["cache"] = foreload.Directory(tmp_path / "cache", "10MB")
    asked = [F.Array("x"), F.Array("deep/y", name="y", optional=True)]
    loader = foreload.Loader(roots, fields=asked, **settings)
    for _epoch in range(2):
        (batch,) = list(loader)
        assert array(batch.present("y")).tolist() == [True] * ROWS + [False] * ROWS
        np.testing.assert_array_equal(array(batch["y"])[:ROWS], stores[0].values["deep/y"])
        np.testing.assert_array_equal(
            array(batch["x"]), np.concatenate([store.values["x"] for store in stores])
        )
    with pytest.raises(foreload.Error, match="deep/y"):
        list(foreload.Loader(roots, fields=[F.Array("x"), F.Array("deep/y")], **settings))


def test_a_chunk_that_was_written_again_is_named_with_the_remedy(tmp_path: Path) -> None:
    store = Store(tmp_path / "data.zarr", separator="/", packed=True)
    loader = store.loader(tmp_path)
    store.epoch(loader)
    store.write("x", (0, 1, 0), 123_457)
    told = r"chunk x/0/1/0 than .*: rebuild_index=True in a new loader"
    with pytest.raises(foreload.DatasetChangedError, match=told):
        store.epoch(loader)
    store.epoch(store.loader(tmp_path))
    # Overwritten in place, no directory changes, so only the length of the file differs from the index.
    path, _ = store.place("x", (0, 1, 0))
    store.values["x"][0, 2:4] = np.random.default_rng(0).integers(0, 1 << 30, (2, 6))
    path.write_bytes(zlib.compress(store.values["x"][0, 2:4].tobytes(), 1))
    with pytest.raises(
        foreload.SampleError, match=r"x/0/1/0: is longer .*: rebuild_index=True in a new loader"
    ):
        store.epoch(store.loader(tmp_path))
    store.epoch(store.loader(tmp_path, rebuild_index=True))


def test_only_arrays_that_the_fields_read_may_not_change(tmp_path: Path) -> None:
    store = Store(tmp_path / "data.zarr")
    store.epoch(store.loader(tmp_path))
    settings = {"batch_size": 2, "index_dir": tmp_path / "index", "device": "cpu"}
    loader = foreload.Loader(store.root, fields=[F.Array("x"), F.Integer("labels")], **settings)
    about = store.root / "deep" / "y" / ".zarray"
    list(loader)
    about.write_text(json.dumps(json.loads(about.read_text()) | {"shape": [ROWS + 1, *EDGES]}))
    (store.root / "deep" / "y" / f"{ROWS}.0.0").write_bytes(bytes(48))
    shutil.copytree(store.root / "x", store.root / "new")
    assert len(list(loader)) == 3
    shutil.rmtree(store.root / "deep")
    assert len(list(loader)) == 3
    store.write("labels", (1,), 1)
    with pytest.raises(
        foreload.DatasetChangedError, match=r"labels/\.zarray: has other values in its column"
    ):
        list(loader)


def _node(root: Path, scratch: Path, rank: int, address: str) -> int:
    """Train as one of two nodes, which differ by their host names. Return how many samples came from the other."""
    if ctypes.CDLL(None).unshare(0x04000000) != 0:  # CLONE_NEWUTS
        raise PermissionError
    socket.sethostname(f"node-{rank}")
    meeting = {"directory": str(scratch / "meeting"), "listen": address}
    ranks = {"rank": rank, "world_size": 2, "local_world_size": 1, "peers": meeting}
    more = {"batch_size": 1, "last_batch": "drop", "device": "cpu", "index_dir": scratch / "index"}
    more["cache"] = foreload.Directory(scratch / str(rank), "10MB")
    loader = foreload.Loader(root, fields=[F.Array("deep/y", name="y")], **more, **ranks)
    expected = np.arange(ROWS * 24, dtype="<i4").reshape(ROWS, *EDGES) % 31
    for batches in (iter(loader) for _epoch in range(4)):
        for batch in batches:
            np.testing.assert_array_equal(array(batch["y"]), expected[array(batch.sample_ids)])
    found = batches.stats()["peers"]
    return found["served"]["pushes_taken"] + sum(node["hits"] for node in found["nodes"].values())


def test_nodes_read_zarr_from_each_others_caches(tmp_path: Path) -> None:
    root, job = Store(tmp_path / "data.zarr").root, {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        if route.connect_ex(("198.51.100.1", 9)) != 0:
            pytest.skip("this machine has no address: nodes do not listen on the loopback")
        address = route.getsockname()[0]
    nodes = [Process(_node, root, tmp_path, rank, address, variables=job) for rank in range(2)]
    came = [node.result() for node in nodes]
    if any(isinstance(one, PermissionError) for one in came):
        pytest.skip("this user may not give processes host names of their own")
    assert sum(came) > 0, came
