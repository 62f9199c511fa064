"""`mix=`: the contents of batches of mixed images, their use in torch and in checkpoints, and refused settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import checksums
from foreload import ConfigError, ImageLoader
from foreload import transforms as T

CLASSES = 3
CHOICE = [T.RandomChoice([T.MixUp(alpha=0.4, num_classes=CLASSES), T.CutMix(num_classes=CLASSES)])]
SIZE = 32


def load(dataset: Path, **settings: Any) -> ImageLoader:
    """Return a loader of small images on the CPU."""
    usual = {"batch_size": 20, "image_size": SIZE, "seed": 3, "device": "cpu"}
    return ImageLoader(dataset, **{**usual, **settings})


def partner_of(place: int) -> int:
    """Return the place whose image is mixed into a place: the place before it in its group of four, or the last for the
    first.
    """
    return place - 1 if place % 4 else place + 3


def blended(image: np.ndarray, partner: np.ndarray, mix: dict[str, Any], nhwc: bool = False) -> np.ndarray:
    """Return an image mixed by the formula, in float32."""
    own, other = np.float32(mix["lam"]), np.float32(1.0 - mix["lam"])
    if mix["transform"] == "MixUp":
        return image * own + partner * other
    left, top, right, bottom = mix["box"]
    box = (slice(top, bottom), slice(left, right))
    pasted = image.copy()
    pasted[box if nhwc else (slice(None), *box)] = partner[box if nhwc else (slice(None), *box)]
    return pasted


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("memory_format", ["nchw", "nhwc"])
def test_mixed_images_are_the_formula_of_unmixed_ones(dataset: Path, dtype: str, memory_format: str) -> None:
    as_asked = {"dtype": dtype, "memory_format": memory_format}
    mixed, plain = load(dataset, mix=CHOICE, **as_asked), load(dataset, **as_asked)
    seen = set()
    for batch, unmixed in zip(mixed, plain, strict=True):
        images, originals = (np.from_dlpack(b.images).astype(np.float32) for b in (batch, unmixed))
        labels, classes = np.from_dlpack(batch.labels), np.from_dlpack(unmixed.labels)
        hard, partners, shares = map(np.from_dlpack, batch.mixed)
        assert labels.dtype == np.float32
        assert labels.shape == (20, CLASSES)
        assert (labels == np.from_dlpack(batch["label"])).all()
        assert (hard == classes).all()
        for place in range(20):
            mix = mixed.mix(batch.step * 20 + place, 0)
            other = partner_of(place)
            seen.add(mix["transform"])
            expected = blended(originals[place], originals[other], mix, memory_format == "nhwc")
            assert (images[place] == expected.astype(dtype).astype(np.float32)).all()
            assert partners[place] == classes[other]
            assert shares[place] == np.float32(mix["lam"])
            hot = np.eye(CLASSES, dtype=np.float32)
            own, rest = np.float32(mix["lam"]), np.float32(1.0 - mix["lam"])
            assert (labels[place] == hot[classes[place]] * own + hot[classes[other]] * rest).all()
    assert seen == {"MixUp", "CutMix"}


def test_bfloat16_is_rounded_once(dataset: Path) -> None:
    torch = pytest.importorskip("torch", reason="NumPy has no bfloat16")
    mix = T.MixUp(num_classes=CLASSES)
    mixed, plain = (load(dataset, dtype="bfloat16", mix=mix), load(dataset, dtype="bfloat16"))
    for batch, unmixed in zip(mixed, plain, strict=True):
        images, originals = (torch.from_dlpack(b.images) for b in (batch, unmixed))
        for place in range(20):
            mix = mixed.mix(batch.step * 20 + place, 0)
            # Some builds of torch lack NumPy; DLPack works without it.
            image, partner = (np.from_dlpack(originals[of].float()) for of in (place, partner_of(place)))
            expected = torch.from_dlpack(blended(image, partner, mix)).bfloat16()
            assert torch.equal(images[place], expected)


def test_views_and_further_images_share_what_is_drawn(dataset: Path) -> None:
    steps = [T.RandomResizedCrop(SIZE), T.ToDtype("float32"), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    views = T.Views(2, steps)
    mixed, plain = (
        ImageLoader(dataset, batch_size=20, transforms=views, mix=mix, device="cpu") for mix in (CHOICE, None)
    )
    for batch, unmixed in zip(mixed, plain, strict=True):
        for view, original in zip(batch["image"], unmixed["image"], strict=True):
            view, original = np.from_dlpack(view), np.from_dlpack(original)
            for place in range(20):
                mix = mixed.mix(batch.step * 20 + place, 0)
                assert (view[place] == blended(original[place], original[partner_of(place)], mix)).all()


def test_without_a_number_of_classes_labels_come_with_the_partners(dataset: Path) -> None:
    loader = load(dataset, mix=[T.CutMix()])
    for batch in loader:
        labels, (same, partners, shares) = np.from_dlpack(batch.labels), map(np.from_dlpack, batch.mixed)
        assert labels.dtype == np.int64
        assert (labels == same).all()
        assert (partners == labels[[partner_of(place) for place in range(20)]]).all()
        assert shares.dtype == np.float32
        assert (shares == shares[0]).all()
    with pytest.raises(AttributeError, match="mix= is not set"):
        _ = next(iter(load(dataset))).mixed


def test_vectors_and_columns_are_labels_too(dataset: Path) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.integers(0, 2, (60, 5)).astype(bool)
    loader = load(dataset, mix=[T.MixUp()], labels=vectors)
    batch = next(iter(loader))
    ids, labels = np.from_dlpack(batch.sample_ids), np.from_dlpack(batch.labels)
    for place in range(20):
        lam = loader.mix(place, 0)["lam"]
        own, other = (vectors[ids[of]].astype(np.float32) for of in (place, partner_of(place)))
        assert (labels[place] == own * np.float32(lam) + other * np.float32(1 - lam)).all()
    with pytest.raises(AttributeError, match="vectors, not class numbers"):
        _ = batch.mixed
    classes = rng.integers(0, 7, 60)
    batch = next(iter(load(dataset, mix=[T.MixUp(num_classes=7)], labels=classes)))
    assert (np.from_dlpack(batch.mixed[0]) == classes[np.from_dlpack(batch.sample_ids)]).all()
    assert np.from_dlpack(batch.labels).shape == (20, 7)


def test_torch_and_dali_get_mixed_labels(dataset: Path) -> None:
    torch = pytest.importorskip("torch")
    from foreload.dali import ImageSource
    from foreload.torch import ImageDataset

    usual = {"batch_size": 20, "image_size": SIZE, "seed": 3, "device": "cpu"}
    soft = ImageDataset(dataset, **usual, mix=CHOICE)
    assert "mix=" in repr(soft)
    hard = ImageDataset(dataset, **usual, mix=T.MixUp())
    named = ImageDataset(dataset, **usual, mix=T.MixUp(), fields=["image", "label"])
    expected = np.from_dlpack(next(iter(load(dataset, mix=CHOICE))).labels)
    images, labels = next(iter(soft))
    assert images.shape == (20, 3, SIZE, SIZE)
    assert (np.from_dlpack(labels) == expected).all()
    images, (labels, partners, shares) = next(iter(hard))
    batch = next(iter(named))
    assert torch.equal(batch["label"], labels)
    assert torch.equal(batch["label.partner"], partners)
    assert torch.equal(batch["label.share"], shares)
    assert torch.equal(batch["image"], images)
    source = ImageSource(dataset, **usual, mix=CHOICE)
    info = type("BatchInfo", (), {"iteration": 0, "epoch_idx": 0})()
    assert (np.asarray(source(info)[1]) == expected).all()
    with pytest.raises(ConfigError, match="mix: has no num_classes"):
        ImageSource(dataset, **usual, mix=T.MixUp())


def test_a_checkpoint_knows_the_mix(dataset: Path) -> None:
    loader = load(dataset, mix=CHOICE)
    state = loader.state_dict()
    load(dataset, mix=CHOICE).load_state_dict(state)
    for mix in (None, T.MixUp(alpha=0.4, num_classes=CLASSES)):
        with pytest.raises(ConfigError, match="mix was"):
            load(dataset, mix=mix).load_state_dict(state)
    # States that were written before `mix` existed have no mix.
    old = {name: value for name, value in load(dataset).state_dict().items() if name != "mix"}
    load(dataset).load_state_dict(old)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mix": []}, "mix: is empty"),
        ({"mix": [T.MixUp(), T.CutMix()]}, "several transforms"),
        ({"mix": [T.MixUp(alpha=0)]}, "MixUp: alpha: is 0"),
        ({"mix": "MixUp"}, "mix: is 'MixUp', must be a list"),
        ({"mix": [T.Resize(3)]}, "unknown variant `Resize`"),
        ({"mix": [T.MixUp]}, "must be a list of one of"),
        ({"mix": T.MixUp(), "batch_size": 5}, "batch_size: is 5, must be a multiple of 4"),
        ({"mix": T.MixUp(), "dtype": "uint8"}, "but these are uint8"),
        ({"mix": T.MixUp(), "decoded": False}, "decoded=False"),
        ({"mix": T.MixUp(num_classes=2)}, "it must be at least 3"),
        ({"mix": T.MixUp(), "fields": ["image"]}, 'add "label"'),
        ({"mix": T.MixUp(), "labels": [-1] * 60}, "class numbers start at 0"),
        ({"mix": T.MixUp(num_classes=4), "labels": [[0.5, 1.5]] * 60}, "vectors of length 2"),
        ({"mix": T.MixUp(num_classes=4), "labels": [0.5] * 60}, "not classes"),
        ({"transforms": [T.MixUp()]}, "pass it as mix="),
    ],
)
def test_what_cannot_be_is_refused(dataset: Path, settings: dict[str, Any], said: str) -> None:
    if "transforms" not in settings:
        settings = {"image_size": SIZE, **settings}
    with pytest.raises(ConfigError) as error:
        ImageLoader(dataset, **{"batch_size": 20, "device": "cpu", **settings})
    assert said in str(error.value), error.value


def test_sizes_that_differ_cannot_be_pasted(dataset: Path) -> None:
    steps = [T.ToDtype("float32"), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    views = [T.Views(1, [T.RandomResizedCrop(side), *steps]) for side in (32, 16)]
    with pytest.raises(ConfigError, match="CutMix, which needs images of one size"):
        ImageLoader(dataset, transforms=views, mix=T.CutMix())
    loader = ImageLoader(dataset, batch_size=20, transforms=views, mix=T.MixUp(), device="cpu")
    assert [view.shape[-1] for view in next(iter(loader))["image"]] == [32, 16]
    own = [T.Resize(20), *steps]
    with pytest.raises(ConfigError, match="needs images of one size"):
        ImageLoader(dataset, transforms=own, mix=T.MixUp())


def test_parameters_have_types(dataset: Path) -> None:
    for make, said in (
        (lambda: T.MixUp(alpha="a"), "mix: MixUp: alpha"),
        (lambda: T.CutMix(num_classes=1.5), "mix: CutMix: num_classes"),
        (
            lambda: load(dataset, mix=T.CutMix(num_classes=-1)),
            "mix: CutMix: num_classes: is -1, must be .* from 1 to",
        ),
        (lambda: T.RandomChoice([T.MixUp()], p=["a"]), "RandomChoice: p"),
        (lambda: T.RandomChoice([T.MixUp(), T.RandomHorizontalFlip()]), "RandomChoice: transforms"),
        (lambda: load(dataset, mix=T.RandomChoice([T.RandomHorizontalFlip()])), "mix: unknown variant"),
    ):
        with pytest.raises(ConfigError, match=said):
            make()
    assert T.MixUp(alpha=np.float32(0.5)) == T.MixUp(alpha=0.5)


def test_the_command_line_takes_it(dataset: Path) -> None:
    usual = ["--batch-size", "20", "--image-size", "32", "--epochs", "1"]
    mix = ["--mix", '[{"CutMix": {"num_classes": 3}}]']
    plain, mixed, alone = (checksums(dataset, *usual, *more) for more in ([], mix, [*mix, "--threads", "1"]))
    assert plain != mixed == alone
