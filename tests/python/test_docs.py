"""`help()` explains every setting."""

from __future__ import annotations

import inspect

import foreload
import pytest
from foreload._docs import arguments


@pytest.mark.parametrize("loader", [foreload.Loader, foreload.ImageLoader, foreload.FileLoader])
def test_every_parameter_of_a_loader_has_a_paragraph(loader: type) -> None:
    said = arguments(loader)
    assert set(inspect.signature(loader).parameters) == set(said)
    assert all(len(text.split(": ", 1)[1]) > 10 for text in said.values())
    assert "As `ImageLoader`'s" not in (loader.__doc__ or "")


def test_a_class_explains_the_settings_that_it_forwards() -> None:
    torch = pytest.importorskip("foreload.torch", exc_type=ImportError)
    said = arguments(torch.Dataset)
    assert set(arguments(foreload.Loader)) < set(said)
    said = arguments(torch.ImageDataset)
    assert set(arguments(foreload.ImageLoader)) < set(said)
    assert "with_mask" in said
    assert "torch.channels_last" in said["memory_format"], "its own word stands"


def test_streams_explain_the_settings_of_their_loader() -> None:
    said = arguments(foreload.StreamLoader)
    assert set(inspect.signature(foreload.StreamLoader).parameters) == set(said)
    for module, name in (("foreload.torch", "ImageStream"), ("foreload.dali", "StreamSource")):
        made = getattr(pytest.importorskip(module, exc_type=ImportError), name)
        assert set(said) <= set(arguments(made))
        assert "samples_per_insert" in made.__doc__
