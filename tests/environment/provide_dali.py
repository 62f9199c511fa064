"""Provide the tests with a real DALI.

Usage: `.venv/bin/python tests/environment/provide_dali.py`. DALI comes from PyPI (200 MB). It is installed into the
environment below `.envs` in which `make compare` measures it; a `.pth` line lets this environment find it there, after
its own packages.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benches"))
from harness import environments

PTH = Path(sysconfig.get_paths()["purelib"]) / "foreload-test-dali.pth"


def main() -> int:
    """Return 0 if DALI can be imported here."""
    if subprocess.run([sys.executable, "-c", "import nvidia.dali"], capture_output=True).returncode == 0:
        return 0
    try:
        environments.ensure("dali")
    except environments.Unavailable as reason:
        print(f"no DALI: {reason}", file=sys.stderr)
        return 1
    PTH.write_text(f"{environments.site_packages('dali')}\n")
    proof = subprocess.run([sys.executable, "-c", "import nvidia.dali"], capture_output=True, text=True)
    if proof.returncode != 0:
        PTH.unlink()
        print(f"no DALI: {environments.last_lines(proof.stderr)}", file=sys.stderr)
    return proof.returncode


if __name__ == "__main__":
    sys.exit(main())
