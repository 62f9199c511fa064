"""Windows of arrays equal NumPy's slices, at the places that a reference computes from the seed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import fields
from numpy import from_dlpack as array

COUNT = 12
SHAPE = (9, 30, 200)
WINDOW = (4, None, 60)


class Draws:
    """The random numbers of a field: Philox4x32-10 with a key made by SHA-256."""

    def __init__(self, name: str, seed: int, epoch: int) -> None:
        digest = hashlib.sha256(b"foreload rng" + struct.pack("<IIQQ", 1, 1, seed, epoch)).digest()
        self.words = struct.unpack("<4I", digest[:16])
        self.hash(b"foreload rng field", name.encode())
        self.hash(b"foreload rng part", struct.pack("<3I", 0, 0, 0) + b"RandomWindow")

    def hash(self, purpose: bytes, more: bytes) -> None:
        """Derive another key."""
        digest = hashlib.sha256(purpose + struct.pack("<4I", *self.words) + more).digest()
        self.words = struct.unpack("<4I", digest[:16])

    def block(self, sample: int, occurrence: int, block: int) -> list[int]:
        """Return the two numbers of 64 bits of a block."""
        first, second, low, high = self.words
        a, b, c, d = sample, 0, block ^ low, high ^ occurrence
        for _ in range(10):
            left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = right >> 32 ^ b ^ first, right % 2**32, left >> 32 ^ d ^ second, left % 2**32
            first, second = (first + 0x9E3779B9) % 2**32, (second + 0xBB67AE85) % 2**32
        return [a | b << 32, c | d << 32]

    def below(self, sample: int, occurrence: int, *bounds: int) -> list[int]:
        """Return a number below each of the bounds."""
        numbers: Iterator[int] = (n for block in range(9) for n in self.block(sample, occurrence, block))
        return [number * bound >> 64 for number, bound in zip(numbers, bounds, strict=False)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Volumes x with labels y of the same size, and a number for each."""
    root = tmp_path_factory.mktemp("windows")
    random = np.random.default_rng(7)
    np.save(root / "x.npy", random.integers(-99, 99, (COUNT, *SHAPE, 2), np.int16))
    np.save(root / "y.npy", random.integers(0, 9, (COUNT, *SHAPE), np.uint8))
    np.save(root / "z.npy", np.arange(COUNT * 3, dtype=np.float64).reshape(COUNT, 3))
    return root


def load(root: Path, *asked: fields.Field, **settings: Any) -> foreload.Loader:
    usual = {"batch_size": 4, "seed": 11, "device": "cpu", "fields": asked}
    return foreload.Loader(root, **{**usual, **settings})


def of(name: str, /, **more: Any) -> fields.Array:
    return fields.Array(f"{name}.npy", **{"name": name, **more})


def x(**more: Any) -> fields.Array:
    return of("x", window=(*WINDOW, None), **more)


def rows(loader: foreload.Loader, name: str, epoch: int = 0) -> dict[tuple[int, int], bytes]:
    """Return an epoch's rows by sample and occurrence."""
    found = {}
    for batch in loader.batches(epoch):
        draws = zip(array(batch.sample_ids).tolist(), array(batch.occurrences).tolist(), strict=True)
        found |= {draw: row.tobytes() for draw, row in zip(draws, array(batch[name]), strict=True)}
    return found


def expected(
    root: Path, name: str, drawn_as: str, epoch: int, repeats: int = 1
) -> dict[tuple[int, int], bytes]:
    """Return the same by the reference, of the samples that are drawn."""
    whole, draws, found = np.load(root / f"{name}.npy"), Draws(drawn_as, 11, epoch), {}
    for sample in range(COUNT):
        for occurrence in range(repeats):
            a, b = draws.below(sample, occurrence, SHAPE[0] - WINDOW[0] + 1, SHAPE[2] - WINDOW[2] + 1)
            found[sample, occurrence] = whole[sample, a : a + WINDOW[0], :, b : b + WINDOW[2]].tobytes()
    return found


