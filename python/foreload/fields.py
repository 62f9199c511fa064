"""The fields of a batch: what of each sample is read, and what becomes of it.

    loader = foreload.ImageLoader("shards", batch_size=8, fields=["jpg", Mask("seg.png"), Text("txt", optional=True)])
    for batch in loader:
        batch["jpg"], batch["seg.png"], batch["txt"]

A field is named by what follows the first dot of its member's name in the shard, in lower case: `0001.seg.png` is
`seg.png`. `image` is a sample's image whatever its extension, `label` its class number. A name alone means the kind
that its end says: the extension of an image, as `jpg` or `png`, an image; `seg.png`, `mask.png` a mask; `txt` text;
`json` JSON; `npy` an array; `cls` a whole number; anything else bytes. The classes here say another kind, or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Array", "Boxes", "Bytes", "Field", "Float", "Image", "Integer", "Json", "Mask", "Text"]


@dataclass(frozen=True)
class Field:
    """A field of the batches. Make one of its kinds.

    Args:
        name: The key of the member in the shards, `image` or `label`.
        optional: Samples may be without it, and `batch.present(name)` says which have it. A sample without one that is
            not optional is a failed sample.
    """

    name: str
    _kind: ClassVar[str] = ""
    optional: bool = False

    def _as_setting(self) -> dict[str, Any]:
        return {"kind": self._kind, **vars(self)}


@dataclass(frozen=True)
class Image(Field):
    """An image, which goes through the loader's transforms: a tensor of their dtype, [n, 3, height, width].

    Zeros where an optional one is absent; `batch.present(name)` says where.

    Args:
        follows: The image that leads this one: it goes through the same transforms with the same random numbers, as two
            images in one call of torchvision v2 do. Both must be of one size. None: where `transforms` is a list, the
            first image leads all others; where it is a dict, this image has transforms of its own there.
    """

    _kind: ClassVar[str] = "image"
    follows: str | None = None


@dataclass(frozen=True)
class Mask(Field):
    """A mask of class numbers, a PNG of one channel: [n, height, width].

    It goes through the geometry of its image, and each value is one of the file's: palette indices stay what they are,
    and 16-bit values too. It must be as large as its image.

    Args:
        dtype: Type of the values: `uint8`, where a value above 255 is an error of its sample, `int32` or `int64`.
        interpolation: `nearest`, torchvision's for masks, or `nearest-exact`.
        follows: The image that it is the mask of. None: the first.
    """

    _kind: ClassVar[str] = "mask"
    dtype: Literal["uint8", "int32", "int64"] = "uint8"
    interpolation: Literal["nearest", "nearest-exact"] = "nearest"
    follows: str | None = None


@dataclass(frozen=True)
class Boxes(Field):
    """Boxes in an image, an array [boxes, 4] as `numpy.save` writes it, in pixels of the whole image.

    They go through the image's geometry and are clipped to what is shown of it: a pair (values, offsets), float32
    [boxes of all samples, 4] and int64 [n + 1], sample i having `values[offsets[i]:offsets[i + 1]]`. In host memory. A
    sample without has no boxes; `batch.present(name)` says which have an optional one.

    Args:
        format: `xyxy` (left, top, right, bottom), `xywh` (left, top, width, height) or `cxcywh` (centre, width,
            height), in the file and in the batch.
        shares: A fifth number says what share of each box's area is left: 0 of one that is not shown.
        follows: The image that they are in. None: the first.
    """

    _kind: ClassVar[str] = "boxes"
    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    shares: bool = False
    follows: str | None = None


@dataclass(frozen=True)
class Text(Field):
    """UTF-8 text: a list of n `str`, or None where an optional one is absent.

    A column of `labels=` by this kind has its cells as they are written: `007` stays `007`.
    """

    _kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Json(Field):
    """A JSON document: a list of n of what `json.loads` gives, or None where an optional one is absent.

    What `json.loads` takes is taken: also NaN and Infinity, a byte order mark, UTF-16 and UTF-32. `batch.present(name)`
    tells an absent one from `null`.
    """

    _kind: ClassVar[str] = "json"


@dataclass(frozen=True)
class Array(Field):
    """An array of numbers as `numpy.save` writes it, in host memory.

    Where all arrays of a batch have one type and shape it is one tensor, [n, ...]; where they differ in their first
    dimension alone, a pair (values, offsets): the rows of all samples, and int64 [n + 1], sample i having
    `values[offsets[i]:offsets[i + 1]]`; else, of arrays of several types, of single numbers beside others, or of rows
    of several sizes, a list of tensors. A sample without, because it failed or an optional one is absent, has zeros in
    the tensor, no rows in the pair, and None in the list, and does not change which of these it is.

    Args:
        ragged: Always the pair, also where all arrays of a batch happen to have one shape. Arrays that cannot be rows
            of one pair are a ConfigError.
    """

    _kind: ClassVar[str] = "array"
    ragged: bool = False


@dataclass(frozen=True)
class Integer(Field):
    """A whole number as text: int64 [n]; 0 where an optional one is absent, as `batch.present(name)` says.

    A column of `labels=` by this kind is whole numbers, or an error names the first other one.
    """

    _kind: ClassVar[str] = "integer"


@dataclass(frozen=True)
class Float(Field):
    """A decimal number as text: float32 [n]; 0 where an optional one is absent, as `batch.present(name)` says.

    `inf` and `nan` are numbers; a finite number beyond what float32 holds is an error of its sample. A column of
    `labels=` by this kind is rounded to float32, whole numbers too.
    """

    _kind: ClassVar[str] = "float"


@dataclass(frozen=True)
class Bytes(Field):
    """The member's bytes: a list of n `bytes`, or None where an optional one is absent."""

    _kind: ClassVar[str] = "bytes"
