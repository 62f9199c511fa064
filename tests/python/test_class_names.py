"""A list of the user numbers the classes: labels are indices of the list, and the order is still the dataset's."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

SETTINGS: dict[str, Any] = dict(
    batch_size=4, image_size=8, seed=3, last_batch="partial", device="cpu", threads=1
)
NAMES = ["ant", "bee", "cat", "dog"]
"""The classes of training. Validation has `ant`, `cat` and `dog`, with three of samples 0 to 8 each."""
OF_SAMPLES = ["ant", "ant", "ant", "cat", "cat", "cat", "dog", "dog", "dog"]


def command(*arguments: str | Path) -> str:
    """Run the command line and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "foreload", *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class directories that lack a class of training."""
    root = tmp_path_factory.mktemp("classes") / "val"
    for number, name in enumerate(OF_SAMPLES):
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (20 * number,) * 3).save(root / name / f"{number}.jpg")
    return root


def manifest(val: Path, into: Path) -> Path:
    """List the files in a table with the names of classes."""
    lines = (f"{val}/{name}/{number}.jpg,{name}\n" for number, name in enumerate(OF_SAMPLES))
    (into / "val.csv").write_text("image,class\n" + "".join(lines))
    return into / "val.csv"


def tar_of_tars(val: Path, into: Path) -> Path:
    """Write a tar with a tar of each class."""
    with tarfile.open(into / "val.tar", "w") as outer:
        for name in dict.fromkeys(OF_SAMPLES):
            with tarfile.open(into / f"{name}.tar", "w") as inner:
                for file in sorted((val / name).iterdir()):
                    inner.add(file, file.name)
            outer.add(into / f"{name}.tar", f"{name}.tar")
            (into / f"{name}.tar").unlink()
    return into / "val.tar"


def packed(val: Path, into: Path) -> Path:
    """Pack the directory."""
    command("pack", val, into / "packed")
    return into / "packed"


def parted(val: Path, into: Path) -> list[Path]:
    """Write two parts, each a directory, with different classes."""
    parts = []
    for part, names in (("a", ["ant", "cat"]), ("b", ["dog"])):
        parts.append(into / part)
        for name in names:
            (into / part).mkdir(exist_ok=True)
            (into / part / name).symlink_to(val / name)
    return parts


def drawn(loader: foreload.ImageLoader) -> list[tuple[int, int]]:
    """Return the samples and labels of an epoch, in order."""
    return [
        pair
        for batch in loader
        for pair in zip(
            *(np.from_dlpack(of).tolist() for of in (batch.sample_ids, batch.labels)), strict=True
        )
    ]


@pytest.mark.parametrize("layout", [lambda val, _: val, manifest, tar_of_tars, packed, parted])
def test_labels_are_the_numbers_of_the_list(layout: Callable[..., Any], val: Path, tmp_path: Path) -> None:
    root = layout(val, tmp_path)
    names = [*reversed(NAMES)]
    for weights in (None, "balanced", {"cat": 3.0}):
        plain = foreload.ImageLoader(root, weights=weights, **SETTINGS)
        loader = foreload.ImageLoader(root, weights=weights, class_names=names, **SETTINGS)
        assert loader.classes == names
        assert plain.classes == ["ant", "cat", "dog"]
        assert loader.fingerprint == plain.fingerprint
        assert loader.targets.tolist() == [names.index(name) for name in OF_SAMPLES]
        ours, own = drawn(loader), drawn(plain)
        assert [sample for sample, _ in ours] == [sample for sample, _ in own]
        assert [names[label] for _, label in ours] == [OF_SAMPLES[sample] for sample, _ in ours]
        # The state of one loader is valid for the other one.
        loader.load_state_dict(plain.state_dict())


def test_the_list_comes_in_several_forms(val: Path, tmp_path: Path) -> None:
    training = tmp_path / "train"
    for name in NAMES:
        (training / name).mkdir(parents=True)
        (training / name / "0.jpg").write_bytes((val / "ant" / "0.jpg").read_bytes())
    lines = tmp_path / "classes.txt"
    lines.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*NAMES, ""]).encode())
    forms = [
        tuple(NAMES),
        (name for name in NAMES),
        np.array(NAMES),
        lines,
        str(lines),
        foreload.ImageLoader(training, **SETTINGS),
        # Datasets of torchvision have such a list.
        SimpleNamespace(classes=NAMES),
    ]
    for form in forms:
        loader = foreload.ImageLoader(val, class_names=form, **SETTINGS)
        assert (loader.classes, loader.targets.tolist()) == (NAMES, [0, 0, 0, 2, 2, 2, 3, 3, 3])


def test_settings_go_by_the_numbers_of_the_list(val: Path) -> None:
    def loader(**settings: Any) -> foreload.ImageLoader:
        return foreload.ImageLoader(val, **{"class_names": NAMES, **SETTINGS, **settings})

    for cat in ("cat", 2):
        assert sorted(drawn(loader(classes=[cat]))) == [(3, 2), (4, 2), (5, 2)]
        assert {label for _, label in drawn(loader(weights={cat: 0.0}))} == {0, 3}
    mixed = loader(mix=[T.MixUp(num_classes=len(NAMES))], last_batch="drop")
    for batch in mixed:
        labels = np.from_dlpack(batch.labels)
        assert labels.shape == (4, 4)
        assert not labels[:, 1].any()
        np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
    # Some classes of a dataset, numbered from 0: the other classes need no number.
    some = loader(class_names=["dog", "ant"], classes=["dog", "ant"], mix=[T.MixUp(num_classes=2)])
    assert some.targets.tolist() == [1, 1, 1, -1, -1, -1, 0, 0, 0]
    assert {tuple(np.from_dlpack(batch.labels).shape[1:]) for batch in some} == {(2,)}
    some = loader(class_names=["dog", "ant"], classes=["dog", "ant"])
    assert sorted(drawn(some)) == [(0, 1), (1, 1), (2, 1), (6, 0), (7, 0), (8, 0)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["ant", "bee"],
            r'lacks 2 of the 3 classes of .*: "cat", "dog"\. Add them to the list, or select with classes=',
        ),
        ([], "has no class names, must be a list of all class names"),
        (["ant", "cat", "dog", "ant"], 'has "ant" at the indices 0 and 3'),
        (["ant", 1], "has 1 at index 1"),
        ("no/such/file", "is the file no/such/file, which cannot be read"),
        ({"ant": 0}, "class_names: is "),
        (SimpleNamespace(classes=None), "class_names: is .*, whose attribute classes is None"),
        # A set has another order in each process.
        (
            {"ant", "cat", "dog"},
            r"is \{.*\}, a set, which has no order: pass a list in the order of the numbers, such as sorted",
        ),
        (frozenset(["ant", "cat", "dog"]), r"is frozenset\(.*, a set, which has no order: pass a list"),
        ({"ant": 2, "cat": 0, "dog": 1}.keys(), r"is dict_keys\(.*, a set, which has no order: pass a list"),
        (
            SimpleNamespace(classes={"ant", "cat"}),
            r"whose attribute classes is \{.*\}, a set, which has no order: pass a list",
        ),
    ],
)
def test_what_is_no_list_of_the_classes_is_refused(given: Any, words: str, val: Path) -> None:
    with pytest.raises(foreload.ConfigError, match=f"class_names: .*{words}|{words}"):
        foreload.ImageLoader(val, class_names=given, **SETTINGS)


def test_numbers_without_names_are_refused(val: Path, tmp_path: Path) -> None:
    """The list numbers the classes of the tars, whose names are in `classes.txt` next to them; the loader does not have
    the names.
    """
    (tmp_path / "names.txt").write_text("\n".join([*NAMES, "", ""]))
    command("pack", val, tmp_path / "tars", "--to", "tar", "--class-names", tmp_path / "names.txt")
    assert (tmp_path / "tars" / "classes.txt").read_text() == "".join(f"{name}\n" for name in NAMES)
    loader = foreload.ImageLoader(tmp_path / "tars", **SETTINGS)
    assert loader.targets.tolist() == [0, 0, 0, 2, 2, 2, 3, 3, 3]
    with pytest.raises(foreload.ConfigError, match="has class numbers without names, so the names"):
        foreload.ImageLoader(tmp_path / "tars", class_names=NAMES, **SETTINGS)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        command("index", val, "--compare", tmp_path / "tars")
    assert "has only numbers: set --label to a column or member with names" in refused.value.stderr
    (tmp_path / "names.txt").write_text("ant\n\ncat\ndog\n")
    with pytest.raises(foreload.ConfigError, match=r"names\.txt, whose line 2 is empty"):
        foreload.ImageLoader(val, class_names=tmp_path / "names.txt", **SETTINGS)


def test_the_command_compares_the_classes_of_datasets(val: Path, tmp_path: Path) -> None:
    training = tmp_path / "train"
    for name in ("ant", "bee", "cat"):
        (training / name).mkdir(parents=True)
        (training / name / "0.jpg").write_bytes((val / "ant" / "0.jpg").read_bytes())
    found = json.loads(command("index", val, "--compare", training, "--json"))["classes_compared"]
    assert found == {
        "other": str(training),
        "classes": [3, 3],
        "missing": ["bee"],
        "extra": ["dog"],
        "renumbered": [{"name": "cat", "here": 1, "there": 2}],
    }
    of_split = command("index", val, "--compare", tmp_path, "--compare-split", "train", "--json")
    assert json.loads(of_split)["classes_compared"] == found
    alike = command("index", val, "--compare", training, "--class-names", "ant,bee,cat,dog")
    assert 'only here    1: "dog"' in alike
    assert "renumbered" not in alike
