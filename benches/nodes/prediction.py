"""What `foreload simulate` says of a job before it runs: each epoch's bytes of the slow tier and seconds, by policy."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import programs
from training import Job

# Bytes depend on no rate. Seconds depend on the two that are put in; the others are of what is never the limit here.
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
"""What a job does, by its assignment and whether nodes read from each other, under the simulator's name for it."""


@dataclass(frozen=True)
class Rates:
    """What was measured or set before, in bytes a second."""

    stored: float
    """Of the slow storage, for all nodes together."""
    consumed: float
    """At which a node takes what is in its own cache."""


@dataclass(frozen=True)
class Predicted:
    """An epoch."""

    share: float
    """What leaves the slow tier, as a share of the dataset."""
    seconds: float


def policy_of(job: Job) -> str:
    """Return the simulator's name for what a job does."""
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
