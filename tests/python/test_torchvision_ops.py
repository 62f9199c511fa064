"""A real torchvision, given the operations that were drawn for a sample, makes the pixels of the batch.

`benches/transforms` defines what is compared, with which limits: `make compare-ops` does the same for many photographs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import foreload
import pytest
from conftest import make_dataset, need, paths
from foreload import _core
from foreload import transforms as T

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches" / "transforms"))
with need("torchvision"):
    import cases
    import ops

SEED = 6
# Height and width; the last two sizes are not multiples of a vector.
SIZES = [(224, 224), (96, 131), (45, 33)]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of all classes."""
    root = make_dataset(tmp_path_factory.mktemp("few"))
    for number, path in enumerate(paths(root)):
        if number % 5:
            path.unlink()
    return root


@pytest.mark.parametrize("name", cases.PIXELS)
def test_each_operation_gives_torchvisions_levels(few: Path, name: str) -> None:
    """From the same levels; all operations in sequence give the image of the batch."""
    for size in SIZES:
        (entry,) = ops.pixels(few, size, SEED, [name])
        assert entry["whole"]["images"] == 12
        assert entry["steps"]
        assert all(step["met"] for step in entry["steps"]), (size, entry)


def test_crops_resizes_and_padding_give_torchvisions_levels(few: Path) -> None:
    for entry in ops.geometry(few, 56, SEED):
        assert entry["steps"][0]["images"] == 12
        # Small images have few values, and one of them may be two levels off.
        (step,) = entry["steps"]
        assert step["largest"] <= step["allowed"]["largest"], entry
        assert step["share"] <= step["allowed"]["share"], entry


def test_finished_values_are_torchvisions(few: Path) -> None:
    found = {entry["name"]: entry["steps"][0] for entry in ops.finished(few, 56, SEED)}
    assert list(found) == ["ToDtype, Normalize", "RandomErasing behind Normalize", "MixUp", "CutMix"]
    assert all(step["met"] and step["images"] == 12 for step in found.values()), found


def test_every_transform_is_compared() -> None:
    shown = repr([*cases.PIXELS.values(), *cases.placements(56).values()])
    missing = {name for name in T.__all__ if f"{name}(" not in shown}
    # test_torchvision_geometry.py compares crops that depend on boxes, and test_patches.py compares patches with NumPy.
    without = {"CutMix", "MixUp", "Normalize", "Patchify", "RandomIoUCrop", "ToDtype", "Transform", "Views"}
    assert missing == without


def test_what_differs_is_counted() -> None:
    found = ops.Difference(cases.BLUR)
    image = ops.torch.full((3, 4, 5), 7, dtype=ops.torch.uint8)
    other = image.clone()
    other[0, 0, :3] = ops.torch.tensor([6, 8, 9])
    found.add(image, other)
    figures = found.figures()
    assert (figures["largest"], figures["share"], figures["share_beyond_1"]) == (2, 3 / 60, 1 / 60)
    assert not figures["met"]


def test_operations_that_cannot_be_done_are_refused() -> None:
    def refused(ops_: object, levels: bytes = bytes(12)) -> str:
        with pytest.raises(foreload.ConfigError) as error:
            _core.replay_operations(json.dumps(ops_), levels, 2, 2)
        return str(error.value)

    assert _core.replay_operations(json.dumps([{"op": "invert"}]), bytes(12), 2, 2) == b"\xff" * 12
    assert "must be a list of operations as ImageLoader.view returns it: unknown variant" in refused(
        [{"op": "twist"}]
    )
    assert "levels: has 11 values, must have 3 for each of 4 pixels" in refused([], bytes(11))
    swapped = {"op": "permute_channels", "permutation": [0, 1, 3]}
    assert "ops: cannot be applied to an image of 2\u00d72 pixels" in refused([swapped])
