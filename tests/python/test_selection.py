"""Subsets, weights and mixtures from Python: the draws, their labels, and resuming."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import make_dataset, paths
from PIL import Image
from shards import make

SETTINGS: dict[str, Any] = dict(batch_size=5, image_size=16, seed=2, last_batch="partial")


def epoch(loader: foreload.Loader, number: int = 0) -> list[int]:
    """Return sample ids in order."""
    loader.set_epoch(number)
    return [int(sample) for batch in loader for sample in np.from_dlpack(batch.sample_ids)]


@pytest.fixture
def mixed(tmp_path: Path) -> list[Path]:
    """Make two datasets with the same classes; the second one has four samples per class."""
    large, small = make_dataset(tmp_path / "large"), make_dataset(tmp_path / "small")
    for number, path in enumerate(paths(small)):
        if number % 20 >= 4:
            path.unlink()
    return [large, small]


@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_indices(dataset: Path, form: Any) -> None:
    chosen = [41, 3, 17, 59, 20]
    loader = foreload.ImageLoader(dataset, indices=form(chosen), **SETTINGS)
    assert sorted(epoch(loader)) == sorted(chosen)
    assert epoch(loader) != epoch(loader, 1)
    again = foreload.ImageLoader(dataset, indices=sorted(chosen), **SETTINGS)
    assert epoch(again) == epoch(loader)
    sequential = foreload.ImageLoader(dataset, indices=form(chosen), train=False, **SETTINGS)
    assert epoch(sequential) == chosen


def test_classes_keep_their_labels(dataset: Path) -> None:
    for classes in (["class_2", "class_0"], [2, 0]):
        loader = foreload.ImageLoader(dataset, classes=classes, **SETTINGS)
        labels = Counter(int(label) for batch in loader for label in np.from_dlpack(batch.labels))
        assert labels == {0: 20, 2: 20}


def test_a_list_of_files(dataset: Path, tmp_path: Path) -> None:
    listed = tmp_path / "train.txt"
    listed.write_text("# half of two classes\n" + "".join(f"class_1/{n:03}.jpg 1\n" for n in range(20, 30)))
    loader = foreload.ImageLoader(dataset, files=listed, indices=range(25, 40), **SETTINGS)
    assert sorted(epoch(loader)) == [25, 26, 27, 28, 29]


def test_a_list_of_files_as_editors_write_it(tmp_path: Path) -> None:
    """A byte order mark is not part of a name, and white space is kept as written."""
    for name in (" a.jpg", "a.jpg", "b .jpg"):
        (tmp_path / "data" / "k").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "data" / "k" / name, "JPEG")
    for name in (" d.jpg", "e.jpg"):
        (tmp_path / "data" / " l").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "data" / " l" / name, "JPEG")
    listed, settings = tmp_path / "list.txt", {**SETTINGS, "train": False}
    for text, wanted in [
        ("\ufeff l/ d.jpg\r\n l/e.jpg 0\r\n", [0, 1]),
        ("k/ a.jpg\nk/a.jpg\n", [2, 3]),
        ("  k/a.jpg 1  \nk/b .jpg 1\n# k\n\n", [3, 4]),
        ("./k/b \n", [4]),
    ]:
        listed.write_bytes(text.encode())
        assert epoch(foreload.ImageLoader(tmp_path / "data", files=listed, **settings)) == wanted, text


def test_shards_that_cannot_be_read(tmp_path: Path) -> None:
    root, listed = make(tmp_path / "tars", count=24, shards=4), tmp_path / "good.txt"
    shards = sorted(root.glob("*.tar"))
    whole = [path.read_bytes() for path in shards]
    for bad in shards[1::2]:
        bad.write_bytes(bad.read_bytes()[:900])
    settings: dict[str, Any] = {**SETTINGS, "train": False}
    with pytest.raises(
        foreload.DatasetError, match=r"2 of its 4 shards cannot be read:\n.*\n.*\n"
    ) as refused:
        foreload.ImageLoader(root, **settings)
    assert all(f"{bad}: at byte " in str(refused.value) for bad in shards[1::2])

    listed.write_text("".join(f"{good.name}\n" for good in shards[::2]))
    assert epoch(foreload.ImageLoader(root, files=listed, **settings)) == list(range(12))
    listed.write_text(shards[3].name)
    with pytest.raises(foreload.ConfigError, match=r"files: .*line 1: .* cannot be read: at byte "):
        foreload.ImageLoader(root, files=listed, **settings)

    with pytest.warns(foreload.Warning, match="2 of its 4 shards cannot be read and are left out"):
        skipping = foreload.ImageLoader(root, bad_shards="skip", **settings)
    assert epoch(skipping) == list(range(12))
    for path, data in zip(shards, whole, strict=True):
        path.write_bytes(data)
    with pytest.warns(foreload.Warning, match="can be read now, but could not be read when it was indexed"):
        repaired = foreload.ImageLoader(root, bad_shards="skip", **settings)
    assert epoch(repaired) == list(range(24))
    with pytest.raises(foreload.Error, match="dataset"):
        repaired.load_state_dict(skipping.state_dict())


def test_balanced_classes(mixed: list[Path]) -> None:
    for path in paths(mixed[0])[25:40]:
        path.unlink()
    loader = foreload.ImageLoader(mixed[0], weights="balanced", epoch_size=90, **SETTINGS)
    labels = Counter(int(label) for batch in loader for label in np.from_dlpack(batch.labels))
    assert all(abs(count - 30) <= 1 for count in labels.values())
    # The five remaining samples of class 1 are drawn six times each.
    counts = Counter(epoch(loader))
    assert all(abs(counts[sample] - 6) <= 1 for sample in range(20, 25))


def test_weights_by_class_and_by_sample(dataset: Path) -> None:
    weights = [1.0] * 20 + [0.0] * 20 + [3.0] * 20
    for given in (weights, np.array(weights), {"class_1": 0, 2: 3.0}):
        loader = foreload.ImageLoader(dataset, weights=given, epoch_size=80, **SETTINGS)
        counts = Counter(epoch(loader))
        assert all(abs(counts[sample] - 1) <= 1 for sample in range(20))
        assert all(counts[sample] == 0 for sample in range(20, 40))
        assert all(abs(counts[sample] - 3) <= 1 for sample in range(40, 60))
        assert sum(counts.values()) == 80


def test_a_sample_that_comes_up_again_is_augmented_anew(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, indices=[7], epoch_size=5, **SETTINGS)
    images = next(np.from_dlpack(batch.images) for batch in loader)
    assert len({image.tobytes() for image in images}) == 5
    views = [repr(loader.view(7, 0, occurrence=occurrence)) for occurrence in range(5)]
    assert len(set(views)) == 5


def test_datasets_mixed_by_ratios(mixed: list[Path]) -> None:
    loader = foreload.ImageLoader(mixed, ratios=[1, 3], epoch_size=200, **SETTINGS)
    assert loader.classes == ["class_0", "class_1", "class_2"]
    counts = Counter(epoch(loader))
    assert sum(counts[sample] for sample in range(60)) == pytest.approx(50, abs=1)
    assert all(abs(counts[sample] - 12.5) <= 1 for sample in range(60, 72))
    whole = foreload.ImageLoader(mixed, **SETTINGS)
    assert sorted(epoch(whole)) == list(range(72))
    labels = [int(label) for batch in whole for label in np.from_dlpack(batch.labels)]
    assert Counter(labels) == {0: 24, 1: 24, 2: 24}


@pytest.mark.parametrize(
    "extra", [{"weights": "balanced", "epoch_size": 77}, {"classes": [1]}, {"epoch_size": 40}]
)
def test_they_resume_at_every_step(dataset: Path, extra: dict) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS, **extra)
    batches, states = [], [loader.state_dict()]
    for batch in loader:
        batches.append(np.from_dlpack(batch.images).tobytes())
        states.append(loader.state_dict())
    # After the last step the next epoch begins.
    following = [np.from_dlpack(batch.images).tobytes() for batch in loader]
    for step, state in enumerate(states):
        resumed = foreload.ImageLoader(dataset, **SETTINGS, **extra)
        resumed.load_state_dict(state)
        expected = batches[step:] or following
        assert [np.from_dlpack(batch.images).tobytes() for batch in resumed] == expected
    other = foreload.ImageLoader(dataset, **SETTINGS)
    with pytest.raises(foreload.ConfigError, match="the selection of samples was"):
        other.load_state_dict(states[1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weights": "even"}, 'weights: is "even", must be "balanced"'),
        ({"weights": [1.0, 2.0]}, "weights: are 2, must be one for each of the dataset's 60 samples"),
        ({"weights": [-1.0] * 60}, "weights: sample 0 has -1.0, must be 0, or from 1e-50 to 1e50"),
        ({"weights": [0.0] * 60}, "weights: exclude all samples"),
        ({"weights": [-0.0] * 60}, "weights: exclude all samples"),
        ({"weights": [1e308] * 60}, "weights: sample 0 has 1e308, must be 0, or"),
        ({"weights": [float("nan")] * 60}, "weights: has NaN at index 0, must be "),
        ({"weights": {"class_0": 5.0, 0: 1.0}}, "weights: names class 0 twice"),
        (
            {"weights": {"class_0": "much"}},
            'weights: has "class_0": "much", must be "balanced", a dict from classes',
        ),
        ({"weights": [1, True]}, "weights: has True at index 1, must be .*one finite weight for each sample"),
        ({"indices": [-1]}, "indices: has -1 at index 0, must be sample numbers"),
        ({"indices": [False, True]}, "indices: has False at index 0, must be sample numbers"),
        ({"classes": [1.5]}, "classes: has 1.5 at index 0, must be a list of class names or class numbers"),
        ({"weights": {"dog": 2.0}}, 'weights: .*"dog"'),
        ({"weights": "balanced", "shuffle": False}, "weights: needs shuffle=True"),
        ({"ratios": [1, 2]}, "ratios: are 2, must be one for each of the 1 datasets"),
        ({"ratios": [0]}, "ratios: are .*, must be numbers from 1e-50 to 1e50"),
        ({"epoch_size": 0}, "epoch_size: is 0, must be a whole number from 1 to"),
        ({"indices": []}, "indices: selects no sample"),
        ({"indices": [60]}, "indices: .*60"),
        ({"indices": [1, 2, 1]}, "indices: .*weights"),
        ({"classes": ["class_9"]}, 'classes: .*"class_9"'),
    ],
)
def test_what_cannot_be_selected_is_refused(dataset: Path, wrong: dict, words: str) -> None:
    with pytest.raises(foreload.ConfigError, match=words):
        foreload.ImageLoader(dataset, **SETTINGS, **wrong)


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_substitutes_come_from_the_selection(own_dataset: Path) -> None:
    broken = paths(own_dataset)[3]
    broken.write_bytes(b"\xff\xd8" + bytes(broken.stat().st_size - 2))
    loader = foreload.ImageLoader(own_dataset, indices=range(10), on_error="skip", **SETTINGS)
    assert all(set(epoch(loader, number)) <= set(range(10)) for number in range(5))
