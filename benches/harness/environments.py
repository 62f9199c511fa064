"""Makes the environments of the peers: one virtual environment each, packages pinned, built on first use.

PyPI's torch brings several GB of CUDA packages, so the peers that need it extend one environment ("torch") through a
`.pth` line; packages in the extending environment come first on the import path. If packages or system libraries of a
peer are not available, `Unavailable` is raised with the reason, which is shown in the table and in the JSON result.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / ".envs"
MARKER = "installed.json"
INSTALL_TIMEOUT = 3600


class Unavailable(Exception):
    """The error that a peer cannot take part, with the reason."""


@dataclass(frozen=True)
class Recipe:
    """The requirements of one environment."""

    requirements: tuple[str, ...]
    extends: str | None = None
    libraries: tuple[str, ...] = ()
    """The Debian packages that the wheels need at run time or to build."""
    check: str = ""
    """Python statements that must run after everything is installed."""
    build_environment: dict[str, str] = field(default_factory=dict)
    no_build_isolation: bool = False
    no_dependencies: bool = False


def pinned(name: str, version: str) -> tuple[str, str]:
    """Return the requirement of a release; a Python that is too old for it gets the last release that supports it."""
    return f'{name}=={version}; python_version >= "3.11"', f'{name}; python_version < "3.11"'


NUMPY = pinned("numpy", "2.4.6")
IMAGES = (*NUMPY, *pinned("pillow", "13.0.0"))
DATASETS = (
    "datasets==5.2.0",
    "pyarrow==26.0.1",
    "anyio==4.16.0",
    "click==8.5.1",
    "dill==0.4.1",
    "filelock==4.3.1",
    "fsspec==2026.9.0",
    "h11==0.16.0",
    "hf-xet==1.8.0",
    "httpcore2==2.16.2",
    "httpx2==2.16.2",
    "huggingface_hub==2.4.0",
    "idna==3.20",
    "multiprocess==0.70.19",
    "packaging==26.4",
    "pandas==3.1.1",
    "python-dateutil==4.0.0",
    "PyYAML==6.0.4",
    "tqdm==4.70.1",
    "truststore==0.10.5",
    "typing_extensions==4.16.0",
    "tzdata==2026.6",
    "xxhash==4.1.0",
)
"""Hugging Face's `datasets` with pinned versions of all its imports, which otherwise change each month."""

ARRAYS = (
    "h5py==3.16.0",
    "hdf5plugin==7.1.0",
    "netCDF4==1.7.5.1.post1",
    "xarray==2026.9.0",
    "zarr==3.1.6",
    "numcodecs==0.16.6",
    "ml_dtypes==0.6.0",
    "certifi==2026.10.19.post1",
    "cftime==1.6.6.1",
    "donfig==0.8.1.post1",
    "google-crc32c==1.9.0",
    "packaging==26.4",
    "pandas==3.1.1",
    "python-dateutil==4.0.0",
    "PyYAML==6.0.4",
    "typing_extensions==4.16.0",
    "tzdata==2026.6",
)
"""The libraries of arrays in files with all their imports but NumPy; zarr 3.2 needs Python 3.12."""
ARRAYS_CHECK = "import h5py, hdf5plugin, ml_dtypes, netCDF4, numcodecs, xarray, zarr"

