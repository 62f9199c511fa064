"""Loaders with different recipes share one read and one decode, and each gets the same as alone."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields
from foreload import transforms as T
from shared_consumer import digest

USUAL: dict[str, Any] = {"batch_size": 4, "device": "cpu"}
SMALL = {"image_size": 32}
FIRST_DAMAGED = re.compile(
    r"the first is sample (?P<sample>\d+) \(.*\): (?P<message>.*)\. The loader's `concealed`"
)

RECIPES: dict[str, dict[str, Any]] = {
    "crop": SMALL,
    "other size": {"image_size": (48, 24), "flip": 0.0, "dtype": "float16"},
    "whole": {"transforms": [T.Resize(40), T.CenterCrop(32), T.ToDtype("uint8")]},
    "padded": {"transforms": [T.Pad(9, padding_mode="reflect"), T.RandomCrop(40), T.Resize(24)]},
    "grey levels": {
        "transforms": [
            T.RandomResizedCrop(32, scale=(0.3, 1.0)),
            T.RandAugment(),
            T.ToDtype("float32", True),
        ],
        "memory_format": "nhwc",
    },
    "views": {"transforms": T.Views(2, [T.RandomResizedCrop(16), T.RandomErasing(1.0)])},
    "exact": {"image_size": 40, "decode": "exact"},
    "growing": {"image_size": 24, "image_size_from": {1: 40}},
}


class Outcome:
    """The batches and warnings of a loader in some epochs."""

    def __init__(self, loader: foreload.ImageLoader) -> None:
        self.loader = loader
        self.got: list[str] = []
        self.heard: set[str] = set()
        self.failed = ""
        self.told: list[Any] = []
        self.shared: dict[str, int] = {}
        self.batches: Any = None

    def step(self) -> bool:
        """Take the next batch; return whether there was one."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                batch = next(self.batches)
                self.got.append(digest(batch))
                self.shared = self.batches.stats().get("shared", {})
                going_on = True
            except StopIteration:
                going_on = False
            except foreload.SampleError as error:
                self.failed, going_on = str(error), False
        self.heard |= {str(warning.message) for warning in heard}
        if not going_on:
            self.told.append([self.loader.errors, self.loader.concealed])
        return going_on

    def kinds_heard(self) -> set[str]:
        """Return the warnings, without the image that a warning of damage names as the first one."""
        return {FIRST_DAMAGED.sub("", text) for text in self.heard}

    def concealed(self) -> set[tuple[int, str]]:
        """Return the images of all epochs that the loader names as damaged, each with its problem."""
        return {(image["sample_id"], image["message"]) for told in self.told for image in told[1]}

    def first_damaged(self) -> set[tuple[int, str]]:
        """Return the images that warnings name as the first damaged one, each with its problem."""
        found = filter(None, map(FIRST_DAMAGED.search, self.heard))
        return {(int(match["sample"]), match["message"]) for match in found}


def run(dataset: Path, recipes: list[dict[str, Any]], epochs: int = 1, **settings: Any) -> list[Outcome]:
    """Run loaders with these recipes in parallel."""
    outcomes = [Outcome(foreload.ImageLoader(dataset, **(USUAL | settings | recipe))) for recipe in recipes]
    for _ in range(epochs):
        for outcome in outcomes:
            outcome.batches = iter(outcome.loader)
        going_on = outcomes
        while going_on:
            going_on = [outcome for outcome in going_on if outcome.step()]
    return outcomes


def check(dataset: Path, recipes: list[dict[str, Any]], epochs: int = 1, **settings: Any) -> list[Outcome]:
    """Check that loaders that share get the same as each gets alone, and return the outcomes."""
    sharing = {"shared": True, "shared_consumers": len(recipes)}
    together = run(dataset, recipes, epochs, **(settings | sharing))
    for outcome, recipe in zip(together, recipes, strict=True):
        (alone,) = run(dataset, [recipe], epochs, **settings)
        assert outcome.got == alone.got, recipe
        assert outcome.failed == alone.failed, recipe
        assert outcome.told == alone.told, recipe
        # Warnings of a producer go to all of its consumers. Which damaged image is found first depends on the threads.
        assert outcome.kinds_heard() >= alone.kinds_heard(), recipe
        if outcome.got:
            assert outcome.shared["recipes"] == len(recipes), outcome.shared
        assert alone.failed or alone.first_damaged() <= alone.concealed(), recipe
    assert len({outcome.shared["producer_pid"] for outcome in together if outcome.shared}) <= 1
    if not any(outcome.failed for outcome in together):
        # Batches that were made ahead but not used, because an epoch had failed, are in no list.
        all_concealed = set().union(*(outcome.concealed() for outcome in together))
        assert all(outcome.first_damaged() <= all_concealed for outcome in together)
    return together


