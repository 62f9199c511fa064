"""The predictions of `foreload simulate` for a job: each epoch's bytes from the slow tier and seconds, by policy."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import programs
from training import Job

# Bytes do not depend on rates. Seconds depend on the two rates that are filled in; the others are never the limit here.
SCENARIO = """
name = "nodes"
nodes = {nodes}
batch_size = {batch_size}
epochs = {epochs}
compute = {consumed}
preprocess = "10GB/s"
network = "1GB/s"

[dataset]
index = {data}

[slow]
client = "1GB/s"
rates = [{{ clients = 1, rate = "1GB/s" }}]
total = {stored}

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
"""The simulator's policy for a job, by its assignment and whether nodes read from each other."""


@dataclass(frozen=True)
class Rates:
    """Rates that were measured or set, in bytes per second."""

    stored: float
    """The rate of the slow storage, for all nodes together."""
    consumed: float
    """The rate at which a node consumes samples from its own cache."""


@dataclass(frozen=True)
class Predicted:
    """The prediction for an epoch."""

    share: float
    """The bytes from the slow tier, as a share of the dataset."""
    seconds: float


def policy_of(job: Job) -> str:
    """Return the simulator's policy for a job."""
    return POLICIES[job.assignment, job.peers]


def predict(
    program: Path, folder: Path, index: Path, job: Job, rates: Rates, beside: Path
) -> dict[str, list[Predicted]]:
    """Return for each policy the epochs of a job.

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
        stored=rates.stored,
        consumed=rates.consumed,
    )
    beside.write_text(text)
    words = [program, "simulate", "--scenario", beside, "--json"]
    words += ["--policies", ",".join(("lru", *POLICIES.values()))]
    found = programs.json_of(words, os.environ | {"FORELOAD_INDEX_DIR": str(index)})
    total = found["dataset_bytes"]
    return {
        outcome["policy"]: [
            Predicted(epoch["slow_bytes"] / total, epoch["seconds"]) for epoch in outcome["epochs"]
        ]
        for outcome in found["policies"]
    }
