"""Runs loaders of the GPU comparison as the comparison does, on a machine without CUDA."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ON_CPU = Path(__file__).parent / "gpu_kit" / "serve_on_cpu.py"


def ask(
    peer: Path, *arguments: object, requests: Iterable[dict], env: Mapping[str, str] | None = None
) -> list[dict]:
    """Start a peer's program, send it requests and return its responses, one per request."""
    asked = [json.dumps(request) for request in requests]
    done = subprocess.run(
        [str(word) for word in (sys.executable, "-W", "ignore", ON_CPU, peer, *arguments)],
        input="".join(f"{line}\n" for line in asked),
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), done.stderr
    return answers
