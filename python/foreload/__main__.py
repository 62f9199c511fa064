"""The `foreload` command: `foreload`, or `python -m foreload`, is the Rust command line."""

import os
import signal
import sys
from typing import NoReturn

from foreload import _core


def main() -> NoReturn:
    """Run the command line with this process's arguments and exit with its code."""
    # Python's own handler only sets a flag for the interpreter, which waits for the Rust code to return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The environment in which packages are looked up (the photographs of `synth`), if there are several.
    os.environ.setdefault("FORELOAD_PYTHON", sys.executable)
    sys.exit(_core.main(["foreload", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
