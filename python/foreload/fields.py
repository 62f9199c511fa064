"""The fields of a batch: the members of each sample that are read, and their form in a batch.

    loader = foreload.ImageLoader("shards", batch_size=8, fields=["jpg", Mask("seg.png"), Text("txt", optional=True)])
    for batch in loader:
        batch["jpg"], batch["seg.png"], batch["txt"]

The first argument of a field is its source, where its values come from. For a member of a shard, this is the part after
the first dot of the member's name, in lower case: `0001.seg.png` is `seg.png`. `image` is a sample's image with any
extension, and `label` its class number. In parallel directories, the source is a directory or a pattern with one `*`:
`fields=["images", Mask("masks")]`. `name` is what batches call the field, by default its source.

The end of a source decides the field's kind. An extension of images, such as `jpg` or `png`, means an image, and
`seg.png` and `mask.png` mean a mask. `txt` means text, `json` JSON, `npy` an array, `cls` a whole number, and anything
else bytes. Use one of the classes here to choose another kind or to set more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

__all__ = ["Array", "Boxes", "Bytes", "Field", "Float", "Image", "Integer", "Json", "Mask", "Text"]


@dataclass(frozen=True)
class Field:
    """A field of the batches. Use one of its subclasses.

    Args:
        source: Where its values come from: a member of the shards, a column of a table, `image` or `label`.
        optional: Whether samples may lack it; `batch.present(name)` returns which have it. A sample that lacks a field
            fails, unless the field is optional.
        name: What batches call it: `batch[name]`. By default, this is the source. Several fields may have the same
            source if their names differ.
    """

    source: str = ""
    _kind: ClassVar[str] = ""
    optional: bool = False
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        """Complete a field that has only a source or only a name."""
        if not (self.source or self.name):
            raise TypeError(f"{type(self).__name__} needs a source: where the field's values come from")
        object.__setattr__(self, "source", self.source or self.name)
        object.__setattr__(self, "name", self.name or self.source)

    def _as_setting(self) -> dict[str, Any]:
        return {"kind": self._kind, **vars(self)}


@dataclass(frozen=True)
class Image(Field):
    """An image, which goes through the loader's transforms: a tensor of their dtype, [n, 3, height, width].

    An optional image that is absent is zeros; `batch.present(name)` returns where.

    Args:
        follows: The name of the image that this one follows: it goes through the same transforms with the same random
            numbers, like two images in one call of torchvision v2. Both must have the same size. None: if `transforms`
            is a list, all images follow the first; if it is a dict, this image has its own transforms in it.
    """

    _kind: ClassVar[str] = "image"
    follows: str | None = None


@dataclass(frozen=True)
class Mask(Field):
    """A mask of class numbers, a PNG of one channel: [n, height, width].

    It gets the geometry of its image, and every value in it is one of the file's: palette indices and 16-bit values are
    kept. It must have the size of its image. If its image is absent, the mask is also absent; the sample fails unless
    the mask is optional.

    Args:
        dtype: The type of the values: `uint8`, `int32` or `int64`. With `uint8` a sample with a value above 255 fails.
        interpolation: `nearest`, which torchvision uses for masks, or `nearest-exact`.
        follows: The name of the image that it is the mask of. None: the first image.
    """

    _kind: ClassVar[str] = "mask"
    dtype: Literal["uint8", "int32", "int64"] = "uint8"
    interpolation: Literal["nearest", "nearest-exact"] = "nearest"
    follows: str | None = None


@dataclass(frozen=True)
class Boxes(Field):
    """Boxes in an image, an array [boxes, 4] as `numpy.save` writes it, in pixels of the whole image.

    They get the geometry of their image and are clipped to the part of it that is shown. In a batch they are a pair
    (values, offsets) in host memory: float32 [boxes of all samples, 4] and int64 [n + 1], where sample i has
    `values[offsets[i]:offsets[i + 1]]`. A sample that lacks an optional one, or their image, has no boxes.

    Args:
        format: `xyxy` (left, top, right, bottom), `xywh` (left, top, width, height) or `cxcywh` (centre, width,
            height), in the file and in the batch.
        shares: Whether a fifth number is the fraction of each box's area that is left, 0 for a box that is not shown.
        follows: The name of the image that they are in. None: the first image.
    """

    _kind: ClassVar[str] = "boxes"
    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    shares: bool = False
    follows: str | None = None


@dataclass(frozen=True)
class Text(Field):
    """A UTF-8 text. A batch has a list of n `str`, with None where an optional text is absent.

    A column of `labels=` of this kind keeps its cells as they are written: `007` stays `007`.
    """

    _kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Json(Field):
    """A JSON document. A batch has a list of results of `json.loads`, with None where an optional document is absent.

    All documents that `json.loads` accepts are accepted, also with NaN and Infinity, a byte order mark, UTF-16 and
    UTF-32. `batch.present(name)` distinguishes an absent document from `null`.
    """

    _kind: ClassVar[str] = "json"


@dataclass(frozen=True)
class Array(Field):
    """An array of numbers: of a container, such as `.npy`, or a member as `numpy.save` writes it.

    If the type and the shape are the same in all samples of a container, or `dtype` and `shape` give them, a batch has
    one tensor, [n, ...]. An optional array that is absent is zeros.

    Otherwise the arrays are in host memory. If all arrays of a batch have the same type and shape, they are one tensor,
    [n, ...]. If only their first dimensions differ, they are a pair (values, offsets): the rows of all samples, and
    int64 [n + 1], where sample i has `values[offsets[i]:offsets[i + 1]]`. Otherwise they are a list of tensors. A
    sample without an array, because it failed or the array is optional, does not change that. It has zeros in the
    tensor, no rows in the pair, and None in the list.

    Elements become (element · scale + offset - mean) / std, rounded after each step as by NumPy, in float64 if the
    dtype is float64 or the stored type needs it, else in float32.

    Args:
        ragged: Whether a batch always has the pair, even if all of its arrays have the same shape. Arrays that cannot
            be rows of one pair are then a ConfigError.
        dtype: The type of the elements in batches, as a text, or as a type of NumPy or torch. Integers that it cannot
            hold are an error of their sample, and floats do not become integers. None: the stored type, or a float
            type if floats are computed.
        cf: Whether the attributes of NetCDF's conventions decode the elements, as xarray does it: `scale_factor`,
            `add_offset`, `_FillValue`, `missing_value` and `_Unsigned`. `scale`, `offset` and `missing` replace them.
        scale: The factor of each element.
        offset: The summand of each element.
        missing: The elements, as they are stored, that become NaN: a number or several.
        mean: The number that is subtracted, or a list with a number for each index along `axis`.
        std: The number to divide by, or a list like that of `mean`.
        axis: The dimension of a sample's array along which `mean` and `std` differ.
        shape: The shape of each sample's array. An array with another shape is an error of its sample.
        window: The part of each array that batches have: its length in each dimension of a sample's array, or None
            to take a dimension whole. Of a container's arrays that are not compressed, only the bytes of windows are
            read, and of others the chunks that windows touch. Members are read whole.
        at: Where the window is: `random`, drawn again each time a sample is used; `center`; or the first index in each
            dimension.
        follows: The name of another array with a window: this field has windows at the same places, such as the labels
            of a volume. Both must be arrays of containers, with the same lengths in these dimensions. This field's
            arrays may have further dimensions, which are taken whole.
        pad: The value, in the array's own type, of elements of a window that are outside of the array. None: a sample
            whose array is smaller than the window fails. With `random`, a smaller array is at a random place in the
            window, with `center` in its middle, and otherwise at its beginning.
    """

    _kind: ClassVar[str] = "array"
    ragged: bool = False
    window: Sequence[int | None] | None = field(default=None, kw_only=True)
    at: Literal["random", "center"] | Sequence[int] = field(default="random", kw_only=True)
    follows: str | None = field(default=None, kw_only=True)
    pad: float | None = field(default=None, kw_only=True)
    dtype: Any = field(default=None, kw_only=True)
    cf: bool = field(default=False, kw_only=True)
    scale: float | None = field(default=None, kw_only=True)
    offset: float | None = field(default=None, kw_only=True)
    missing: float | Sequence[float] | None = field(default=None, kw_only=True)
    mean: float | Sequence[float] | None = field(default=None, kw_only=True)
    std: float | Sequence[float] | None = field(default=None, kw_only=True)
    axis: int | None = field(default=None, kw_only=True)
    shape: Sequence[int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Name the type of the elements."""
        super().__post_init__()
        if self.dtype is not None and not isinstance(self.dtype, str):
            name = getattr(self.dtype, "__name__", None) or getattr(self.dtype, "name", None) or self.dtype
            object.__setattr__(self, "dtype", str(name).removeprefix("torch."))


@dataclass(frozen=True)
class Integer(Field):
    """A whole number as text: int64 [n]. An optional number that is absent is 0; see `batch.present(name)`.

    A column of `labels=` of this kind has whole numbers; an error names the first cell with something else.
    """

    _kind: ClassVar[str] = "integer"


@dataclass(frozen=True)
class Float(Field):
    """A decimal number as text: float32 [n]. An optional number that is absent is 0; see `batch.present(name)`.

    `inf` and `nan` are numbers. A finite number outside of float32's range is an error of its sample. A column of
    `labels=` of this kind is rounded to float32, also whole numbers.
    """

    _kind: ClassVar[str] = "float"


@dataclass(frozen=True)
class Bytes(Field):
    """The bytes of a member. A batch has a list of n `bytes`, with None where an optional member is absent."""

    _kind: ClassVar[str] = "bytes"
