"""Packs the GPU kit: everything that a machine with a GPU, Python and torch, but without network and Rust, needs to
test a build.

    .venv/bin/python benches/gpu/pack.py gpu-kit            the wheel, nvJPEG, test images, tests and benchmarks
    .venv/bin/python benches/gpu/pack.py gpu-kit --dali     DALI in pieces, for those who can carry more

The wheel is built against an old glibc (manylinux_2_28) with PyPI's zig; `--native` builds only for this system. The
kit must not be larger than LIMIT; its sizes are printed and stored in MANIFEST.json.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import report

LIMIT = 60_000_000
PIECE = 51_500_000
IMAGES = 300
PYTHON_THERE = "3.12"
PLATFORMS = [f"manylinux{tag}_x86_64" for tag in ("_2_28", "_2_27", "_2_17", "2014", "1")]
NVJPEG = "nvidia-nvjpeg==13.3.2.43"
DALI = ("nvidia-dali-cuda130==2.2.0",)
"""The last version that brings nvImageCodec 0.8. DALI 2.3 and 2.4 need 0.9, which fails or crashes when it decodes
parts of images on H100 and A100 (nvImageCodec issue 55).
"""
HAS_ALREADY = {"numpy", "packaging", "six", "pyyaml", "typing_extensions"}
"""Packages that DALI needs and that every machine with torch has. nvJPEG is not among them, although the kit has it:
nvImageCodec looks for nvJPEG only in its own folder, and without it silently decodes on the CPU.
"""
SCRIPTS = ("benches/gpu", "benches/harness", "cuda/kernels")
TESTS = ("tests/gpu",)
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")


def call(*command: object, environment: dict[str, str] | None = None) -> None:
    """Run a command; a failure ends the program with the command's output."""
    words = [str(word) for word in command]
    print(f"$ {' '.join(words)}".replace(f"{report.ROOT}/", ""), flush=True)
    done = subprocess.run(words, cwd=report.ROOT, env=os.environ | (environment or {}), check=False)
    if done.returncode:
        sys.exit(f"{Path(words[0]).name} failed with code {done.returncode}")


def pip_download(folder: Path, *requirements: str, dependencies: bool = False) -> None:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    target = (
        "--only-binary",
        ":all:",
        "--python-version",
        PYTHON_THERE,
        "--implementation",
        "cp",
        *platforms,
    )
    options = () if dependencies else ("--no-deps",)
    quiet = ("--quiet", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "download", *quiet, *options, *target, "--dest", folder, *requirements)


def build_wheel(folder: Path, native: bool) -> None:
    """Build the release wheel, one for every Python from 3.10 on."""
    if native:
        environment = {
            "VIRTUAL_ENV": sys.prefix,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        maturin = Path(sys.executable).parent / "maturin"
        call(maturin, "build", "--profile", "dist", "--locked", "--out", folder, environment=environment)
    else:
        call("make", "wheel", f"DIST={folder.resolve()}")


def copy_scripts(folder: Path) -> None:
    """Copy tests and benchmarks to the paths they have in the repository."""
    ignore = shutil.ignore_patterns("__pycache__", "pack.py", "*.rs", ".*")
    for name in (*SCRIPTS, *TESTS, *LICENCES):
        source, target = report.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy2(source, target)
    shutil.move(folder / "benches" / "gpu" / "run.sh", folder / "run.sh")
    (folder / "benches" / "gpu" / "join.sh").unlink()


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def pack(folder: Path, wheel: Path | None, native: bool, also: list[str]) -> None:
    """Make the kit itself; earlier contents of the folder are removed, except DALI's pieces."""
    for old in folder.iterdir() if folder.is_dir() else ():
        if old.name != "dali":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    if wheel:
        shutil.copy2(wheel, wheels)
    else:
        build_wheel(wheels, native)
    pip_download(wheels, NVJPEG, *also)
    program = Path(sys.executable).parent / "foreload"
    call(program, "synth", folder / "images", "--images", IMAGES, "--classes", 10)
    copy_scripts(folder)
    contents = {entry.name: size_of(entry) for entry in sorted(folder.iterdir()) if entry.name != "dali"}
    total = sum(contents.values())
    manifest = {
        "commit": report.commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "wheels": {path.name: path.stat().st_size for path in sorted(wheels.iterdir())},
        "contents": contents,
        "bytes": total,
    }
    (folder / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
    rows = [[name, f"{size / 1e6:.2f}"] for name, size in {**manifest["wheels"], **contents}.items()]
    print(report.table(["what", "MB"], [*rows, ["all", f"{total / 1e6:.2f}"]]))
    if total > LIMIT:
        sys.exit(
            f"the kit has {total / 1e6:.1f} MB, at most {LIMIT / 1e6:.0f} are allowed: lower IMAGES in pack.py"
        )


def pack_dali(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pip_download(Path(scratch), *DALI, dependencies=True)
        wheels = [
            w for w in sorted(Path(scratch).iterdir()) if w.name.split("-")[0].lower() not in HAS_ALREADY
        ]
        print(report.table(["wheel", "MB"], [[w.name, f"{w.stat().st_size / 1e6:.1f}"] for w in wheels]))
        count = split(wheels, folder / "dali", PIECE)
    print(f"{count} pieces of at most {PIECE / 1e6:.0f} MB: copy them, then run join.sh in their folder")


def split(wheels: list[Path], folder: Path, piece: int) -> int:
    """Write wheels as one archive in pieces of `piece` bytes, with the script that joins them; return their number."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = 0
    with tempfile.TemporaryFile() as archive, (folder / "SHA256SUMS").open("w") as sums:
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for wheel in wheels:
                tar.add(wheel, wheel.name)
        archive.seek(0)
        while data := archive.read(piece):
            name = f"piece-{count:02}"
            (folder / name).write_bytes(data)
            sums.write(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
            count += 1
    shutil.copy2(Path(__file__).parent / "join.sh", folder)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheel", type=Path, help="pack this wheel instead of building one")
    parser.add_argument(
        "--also", nargs="+", default=[], metavar="PACKAGE", help="what that machine lacks, too"
    )
    parser.add_argument("--native", action="store_true", help="build for this system's glibc, without zig")
    parser.add_argument("--dali", action="store_true", help="pack DALI instead of the kit")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if chosen.dali:
        pack_dali(folder)
    else:
        pack(folder, chosen.wheel and chosen.wheel.resolve(), chosen.native, chosen.also)


if __name__ == "__main__":
    main()
