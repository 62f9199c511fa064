"""Returns the command that runs this environment's `foreload` in a separate process."""

import sys

from foreload import _core

# Only the core is loaded, in a quarter of the time of the whole package.
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
    """Return the program and its first arguments. The arguments of a command of `foreload` follow them.

    Raises UnavailableError if Python does not know its own program, for example if it is embedded in another one.
    """
    if not sys.executable:
        raise _core.UnavailableError(
            "Python is embedded in another program here, so it cannot be started as a separate process"
        )
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, _core.__file__]
