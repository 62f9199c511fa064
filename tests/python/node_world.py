"""Nodes that share their caches, as processes in network namespaces: for `test_nodes.py`.

A `World` has the dataset, the nodes' networks and their caches, which all outlive a run. A `Run` is one start of the
job, or of two jobs at once. During training, faults start and end at their times. After each epoch, the samples and
counters of the nodes are compared with the expected ones.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import foreload
import kills
import numpy as np
import shared_node
from shared_node import Epoch, Settings

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benches" / "nodes"))
import namespaces  # noqa: E402

OWN = {
    "PREFIX": "foreload-test-",
    "BRIDGE": "fltest",
    "SUBNET": "10.219.78",
    "LOCK": Path("/run/foreload-test-nodes.lock"),
}
"""The names of these nodes, which differ from the benchmark's, because a benchmark may run on the same machine."""
FOLDER = Path(tempfile.gettempdir()) / "foreload-test-nodes"
NODES = 3
SAMPLES = 600
BATCH = 8
STEPS = SAMPLES // (NODES * BATCH)
CACHE_ROOM = 6_500_000
"""The size of a node's cache in bytes: two of three caches together can hold the dataset."""
DISK = "24m"
"""The size of the file system that a node's cache is on."""
PORT = 41000
"""The port of the first job's nodes; the second job uses the next port."""
STEP = 0.015
"""Seconds of a training step."""
HANG = 10.0
"""A node that waits longer than this for a batch, in seconds, counts as hung."""
LONGEST_EPOCH = 90.0
"""An epoch that takes longer than this, in seconds, is a failure."""
ANSWERED = ("hits", "absent", "stale", "unconfirmed", "busy", "timeouts", "refused", "wrong", "unreachable")
"""The possible results of a request to a peer for a sample."""

End = Callable[[], bool | None]
"""Ends a fault, or returns `True` if that is not possible yet."""
Fault = Callable[["Run", random.Random], End | None]
"""Starts a fault and returns the function that ends it, or `None` if it cannot start now."""


@dataclass(frozen=True)
class Setup:
    """How the nodes of a run share their caches."""

    memory_bytes: int = 0
    """The size of a tier in the memory of each node, before its cache."""
    tls: bool = False


class World:
    """A dataset and the nodes that train on it, run after run; and for each of them a node for a man in the middle."""

    def __init__(self, folder: Path, nodes: list[namespaces.Node], seed: int, lengths: range) -> None:
        self.folder, self.nodes, self.middles = folder, nodes[:NODES], nodes[NODES:]
        self.rng = random.Random(seed)
        self.data, self.index = folder / "data", folder / "index"
        self.caches = [folder / f"disk-{node.number}" / "cache" for node in nodes]
        self.faults: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.waits: list[tuple[float, str]] = []
        """The longest wait of each node in each epoch in which it was not stopped, and the faults of that time."""
        self.told: Counter[str] = Counter()
        self.lengths = [self.rng.choice(lengths) for _ in range(SAMPLES)]
        self.versions = [0] * SAMPLES
        (self.data / "a").mkdir(parents=True)
        for sample in range(SAMPLES):
            self.write(sample, in_place=False)

    def path(self, sample: int) -> Path:
        """The file of a sample."""
        return self.data / "a" / f"{sample:05}.bin"

    def write(self, sample: int, in_place: bool) -> None:
        """Write the newest version of a sample into its file, or into a file that replaces it."""
        contents = shared_node.contents(sample, self.versions[sample], self.lengths[sample])
        if in_place:
            # The file never gets shorter, because then the loader would correctly end the epoch.
            with self.path(sample).open("r+b") as file:
                file.write(contents)
        else:
            new = self.folder / "new"
            new.write_bytes(contents)
            new.rename(self.path(sample))

    def change(self, rng: random.Random, count: int, in_place: bool, length: bool = False) -> None:
        """Give some samples another version, and other lengths."""
        for sample in rng.sample(range(SAMPLES), count):
            self.versions[sample] += 1
            if length:
                self.lengths[sample] = rng.randint(5_000, 30_000)
            self.write(sample, in_place)

    def segments(self, node: int) -> list[Path]:
        """The files of samples in a node's cache."""
        found = [path for path in self.caches[node].rglob("*") if path.is_file()]
        return sorted(path for path in found if path.stat().st_size > 10_000)

    def call(self, *words: object) -> None:
        """Run a command of the system."""
        namespaces.call(*words)


