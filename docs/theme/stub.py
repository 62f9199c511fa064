"""Shows the signature of a class that the stub gives as `__new__`."""

from __future__ import annotations

from griffe import Class, Extension


class NewAsInit(Extension):
    """Takes `__new__` for `__init__`, where a class has none: mkdocstrings looks for the latter alone."""

    def on_class(self, *, cls: Class, **_: object) -> None:
        """Move the member."""
        if "__new__" in cls.members and "__init__" not in cls.members:
            method = cls.members.pop("__new__")
            method.name = "__init__"
            cls.members["__init__"] = method
