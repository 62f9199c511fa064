"""Docstrings of classes that pass settings on to a loader: their own arguments, then those of the loader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def arguments(documented: type) -> dict[str, str]:
    """Return the paragraph of each argument in the docstring of a class by name, unchanged."""
    doc = inspect.cleandoc(documented.__doc__ or "")
    section = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    # An argument begins with an indent of four; the rest of its paragraph is indented by more.
    found = re.finditer(r"^    (\w+): .*(?:\n {5,}.*)*", section, re.MULTILINE)
    return {paragraph[1]: paragraph[0] for paragraph in found}


def hands_on_settings(loader: type) -> Callable[[Class], Class]:
    """Return a decorator that adds a loader's paragraphs about the settings that a class takes as `**settings`."""

    def add(made: Class) -> Class:
        own = arguments(made)
        # Without docstrings (`python -OO`) there is nothing to complete.
        if "settings" in own:
            handed_on = [text for name, text in arguments(loader).items() if name not in own]
            doc = inspect.cleandoc(made.__doc__ or "")
            made.__doc__ = doc.replace(own["settings"], "\n".join([own["settings"], *handed_on]))
        return made

    return add
