"""Provide the tests with the Python module that was compiled with them.

Usage: `.venv/bin/python tests/environment/provide_module.py target/debug`, after `cargo test --no-run`. It makes the
environment `target/debug/python` with the packages of the environment that runs this script, the current files of
`python/foreload`, the module, and the command `foreload`. The optimised module that `make setup` puts into `.venv` is
not changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "python" / "foreload"
COMMAND = """#!{python}
from foreload.__main__ import main

main()
"""


def main() -> None:
    """Make the environment, or bring it up to date."""
    built = Path(sys.argv[1]).resolve()
    home = built / "python"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    modules = home / "module"
    link_package(modules / SOURCES.name, built / "deps" / "libforeload.so")
    # The first line puts this Foreload before any other. The second line makes Python read the `.pth` files of that
    # folder, too.
    others = sysconfig.get_path("purelib")
    (packages / "foreload-tests.pth").write_text(f"{modules}\nimport site; site.addsitedir({others!r})\n")
    command = home / "bin" / "foreload"
    command.write_text(COMMAND.format(python=python))
    command.chmod(0o755)


def link_package(package: Path, library: Path) -> None:
    """Fill the package with links to its sources and a copy of the library, which the next compilation replaces."""
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for source in SOURCES.iterdir():
        if source.suffix != ".so" and source.name != "__pycache__":
            os.symlink(source, package / source.name)
    shutil.copy2(library, package / "_core.abi3.so")


if __name__ == "__main__":
    main()
