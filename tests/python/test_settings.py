"""Settings are the same in signature, stub and help; a wrong value is a ConfigError that names the setting."""

from __future__ import annotations

import array
import ast
import copy
import decimal
import fractions
import inspect
import os
import pickle
import pydoc
import random
import time
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import ONLY_ALL
from foreload._docs import arguments

LOADERS = [foreload.Loader, foreload.ImageLoader, foreload.FileLoader]
OBJECTS = [of for of in vars(foreload).values() if isinstance(of, type) and hasattr(of, "__getnewargs_ex__")]
SMALL = {"batch_size": 4, "last_batch": "partial", "progress": False}
STUBS = [
    Path(foreload.__file__).with_name(f"_{part}.pyi")
    for part in ("loader", "loaders", "file_loader", "objects")
]


def parameters(of: type) -> dict[str, Any]:
    """Return defaults by name; `inspect.Parameter.empty` if there is none."""
    return {name: parameter.default for name, parameter in inspect.signature(of).parameters.items()}


def in_stub(of: type) -> dict[str, Any]:
    """Return the defaults in the stub."""
    nodes = [node for stub in STUBS for node in ast.parse(stub.read_text()).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    methods = {node.name: node for node in classes[of.__name__].body if isinstance(node, ast.FunctionDef)}
    said = methods["__new__"].args
    places = [inspect.Parameter.empty] * (len(said.args) - len(said.defaults)) + said.defaults
    pairs = [*zip(said.args, places, strict=True), *zip(said.kwonlyargs, said.kw_defaults, strict=True)]
    literal = {a.arg: ast.literal_eval(d) if isinstance(d, ast.AST) else d for a, d in pairs}
    return {name: default for name, default in literal.items() if name != "cls"}


@pytest.mark.parametrize("of", [*LOADERS, *OBJECTS])
def test_signature_stub_and_help_agree(of: type) -> None:
    assert parameters(of) == in_stub(of)
    assert set(parameters(of)) == set(arguments(of))
    shown = pydoc.plain(pydoc.render_doc(of))
    assert all(f" {name}: " in shown for name in parameters(of))
    assert all(f"{name}={default!r}" in shown for name, default in parameters(of).items() if default is None)


class Odd:
    """An object that is valid for no setting."""

    def __repr__(self) -> str:
        return "Odd()"


class Endless:
    """An object whose conversions return itself, endlessly."""

    def tolist(self) -> Endless:
        """Return itself, unlike an array."""
        return self

    def _as_setting(self) -> Endless:
        return self


class Rude:
    """An object that raises an error even in `repr`."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def _cycle() -> list:
    within: list = []
    within.append(within)
    return within


WRONG = [
    *(None, True, False, -1, 0, 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**40, 10**5000, -(10**40)),
    *(float("nan"), float("inf"), float("-inf"), 0.5, -0.0, 1e300, 5e-324, 1j),
    *("", " ", "-1", "nan", "two", "auto ", "\0", "\udc80", "ü" * 300, b"auto", bytearray(b"x")),
    *((), (1,), (1, 2, 3, 4), (None,), (0, 0), (-1, 4), [[1, 2], [3, 4]], [True, False], ["a", 1], [1, "a"]),
    *({}, {"a": "b"}, {"a": 1}, {1: 1.0}, {None: None}, {1.5: 2}, set(), {1}, frozenset({"a"}), range(3)),
    *((float("nan"),) * 3, (1, 1, float("inf")), [1e300] * 3, [0.1, 0.2, None], [10**40] * 2, [0.0, 0.0]),
    *(np.zeros(0), np.zeros(2), np.zeros((2, 2)), np.array("x"), np.array([None]), np.float64("nan")),
    *(np.int64(-1), np.uint64(2**64 - 1), np.bool_(True), np.str_("x"), np.datetime64("2026-11-22")),
    *(decimal.Decimal("NaN"), fractions.Fraction(-1, 3), array.array("i", [1, -2]), memoryview(b"ab")),
    *(object, len, Odd(), Endless(), Rude(), _cycle(), (x for x in [None]), ..., NotImplemented, foreload),
]

PATHS = {"files", "index_dir", "cache"}
"""Settings whose value may be any text: paths."""


def junk(draw: random.Random, depth: int = 0) -> Any:
    """Return a value of some type."""
    plain = [
        lambda: draw.choice(WRONG),
        lambda: draw.randint(-(2**70), 2**70),
        lambda: draw.uniform(-1e6, 1e6),
        lambda: "".join(chr(draw.randrange(1, 0x2FF)) for _ in range(draw.randrange(20))),
    ]
    nested = [
        lambda: [junk(draw, depth + 1) for _ in range(draw.randrange(5))],
        lambda: tuple(junk(draw, depth + 1) for _ in range(draw.randrange(5))),
        lambda: {str(draw.random()): junk(draw, depth + 1) for _ in range(draw.randrange(3))},
    ]
    return draw.choice(plain + (nested if depth < 3 else []))()


def attempt(of: type, dataset: Path, name: str, value: Any) -> None:
    """Give a setting a value: it works, or raises a ConfigError that names the setting."""
    if name in PATHS and isinstance(value, str):
        return
    try:
        loader = of(dataset, **{**SMALL, name: value})
        iter(loader)
    except foreload.ConfigError as error:
        assert name in str(error), f"{name}={value!r}"  # noqa: PT017
        assert len(str(error)) < 5000, name  # noqa: PT017
    except foreload.IoError:
        # The value is a path that does not exist.
        assert name in PATHS


@ONLY_ALL
@pytest.mark.parametrize("of", LOADERS)
@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_no_value_is_worse_than_a_config_error(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type
) -> None:
    monkeypatch.chdir(tmp_path)
    seed = int(os.environ.get("FORELOAD_SEED", time.time_ns()))
    draw = random.Random(seed)
    print(f"FORELOAD_SEED={seed}")
    for name in parameters(of).keys() - {"path"}:
        for value in [*WRONG, *(junk(draw) for _ in range(150))]:
            attempt(of, dataset, name, value)


@pytest.mark.parametrize("of", OBJECTS)
def test_no_member_is_worse_than_a_config_error(of: type) -> None:
    needed = {
        foreload.Directory: {"path": "cache", "size": "1GB"},
        foreload.Ram: {"size": "1GB"},
        foreload.Buckets: {"area": 4096},
    }.get(of, {})
    for name in parameters(of):
        for value in WRONG:
            try:
                of(**{**needed, name: value})
            except foreload.ConfigError as error:
                assert f".{name}" in str(error) or f" {name}: " in str(error)  # noqa: PT017


@pytest.mark.parametrize("of", LOADERS)
def test_a_path_is_a_path(of: type, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = [
        None,
        True,
        3,
        0.5,
        "",
        "\0",
        b"x",
        (),
        [],
        [None],
        [dataset, ""],
        {},
        {"a": 1},
        {1},
        Odd(),
        Rude(),
    ]
    for wrong in nothing:
        with pytest.raises(foreload.ConfigError, match=r"^config: path: is "):
            of(wrong)
    for refused in [lambda: of(), lambda: of(dataset, path=dataset), lambda: of(dataset, 256)]:
        with pytest.raises(foreload.ConfigError, match="path"):
            refused()
    assert (
        of(str(dataset), **SMALL).samples
        == of([dataset], **SMALL).samples
        == of(path=dataset, **SMALL).samples
    )


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("batch_size", -1, "is -1, must be a whole number from 1 to 4294967295"),
        ("batch_size", True, "is True, must be a whole number"),
        ("batch_size", None, "is None, must be a whole number"),
        ("image_size", (224,), r"is \(224,\), must be a whole number from 1 to 16384, or two of them"),
        ("mean", np.zeros(2), r"is \(0.0, 0.0\), must be three finite numbers"),
        ("flip", float("nan"), "is NaN, must be a number from 0 to 1"),
        ("dtype", "float64", 'is "float64", must be one of float32, float16, bfloat16, uint8'),
        ("train", 1, "is 1, must be True or False"),
        ("memory", "3 bananas", 'is "3 bananas", must be a number of bytes above 0, or a size'),
        ("indices", [4, 0.5], "has 0.5 at index 1, must be sample numbers"),
        ("classes", "cat", 'is "cat", must be a list of class names or class numbers'),
        ("cache", "/nvme", r'is "/nvme", must be a foreload.Directory\(path, size\)'),
        ("cache", [foreload.Directory("a", 1), foreload.Directory("b", 1)], "has foreload.Directory twice"),
        ("cache", [foreload.Directory("a", 1), foreload.Ram(1)], "before the faster foreload.Ram"),
        ("cache", [], r"must be a foreload.Directory\(path, size\), a foreload.Ram\(size\)"),
        ("cache", [None], "must be a foreload.Directory"),
        ("cache", [foreload.Ram("1MB"), None], r'is \(foreload.Ram\(size="1MB"\), None\), must be'),
        ("cache", [[foreload.Ram(1)]], "must be a foreload.Directory"),
        ("cache", {"Ram": 5}, "must be a foreload.Directory"),
        ("cache", {"path": "a"}, "cache.size: is not given"),
        ("resources", 3, r"is 3, must be a foreload.Resources\("),
        ("seed", Odd(), r"is Odd\(\), must be"),
    ],
)
def test_errors_say_what_would_be_right(dataset: Path, setting: str, value: object, message: str) -> None:
    with pytest.raises(foreload.ConfigError, match=message) as refused:
        foreload.ImageLoader(dataset, **{setting: value})
    assert str(refused.value).startswith(f"config: {setting}")


def test_lists_arrays_and_scalars_are_taken(dataset: Path) -> None:
    plain = foreload.ImageLoader(
        dataset, batch_size=4, image_size=(16, 24), mean=(0.5, 0.25, 0.125), flip=1.0
    )
    images = np.from_dlpack(next(iter(plain)).images)
    for same in [
        {"batch_size": np.uint8(4), "image_size": [16, 24], "mean": [0.5, 0.25, 0.125], "flip": 1},
        {"batch_size": np.array(4), "image_size": np.array([16, 24]), "mean": np.array([0.5, 0.25, 0.125])},
        {"batch_size": 4, "image_size": (16, 24), "mean": array.array("f", [0.5, 0.25, 0.125])},
    ]:
        loader = foreload.ImageLoader(dataset, **{"flip": np.float32(1), **same})
        assert np.array_equal(np.from_dlpack(next(iter(loader)).images), images)
    torch = pytest.importorskip("torch")
    tensors = {
        "batch_size": torch.tensor(4),
        "mean": torch.tensor([0.5, 0.25, 0.125]),
        "flip": torch.tensor(1.0),
    }
    loader = foreload.ImageLoader(dataset, image_size=torch.tensor([16, 24]), **tensors)
    assert np.array_equal(np.from_dlpack(next(iter(loader)).images), images)


def test_what_may_be_none_is_the_default(dataset: Path) -> None:
    for of in LOADERS:
        none = {name: None for name, default in parameters(of).items() if default is None and name != "path"}
        assert of(dataset, **{**SMALL, **none}).samples == 60
    names = ("mean", "std", "scale", "ratio", "max_pixels")
    foreload.ImageLoader(dataset, **SMALL, **dict.fromkeys(names))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("num_workers", "threads=N"),
        ("drop_last", 'last_batch="drop"'),
        ("transform", "from_torchvision"),
        ("pin_memory", 'device="cuda"'),
        ("prefetch_factor", "memory="),
        ("collate_fn", "remove it"),
        ("sampler", "indices="),
        ("persistent_workers", "remove it"),
        ("worker_init_fn", "no worker processes"),
        ("generator", "seed=N"),
        ("batchsize", "did you mean batch_size?"),
        ("imagesize", "did you mean image_size?"),
        ("zebra", r"help\(foreload.ImageLoader\)"),
    ],
)
def test_unknown_settings_are_answered_with_the_equivalent(dataset: Path, name: str, answer: str) -> None:
    with pytest.raises(foreload.ConfigError, match=answer) as refused:
        foreload.ImageLoader(dataset, **{name: 4})
    assert str(refused.value).startswith(f"config: {name}: is not a setting of ImageLoader")


def test_a_setting_of_images_is_none_of_files(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match=r"^config: image_size: .*ImageLoader"):
        foreload.FileLoader(dataset, image_size=4)
    with pytest.raises(foreload.ConfigError, match=r"^config: device_memory: .*ImageLoader"):
        foreload.FileLoader(dataset, resources=foreload.Resources(device_memory="1GB"))


@pytest.mark.parametrize(
    ("flat", "equivalent"),
    [
        ({"cache_dir": "/nvme", "cache_size": "1GB"}, 'cache=foreload.Directory("/nvme", "1GB")'),
        ({"cache_size": 5, "cache_fill": "use"}, 'cache=foreload.Directory(path, 5, fill="use")'),
        ({"stage_bandwidth": "1MB"}, 'cache=foreload.Directory(path, size, stage_bandwidth="1MB")'),
    ],
)
def test_former_keywords_of_the_cache_are_answered(dataset: Path, flat: dict, equivalent: str) -> None:
    for of in LOADERS:
        with pytest.raises(foreload.ConfigError) as refused:
            of(dataset, **flat)
        assert str(refused.value).endswith(f"use {equivalent}")


def test_no_setting_may_be_given_twice(dataset: Path) -> None:
    for resources in (foreload.Resources(threads=2), {"threads": 2}):
        with pytest.raises(
            foreload.ConfigError, match=r"^config: threads: .*threads=1.*Resources\(threads=2\)"
        ):
            foreload.ImageLoader(dataset, threads=1, resources=resources)
        loader = foreload.ImageLoader(dataset, threads=None, resources=resources)
        assert "threads=2" in repr(loader)
    with pytest.raises(foreload.ConfigError, match=r"^config: cache.path: is given twice"):
        foreload.Directory("a", 1, path="b")


def test_objects_are_values() -> None:
    directory = foreload.Directory("cache", "1GB", stage_bandwidth=10)
    assert (directory.path, directory.size, directory.fill, directory.stage_bandwidth) == (
        "cache",
        "1GB",
        "auto",
        10,
    )
    assert repr(directory) == 'foreload.Directory(path="cache", size="1GB", stage_bandwidth=10)'
    resources = foreload.Resources(threads=3, io="pread")
    assert (resources.threads, resources.io, resources.memory) == (3, "pread", None)
    memory = foreload.Ram("20GB")
    assert (memory.size, repr(memory)) == ("20GB", 'foreload.Ram(size="20GB")')
    for made in (directory, resources, memory):
        same = [copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
        assert all(one == made and hash(one) == hash(made) for one in same)
        with pytest.raises(AttributeError, match="nothing"):
            _ = made.nothing
    assert directory != foreload.Directory("cache", "2GB", stage_bandwidth=10)
    assert directory != resources
    for refused in [
        lambda: foreload.Directory("a"),
        lambda: foreload.Directory(size=1),
        lambda: foreload.Ram(),
        lambda: foreload.Ram("much"),
        lambda: foreload.Ram(1, 2),
        lambda: foreload.Directory("a", 1, "use", None, 5),
        lambda: foreload.Resources(4),
        lambda: foreload.Resources(thread=4),
    ]:
        with pytest.raises(foreload.ConfigError):
            refused()


def test_classes_that_forward_settings_check_them(dataset: Path) -> None:
    dali = pytest.importorskip("foreload.dali")
    for wrong in [
        {"prefetch_queue_depth": "2"},
        {"prefetch_queue_depth": 0},
        {"keep": 3},
        {"batch_size": "4"},
    ]:
        with pytest.raises(foreload.ConfigError, match=f"config: {next(iter(wrong))}: "):
            dali.ImageSource(dataset, **wrong)
    torch = pytest.importorskip("foreload.torch", exc_type=ImportError)
    for wrong in [
        {"num_workers": 4},
        {"memory_format": 3},
        {"dtype": "x"},
        {"device": -1},
        {"batch_size": -1},
    ]:
        with pytest.raises(foreload.ConfigError, match=f"config: {next(iter(wrong))}: "):
            torch.ImageDataset(dataset, **wrong)