def test_windows_are_where_the_seed_says(root: Path) -> None:
    asked = [x(), x(name="raw"), of("y", follows="x")]
    for epoch in (0, 3):
        loader = load(root, *asked)
        assert rows(loader, "x", epoch) == expected(root, "x", "x", epoch)
        assert rows(loader, "raw", epoch) == expected(root, "x", "raw", epoch)
        assert rows(loader, "y", epoch) == expected(root, "y", "x", epoch)
    repeated, all_of_them = rows(load(root, *asked, repeats=2), "y"), expected(root, "y", "x", 0, 2)
    assert len(repeated) == COUNT
    assert repeated == {draw: all_of_them[draw] for draw in repeated}


def test_windows_depend_on_nothing_else(root: Path) -> None:
    once = rows(load(root, x()), "x")
    assert rows(load(root, of("z", name="a", window=(2,)), x()), "x") == once
    assert rows(load(root, x(), shuffle=False, threads=1), "x") == once
    assert rows(load(root, x(), cache=foreload.Ram("64MB")), "x") == once
    for world in (2, 4):
        ranks = [load(root, x(), batch_size=4 // world, rank=rank, world_size=world) for rank in range(world)]
        together = [rows(rank, "x") for rank in ranks]
        assert {draw: row for rank in together for draw, row in rank.items()} == once


def test_windows_in_the_middle_and_at_a_place(root: Path) -> None:
    volumes = np.load(root / "x.npy")
    for at, place in [("center", (2, 0, 70, 0)), ((5, 0, 140, 0), (5, 0, 140, 0))]:
        sizes = zip(place, (*WINDOW, None), (*SHAPE, 2), strict=True)
        box = tuple(slice(start, start + (length or whole)) for start, length, whole in sizes)
        assert rows(load(root, x(at=at)), "x") == {(n, 0): volumes[n][box].tobytes() for n in range(COUNT)}


def test_small_arrays_are_padded(root: Path) -> None:
    numbers = np.load(root / "z.npy")
    padded = rows(load(root, of("z", window=(6,), at="center", pad=float("nan"))), "z")
    assert padded == {
        (n, 0): np.pad(numbers[n], (1, 2), constant_values=np.nan).tobytes() for n in range(COUNT)
    }
    padded = rows(load(root, of("z", window=(6,), pad=-1)), "z")
    draws, places = Draws("z", 11, 0), set()
    for (sample, occurrence), row in padded.items():
        [before] = draws.below(sample, occurrence, 4)
        places.add(before)
        assert row == np.pad(numbers[sample], (before, 3 - before), constant_values=-1).tobytes()
    assert len(places) == 4


def test_only_windows_are_read(root: Path) -> None:
    epoch = load(root, of("y", window=(1, 2, 100), at="center")).batches(0)
    assert sum(len(array(batch.sample_ids)) for batch in epoch) == COUNT
    size, read = COUNT * SHAPE[0] * SHAPE[1] * SHAPE[2], epoch.stats()["source_bytes"]
    assert COUNT * 200 <= read <= size / 4


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            of("z", window=(4,)),
            r'"z" \(of "z.npy"\), whose arrays have 3 elements in dimension 0, but its window needs 4',
        ),
        (of("z", window=(2, 2)), r'"z" \(of "z.npy"\), whose arrays have 1 dimensions, but its window has 2'),
        (of("z", window=(2,), at="left"), r'with at="left", must be "random", "center", or a list'),
        (
            of("y", window=(2, 2, 2), pad=0.5),
            r'"y" \(of "y.npy"\), with pad=0.5, which its type uint8 cannot hold',
        ),
        (of("z", follows="y"), r'follows "y", but that is not the name of an array'),
        (of("z", at="center"), r"without the lengths of a window"),
    ],
)
def test_impossible_windows_are_refused(root: Path, asked: fields.Field, message: str) -> None:
    with pytest.raises(foreload.ConfigError, match=f"^config: fields: has .*{message}"):
        load(root, asked)
