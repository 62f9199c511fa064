"""Samples with several images: either the secondary images follow the first, or each has its own transforms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from conftest import checksums
from foreload import fields
from foreload import transforms as T
from numpy import from_dlpack as array
from PIL import Image

LIST = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("uint8")]
SAMPLES = 24


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make(tmp_path_factory.mktemp("images"), SAMPLES, 2, shards.pair)


def load(root: Path, asked: list[Any], transforms: Any = LIST, **settings: Any) -> foreload.ImageLoader:
    settings = {"batch_size": 8, "seed": 9, "device": "cpu", **settings}
    return foreload.ImageLoader(root, fields=asked, transforms=transforms, **settings)


def each(field: Any) -> list[Any]:
    """Return a field's values by sample, from one tensor or a list of tensors."""
    if isinstance(field, list):
        return [None if tensor is None else array(tensor) for tensor in field]
    return list(array(field))


def of(loader: foreload.ImageLoader, field: str) -> np.ndarray:
    """Return the images of a field in an epoch."""
    return np.concatenate([array(batch[field]) for batch in loader])


def test_a_list_leads_the_first_and_the_others_follow(root: Path) -> None:
    """A secondary image is the same as if it were the first one: it has the same draws, and does not depend on the
    first image's pixels.
    """
    asked = ["left.jpg", "right.jpg", "depth.png", "seg.png", "cls"]
    loader = load(root, asked)
    assert loader.fields["right.jpg"] == "image"
    alone = {name: of(load(root, [name]), name) for name in asked[:3]}
    for at, batch in enumerate(loader):
        for name in asked[:3]:
            assert np.array_equal(array(batch[name]), alone[name][8 * at : 8 * at + 8]), name
        assert np.array_equal(array(batch.images), array(batch["left.jpg"]))
        assert not np.array_equal(array(batch["left.jpg"]), array(batch["right.jpg"]))
    masks = of(load(root, ["left.jpg", "seg.png"]), "seg.png")
    assert np.array_equal(of(load(root, asked), "seg.png"), masks)
    # `fields` determines which field is the first, not the order in the shard.
    turned = load(root, ["right.jpg", "left.jpg"])
    batch = next(iter(turned))
    assert np.array_equal(array(batch.images), array(batch["right.jpg"]))


def test_a_dict_has_for_each_field_its_own(root: Path) -> None:
    """The first image is the same as with a list. The next one has its own draws, which do not change when a field is
    added.
    """
    led = load(root, ["left.jpg", "right.jpg"])
    each = {"left.jpg": LIST, "right.jpg": LIST}
    own = load(root, ["left.jpg", "right.jpg"], each)
    assert np.array_equal(of(own, "left.jpg"), of(led, "left.jpg"))
    view = own.view(5, 0)
    assert view == own.view(5, 0, field="left.jpg") == led.view(5, 0, field="right.jpg")
    assert view != own.view(5, 0, field="right.jpg")
    own, led = load(root, ["left.jpg", "right.jpg"], each), load(root, ["left.jpg", "right.jpg"])
    right = of(own, "right.jpg")
    assert not np.array_equal(right, of(led, "right.jpg"))
    other = {
        "left.jpg": [T.Resize(20), T.CenterCrop(16)],
        "small.jpg": T.Views(2, [T.RandomCrop(16), T.ToDtype("float32")]),
        "right.jpg": LIST,
    }
    more = load(
        root, ["left.jpg", "small.jpg", "right.jpg", fields.Image("depth.png", follows="right.jpg")], other
    )
    for at, batch in enumerate(more):
        assert np.array_equal(array(batch["right.jpg"]), right[8 * at : 8 * at + 8])
        one, two = map(array, batch["small.jpg"])
        assert one.shape == two.shape == (8, 3, 16, 16)
        assert one.dtype == np.float32
        assert not np.array_equal(one, two)
        assert array(batch["left.jpg"]).shape == (8, 3, 16, 16)
        assert array(batch["depth.png"]).shape == (8, 3, 24, 24)
    views = [more.view(3, 0, view=number, field="small.jpg") for number in range(2)]
    assert views[0] != views[1]


