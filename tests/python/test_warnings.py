"""Warnings without a failure: once, at a line of the user's code, and without losing a batch."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from conftest import paths
from foreload import recipes


def heard(work: object) -> list[warnings.WarningMessage]:
    """Return the warnings of Foreload that a callable issues."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()  # type: ignore[operator]
    return [warning for warning in caught if issubclass(warning.category, foreload.Warning)]


def epochs(loader: foreload.ImageLoader, count: int) -> list[int]:
    """Return the samples of some epochs."""
    taken: list[int] = []
    for epoch in range(count):
        loader.set_epoch(epoch)
        for batch in loader:
            taken.extend(np.from_dlpack(batch.sample_ids))
    return taken


def test_a_healthy_run_says_nothing(dataset: Path, tmp_path: Path) -> None:
    settings = dict(
        batch_size=8, image_size=32, io="pread", cache=foreload.Directory(tmp_path / "cache", "50MB")
    )
    assert heard(lambda: epochs(foreload.ImageLoader(dataset, **settings), 2)) == []


def test_what_is_left_out_is_warned_of_once_at_the_users_line(own_dataset: Path) -> None:
    (own_dataset / "class_0" / "more.tiff").write_bytes(b"II*")
    (own_dataset / "class_9").mkdir()

    def work() -> None:
        loader = foreload.ImageLoader(own_dataset, batch_size=8, image_size=32, io="pread")  # here
        epochs(loader, 2)

    left_out, empty = heard(work)
    assert "1 .tiff images" in str(left_out.message)
    assert "class_0/more.tiff" in str(left_out.message)
    assert f"`foreload index {own_dataset}`" in str(left_out.message)
    assert "1 classes have no image, e.g. class_9" in str(empty.message)
    line = Path(__file__).read_text().splitlines()[left_out.lineno - 1]
    assert left_out.filename == __file__
    assert line.endswith("# here")


def test_a_wrapper_of_ours_is_not_the_users_line(own_dataset: Path) -> None:
    torch = pytest.importorskip("foreload.torch", exc_type=ImportError)
    (own_dataset / "class_0" / "more.tiff").write_bytes(b"II*")
    (warning,) = heard(lambda: torch.ImageDataset(own_dataset, image_size=32))
    assert warning.filename == __file__


