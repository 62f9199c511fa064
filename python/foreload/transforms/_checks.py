"""Functions that convert parameters of transforms to their usual form, or raise `ValueError` with what they must be."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from functools import partial
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
        raise ValueError("a whole number of at least 0")
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
        # It is an integer or a fraction outside of the range of float.
        return False


def items_of(given: Any) -> list[Any] | None:
    """Return the items of a sequence, an array or a tensor; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return list(given) if is_list else None


def wholes(given: Any, lengths: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return one whole number or several, if there are as many as one of `lengths`."""
    items = items_of(given)
    try:
        listed = (whole(given),) if items is None else tuple(map(whole, items))
    except ValueError:
        raise ValueError(what) from None
    if lengths and len(listed) not in lengths:
        raise ValueError(what)
    return listed


def one_or_all(listed: tuple[Any, ...]) -> Any:
    """Return the only one of a tuple, or the tuple."""
    return listed[0] if len(listed) == 1 else listed


def number(given: Any, what: str = "a number") -> float:
    """Return a number."""
    if not is_number(given):
        raise ValueError(what)
    return float(given)


# The core checks that it is above 0.
above_0 = partial(number, what="a number above 0")


def classes(given: Any) -> int:
    """Return a number of classes."""
    if not isinstance(given, numbers.Integral) or isinstance(given, bool):
        raise ValueError("a whole number, or None")
    return int(given)


def numbers_of(count: int | None, what: str) -> Any:
    """Return a check for a sequence of `count` numbers, or of any number of them."""

    def check(given: Any) -> tuple[float, ...]:
        items = items_of(given)
        if items is None or len(items) != (count or len(items)) or not all(map(is_number, items)):
            raise ValueError(what)
        return tuple(map(float, items))

    return check


two_numbers = partial(numbers_of, 2)
three_numbers = partial(numbers_of, 3)
list_of_numbers = partial(numbers_of, None)


def sides(given: Any) -> tuple[int, int] | str:
    """Return height and width, or `"bucket"`; one number is a square."""
    if isinstance(given, str) and given == "bucket":
        return given
    listed = wholes(given, (1, 2), 'a number of pixels, a height and a width, or "bucket"')
    return listed[0], listed[-1]


def resize_sides(given: Any) -> int | tuple[int, int] | str | None:
    """Return a size for `Resize`; one number is the shorter side's, also in a list."""
    if given is None:
        return None
    items = items_of(given)
    both = sides(given)
    if isinstance(both, str):
        return both
    height, width = both
    return height if items is None or len(items) == 1 else (height, width)


def lengths(given: Any) -> tuple[int, ...]:
    """Return the lengths of which one is drawn; a number means only that one."""
    return wholes(given, (), "a whole number of pixels, or a list of such numbers")


def rectangle(given: Any) -> tuple[int, ...]:
    """Return a width and a height."""
    return wholes(given, (2,), "two whole numbers of pixels, a width and a height")


def margins(given: Any) -> int | tuple[int, ...]:
    """Return pixels around an image, from torchvision's sequences of one, two or four numbers."""
    what = "a whole number of pixels, or two (left and right, top and bottom), or four (left, top, right, bottom)"
    return one_or_all(wholes(given, (1, 2, 4), what))


def fill(given: Any) -> int | tuple[int, ...]:
    """Return grey levels; None is 0, as in torchvision."""
    what = "a grey level from 0 to 255, or three for R, G and B"
    levels = wholes(0 if given is None else given, (1, 3), what)
    if max(levels) > 255:
        raise ValueError(what)
    return one_or_all(levels)


def truth(given: Any) -> bool:
    """Return a truth value, which may be one of NumPy."""
    if isinstance(given, bool) or type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    raise ValueError("True or False")


def optional(check: Any) -> Any:
    """Return a check that also accepts None."""
    return lambda given: None if given is None else check(given)


def one_of(names: str) -> Any:
    """Return a check for one of some names; for an enumeration such as InterpolationMode, its value is checked."""
    known = names.split(", ")

    def check(given: Any) -> str:
        value = getattr(given, "value", given)
        if value not in known:
            raise ValueError(f"one of {names}")
        return value

    return check


def dtype(given: Any) -> str:
    """Return the name of an element type, given as a text or as NumPy's or torch's type."""
    name = getattr(given, "__name__", None) or getattr(given, "name", None) or str(given)
    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"one of {', '.join(DTYPES)}, as a text, or as a type of NumPy or torch")
    return name


def floats(given: Any, lengths: tuple[int, ...], what: str) -> tuple[float, ...]:
    """Return a tuple of one number, or of a sequence whose length is one of `lengths`."""
    items = items_of(given)
    listed = [given] if items is None else items
    if (items is not None and len(items) not in lengths) or not all(map(is_number, listed)):
        raise ValueError(what)
    return tuple(map(float, listed))


def spread(given: Any) -> float | tuple[float, ...]:
    """Return one number, or the smallest and the largest number to draw."""
    ends = floats(given, (1, 2), "a number, or two: the least and the largest")
    return ends * 2 if len(ends) == 1 and items_of(given) is not None else one_or_all(ends)


def kernel_size(given: Any) -> int | tuple[int, ...]:
    """Return the size of a filter; one number is the size along x and y."""
    sizes = wholes(given, (1, 2), "an odd number of pixels, or two (along x and y)")
    return sizes[0] if sizes[0] == sizes[-1] else sizes


def erasing_value(given: Any) -> float | tuple[float, ...] | str:
    """Return the values for a rectangle; a sequence of one becomes that number, and timm's "pixel" "random"."""
    if isinstance(given, str):
        return one_of("random, pixel, color")(given).replace("pixel", "random")
    what = 'one number, three numbers for R, G and B, "random", "pixel" or "color"'
    return one_or_all(floats(given, (1, 3), what))


def fill_values(given: Any) -> float | tuple[float, ...]:
    """Return the values that a warp shows outside of the image; a sequence of one number becomes that number."""
    return one_or_all(floats(given, (1, 3), "a number from 0 to 255, or three for R, G and B, or None"))


def shear(given: Any) -> float | tuple[float, ...]:
    """Return the angles of a shear: one number, or bounds along x, or along x and y."""
    what = "a number of degrees, or two (the bounds along x), or four (then along y), or None"
    return one_or_all(floats(given, (2, 4), what))


def anything(given: Any) -> Any:
    """Return the value unchanged; it is checked elsewhere."""
    return given