RECIPES: dict[str, Recipe] = {
    "torch": Recipe(
        ("torch==2.15.0", "torchvision==0.29.2", "torchcodec==0.17.0", "webdataset==1.0.2", *IMAGES),
        check="import torch, torchcodec.decoders, torchvision, webdataset",
    ),
    "pillow-simd": Recipe(
        ("pillow-simd==12.1.1.post0",),
        extends="torch",
        libraries=("libjpeg62-turbo-dev", "zlib1g-dev"),
        build_environment={"CC": "cc -mavx2"},
        check="import PIL; assert 'post' in PIL.__version__, PIL.__version__\nfrom PIL import _imaging",
    ),
    "opencv": Recipe(
        ("albumentations==2.0.8", "opencv-python-headless==4.13.0.92"),
        extends="torch",
        check="import cv2, albumentations",
    ),
    "ffcv": Recipe(
        (
            "setuptools==80.9.0",
            "wheel==0.45.1",
            *NUMPY,
            "numba==0.68.1",
            "opencv-python-headless==4.13.0.92",
            "ffcv==1.0.2",
        ),
        extends="torch",
        libraries=("pkg-config", "libopencv-dev", "libturbojpeg0-dev"),
        check="import ffcv.loader",
    ),
    "streaming": Recipe(("mosaicml-streaming==0.13.0",), extends="torch", check="import streaming"),
    "frameworks": Recipe(
        (
            "torchdata==0.11.0",
            "lightning==2.6.6",
            "accelerate==1.15.0",
            *pinned("jax", "0.10.2"),
            "mpich==5.0.2",
            "mpi4py==4.1.2",
            "timm==1.0.31",
        ),
        extends="torch",
        check="import accelerate, jax, lightning, mpi4py, timm, torchdata.stateful_dataloader",
    ),
    "tensorsocket": Recipe(
        ("tensorsocket==0.0.5", "pyzmq==27.1.0", "tornado==6.5.2"),
        extends="torch",
        check="import tensorsocket",
    ),
    "ray": Recipe(("ray[train]==2.60.0",), extends="torch", check="import ray.train.torch"),
    "redis": Recipe(("redis==8.1.0", "hiredis==3.5.0"), extends="torch", check="import hiredis, redis"),
    # Reverb's wheels are made for this TensorFlow, and for Python up to 3.11.
    "reverb": Recipe(
        ("dm-reverb==0.14.0", "tensorflow-cpu==2.15.1", "numpy==1.26.4"), check="import reverb, tensorflow"
    ),
    "dali": Recipe(("nvidia-dali-cuda130==2.4.0", *NUMPY), check="import nvidia.dali"),
    # The libraries of the sources of streams in examples/, with the servers that the tests start with them.
    "feeds": Recipe(
        (
            "confluent-kafka==2.16.1",
            "p4p==4.3.0",
            "epicscorelibs==7.0.10.99.0.2",
            "pvxslibs==1.5.3",
            "setuptools_dso==2.12.4",
            "ply==3.11",
            "nose2==0.16.0",
            *IMAGES,
        ),
        check="import confluent_kafka, numpy, p4p.server.thread, PIL",
        no_dependencies=True,
    ),
    "spdl": Recipe(
        ("spdl==0.8.0", *NUMPY),
        libraries=("libavdevice59", "libavfilter8"),
        check="import spdl.io, spdl.pipeline",
    ),
    "docs": Recipe(
        ("mkdocs-material==9.8.2", "mkdocs==1.6.1", "mkdocstrings-python==2.0.11", "ruff==0.17.5"),
        check="import material, mkdocs, mkdocstrings_handlers.python",
    ),
    "tensorflow": Recipe(("tensorflow-cpu==2.21.0",), check="import tensorflow"),
    # TensorFlow and DALI, which PyTorch's workloads do not need, are omitted.
    "dlio": Recipe(
        (
            "dlio-benchmark==2.0.0",
            "pydftracer==1.0.2",
            "mpi4py==4.1.2",
            "mpich==5.0.2",
            "hydra-core==1.3.8",
            "omegaconf==2.3.0",
            "antlr4-python3-runtime==4.9.3",
            "h5py==3.16.0",
            "pandas==3.1.1",
            "python-dateutil==2.9.0.post0",
            "six==1.17.0",
            "psutil==7.2.2",
            "packaging==26.3",
            "PyYAML==6.0.3",
        ),
        extends="torch",
        check="import dlio_benchmark.data_loader.base_data_loader, dlio_benchmark.framework.torch_framework",
        no_dependencies=True,
    ),
    "datasets": Recipe(DATASETS, extends="torch", check="import datasets", no_dependencies=True),
    "arrays-torch": Recipe(ARRAYS, extends="torch", check=ARRAYS_CHECK, no_dependencies=True),
    # The next four environments, with `tensorflow`, write the tests' fixtures (tests/fixtures), without torch.
    "arrays": Recipe((*ARRAYS, *NUMPY), check=ARRAYS_CHECK, no_dependencies=True),
    "huggingface": Recipe(
        (*DATASETS, *IMAGES), check="import datasets, pyarrow.parquet, PIL", no_dependencies=True
    ),
    "mds": Recipe(
        (
            "mosaicml-streaming==0.13.0",
            "brotli==1.2.1",
            "cramjam==2.14.0",
            "filelock==4.3.1",
            "python-snappy==0.7.3",
            "tqdm==4.70.1",
            "typing_extensions==4.16.0",
            "xxhash==4.1.0",
            "zstd==1.5.7.2",
            *IMAGES,
        ),
        check="import brotli, snappy, xxhash, zstd, PIL",
        no_dependencies=True,
    ),
    "webdataset": Recipe(
        ("webdataset==1.0.2", "braceexpand==0.1.7", "PyYAML==6.0.4", "zstd==1.5.7.2", *IMAGES),
        check="import webdataset, zstd",
        no_dependencies=True,
    ),
    "reference": Recipe(("simplejpeg==1.9.0", *IMAGES), check="import PIL, simplejpeg"),
}


def python_of(name: str, folder: Path = DEFAULT_FOLDER) -> Path:
    """Return the interpreter of an environment."""
    return folder / name / "bin" / "python"


def site_packages(name: str, folder: Path = DEFAULT_FOLDER) -> Path:
    """Return the package folder of an environment."""
    return (
        folder / name / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )


