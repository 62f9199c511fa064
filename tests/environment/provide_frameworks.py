"""Provide the tests with the frameworks that `examples/` are written for.

Usage: `.venv/bin/python tests/environment/provide_frameworks.py`. The frameworks come from PyPI (3 GB, nearly all of
them torch's CUDA packages). They are installed into an environment below `.envs` in which the tests run the examples,
so that this environment stays small. The clients of Kafka and EPICS (0.2 GB) have an environment without torch. Ray
(0.7 GB) has an environment that shares torch, and is only for the long tests. Slurm (13 MB) comes from Debian if this
runs as root; otherwise the tests that need Slurm say so. DALI, which `make test-dali` fetches, Hugging Face's
`datasets` and this environment's pytest are found from the frameworks' environment through a `.pth` line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benches"))
from harness import environments

SLURM = ("munge", "slurmctld", "slurmd", "slurm-client")
"""The packages of Debian with which the tests run a cluster of two nodes."""

RAY = os.environ.get("FORELOAD_THOROUGH") == "1" and os.environ.get("FORELOAD_RAY") != "0"
"""Whether Ray is installed and tested, which takes four minutes."""

PROOF = (
    "import accelerate, datasets, jax, lightning, nvidia.dali.plugin.pytorch, torchdata.stateful_dataloader"
)


def main() -> int:
    """Return 0 if all frameworks can be imported in their environments."""
    try:
        python = environments.ensure("frameworks")
        environments.ensure("dali")
        environments.ensure("datasets")
        environments.ensure("feeds")
        if RAY:
            environments.ensure("ray")
    except environments.Unavailable as reason:
        print(f"no frameworks: {reason}", file=sys.stderr)
        return 1
    try:
        environments.ensure_libraries(SLURM)
    except environments.Unavailable as reason:
        print(f"no Slurm: {reason}", file=sys.stderr)
    # The environment's own packages come first.
    folders = [environments.site_packages(name) for name in ("dali", "datasets")]
    others = *folders, sysconfig.get_paths()["purelib"]
    pth = environments.site_packages("frameworks") / "foreload-test.pth"
    pth.write_text("".join(f"{folder}\n" for folder in others))
    proof = subprocess.run([python, "-c", PROOF], capture_output=True, text=True)
    if proof.returncode != 0:
        print(f"no frameworks: {environments.last_lines(proof.stderr)}", file=sys.stderr)
    return proof.returncode


if __name__ == "__main__":
    sys.exit(main())
