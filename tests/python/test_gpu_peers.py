"""torchvision's loaders of the GPU comparison run from end to end with a real torchvision without CUDA."""

from __future__ import annotations

from pathlib import Path

import gpu_peers
import pytest
from conftest import FIFTH, need

need("torchvision")

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = (
    {"do": "tune", "seconds": 0.05},
    {"do": "feed", "seconds": 0.1},
    {"do": "train", "seconds": 0.1},
    {"do": "point", "seconds": 0.1, "threads": 1},
)


@FIFTH
@pytest.mark.parametrize("program", ["torchvision_cuda", "torch_loader"])
def test_a_peer_serves(program: str, dataset: Path) -> None:
    peer = ROOT / "benches" / "gpu" / "peers" / f"{program}.py"
    options = ("--dtype", "f32", "--batch-size", 4, "--image-size", 32, "--threads", 2)
    answers = gpu_peers.ask(peer, dataset, *options, requests=REQUESTS)
    tuned, fed, trained, point = answers
    assert tuned["shape"] == point["shape"] == [4, 3, 32, 32]
    # Values are normalised, so their means are near 0.
    assert all(abs(mean) < 1.5 for mean in tuned["mean"])
    assert all(0.3 < deviation < 2 for deviation in tuned["std"])
    assert min(fed["images"], trained["images"], point["images"]) > 0
    assert fed["cpu_seconds"] > 0