def test_masks_and_boxes_follow_the_image_they_name(root: Path) -> None:
    """The mask of another field is the same as if that field were the only one, and has as many views."""
    views = T.Views(2, [T.RandomCrop(20), T.RandomHorizontalFlip()])
    each = {"left.jpg": LIST, "small.jpg": views}
    asked = [
        "left.jpg",
        "seg.png",
        "small.jpg",
        fields.Mask("small.seg.png", follows="small.jpg"),
        fields.Boxes("small.npy", follows="small.jpg"),
    ]
    loader = load(root, asked, each)
    masks = of(load(root, ["left.jpg", "seg.png"]), "seg.png")
    for at, batch in enumerate(loader):
        assert np.array_equal(array(batch["seg.png"]), masks[8 * at : 8 * at + 8])
        ids = array(batch.sample_ids).tolist()
        for number in range(2):
            found = array(batch["small.seg.png"][number])
            values, offsets = map(array, batch["small.npy"][number])
            assert offsets.tolist() == list(range(9))
            for mask, box, which in zip(found, values, ids, strict=True):
                view = loader.view(which, 0, view=number, field="small.jpg")
                x, y = view["x"], view["y"]
                source = np.random.default_rng(which)
                width, height = (int(side) for side in source.integers(40, 90, size=2))
                expected = source.integers(0, 21, (height, width), dtype=np.uint8)[y : y + 20, x : x + 20]
                corners = np.array([1 - x, 2 - y, 30 - x, 20 - y]).clip(0, 20)
                if view["flip"]:
                    expected = expected[:, ::-1]
                    corners[[0, 2]] = 20 - corners[[2, 0]]
                assert np.array_equal(mask, expected)
                assert box.tolist() == corners.tolist()


def test_images_of_their_own_sizes_beside_others(root: Path) -> None:
    each = {"left.jpg": [T.Resize(20)], "right.jpg": LIST}
    loader = load(root, ["left.jpg", "right.jpg", "seg.png"], each)
    right = of(load(root, ["left.jpg", "right.jpg"], {**each, "left.jpg": LIST}), "right.jpg")
    for at, batch in enumerate(loader):
        assert [array(image).shape for image in batch["left.jpg"]] == [
            (3, *array(mask).shape) for mask in batch["seg.png"]
        ]
        assert np.array_equal(array(batch["right.jpg"]), right[8 * at : 8 * at + 8])
        with pytest.raises(AttributeError, match=r'different sizes: use batch\["left.jpg"\]'):
            _ = batch.images


def test_what_cannot_be_is_refused(root: Path) -> None:
    def refused(asked: list[Any], transforms: Any, message: str) -> None:
        with pytest.raises(foreload.ConfigError, match=message):
            load(root, asked, transforms)

    pair, follow = ["left.jpg", "right.jpg"], fields.Image
    refused(pair, {"left.jpg": LIST}, r'transforms: has no list for the image "right.jpg".*follows=')
    refused(pair, {"rigth.jpg": LIST}, r'transforms: names "rigth.jpg".*there are "left.jpg", "right.jpg"')
    refused(
        ["left.jpg", "seg.png"], {"seg.png": LIST}, r'names "seg.png", which is not an image.*are "left.jpg"'
    )
    refused(["cls"], {"left.jpg": LIST}, "not an image field: there is none")
    refused(pair, {}, "transforms: is empty")
    refused(
        pair, {"left.jpg": LIST, "right.jpg": [T.Normalize((0,) * 3, (1,) * 3)]}, r'"right.jpg": step 1 of 1'
    )
    refused(pair, {"left.jpg": LIST, "right.jpg": [3]}, "not a transform of foreload.transforms")
    refused(pair, {"left.jpg": LIST, 3: LIST}, "has the key 3, must be names of image fields")
    refused(
        ["left.jpg", follow("right.jpg", follows="centre.jpg")],
        LIST,
        r'follows "centre.jpg", but that is not an image.*are',
    )
    refused(["LEFT.JPG"], {"LEFT.JPG": LIST}, r'fields: has "LEFT.JPG", but .* lower case.*use "left.jpg"')
    both = ["left.jpg", follow("right.jpg", follows="left.jpg")]
    refused(
        both, {"left.jpg": LIST, "right.jpg": LIST}, r'"right.jpg", which follows "left.jpg".*remove the list'
    )
    refused(
        [*both, follow("depth.png", follows="right.jpg")],
        LIST,
        r'"right.jpg", but that follows another image',
    )
    refused(
        [*pair, fields.Mask("seg.png", follows="cls")],
        LIST,
        r'"seg.png", which follows "cls", but that is not an image',
    )
    refused([*pair, {"name": "cls", "follows": "left.jpg"}], LIST, r'has "cls" with follows=')
    loader = load(root, pair)
    with pytest.raises(
        foreload.ConfigError, match=r'field: is "seg.png", must be one of the image fields "left.jpg"'
    ):
        loader.view(0, field="seg.png")


