"""`policy="spill"`: samples that do not fit into memory wait in a directory."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path
from typing import Any

import foreload
import pytest
from conftest import paths
from foreload import ConfigError, Rehearsal, fields
from test_streams import Seekable, balanced, load
from waiting import settled, until

LARGE = 2_500_000
"""More bytes than fit into a directory of 4 MB, which reserves the same number of bytes to rewrite a segment."""


class Marked(Seekable):
    """Samples that differ from all others in the bytes after the image's end; one may be large."""

    large: int | None = None

    def __iter__(self) -> Any:
        files = [path.read_bytes() for path in paths(self.dataset)]
        for number in range(self.start, self.count):
            image = files[number % len(files)] + mark(number)
            yield f"k{number}", {"jpg": image + b"-" * (LARGE if number == self.large else 20_000), "cls": 1}


def mark(number: int) -> bytes:
    return b"<number %05d>" % number


def spilling(source: Marked, home: Path, **settings: Any) -> foreload.StreamLoader:
    where = {"policy": "spill", "spill_directory": home / "spill", "spill_size": "4MB", "queue_size": "1KB"}
    return load(source, fields=["jpg", fields.Text("__key__")], **{**where, **settings})


def keys(batches: Any) -> list[str]:
    """Return the keys of all samples, sorted by number within each batch, whose order is random."""
    return [key for batch in batches for key in sorted(batch["__key__"], key=lambda key: int(key[1:]))]


@pytest.mark.filterwarnings("ignore:the spill directory is full")
@pytest.mark.parametrize("large", [None, 0, 37, 250])
def test_all_that_spilled_comes_back_in_its_order(dataset: Path, tmp_path: Path, large: int | None) -> None:
    source = Marked(dataset, 400)
    source.large = large
    loader = spilling(source, tmp_path)
    batches = iter(loader)
    seen = keys([next(batches)])
    assert settled("nothing arrives", lambda: balanced(loader)["received"], 0.3) < 400
    stats = balanced(loader)
    assert stats["spilled"] > 50 or large in (0, 37)
    # A source that waits for space still handles requests.
    began = time.monotonic()
    state = loader.state_dict()
    loader.acknowledge(state)
    assert time.monotonic() - began < 20
    assert source.acknowledged == [seen[-1]]
    seen += keys(batches)
    assert seen == [f"k{number}" for number in range(400)]
    stats = balanced(loader)
    assert (stats["delivered"], stats["spilled"], stats["queued"]) == (400, 0, 0)


def test_a_full_directory_is_told_of(dataset: Path, tmp_path: Path) -> None:
    loader = spilling(Marked(dataset, 400), tmp_path)
    next(iter(loader))
    settled("nothing arrives", lambda: balanced(loader)["received"], 0.3)
    with pytest.warns(foreload.Warning, match="the spill directory is full"):
        loader.state_dict()


@pytest.mark.filterwarnings("ignore:the spill directory is full")
def test_what_is_withdrawn_leaves_the_directory_wherever_it_waits(dataset: Path, tmp_path: Path) -> None:
    loader = spilling(Marked(dataset, 400), tmp_path)
    batches = iter(loader)
    seen = keys(itertools.islice(batches, 4))
    until("samples spill", lambda: balanced(loader)["spilled"], lambda spilled: spilled > 40)
    # Some are used, some were read back into memory, some are in the directory, and some may not have arrived.
    gone = list(range(0, 400, 3))
    loader.withdraw([f"k{number}" for number in gone])
    files = []
    for path in (tmp_path / "spill").iterdir():
        # Segments are removed while samples are read back.
        with contextlib.suppress(FileNotFoundError):
            files.append(path.read_bytes())
    assert not [number for number in gone if any(mark(number) in content for content in files)]
    # Batches that are made ahead were started before.
    later = keys(batches)
    assert not {f"k{number}" for number in gone}.intersection(later[150:])
    assert len(set(seen + later)) == len(seen + later) == 400 - balanced(loader)["withdrawn"]
    assert {f"k{number}" for number in range(400) if number not in gone} <= set(seen + later)


def begin_to_spill(dataset: Path, home: Path) -> tuple[list[str], Any]:
    loader = spilling(Marked(dataset, 200), home)
    seen = keys(itertools.islice(loader, 3))
    until("samples spill", lambda: balanced(loader)["spilled"])
    return seen, loader.state_dict()


@pytest.mark.filterwarnings("ignore:the spill directory is full")
def test_a_run_that_goes_on_begins_with_an_empty_directory(dataset: Path, tmp_path: Path) -> None:
    seen, state = begin_to_spill(dataset, tmp_path)
    # Files that ranks of an earlier run left are removed, too, and foreign files stay.
    (tmp_path / "spill").rename(tmp_path / "spill.3")
    (tmp_path / "spill.4").mkdir()
    (tmp_path / "spill.4" / "lock").write_text("another program's")
    resumed = spilling(Marked(dataset, 200), tmp_path)
    resumed.load_state_dict(state)
    seen += keys(resumed)
    assert seen == [f"k{number}" for number in range(200)]
    assert sorted(path.name for path in tmp_path.glob("spill*")) == ["spill", "spill.4"]


def test_a_rehearsal_buffer_is_nothing_to_spill_over(dataset: Path, tmp_path: Path) -> None:
    kept = Rehearsal(20, share=0.2, directory=tmp_path / "spill", directory_size="8MB")
    loader = load(Marked(dataset, 100), rehearsal=kept)
    next(iter(loader))
    state = loader.state_dict()
    del loader
    with pytest.raises(ConfigError, match=r"spill_directory: .* contains a rehearsal buffer"):
        next(iter(spilling(Marked(dataset, 100), tmp_path)))
    loader = load(Marked(dataset, 100), rehearsal=kept)
    loader.load_state_dict(state)
    assert len(list(loader)) > 5