@contextmanager
def alone(what: str, folder: Path = DEFAULT_FOLDER) -> Iterator[None]:
    """Wait until no other process installs the same thing; the lock ends with the process, even if it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{what}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process, which installs {what}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure(name: str, folder: Path = DEFAULT_FOLDER) -> Path:
    """Build the environment if it does not exist; return its interpreter or raise `Unavailable`."""
    recipe = RECIPES[name]
    if recipe.extends:
        ensure(recipe.extends, folder)
    ensure_libraries(recipe.libraries, folder)
    with alone(name, folder):
        return install(name, recipe, folder)


def install(name: str, recipe: Recipe, folder: Path) -> Path:
    """Build the environment if it does not match its recipe; return its interpreter."""
    home = folder / name
    wanted = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "requirements": list(recipe.requirements),
        "extends": recipe.extends,
    }
    marker = home / MARKER
    if marker.is_file() and json.loads(marker.read_text()) == wanted and python_of(name, folder).exists():
        return python_of(name, folder)
    print(f"installing {name}: {', '.join(recipe.requirements)}", file=sys.stderr, flush=True)
    started = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    call([sys.executable, "-m", "venv", str(home)], f"{name}: cannot make a virtual environment")
    if recipe.extends:
        (site_packages(name, folder) / "extends.pth").write_text(f"{site_packages(recipe.extends, folder)}\n")
    fetch(name, recipe, folder)
    if recipe.check:
        call([str(python_of(name, folder)), "-c", recipe.check], f"{name}: installed but not usable")
    marker.write_text(json.dumps(wanted))
    print(f"installed {name} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return python_of(name, folder)


def fetch(name: str, recipe: Recipe, folder: Path) -> None:
    """Install the packages of a recipe: with uv if possible, which takes a fifth of pip's time.

    Only pip sees packages of the environment that this one extends. Nothing is compiled in advance: modules are
    compiled when they are imported.
    """
    python, environment = str(python_of(name, folder)), os.environ | recipe.build_environment
    options = ["--quiet"]
    if recipe.no_dependencies:
        options.append("--no-deps")
    if recipe.no_build_isolation:
        options.append("--no-build-isolation")
    options += recipe.requirements
    if find_spec("uv") and (recipe.no_dependencies or not recipe.extends):
        uv = [
            sys.executable,
            "-m",
            "uv",
            "--cache-dir",
            str(folder / ".uv"),
            "pip",
            "install",
            "--python",
            python,
        ]
        try:
            call([*uv, *options], f"{name}: uv pip install failed", environment)
            return
        except Unavailable as reason:
            print(f"{reason}; trying pip", file=sys.stderr, flush=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    call([*pip, *options], f"{name}: pip install failed", environment)


def ensure_libraries(packages: tuple[str, ...], folder: Path = DEFAULT_FOLDER) -> None:
    """Install missing Debian packages as root; for other users raise an error with the command that installs them."""
    if all(map(debian_package_installed, packages)):
        return
    with alone("system-packages", folder):
        install_libraries([package for package in packages if not debian_package_installed(package)])


def install_libraries(missing: list[str]) -> None:
    """Install Debian packages as root; for other users raise an error with the command that installs them."""
    if not missing:
        return
    command = f"apt-get install -y --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"system packages {', '.join(missing)} are missing: sudo {command}")
    print(f"installing system packages: {', '.join(missing)}", file=sys.stderr, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    first = subprocess.run(command.split(), env=environment, capture_output=True, text=True, check=False)
    if first.returncode != 0:
        call(["apt-get", "update", "-q"], "apt-get update failed", environment)
        call(command.split(), f"system packages {', '.join(missing)} cannot be installed", environment)


def debian_package_installed(package: str) -> bool:
    """Whether dpkg lists the package as installed."""
    if shutil.which("dpkg-query") is None:
        return False
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f=${db:Status-Status}", package], capture_output=True, text=True, check=False
    )
    return answer.returncode == 0 and answer.stdout.strip() == "installed"


def call(command: list[str], complaint: str, environment: dict[str, str] | None = None) -> None:
    """Run a command; a failure becomes `Unavailable` with the last informative lines of its output."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{complaint}: no end after {INSTALL_TIMEOUT} s") from error
    if done.returncode != 0:
        raise Unavailable(f"{complaint}: {last_lines(done.stdout)}")


def last_lines(output: str, limit: int = 300) -> str:
    """Return the end of a program's output in one line, errors preferred."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    return " | ".join(telling[-3:])[-limit:] or "no output"


def main(names: list[str]) -> int:
    """Build the named environments (all of them by default) and report which exist."""
    failed = 0
    for name in names or list(RECIPES):
        try:
            print(f"{name}: {ensure(name)}")
        except Unavailable as reason:
            failed += 1
            print(f"{name}: not available: {reason}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