@contextmanager
def world(seed: int, lengths: range = range(5_000, 30_000)) -> Iterator[World]:
    """Make a world whose files have these lengths. All of it is removed afterwards.

    Raises:
        namespaces.Refused: The system refuses namespaces, or another run uses them.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.multiple(namespaces, **OWN))
        stack.enter_context(namespaces.alone())
        clear()
        stack.callback(clear)
        nodes = stack.enter_context(namespaces.network(2 * NODES))
        for node in nodes[:NODES]:
            disk = FOLDER / f"disk-{node.number}"
            disk.mkdir(parents=True)
            namespaces.call("mount -t tmpfs -o", f"size={DISK}", "tmpfs", disk)
        for middle in nodes[NODES:]:
            # The man in the middle of a node has the node's address, and must not answer ARP requests for it.
            quiet = middle.command("sysctl", "-q", "-w", "net.ipv4.conf.net0.arp_ignore=1")
            subprocess.run(quiet, check=True, capture_output=True)
        # If the kernel has no such rules, this fails before any test starts.
        namespaces.call("ip -n", nodes[-1].name, "rule add to 192.0.2.1/32 ipproto tcp dport 1 table 1")
        yield World(FOLDER, nodes, seed, lengths)


def clear() -> None:
    """Remove the folder of a world and unmount its file systems, even if a killed run left it."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if FOLDER in (mount := Path(line.split()[4])).parents:
            subprocess.run(["umount", "--lazy", mount], check=True)
    shutil.rmtree(FOLDER, ignore_errors=True)


