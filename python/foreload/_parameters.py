"""What the parameters of transforms may be: each check brings one into its usual form, or says what it must be.

Checks raise `ValueError` with the words that follow "must be". What values may be, beside their types, is checked where
they are used, in Foreload's core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
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


def is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool) and math.isfinite(given)


def items_of(given: Any) -> list[Any] | None:
    """Return the items of a sequence, an array or a tensor; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return list(given) if is_list else None


def number(given: Any) -> float:
    if not is_number(given):
        raise ValueError("a number")
    return float(given)


def numbers(count: int, what: str) -> Any:
    """Return a check for a sequence of `count` numbers."""

    def check(given: Any) -> tuple[float, ...]:
        listed = items_of(given)
        if listed is None or len(listed) != count or not all(map(is_number, listed)):
            raise ValueError(what)
        return tuple(map(float, listed))

    return check


def sides(given: Any) -> tuple[int, int]:
    """Return height and width; one number is a square."""
    try:
        listed = [whole(given)] if (items := items_of(given)) is None else list(map(whole, items))
    except ValueError:
        listed = []
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
    listed = items_of(given)
    try:
        width, height = map(whole, listed or ())
    except ValueError:
        raise ValueError("two whole numbers of pixels, a width and a height") from None
    return width, height


def margins(given: Any) -> int | tuple[int, int] | tuple[int, int, int, int]:
    """Return pixels around an image, from torchvision's sequences of one, two or four numbers."""
    items = items_of(given)
    try:
        listed = [whole(given)] if items is None else list(map(whole, items))
    except ValueError:
        listed = []
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
    items = items_of(given)
    try:
        listed = [whole(given)] if items is None else list(map(whole, items))
    except ValueError:
        listed = []
    if len(listed) not in (1, 3) or max(listed) > 255:
        raise ValueError("a grey level from 0 to 255, or three of R, G and B")
    return listed[0] if len(listed) == 1 else (listed[0], listed[1], listed[2])


def truth(given: Any) -> bool:
    if isinstance(given, bool) or type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    raise ValueError("True or False")


def optional(check: Any) -> Any:
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