def test_the_image_of_a_dataset_without_fields_may_be_named(dataset: Path) -> None:
    listed = foreload.ImageLoader(dataset, batch_size=4, transforms=LIST)
    named = foreload.ImageLoader(dataset, batch_size=4, transforms={"image": LIST})
    assert np.array_equal(array(next(iter(listed)).images), array(next(iter(named)).images))


def test_followers_of_another_size_fail_their_sample(root: Path) -> None:
    with pytest.raises(
        foreload.SampleError, match=r'field "small.jpg": is 33.30 pixels, but "left.jpg".*same size'
    ):
        list(load(root, ["left.jpg", "small.jpg"]))


def test_a_damaged_image_fails_its_sample_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    """The sample fails if any of its images is damaged."""

    def damaged(number: int) -> shards.Members:
        members = shards.pair(number)
        if number % 4 == 1:
            members["right.jpg"] = members["right.jpg"][:40]
        return members

    shards.make(tmp_path, SAMPLES, 2, damaged)
    asked = ["left.jpg", "right.jpg", "seg.png", "cls"]
    with pytest.raises(foreload.SampleError, match=r'field "right\.jpg"'):
        list(load(tmp_path, asked))
    for on_error in ("skip", "zero"):
        loader = load(tmp_path, asked, on_error=on_error, shuffle=False)
        with pytest.warns(foreload.Warning) as told:
            batches = list(loader)
        assert 'field "right.jpg"' in str(told[0].message)
        alone = {name: of(load(tmp_path, [name], shuffle=False), name) for name in ("left.jpg", "cls")}
        for at, batch in enumerate(batches):
            ids, mask = array(batch.sample_ids).tolist(), array(batch.mask).tolist()
            for place, (number, valid) in enumerate(zip(ids, mask, strict=True)):
                left, right = array(batch["left.jpg"])[place], array(batch["right.jpg"])[place]
                label = int(array(batch["cls"])[place])
                if on_error == "zero" and (8 * at + place) % 4 == 1:
                    assert not valid
                    assert not left.any()
                    assert not right.any()
                    assert label == 0
                else:
                    assert valid
                    assert number % 4 != 1
                    assert label == number % 5
                    assert right.any()
                    if number == 8 * at + place:
                        assert np.array_equal(left, alone["left.jpg"][number])


def test_damage_is_concealed_counted_and_named_with_its_field(tmp_path: Path) -> None:
    def damaged(number: int) -> shards.Members:
        members = shards.pair(number)
        for name in ("left.jpg", "right.jpg")[number % 2 :]:
            coded = bytearray(members[name])
            middle = len(coded) * 4 // 5
            coded[middle : middle + 2] = b"\xff\xd9"
            members[name] = bytes(coded)
        return members

    shards.make(tmp_path, 8, 1, damaged)
    loader = load(tmp_path, ["left.jpg", "right.jpg"], [T.Resize((24, 24))])
    with pytest.warns(foreload.Warning, match="damaged and were decoded anyway") as told:
        list(batches := iter(loader))
    assert len(told) == 1
    named = {entry["sample_id"]: entry["message"] for entry in loader.concealed}
    assert batches.stats()["concealed"] == 12
    assert sorted(named) == list(range(8))
    for number, message in named.items():
        assert message.startswith(f'"{("left.jpg", "right.jpg")[number % 2]}": concealed damage')


