"""A training on several nodes: their processes, the barrier between epochs, and the result of each epoch."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.environments import Unavailable, last_lines
from harness.parts import Skipped
from harness.programs import Worker
from namespaces import Node, NotShaped, Refused, network
from node import Epoch, Settings
from storage import Storage

HERE = Path(__file__).resolve().parent
OWN = "nvme"
"""The name of the tier for a node's own cache."""
PEERS = "peers"
"""The name of the tier for other nodes' caches."""
LONGEST_EPOCH = 60
"""An epoch that takes longer than this, in seconds, is a failure."""


@dataclass(frozen=True)
class Job:
    """The job of all nodes."""

    capacities: tuple[int, ...]
    """The size of each node's cache in bytes."""
    batch_size: int
    """The batch size of each node."""
    epochs: int = 3
    peers: bool = False
    assignment: str = "order"
    rate: str | None = None
    """The limit of a node's sending rate, in the format of `tc`."""
    image_size: int = 0
    epoch_size: int | None = None
    step_seconds: float = 0.0
    immutable: bool = False
    hashed: bool = True

    @property
    def nodes(self) -> int:
        return len(self.capacities)


@dataclass(frozen=True)
class Round:
    """The results of an epoch on all nodes."""

    storage_bytes: int
    """The bytes that the storage delivered, by its own counter."""
    nodes: list[Epoch]
    busy: float = 1.0
    """The share of the machine's processors that was used meanwhile, by any process."""

    @property
    def opening(self) -> float:
        return max(epoch.opening for epoch in self.nodes)

    @property
    def seconds(self) -> float:
        """The time of the slowest node, without the start of its loader."""
        return max(epoch.seconds - epoch.opening for epoch in self.nodes)

    def given(self, tier: str, what: str = "bytes") -> list[int]:
        """Return a counter of a tier on each node, by default the bytes that it delivered.

        Raises:
            Unavailable: The loaders have no such tier.
        """
        tiers = [epoch.cache["tiers"] for epoch in self.nodes]
        if any(tier not in known for known in tiers):
            raise Unavailable(f"the loaders count no tier {tier!r}, only {', '.join(tiers[0])}")
        return [known[tier][what] for known in tiers]

    def account(self) -> dict:
        """Return the epoch's data for the file of results: seconds or bytes for each node."""
        return {
            "storage_bytes": self.storage_bytes,
            "seconds": [epoch.seconds for epoch in self.nodes],
            "opening_seconds": [epoch.opening for epoch in self.nodes],
            "waited_seconds": [sum(epoch.waited) for epoch in self.nodes],
            "source_bytes": [epoch.cache["source_bytes"] for epoch in self.nodes],
            "tiers": {tier: self.given(tier) for tier in self.nodes[0].cache["tiers"]},
            "dropped_busy": self.given(OWN, "dropped_busy"),
            "busy": self.busy,
        }

    def batches(self) -> list[list[tuple[int, str]]]:
        """Return the samples of each global batch, rank after rank, with the hashes of their bytes."""
        return [
            [one for part in step for one in part]
            for step in zip(*(epoch.samples for epoch in self.nodes), strict=True)
        ]


def positions(round_: Round) -> dict[int, int]:
    """Return the position of each sample in the order of an epoch whose samples went to ranks by that order."""
    numbers = [number for batch in round_.batches() for number, _ in batch]
    return {number: position for position, number in enumerate(numbers)}


def fingerprint(rounds: list[Round], places: list[dict[int, int]]) -> str:
    """Return a SHA-256 over all global batches, as (position, sample, bytes) with positions from `places`."""
    whole = hashlib.sha256()
    for round_, place in zip(rounds, places, strict=True):
        for batch in round_.batches():
            known = sorted((place.get(number, -1), number, digest) for number, digest in batch)
            whole.update(hashlib.sha256(json.dumps(known).encode()).digest())
    return whole.hexdigest()


@dataclass(frozen=True)
class Cluster:
    """The environment of jobs: the dataset on its storage, and a directory for the nodes' files."""

    storage: Storage
    index: Path
    scratch: Path

    def run(self, job: Job) -> list[Round]:
        """Run a job with empty caches; return its epochs.

        Raises:
            Unavailable: A node failed.
        """
        with self.caches(job) as (nodes, places):
            return self.train(job, nodes, places)

    @contextmanager
    def caches(self, job: Job) -> Iterator[tuple[list[Node], list[Path]]]:
        """Make the nodes of a job and empty caches for them, which are all removed afterwards."""
        with ExitStack() as stack:
            try:
                nodes = stack.enter_context(network(job.nodes, job.rate))
            except NotShaped as reason:
                raise Skipped(str(reason)) from reason
            except Refused as reason:
                raise Unavailable(str(reason)) from reason
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="job-", dir=self.scratch))
            yield nodes, [Path(made, node.name) for node in nodes]

    def train(self, job: Job, nodes: list[Node], places: list[Path]) -> list[Round]:
        """Run a job on nodes with the existing caches at `places`.

        Raises:
            Unavailable: A node failed.
        """
        places[0].parent.mkdir(parents=True, exist_ok=True)
        # A node's settings have those of its job under the same names.
        known = {name: value for name, value in asdict(job).items() if name in Settings.__dataclass_fields__}
        known |= {"data": str(self.storage.path), "index": str(self.index), "world_size": job.nodes}
        known["meeting"] = tempfile.mkdtemp(prefix="meeting-", dir=places[0].parent)
        processes = []
        with ExitStack() as stack:
            for node, place, capacity in zip(nodes, places, job.capacities, strict=True):
                own = {"rank": node.number, "cache": str(place), "cache_bytes": capacity}
                settings = Settings(**known, **own, listen=node.address if job.peers else None)
                processes.append(stack.enter_context(Process(node, settings)))
            for process in processes:
                process.read()
            return [self.epoch(processes) for _ in range(job.epochs)]

    def epoch(self, processes: list[Process]) -> Round:
        before, ticks = self.storage.bytes(), processor_ticks()
        for process in processes:
            process.send("go")
        epochs = [Epoch(**json.loads(process.read())) for process in processes]
        used, passed = (now - then for now, then in zip(processor_ticks(), ticks, strict=True))
        return Round(self.storage.bytes() - before, epochs, used / max(passed, 1))


def processor_ticks() -> tuple[int, int]:
    """Return the used time of all processors of the machine since its start, and the total time."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, idle, waiting, *rest = map(int, fields)
    used = user + nice + system + sum(rest)
    return used, used + idle + waiting


class Process(Worker):
    """The process of a node, which ends with the context."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self.rank = settings.rank
        self.said = Path(settings.cache).with_name(f"said-{settings.rank}.txt")
        with self.said.open("w") as said:
            super().__init__(
                node.command(sys.executable, HERE / "node.py", json.dumps(asdict(settings))), None, said
            )

    def read(self, seconds: float = LONGEST_EPOCH) -> str:
        """Return the next line of its output.

        Raises:
            Unavailable: It has ended, or prints nothing in time.
        """
        try:
            return super().read(seconds)
        except Unavailable as reason:
            said = last_lines(self.said.read_text(), 600)
            raise Unavailable(f"node {self.rank}: {reason}: {said}") from reason

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        if failure[0] is None and self.process.returncode == -signal.SIGKILL:
            raise Unavailable(f"node {self.rank} did not end by itself")
