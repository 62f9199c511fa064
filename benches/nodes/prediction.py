"""What `foreload simulate` says of a job before it runs: the bytes of the slow tier in each epoch, by policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
from environments import Unavailable, last_lines
from training import Job

# Only bytes are asked for, which depend on no rate.
SCENARIO = """
name = "nodes"
nodes = {nodes}
batch_size = {batch_size}
epochs = {epochs}
compute = "1GB/s"
preprocess = "1GB/s"
network = "1GB/s"

[dataset]
index = {data}

[slow]
client = "1GB/s"
rates = [{{ clients = 1, rate = "1GB/s" }}]

[staging]
capacity = "100MB"
threads = 8

[[cache]]
name = "nvme"
capacity = {capacity}
threads = 2
read = [{{ threads = 2, rate = "5GB/s" }}]
write = [{{ threads = 2, rate = "2GB/s" }}]
"""

POLICIES = {
    ("order", True): "owner",
    ("locality", True): "owner-locality",
    ("order", False): "next-use",
}
"""What a job does, by its assignment and whether nodes read from each other, under the simulator's name for it."""


def policy_of(job: Job) -> str:
    """Return the simulator's name for what a job does."""
    return POLICIES[job.assignment, job.peers]


def predict(program: Path, folder: Path, index: Path, job: Job, beside: Path) -> dict[str, list[float]]:
    """Return for each policy the share of the dataset that leaves the slow tier in each epoch of a job.

    Among them is `lru`: the job's own order, on each node through a least-recently-used cache of the same bytes.

    Raises:
        Unavailable: The simulator failed.
    """
    text = SCENARIO.format(
        nodes=job.nodes,
        batch_size=job.batch_size,
        epochs=job.epochs,
        data=json.dumps(str(folder.absolute())),
        capacity=job.capacities[0],
    )
    beside.write_text(text)
    words = [program, "simulate", "--scenario", beside, "--json"]
    words += ["--policies", ",".join(("lru", *POLICIES.values()))]
    environment = os.environ | {"FORELOAD_INDEX_DIR": str(index)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"no prediction: {last_lines(done.stderr)}")
    found = json.loads(done.stdout)
    total = found["dataset_bytes"]
    return {
        outcome["policy"]: [epoch["slow_bytes"] / total for epoch in outcome["epochs"]]
        for outcome in found["policies"]
    }
