"""How this environment's `foreload` is run in a process of its own."""

import sys

from foreload import _core

# Only the core is loaded, which is there in a quarter of the time that the whole package takes.
_PROGRAM = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
name, path = "foreload._core", sys.argv[1]
spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
core = module_from_spec(spec)
spec.loader.exec_module(core)
sys.exit(core.main(["foreload", *sys.argv[2:]]))
"""


def own_command() -> list[str]:
    """Return the program and its first arguments, to which those of a command of `foreload` are added.

    Raises UnavailableError where Python does not know its own program, as where it is embedded in another.
    """
    if not sys.executable:
        raise _core.UnavailableError(
            "Python is part of another program here, and cannot be started by itself"
        )
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, _core.__file__]