def test_absent_optional_images_are_marked(tmp_path: Path) -> None:
    def without(number: int) -> shards.Members:
        return {name: data for name, data in shards.pair(number).items() if name != "right.jpg" or number % 3}

    shards.make(tmp_path, SAMPLES, 2, without)
    with pytest.raises(foreload.SampleError, match=r'field "right.jpg".*optional=True'):
        list(load(tmp_path, ["left.jpg", "right.jpg"]))
    asked = [
        "left.jpg",
        fields.Image("right.jpg", optional=True),
        fields.Mask("seg.png", follows="right.jpg", optional=True),
    ]
    for batch in load(tmp_path, asked):
        present = array(batch.present("right.jpg"))
        assert present.tolist() == [bool(number % 3) for number in array(batch.sample_ids).tolist()]
        assert array(batch["left.jpg"]).reshape(8, -1).any(axis=1).all()
        for name in ("right.jpg", "seg.png"):
            assert array(batch[name]).reshape(8, -1).any(axis=1).tolist() == present.tolist()


@pytest.mark.parametrize("transforms", [LIST, []])
def test_what_follows_an_absent_image_is_absent(tmp_path: Path, transforms: list[Any]) -> None:
    """Its crop is unknown, and zeros that count as present would be trained on as background."""

    def without(number: int) -> shards.Members:
        return {name: data for name, data in shards.pair(number).items() if name != "left.jpg" or number != 1}

    shards.make(tmp_path, 4, 1, without)
    left = fields.Image("left.jpg", optional=True)
    masks = [fields.Mask("seg.png", optional=True), fields.Boxes("small.npy", optional=True)]
    settings = {"batch_size": 4, "shuffle": False}
    for batch in load(tmp_path, [left, "right.jpg", *masks], transforms, **settings):
        for name in ("left.jpg", "seg.png", "small.npy"):
            assert array(batch.present(name)).tolist() == [True, False, True, True]
        assert all(image.any() for image in each(batch["right.jpg"]))
        there = [mask is not None and mask.any() for mask in each(batch["seg.png"])]
        assert there == [True, False, True, True]
        assert array(batch["small.npy"][1]).tolist() == [0, 1, 1, 2, 3]
    for needed in ("seg.png", fields.Boxes("small.npy")):
        name = needed if isinstance(needed, str) else needed.name
        with pytest.raises(
            foreload.SampleError, match=rf'field "{name}": the sample has no "left.jpg", whose'
        ):
            list(load(tmp_path, [left, needed], transforms, **settings))
        one_failed, which = (
            pytest.warns(foreload.Warning, match="1 sample failed"),
            pytest.warns(foreload.Warning, match='has no "left.jpg"'),
        )
        with one_failed, which:
            (batch,) = load(tmp_path, [left, needed], transforms, on_error="zero", **settings)
        assert array(batch.mask).tolist() == [True, False, True, True]


def test_grays_of_16_bits_are_told_once_with_the_field_that_keeps_them(tmp_path: Path) -> None:
    values = np.arange(20 * 24, dtype=np.uint16).reshape(20, 24) * 100

    def made(number: int) -> shards.Members:
        rgb = shards.saved(Image.new("RGB", (24, 20)), "png")
        return {"jpg": shards.jpeg(np.random.default_rng(number), 24, 20), "depth.png": depth, "rgb.png": rgb}

    depth = shards.saved(Image.fromarray(values), "png")
    shards.make(tmp_path, 4, 1, made)
    settings = {"transforms": [T.ToDtype("uint8")], "batch_size": 2, "shuffle": False}
    batches = load(tmp_path, ["jpg", "depth.png"], **settings)
    with pytest.warns(foreload.Warning, match='16 bits of gray.*"depth.png" of sample [0-3] .*int32') as told:
        (first, _) = list(batches)
    assert len(told) == 1
    assert np.array_equal(array(first["depth.png"][1])[0], values >> 8)
    # Following the warning's advice silences it, and fields that it does not concern cause none.
    keeping = fields.Mask("depth.png", dtype="int32")
    for batch in load(tmp_path, ["jpg", "rgb.png", keeping], **settings):
        assert np.array_equal(array(batch["depth.png"][1]), values)


