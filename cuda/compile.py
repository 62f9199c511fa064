"""Compile the kernels with NVRTC, on any machine: `make kernels` writes cuda/kernels, `--check` compares.

NVRTC comes from PyPI, in two versions below .envs: a new one that compiles machine code for every GPU, and an old one
whose PTX every driver for CUDA 12 and later accepts.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
PACKAGE = "nvidia-cuda-nvrtc-cu12"
NEW, OLD = "12.9.86", "12.0.76"
MACHINE_CODE = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
VIRTUAL = "compute_80"
# A multiplication and an addition are never contracted, as on the CPU. Divisions and denormals are those of IEEE 754.
OPTIONS = ("--fmad=false", "--prec-div=true", "--ftz=false", "--std=c++17", "--ptxas-options=-v")


class Unavailable(Exception):
    """NVRTC is not available; the message says why."""


class Compiler:
    """NVRTC through its C interface."""

    def __init__(self, version: str, envs: Path) -> None:
        folder = provide(version, envs)
        self.library = ctypes.CDLL(str(folder / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that must succeed."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def get(self, what: str, program: ctypes.c_void_p) -> bytes:
        """Return an output of a compiled program: its log, machine code or PTX."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, architecture: str) -> tuple[bytes, str]:
        """Compile to machine code for `sm_…` or to PTX for `compute_…`; return the code and the compiler's log."""
        headers = sorted(HERE.rglob("*.cuh"))
        texts = (ctypes.c_char_p * len(headers))(*(path.read_bytes() for path in headers))
        names = (ctypes.c_char_p * len(headers))(*(str(path.relative_to(HERE)).encode() for path in headers))
        options = [f"--gpu-architecture={architecture}", *OPTIONS]
        program = ctypes.c_void_p()
        source = (HERE / "kernels.cu").read_bytes()
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", len(headers), texts, names
        )
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = self.library.nvrtcCompileProgram(program, len(options), words)
            log = self.get("ProgramLog", program).rstrip(b"\0").decode()
            if failed or "warning" in log:
                raise SystemExit(f"{architecture}:\n{log}")
            if architecture.startswith("sm_"):
                return self.get("CUBIN", program), log
            # Leave out the NUL that ends a C string.
            return self.get("PTX", program).rstrip(b"\0"), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


def provide(version: str, envs: Path) -> Path:
    """Return the folder of an unpacked wheel of NVRTC."""
    folder = envs / f"nvrtc-{version}"
    if not (folder / "nvidia").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        words += ["--only-binary=:all:", "-d", folder, f"{PACKAGE}=={version}"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable((done.stderr.strip().splitlines() or ["pip failed"])[-1])
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
    return folder


def resources(log: str) -> list[tuple[str, int, int, int]]:
    """Return kernel, registers, bytes spilled and bytes of stack, from the log of the assembler."""
    found = []
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)
        stack, stores, loads = map(
            int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", part).groups()
        )
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        found.append((name.group(1), registers, stores + loads, stack))
    return sorted(found)


def main() -> int:
    """Compile for all architectures; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    parser.add_argument("--envs", type=Path, default=HERE.parent / ".envs", help="where NVRTC is kept")
    options = parser.parse_args()
    try:
        new, old = Compiler(NEW, options.envs), Compiler(OLD, options.envs)
    except Unavailable as reason:
        print(f"skipped: no NVRTC to compile the kernels with: {reason}", file=sys.stderr)
        return 1 if os.environ.get("FORELOAD_REQUIRE_NVRTC") == "1" or not options.check else 0
    stale = []
    print(f"{'architecture':14}{'kernel':26}{'registers':>10}{'spilled':>9}{'stack':>7}{'bytes':>9}")
    for architecture in (*MACHINE_CODE, VIRTUAL):
        suffix = "ptx" if architecture == VIRTUAL else "cubin"
        code, log = (old if architecture == VIRTUAL else new).compile(architecture)
        for name, registers, spilled, stack in resources(log):
            print(f"{architecture:14}{name:26}{registers:>10}{spilled:>9}{stack:>7}{len(code):>9}")
            if spilled:
                stale.append(f"{architecture}: {name} spills {spilled} bytes of registers")
        path = KERNELS / f"{architecture}.{suffix}"
        if not options.check:
            KERNELS.mkdir(exist_ok=True)
            path.write_bytes(code)
        elif not path.is_file() or path.read_bytes() != code:
            stale.append(f"{path.relative_to(HERE.parent)} is not what its sources say: run `make kernels`")
    print("\n".join(stale), file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
