"""The journal of a stream, and runs that replay it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import pytest
from foreload import ConfigError, Rehearsal
from test_streams import Seekable, balanced, content, samples, with_keys


def test_a_journal_replays_a_run_byte_for_byte(dataset: Path, tmp_path: Path) -> None:
    """The second run has other threads and another queue, and gets its samples one by one from the journal."""

    def run(source: Any, **settings: Any) -> list[tuple[Any, ...]]:
        rehearsal = Rehearsal(50, share=(0.1, 0.6), by="class")
        loader = with_keys(source, rehearsal=rehearsal, when_dry="rehearse", dry_after=0.01, **settings)
        made = []
        for number, batch in enumerate(loader):
            made.append(content(batch))
            if number == 9 and "journal" in settings:
                withdrawn = list(batch["__key__"][:5])
                assert loader.withdraw(withdrawn) > 0
            if sum(len(each[-1]) for each in made) > 1500:
                break
        balanced(loader)
        return made

    class Slow(Seekable):
        def __iter__(self) -> Iterator[Any]:
            for number, item in enumerate(super().__iter__()):
                time.sleep(0.01 if number % 50 == 0 else 0)
                yield item

    journal = tmp_path / "journal"
    made = run(Slow(dataset, 700), journal=journal, threads=3)
    again = run(Seekable(dataset, 700), replay=journal, threads=1, queue_size="1KB")
    assert len(made) > 50
    assert again[: len(made)] == made[: len(again)]
    assert len(again) >= len(made) - 1
    text = journal.read_text().splitlines()
    assert any("withdrawn" in line for line in text[1:])
    with pytest.raises(ConfigError, match=r"exists already"):
        next(iter(with_keys(Seekable(dataset, 9), journal=journal, rehearsal=Rehearsal(50, by="class"))))
    with pytest.raises(ConfigError, match=r"replay.*another stream or of different settings"):
        next(iter(with_keys(Seekable(dataset, 9), replay=journal)))
    with pytest.raises(ConfigError, match=r"replay.*send samples again"):
        with_keys(samples(dataset, 9), replay=journal)


def test_a_journal_notices_that_a_sample_is_not_what_it_was(dataset: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    list(with_keys(Seekable(dataset, 60), journal=journal))

    class Changed(Seekable):
        def __iter__(self) -> Iterator[Any]:
            for key, sample in super().__iter__():
                yield key, sample | ({"txt": "other"} if key == "k33" else {})

    batches = iter(with_keys(Changed(dataset, 60), replay=journal))
    with pytest.raises(ConfigError, match='"k33" of step 3 has changed'):
        list(batches)
    fewer = iter(with_keys(Seekable(dataset, 20), replay=journal))
    with pytest.raises(foreload.UnavailableError, match='ended before it gave the sample "k20" again'):
        list(fewer)