def test_views_are_found_by_the_occurrences_of_a_batch(root: Path) -> None:
    """If an epoch draws samples again, each draw has another crop, and the occurrence says which one."""
    crop = [T.RandomCrop(8), T.ToDtype("uint8")]
    loader = load(root, ["left.jpg"], crop, epoch_size=3 * SAMPLES, decode="exact")
    originals = load(root, ["left.jpg"], [T.ToDtype("uint8")], shuffle=False, train=False, decode="exact")
    whole = [array(image) for batch in originals for image in batch["left.jpg"]]
    drawn = set()
    for batch in loader:
        assert batch.occurrences.dtype == "int64"
        pairs = zip(array(batch.sample_ids).tolist(), array(batch.occurrences).tolist(), strict=True)
        for (sample, occurrence), image in zip(pairs, array(batch["left.jpg"]), strict=True):
            view = loader.view(sample, 0, occurrence=occurrence)
            top, left = view["y"] + view["top"], view["x"] + view["left"]
            assert np.array_equal(whole[sample][:, top : top + 8, left : left + 8], image)
            drawn.add((sample, occurrence))
    assert drawn == {(sample, occurrence) for sample in range(SAMPLES) for occurrence in range(3)}
    assert not any(array(batch.occurrences).any() for batch in originals)


def test_the_reason_for_the_cpu_names_the_field(root: Path) -> None:
    each = {"left.jpg": LIST, "right.jpg": []}
    loader = load(root, ["left.jpg", "right.jpg"], each, device="auto")
    assert (loader.device, load(root, ["left.jpg"]).device_reason) == ("cpu", "as asked")
    assert 'from the transforms of "right.jpg"' in loader.device_reason
    assert "without images" in load(root, ["cls"], None, device="auto").device_reason


def test_an_optional_field_that_no_sample_has_is_warned_of(root: Path) -> None:
    asked = ["left.jpg", fields.Text("caption.txt", optional=True), fields.Image("top.jpg", optional=True)]
    with pytest.warns(foreload.Warning, match=r'"caption.txt", which no sample of .* optional') as told:
        batches = list(load(root, asked))
    assert len(told) == 1
    for batch in batches:
        assert batch["caption.txt"] == [None] * 8
        assert not array(batch.present("top.jpg")).any()
        assert not array(batch["top.jpg"]).any()
    with pytest.raises(foreload.ConfigError, match=r'has "top.jpg", which no sample'):
        load(root, ["left.jpg", "top.jpg"])


def test_state_and_cache_are_those_of_all_fields(root: Path, tmp_path: Path) -> None:
    each = {"left.jpg": LIST, "right.jpg": LIST}
    whole = load(root, ["left.jpg", "right.jpg"], each)
    expected = [{name: array(field).copy() for name, field in batch.items()} for batch in whole]
    assert whole.fingerprint == foreload.ImageLoader(root, fields=["left.jpg"]).fingerprint
    for _ in range(2):
        cached = load(root, ["left.jpg", "right.jpg"], each, cache=foreload.Directory(tmp_path, "100MB"))
        batches = iter(cached)
        next(batches)
        state = cached.state_dict()
        resumed = load(root, ["left.jpg", "right.jpg"], each)
        resumed.load_state_dict(state)
        for one, other, batch in zip(expected[1:], batches, resumed, strict=True):
            for name, images in one.items():
                assert np.array_equal(array(batch[name]), images)
                assert np.array_equal(array(other[name]), images)
    assert batches.stats()["cache"]["tiers"]["nvme"]["hits"] == SAMPLES


def test_the_command_line_takes_them_as_json(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step = [{"RandomResizedCrop": {"size": 24}}]
    each = json.dumps({"left.jpg": step, "right.jpg": step})
    asked = ["--fields", "left.jpg,right.jpg", "--transforms"]
    usual = ["--batch-size", "8", "--epochs", "1"]
    assert checksums(root, *usual, *asked, each) == checksums(root, *usual, *asked, each)
    assert foreload._core.main(["foreload", "bench", str(root), *asked, '{"top.jpg": []}']) == 2
    assert 'names "top.jpg"' in capfd.readouterr().err