@pytest.mark.parametrize("backwards", [False, True])
def test_each_gets_what_it_would_get_alone(dataset: Path, runtime: Path, backwards: bool) -> None:
    outcomes = check(dataset, list(RECIPES.values())[:: -1 if backwards else 1], epochs=2, seed=3)
    assert all(outcome.got for outcome in outcomes)
    assert all(outcome.shared["producers_lost"] == 0 for outcome in outcomes)


@pytest.mark.parametrize(
    "settings",
    [
        {"last_batch": "partial", "batch_size": 7, "shuffle": False},
        {"weights": "balanced", "repeats": 2, "batch_size": 8},
        {"mix": [T.MixUp(alpha=0.2, num_classes=3)]},
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_whatever_else_is_asked_for(dataset: Path, runtime: Path, settings: dict[str, Any]) -> None:
    check(dataset, [RECIPES["crop"], RECIPES["other size"]], **settings)


def test_packed_images_are_read_as_far_as_all_need(dataset: Path, tmp_path: Path, runtime: Path) -> None:
    command = [sys.executable, "-m", "foreload", "pack", str(dataset), str(tmp_path / "packed")]
    subprocess.run(command, check=True, capture_output=True)
    small = {"transforms": [T.CenterCrop(16)]}
    check(tmp_path / "packed", [small, RECIPES["crop"], RECIPES["padded"]], epochs=2)


@pytest.mark.parametrize("on_error", ["raise", "zero", "skip"])
def test_files_that_are_damaged(own_dataset: Path, runtime: Path, on_error: str) -> None:
    rng = random.Random(5)
    files = sorted(own_dataset.glob("*/*.jpg"))
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if number % 5 == 0:
            # Damage in the second half of the coded data: only some crops extend that far.
            place = rng.randrange(len(data) // 2, len(data) - 2)
            data[place] = 0xFF if number % 2 else rng.randrange(256)
        elif number == 7:
            data = bytearray(b"no image")
        elif number == 9:
            data = data[: len(data) // 2]
        file.write_bytes(data)
    recipes = [
        {"transforms": [T.CenterCrop(20)]},
        RECIPES["crop"],
        {"transforms": [T.RandomResizedCrop(24, scale=(0.02, 0.1))]},
    ]
    for damaged in ("conceal", "refuse"):
        outcomes = check(own_dataset, recipes, on_error=on_error, damaged=damaged, seed=11)
        if on_error != "raise":
            assert all(outcome.got for outcome in outcomes)
            assert any(told[0] for outcome in outcomes for told in outcome.told)
        if (on_error, damaged) == ("zero", "conceal"):
            concealed = [len(told[1]) for outcome in outcomes for told in outcome.told]
            assert len(set(concealed)) > 1, f"one sees more of the damage than another: {concealed}"


@pytest.mark.parametrize("on_error", ["zero", "skip"])
def test_an_image_that_one_recipe_cannot_take_fails_for_that_alone(
    dataset: Path, runtime: Path, on_error: str
) -> None:
    large = {"transforms": [T.RandomCrop(90)]}
    for recipes in ([large, RECIPES["crop"]], [RECIPES["crop"], large, RECIPES["whole"]]):
        outcomes = check(dataset, recipes, on_error=on_error, max_errors=1000)
        failed = [bool(outcome.told[0][0]) for outcome in outcomes]
        assert failed == [recipe is large for recipe in recipes]


def test_samples_with_several_images_masks_and_boxes(tmp_path: Path, runtime: Path) -> None:
    rng = np.random.default_rng(2)

    def boxes() -> bytes:
        file = io.BytesIO()
        np.save(file, np.sort(rng.uniform(0, 30, (3, 4)).astype(np.float32), axis=1)[:, [0, 1, 2, 3]])
        return file.getvalue()

    def sample() -> dict[str, bytes]:
        width, height = rng.integers(60, 90, 2).tolist()
        mask = rng.integers(0, 9, (height, width)).astype(np.uint8)
        return {
            "jpg": shards.jpeg(rng, width, height),
            "left.jpg": shards.jpeg(rng, width, height),
            "seg.png": shards.mask(mask),
            "boxes.npy": boxes(),
            "txt": b"words",
        }

    tmp_path.joinpath("tars").mkdir()
    shards.write(tmp_path / "tars" / "0.tar", [(f"{number:03}", sample()) for number in range(24)])
    asked = ["jpg", "left.jpg", fields.Mask("seg.png"), fields.Boxes("boxes.npy"), "txt"]
    check(
        tmp_path / "tars",
        [
            SMALL,
            {"image_size": 24, "flip": 0.0},
            {"transforms": [T.RandomIoUCrop(), T.Resize((32, 32)), T.ToDtype("uint8")]},
            {"transforms": {"jpg": [T.Resize(24), T.CenterCrop(24)], "left.jpg": [T.RandomResizedCrop(16)]}},
        ],
        fields=asked,
    )


def test_recipes_come_and_go(dataset: Path, runtime: Path) -> None:
    expected = {
        name: run(dataset, [RECIPES[name]], epochs=2)[0].got for name in ("crop", "other size", "whole")
    }
    settings = USUAL | {"shared": True}
    first = Outcome(foreload.ImageLoader(dataset, **(settings | RECIPES["crop"])))
    first.batches = iter(first.loader)
    assert first.step()
    assert first.shared["recipes"] == 1
    # The second loader joins after batches have been made without it.
    second = Outcome(foreload.ImageLoader(dataset, **(settings | RECIPES["other size"])))
    second.batches = iter(second.loader)
    for _ in range(5):
        assert first.step()
        assert second.step()
    assert first.shared["producer_pid"] == second.shared["producer_pid"]
    assert (first.shared["recipes"], first.shared["producers"], second.shared["producers"]) == (2, 1, 1)
    # The primary consumer leaves while it holds images; the other one continues.
    assert first.got == expected["crop"][:6]
    kept = np.from_dlpack(next(first.batches).images)
    as_it_was = kept.copy()
    first.batches = first.loader = None
    for _ in range(5):
        assert second.step()
    assert (second.shared["recipes"], second.shared["consumers"]) == (1, 1)
    np.testing.assert_array_equal(kept, as_it_was)
    # A loader with a different order of samples has its own producer.
    third = Outcome(foreload.ImageLoader(dataset, **(settings | RECIPES["whole"])))
    third.batches = iter(third.loader)
    assert third.step()
    assert third.shared["producer_pid"] != second.shared["producer_pid"]
    for outcome, name in ((second, "other size"), (third, "whole")):
        while outcome.step():
            pass
        assert outcome.got == expected[name][: len(outcome.got)]
        assert len(outcome.got) == 15


def mapped(name: str = "memfd:foreload batch") -> int:
    """Return the number of producers' buffers that this process has mapped."""
    return sum(name in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_who_leads_changes_again_and_again(dataset: Path, runtime: Path) -> None:
    # The epoch is longer than the read-ahead, so that the reading thread sleeps and is woken.
    long = {"epoch_size": 2000, "seed": 5}
    recipes = [RECIPES["crop"], RECIPES["other size"]]
    expected = [run(dataset, [recipe], **long)[0].got for recipe in recipes]
    settings = USUAL | long | {"shared": True}
    stays = Outcome(foreload.ImageLoader(dataset, **(settings | recipes[1])))
    comes = Outcome(foreload.ImageLoader(dataset, **(settings | recipes[0])))
    # The first loader's recipe is the primary one; the other one becomes primary while the first is gone.
    comes.batches, stays.batches = iter(comes.loader), iter(stays.loader)
    buffers, rounds = [], 8
    for _ in range(rounds):
        for _ in range(20):
            assert comes.step()
            assert stays.step()
        assert comes.got == expected[0][: len(comes.got)]
        assert comes.shared["producer_pid"] == stays.shared["producer_pid"]
        state = comes.batches.state_dict()
        comes.batches = comes.loader = None
        for _ in range(20):
            assert stays.step()
        assert (stays.shared["recipes"], stays.shared["consumers"]) == (1, 1)
        buffers.append(mapped())
        # It continues at the position of the other loader, as a loader that has caught up does.
        state["position"] = stays.batches.state_dict()["position"]
        comes.loader = foreload.ImageLoader(dataset, **(settings | recipes[0]))
        comes.loader.load_state_dict(state)
        comes.got = expected[0][: len(stays.got)]
        comes.batches = iter(comes.loader)
    assert stays.got == expected[1][: len(stays.got)]
    assert stays.shared["producers_lost"] == 0
    # In the first rounds, fewer buffers than the maximum exist.
    assert buffers[-1] <= buffers[rounds // 2 - 1] + 2, f"memory of batches that are gone is kept: {buffers}"


def test_a_recipe_that_is_too_large_for_the_first_one_s_memory_goes_elsewhere(
    dataset: Path, runtime: Path
) -> None:
    settings = USUAL | {"shared": True}
    small = Outcome(foreload.ImageLoader(dataset, **settings, image_size=16, memory="60MB"))
    large = Outcome(foreload.ImageLoader(dataset, **settings, image_size=600))
    for outcome in (small, large):
        outcome.batches = iter(outcome.loader)
        assert outcome.step()
    assert small.shared["producer_pid"] != large.shared["producer_pid"]
    alone = foreload.ImageLoader(dataset, **USUAL, image_size=600)
    assert large.got == [digest(next(iter(alone)))]


def test_members_that_lie_apart_are_read_for_each_recipe(tmp_path: Path, runtime: Path) -> None:
    rng = np.random.default_rng(4)
    images = [(f"{number:03}", {"jpg": shards.jpeg(rng, 70, 60)}) for number in range(12)]
    further = [(stem, {"left.jpg": shards.jpeg(rng, 60, 70), "txt": stem.encode()}) for stem, _ in images]
    (tmp_path / "tars").mkdir()
    shards.write(tmp_path / "tars" / "0.tar", [*images, *further])
    check(tmp_path / "tars", [RECIPES["crop"], RECIPES["other size"]], fields=["jpg", "left.jpg", "txt"])