class Process:
    """A process of a node, whose lines are read as they come."""

    def __init__(self, world: World, node: int, job: int, meeting: Path, setup: Setup) -> None:
        self.node, self.job = node, job
        settings = Settings(
            data=str(world.data),
            index=str(world.index),
            rank=node,
            world_size=NODES,
            batch_size=BATCH,
            cache=str(world.caches[node]),
            cache_bytes=CACHE_ROOM,
            meeting=str(meeting),
            listen=f"{world.nodes[node].address}:{PORT + job}",
            step_seconds=STEP,
            **asdict(setup),
        )
        self.said = world.folder / f"said-{node}-{job}.txt"
        words = world.nodes[node].command(
            sys.executable, HERE / "shared_node.py", json.dumps(asdict(settings))
        )
        with self.said.open("w") as said:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said, "text": True}
            self.process = kills.begin(*words, **pipes)
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reading = threading.Thread(target=self.read, daemon=True)
        self.reading.start()
        self.peers: dict[str, dict] = {}
        """The counters of each other node up to the last epoch, by its address."""
        self.changes: dict[str, dict] = {}
        """The counters of each other node in that epoch."""
        self.served: dict[str, int] = {}
        """The counters of its work for other nodes."""

    def read(self) -> None:
        """Read its lines until it ends, which is reported as an empty line."""
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.put(line)
        self.lines.put("")

    def line(self, patience: float) -> str | None:
        """Return the next line, or `None` if none comes in time."""
        with contextlib.suppress(queue.Empty):
            line = self.lines.get(timeout=patience)
            assert line, f"node {self.node} has ended: {self.said.read_text()[-3000:]}"
            return line
        return None

    def go(self) -> None:
        """Make it train an epoch."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self, kill: bool = False) -> None:
        """End it, or kill it."""
        with contextlib.suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
        if kill:
            self.process.kill()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=LONGEST_EPOCH)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reading.join()


class Run:
    """One start of a job, or of two jobs on the same nodes and caches."""

    def __init__(self, world: World, jobs: int, faults: dict[str, Fault], setup: Setup = Setup()) -> None:
        self.world, self.rng, self.faults, self.setup = world, world.rng, faults, setup
        self.begun_with = list(world.versions)
        self.dead: set[int] = set()
        self.lied_for: set[int] = set()
        self.stood_before: set[int] = set()
        """The nodes that have a man in the middle."""
        self.stopped: set[int] = set()
        """The nodes that were stopped in this epoch or the one before."""
        self.now: set[str] = set()
        """The faults of this epoch."""
        self.refused: Counter[int] = Counter()
        """The requests without a token that each node has refused, in the first job."""
        self.helpers: list[subprocess.Popen] = []
        self.ends: list[tuple[float, str, End]] = []
        meetings = [tempfile.mkdtemp(prefix="meeting-", dir=world.folder) for _ in range(jobs)]
        self.processes = [
            Process(world, node, job, Path(meeting), setup)
            for job, meeting in enumerate(meetings)
            for node in range(NODES)
        ]
        for process in self.processes:
            assert process.line(LONGEST_EPOCH) == "ready\n", process.said.read_text()
        self.reference = foreload.FileLoader(
            world.data,
            batch_size=NODES * BATCH,
            seed=shared_node.SEED,
            rank=0,
            world_size=1,
            index_dir=world.index,
            progress=False,
        )
        self.epochs = 0

    def alive(self) -> list[int]:
        """The nodes that were not killed."""
        return [node for node in range(NODES) if node not in self.dead]

    def of(self, node: int) -> list[Process]:
        """The processes of a node."""
        return [process for process in self.processes if process.node == node]

    def helper(self, node: namespaces.Node, *words: object) -> subprocess.Popen:
        """Start a program of `false_peer.py` in a network namespace."""
        command = node.command(sys.executable, HERE / "false_peer.py", *words)
        process = kills.begin(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.helpers.append(process)
        return process

    def epoch(self, begins: list[tuple[float, str]]) -> None:
        """Train an epoch. The faults of `begins` whose time comes during the epoch start, and leave the list.

        Their times count from the meeting of the nodes.
        """
        began = time.monotonic()
        self.now = {name for _, name, _ in self.ends}
        waiting = [process for process in self.processes if process.node not in self.dead]
        for process in waiting:
            process.go()
        if self.epochs == 0:
            # If a node is lost before the nodes have met, the job ends.
            for process in waiting:
                line = process.line(LONGEST_EPOCH)
                assert line == "met\n", self.account(f"node {process.node}: {line}")
            began = time.monotonic()
            begins[:] = [(began + delay, name) for delay, name in begins]
        reports: list[tuple[Process, Epoch]] = []
        while waiting:
            assert time.monotonic() < began + LONGEST_EPOCH, self.account("an epoch does not end")
            self.happen(begins)
            for process in list(waiting):
                if process.node in self.dead:
                    waiting.remove(process)
                elif line := process.line(0.002):
                    waiting.remove(process)
                    reports.append((process, Epoch(**json.loads(line))))
        stopped, self.stopped = self.stopped, {node for node in self.stopped if "pause" in self.now}
        order = [
            number
            for batch in self.reference.batches(self.epochs)
            for number in np.from_dlpack(batch.sample_ids).tolist()
        ]
        for process, report in reports:
            if process.node not in self.dead:
                self.check(process, report, order, process.node in stopped)
        self.epochs += 1

    def check(self, process: Process, report: Epoch, order: list[int], stopped: bool) -> None:
        """Compare the samples and counters of a node with the expected ones."""
        says = self.account(f"node {process.node}, job {process.job}")
        assert not report.error, f"{says}: {report.error}"
        assert not report.wrong, f"{says}: {report.wrong[:5]}"
        begins = range(process.node * BATCH, len(order), NODES * BATCH)
        mine = [number for begin in begins for number in order[begin : begin + BATCH]]
        assert [number for number, _ in report.samples] == mine, says
        for number, version in report.samples:
            assert self.begun_with[number] <= version <= self.world.versions[number], (
                f"{says}: sample {number} came in version {version}, not {self.begun_with[number]} "
                f"to {self.world.versions[number]}"
            )
        assert report.longest < HANG, f"{says}: waited {report.longest:.1f} s for a batch"
        if not stopped:
            self.world.waits.append((report.longest, says))
        self.world.told.update(message.partition(":")[0][:90] for message in report.warnings)
        tiers = report.cache["tiers"]
        hits = sum(tier["hits"] for tier in tiers.values())
        assert hits + report.cache["source_reads"] == len(mine), f"{says}: {report.cache}"
        changes = self.since(process, report.peers)
        for name, peer in changes.items():
            assert peer["breaker"] == peer["reads"] - sum(peer[what] for what in ANSWERED), (
                f"{says}: {name}: {peer}"
            )
            self.world.found.update(
                {f"peer {what}": peer[what] for what in (*ANSWERED, "breaker", "pushes_taken")}
            )
        hits = sum(peer["hits"] for peer in changes.values())
        # If a peer has a sample but its version was not confirmed in time, the sample is requested again, which is
        # another read.
        missed = sum(peer["reads"] - peer["hits"] - peer["unconfirmed"] for peer in changes.values())
        peers = tiers["peers"]
        assert (peers["hits"], peers["fallbacks"]) == (hits, missed), f"{says}: {peers}, {changes}"
        for tier, what in [
            ("ram", "hits"),
            ("nvme", "hits"),
            ("nvme", "damaged"),
            ("nvme", "write_errors"),
            ("peers", "fallbacks"),
        ]:
            self.world.found[f"{tier} {what}"] += tiers.get(tier, {}).get(what, 0)
        self.world.found["source reads"] += report.cache["source_reads"]
        self.world.found["samples"] += len(mine)
        process.changes, process.served = changes, report.peers["served"]

    @staticmethod
    def since(process: Process, peers: dict) -> dict[str, dict]:
        """Return the counters of each other node since the last epoch, by its address."""
        now = {peer["address"]: peer for peer in peers["nodes"].values()}
        before, process.peers = process.peers, now
        return {
            address: {
                name: number - before.get(address, {}).get(name, 0)
                for name, number in peer.items()
                if isinstance(number, int)
            }
            for address, peer in now.items()
        }

    def account(self, what: str) -> str:
        """Return the state of the run, for the message of a failure."""
        return f"{what}, epoch {self.epochs}, dead {sorted(self.dead)}, faults {sorted(self.now)}"

    def happen(self, begins: list[tuple[float, str]]) -> None:
        """Start and end the faults that are due."""
        now = time.monotonic()
        for due in [due for due in self.ends if due[0] <= now]:
            self.ends.remove(due)
            if due[2]():
                self.ends.append(due)
        for due in [due for due in begins if due[0] <= now]:
            begins.remove(due)
            self.begin(due[1])

    def begin(self, name: str) -> None:
        """Start a fault, if it can start."""
        ends = self.faults[name](self, self.rng)
        if ends is not None:
            self.world.faults[name] += 1
            self.now.add(name)
            self.ends.append((time.monotonic() + self.rng.uniform(0.1, 2.0), name, ends))

    def fill(self) -> None:
        """Train without faults until nodes have got samples from each other."""
        began = time.monotonic()
        while not any(peer["hits"] for process in self.processes for peer in process.changes.values()):
            assert time.monotonic() < began + LONGEST_EPOCH, self.account(
                "no node gets anything from another"
            )
            self.epoch([])

    def finish(self, begins: list[tuple[float, str]], filled: bool) -> None:
        """Train until all faults have started and ended, then one more epoch without faults; check the results.

        Unless the caches are `filled` first, a fault may come before they hold anything.
        """
        if filled:
            self.fill()
            now = time.monotonic()
            begins = [(now + delay, name) for delay, name in begins]
        until = time.monotonic() + LONGEST_EPOCH
        while begins or self.ends:
            assert time.monotonic() < until, self.account("the faults do not end")
            self.epoch(begins)
        self.epoch([])
        dead = {f"{self.world.nodes[node].address}:{PORT + job}" for node in self.dead for job in range(2)}
        for process in [process for process in self.processes if process.node not in self.dead]:
            for address in dead & set(process.changes):
                lost = process.changes[address]
                says = self.account(f"node {process.node}: {address}: {lost}")
                assert lost["hits"] == 0, says
                assert lost["reads"] > 0, says
            if process.job == 0:
                asked = self.refused[process.node]
                assert process.served["strangers"] >= asked, self.account(f"{process.served}, {asked} asked")
            self.world.found.update({f"served {what}": count for what, count in process.served.items()})

    def close(self, kill: bool) -> None:
        """End all processes."""
        for _, _, end in self.ends:
            end()
        for helper in self.helpers:
            kills.end(helper)
        for process in self.processes:
            if process.node not in self.dead:
                process.end(kill)
