"""Functions that bring parameters of transforms into their usual form, or raise `ValueError` with what they must be."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from foreload._core import DTYPES


def shown(given: Any) -> str:
    """Return the `repr` of an object, which may fail."""
    try:
        return repr(given)
    except Exception:
        return f"a {type(given).__name__}"


def whole(given: Any) -> int:
    """Return a whole number of pixels, given as any type of number."""
    if not is_number(given) or int(given) != given or not 0 <= given < 2**32:
        raise ValueError("a whole number from 0 on")
    return int(given)


def integer(given: Any) -> int:
    """Return a whole number, which may be negative."""
    if not is_number(given) or int(given) != given or not -(2**31) <= given < 2**31:
        raise ValueError("a whole number")
    return int(given)


def is_number(given: Any) -> bool:
    """Return whether an object is a finite number, of any type."""
    if not isinstance(given, numbers.Real) or isinstance(given, bool):
        return False
    try:
        return math.isfinite(given)
    except OverflowError:
        # A whole number or a fraction beyond what a float holds.
        return False


def items_of(given: Any) -> list[Any] | None:
    """Return the items of a sequence, an array or a tensor; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return list(given) if is_list else None


def wholes(given: Any) -> list[int]:
    """Return one whole number or several as a list, which is empty if anything else is among them."""
    items = items_of(given)
    try:
        return [whole(given)] if items is None else list(map(whole, items))
    except ValueError:
        return []


def number(given: Any) -> float:
    """Return a number."""
    if not is_number(given):
        raise ValueError("a number")
    return float(given)


def numbers_of(count: int, what: str) -> Any:
    """Return a check for a sequence of `count` numbers."""

    def check(given: Any) -> tuple[float, ...]:
        items = items_of(given)
        if items is None or len(items) != count or not all(map(is_number, items)):
            raise ValueError(what)
        return tuple(map(float, items))

    return check


def sides(given: Any) -> tuple[int, int]:
    """Return height and width; one number is a square."""
    listed = wholes(given)
    if len(listed) not in (1, 2):
        raise ValueError("a number of pixels, or a height and a width")
    return listed[0], listed[-1]


def resize_sides(given: Any) -> int | tuple[int, int] | None:
    """Return a size for `Resize`; one number is the shorter side's, also in a list."""
    if given is None:
        return None
    items = items_of(given)
    height, width = sides(given)
    return height if items is None or len(items) == 1 else (height, width)


def lengths(given: Any) -> tuple[int, ...]:
    """Return lengths of which one is drawn; a number is the only one."""
    items = items_of(given)
    try:
        return (whole(given),) if items is None else tuple(map(whole, items))
    except ValueError:
        raise ValueError("a whole number of pixels, or a list of such") from None


def rectangle(given: Any) -> tuple[int, int]:
    """Return a width and a height."""
    listed = wholes(items_of(given) or ())
    if len(listed) != 2:
        raise ValueError("two whole numbers of pixels, a width and a height")
    return listed[0], listed[1]


def margins(given: Any) -> int | tuple[int, int] | tuple[int, int, int, int]:
    """Return pixels around an image, from torchvision's sequences of one, two or four numbers."""
    listed = wholes(given)
    if len(listed) == 1:
        return listed[0]
    if len(listed) not in (2, 4):
        raise ValueError(
            "a whole number of pixels, or two (left and right, top and bottom), or four (left, top, right, bottom)"
        )
    return tuple(listed)  # type: ignore[return-value]


def fill(given: Any) -> int | tuple[int, int, int]:
    """Return grey levels; None is 0, as in torchvision."""
    if given is None:
        return 0
    listed = wholes(given)
    if len(listed) not in (1, 3) or max(listed) > 255:
        raise ValueError("a grey level from 0 to 255, or three of R, G and B")
    return listed[0] if len(listed) == 1 else (listed[0], listed[1], listed[2])


def truth(given: Any) -> bool:
    """Return a truth value, also NumPy's."""
    if isinstance(given, bool) or type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    raise ValueError("True or False")


def optional(check: Any) -> Any:
    """Return a check for what may be None, too."""
    return lambda given: None if given is None else check(given)


def one_of(known: Iterable[str]) -> Any:
    """Return a check for a text; an enumeration such as torchvision's InterpolationMode counts by its value."""

    def check(given: Any) -> str:
        value = getattr(given, "value", given)
        if value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return value

    return check


def dtype(given: Any) -> str:
    """Return the name of an element type, given as a text or as NumPy's or torch's type."""
    name = getattr(given, "__name__", None) or getattr(given, "name", None) or str(given)
    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"one of {', '.join(DTYPES)}, as a text or of NumPy or torch")
    return name


def spread(given: Any) -> float | tuple[float, float]:
    """Return one number, or the least and the largest of those that are drawn."""
    items = items_of(given)
    if items is not None and len(items) == 1:
        items = [items[0], items[0]]
    if items is None and is_number(given):
        return float(given)
    if items is None or len(items) != 2 or not all(map(is_number, items)):
        raise ValueError("a number, or two: the least and the largest")
    return float(items[0]), float(items[1])


def kernel_size(given: Any) -> int | tuple[int, int]:
    """Return the size of a filter; one number is that along x and y."""
    sizes = wholes(given)
    if len(sizes) not in (1, 2):
        raise ValueError("an odd number of pixels, or two, along x and y")
    return sizes[0] if sizes[0] == sizes[-1] else (sizes[0], sizes[1])


def erasing_value(given: Any) -> float | tuple[float, float, float] | str:
    """Return what is written to a rectangle; torchvision's sequence of one number is that number, timm's "pixel" is
    torchvision's "random"."""
    if isinstance(given, str):
        return one_of(("random", "pixel", "color"))(given).replace("pixel", "random")
    items = items_of(given)
    values = [given] if items is None else items
    if len(values) not in (1, 3) or not all(map(is_number, values)):
        raise ValueError('a number, or three for R, G and B, or "random", "pixel" or "color"')
    return float(values[0]) if len(values) == 1 else (float(values[0]), float(values[1]), float(values[2]))


def list_of_numbers(what: str) -> Any:
    """Return a check for a sequence of any number of numbers."""

    def check(given: Any) -> tuple[float, ...]:
        items = items_of(given)
        if items is None or not all(map(is_number, items)):
            raise ValueError(what)
        return tuple(map(float, items))

    return check


weights = list_of_numbers("a list of weights, one for each transform")
overlaps = list_of_numbers("a list of overlaps, or None")


def fill_values(given: Any) -> float | tuple[float, float, float]:
    """Return what a warp shows outside of the image; a sequence of one number is that number."""
    items = items_of(given)
    values = [given] if items is None else items
    if len(values) not in (1, 3) or not all(map(is_number, values)):
        raise ValueError("a number from 0 to 255, or three of R, G and B, or None")
    return float(values[0]) if len(values) == 1 else (float(values[0]), float(values[1]), float(values[2]))


def shear(given: Any) -> float | tuple[float, ...]:
    """Return the angles of a shear: one number, or bounds along x, or along x and y."""
    items = items_of(given)
    if items is None and is_number(given):
        return float(given)
    if items is None or len(items) not in (2, 4) or not all(map(is_number, items)):
        raise ValueError(
            "a number of degrees, or two (the bounds along x), or four (and those along y), or None"
        )
    return tuple(map(float, items))