def test_what_is_good_to_know_goes_to_the_log(own_dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    (own_dataset / "readme.txt").write_text("Photographs.")
    with caplog.at_level(logging.INFO, logger="foreload"):
        assert heard(lambda: foreload.ImageLoader(own_dataset)) == []
    (record,) = [record for record in caplog.records if "readme.txt" in record.getMessage()]
    assert (record.name, record.levelname) == ("foreload", "INFO")


def test_an_evaluation_that_repeats_or_mixes_is_warned_of(dataset: Path) -> None:
    def said(**settings: Any) -> list[str]:
        made = heard(lambda: foreload.ImageLoader(dataset, batch_size=8, image_size=32, **settings))
        return [str(warning.message) for warning in made]

    recipe = recipes.deit(num_classes=3, size=32)
    repeats, mix = said(train=False, repeats=3, mix=recipe["mix"])
    assert repeats.startswith("repeats is 3 with train=False: an epoch covers only 1/3 of the samples")
    assert "Remove repeats, or set train=True" in repeats
    assert mix.startswith("mix is set with train=False")
    assert "set train=True" in mix
    assert said(train=True, repeats=3, mix=recipe["mix"]) == said(train=False) == []


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_the_first_failed_sample_is_warned_of_and_all_are_counted_at_the_end(
    own_dataset: Path, on_error: str
) -> None:
    for number in (3, 30):
        path = paths(own_dataset)[number]
        path.write_bytes(path.read_bytes()[:200])
    loader = foreload.ImageLoader(
        own_dataset, batch_size=10, image_size=32, on_error=on_error, io="pread", rebuild_index=True
    )
    first, *ends = heard(lambda: epochs(loader, 2))
    assert "corrupt image" in str(first.message)
    assert "its place, at most 100 times in an epoch" in str(first.message)
    assert [str(end.message) for end in ends] == [
        f"epoch {epoch}: 2 samples failed, and other samples or zeros took their places; "
        "the loader's `errors` lists them"
        for epoch in (0, 1)
    ]


def test_a_consumer_that_asks_for_no_more_batches_gets_the_same_warnings(own_dataset: Path) -> None:
    path = paths(own_dataset)[59]
    path.write_bytes(path.read_bytes()[:200])
    loader = foreload.ImageLoader(
        own_dataset, batch_size=10, image_size=32, on_error="zero", shuffle=False, io="pread"
    )

    def work() -> None:
        batches = iter(loader)
        for _ in range(len(loader)):
            next(batches)

    first, end = heard(work)
    assert "corrupt image" in str(first.message)
    assert "epoch 0: 1 sample failed" in str(end.message)


def test_warnings_come_before_the_error_that_they_lead_to(own_dataset: Path) -> None:
    for path in paths(own_dataset):
        path.write_bytes(path.read_bytes()[:200])
    loader = foreload.ImageLoader(
        own_dataset, batch_size=10, image_size=32, on_error="zero", io="pread", max_errors=5
    )

    def work() -> None:
        with pytest.raises(foreload.TooManyErrorsError):
            next(iter(loader))

    (warning,) = heard(work)
    assert "corrupt image" in str(warning.message)


def test_no_batch_is_lost_where_warnings_are_errors(own_dataset: Path) -> None:
    path = paths(own_dataset)[0]
    path.write_bytes(path.read_bytes()[:200])
    (own_dataset / "class_9").mkdir()
    made = dict(batch_size=10, image_size=32, shuffle=False, on_error="zero", io="pread")
    with pytest.warns(foreload.Warning, match="class_9"):
        loader = foreload.ImageLoader(own_dataset, **made)
    batches, taken, raised = iter(loader), [], []
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except foreload.Warning as warning:
            raised.append(str(warning))
            continue
        taken.extend(np.from_dlpack(batch.sample_ids))
    assert taken == list(range(60))
    assert len(raised) == 2
    with pytest.raises(foreload.Warning, match="class_9"):
        foreload.ImageLoader(own_dataset, **made)


def test_many_kinds_of_members_make_no_notice_and_a_short_error(tmp_path: Path, dataset: Path) -> None:
    image = paths(dataset)[0].read_bytes()
    samples = ((f"{n:06}", {"cls": b"0", "jpg": image, f"part{n}": b"x"}) for n in range(3000))
    shards.write(tmp_path / "a.tar", samples)
    log = logging.getLogger("foreload")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        foreload.ImageLoader(tmp_path)
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert records == []
    with pytest.raises(foreload.ConfigError, match=r"there are .* and 2982 others") as raised:
        foreload.ImageLoader(tmp_path, fields=["image", "txt"])
    assert len(str(raised.value)) < 1100


def test_a_broken_cache_is_warned_of(dataset: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings = dict(batch_size=10, image_size=32, cache=foreload.Directory(cache, "50MB"), io="pread")
    epochs(foreload.ImageLoader(dataset, **settings), 1)
    segments = list(cache.glob("*/*.seg"))
    assert segments
    for segment in segments:
        damaged = bytearray(segment.read_bytes())
        damaged[-10] ^= 255
        segment.write_bytes(damaged)
    said = [str(w.message) for w in heard(lambda: epochs(foreload.ImageLoader(dataset, **settings), 1))]
    assert any("cache" in message and "damaged" in message for message in said), said


def test_a_cache_that_others_have_filled_is_warned_of(own_dataset: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(own_dataset, other)
    paths(other)[7].unlink()
    room = sum(path.stat().st_size for path in paths(own_dataset)) + 64_000
    settings = dict(
        batch_size=10, image_size=32, cache=foreload.Directory(tmp_path / "cache", room), io="pread"
    )
    in_use = foreload.ImageLoader(own_dataset, **settings)
    assert heard(lambda: epochs(in_use, 2)) == [], "all of it fits"
    (full,) = heard(lambda: epochs(foreload.ImageLoader(other, **settings), 2))
    assert "is full with" in str(full.message)
    assert "raise its size" in str(full.message)
    assert in_use.epoch == 2


def test_the_program_warns_on_stderr_and_in_json(own_dataset: Path) -> None:
    (own_dataset / "class_9").mkdir()
    program = [sys.executable, "-m", "foreload"]
    of_images = ["--batch-size", "20", "--image-size", "32", "--epochs", "1"]
    evaluation = ["--train=false", "--repeats", "2", "--mix", '[{"MixUp": {}}]']
    done = subprocess.run(
        [*program, "bench", str(own_dataset), *of_images, *evaluation],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "repeats is 2 with train=False" in done.stderr
    assert "mix is set with train=False" in done.stderr
    for command in (["index"], ["bench", *of_images]):
        arguments = [*program, command[0], str(own_dataset), *command[1:], "--json"]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert "warning: " in done.stderr
        assert "class_9" in done.stderr
        said = json.loads(done.stdout)["notices"]
        assert [one["kind"] for one in said if "class_9" in one["message"]] == ["warning"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_warning_that_is_raised_is_not_lost_to_another(own_dataset: Path) -> None:
    """Two warnings come with the last batch. The first is raised by the request for more, which drops the iterator with
    the second.
    """
    paths(own_dataset)[3].write_bytes(b"no image")
    loader = foreload.ImageLoader(own_dataset, batch_size=60, image_size=32, train=False, on_error="zero")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(foreload.Warning, match=r"1 sample failed|zeros take its place"):
            (_,) = loader
