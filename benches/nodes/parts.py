"""The parts of the benchmark: the jobs of each, its figures, and their bounds."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import prediction
import stream
from harness import report
from harness.aims import check
from harness.parts import Part, Skipped
from homes import held, least_moves
from training import OWN, PEERS, Cluster, Job, Round, fingerprint, positions

GLOBAL_BATCH = 80
"""Samples per step on any number of nodes: the global batches are the same for all."""
NODES = (2, 4, 8)
TOGETHER = (0.5, 1.0)
"""The size of the caches of all nodes together, as a share of the dataset."""
MOST_FIRST = 1.03
MARGIN = 0.02
PREDICTED = 0.03
PREDICTED_SECONDS = 0.15
BUSY = 0.6
"""The share of busy processors above which the processors, not the simulated limits, determine the time of an epoch."""
UNLIMITED = 1e10
"""Bytes per second of a component without a limit."""
MOVES = 1.05
WAITING = 1.1
UNNOTICED = 0.002
"""A difference in waiting, as a share of an epoch, that the scheduling of processes can cause."""
LINK = 1_000_000_000
"""Bits per second."""
LINK_SHARE = 0.9
LINK_BYTES = 200_000_000
DRAWS = 3
"""How often each sample comes in an epoch that is so long that its beginning and end hardly matter."""
PACED_SIZE = 224
FILLING = 10
ROUNDS = 3


@dataclass(frozen=True)
class Reference:
    """The results of a single node, which any number of nodes must reproduce."""

    places: list[dict[int, int]]
    """The position of each sample in each epoch's order."""
    sha256: str
    """The SHA-256 over all global batches."""
    rate: float
    """The rate in bytes per second at which it reads from its own cache."""


@dataclass
class Bench:
    """The environment of the jobs, and the results so far."""

    cluster: Cluster
    program: Path
    folder: Path
    """The dataset itself, not through the slow storage."""
    empty: Path
    """A mounted hollow dataset."""
    samples: int
    total: int
    """The bytes of all samples."""
    largest: int
    """The bytes of the largest sample, which every cache must be able to hold."""
    peers: bool
    """Whether nodes read from each other. If not, only private caches are measured, and the bounds of peers are not
    checked.
    """
    ran: dict[str, tuple[list[Round], list[prediction.Predicted]]] = field(default_factory=dict)
    """The epochs of the jobs that ran on the slow storage, and their predictions, by the jobs' names."""

    def job(self, nodes: int, share: float, **more: object) -> Job:
        """Return a job on this many nodes; each can store this share of the dataset."""
        return Job((int(share * self.total),) * nodes, GLOBAL_BATCH // nodes, **more)

    def shares(self, rounds: list[Round]) -> list[float]:
        """Return the share of the dataset that was read from the storage in each epoch."""
        return [round_.storage_bytes / self.total for round_ in rounds]

    @cached_property
    def alone(self) -> Reference:
        rounds = self.cluster.run(self.job(1, 1.0))
        places = [positions(round_) for round_ in rounds]
        quickest = min(round_.seconds for round_ in rounds[1:])
        return Reference(places, fingerprint(rounds, places), self.total / quickest)

    def predict(self, job: Job) -> dict[str, list[prediction.Predicted]]:
        """Return the predictions for a job, for each policy."""
        stored = min(self.cluster.storage.bandwidth(), UNLIMITED)
        rates = prediction.Rates(stored=stored, consumed=self.alone.rate)
        beside = self.cluster.scratch / "scenario.toml"
        return prediction.predict(self.program, self.folder, self.cluster.index, job, rates, beside)

    def same(self, job: Job, rounds: list[Round]) -> bool:
        """Return whether all global batches equal those of a single node, and have the same order if the job keeps the
        order.
        """
        kept = job.assignment != "order" or [positions(round_) for round_ in rounds] == self.alone.places
        return kept and fingerprint(rounds, self.alone.places) == self.alone.sha256


def figures(shares: list[float], between: str = ", ") -> str:
    return between.join(f"{share:.3f}" for share in shares)


def storage(bench: Bench) -> dict:
    """Measure the bytes of the slow storage by nodes and caches, with peers and with private caches, compared with an
    LRU.
    """
    rows, checks, runs = [], [], {}
    for nodes, together in [(nodes, together) for nodes in (1, *NODES) for together in TOGETHER]:
        private = bench.job(nodes, together / nodes)
        says = bench.predict(private)
        for job in [replace(private, peers=True), private] if bench.peers and nodes > 1 else [private]:
            rounds = bench.cluster.run(job)
            kind = "peers" if job.peers else "private"
            name = f"nodes={nodes} c={together / nodes:g} {kind}"
            runs[name] = [round_.account() for round_ in rounds]
            shares, told = bench.shares(rounds), says[prediction.policy_of(job)]
            predicted = [epoch.share for epoch in told]
            bench.ran[name] = (rounds, told)
            bound = max(0.0, 1 - together) + MARGIN
            report.log(f"{name} share={figures(shares, ',')} bound={bound:.2f}")
            same, error = bench.same(job, rounds), abs(sum(shares) / sum(predicted) - 1)
            judged = job.peers or nodes == 1
            tiers = [
                sum(rounds[-1].given(tier)) / bench.total for tier in ((OWN, PEERS) if job.peers else (OWN,))
            ]
            rows.append(
                [
                    f"{nodes} with {together / nodes:g}, {kind}",
                    figures(shares),
                    f"{bound:.2f}" if judged else "",
                    figures([epoch.share for epoch in says["lru"]]),
                    figures(predicted),
                    f"{100 * error:.1f} %",
                    figures(tiers),
                    str(sum(sum(round_.given(OWN, "dropped_busy")) for round_ in rounds)),
                    "same" if same else "**other**",
                ]
            )
            checks.append(check(same, True, f"{name}: batches are a single node's", at_least=True))
            if judged:
                checks.append(check(shares[0], MOST_FIRST, f"{name}: first epoch"))
                checks.append(check(max(shares[1:]), bound, f"{name}: later epochs"))
                checks.append(check(error, PREDICTED, f"{name}: all bytes compared with the prediction"))
    head = [
        "nodes with c",
        "share by epoch",
        "bound",
        "LRU",
        "predicted",
        "off by",
        "own, peers",
        "late",
        "batches",
    ]
    return {"head": head, "rows": rows, "checks": checks, "runs": runs}


def seconds(bench: Bench) -> dict:
    """Compare the time of epochs with the predictions, if the processors did not limit it."""
    if not bench.ran:
        raise Skipped("needs the part storage before it")
    rows, checks = [], []
    for name, (rounds, told) in bench.ran.items():
        off = [abs(round_.seconds / epoch.seconds - 1) for round_, epoch in zip(rounds, told, strict=True)]
        judged = [round_.busy < BUSY for round_ in rounds]
        rows.append(
            [
                name.removeprefix("nodes="),
                f"{rounds[0].opening:.3f}",
                figures([round_.seconds for round_ in rounds]),
                figures([epoch.seconds for epoch in told]),
                ", ".join(f"{100 * round_.busy:.0f} %" for round_ in rounds),
                ", ".join(
                    f"{100 * error:.1f} %" if counts else "busy"
                    for error, counts in zip(off, judged, strict=True)
                ),
            ]
        )
        if any(judged):
            most = max(error for error, counts in zip(off, judged, strict=True) if counts)
            checks.append(check(most, PREDICTED_SECONDS, f"{name}: seconds compared with the prediction"))
    return {
        "head": ["nodes, c", "opening", "seconds", "predicted", "busy", "off by"],
        "rows": rows,
        "checks": checks,
    }


def locality(bench: Bench) -> dict:
    """Measure the samples that move between nodes if ranks take samples that their node stores."""
    if not bench.peers:
        raise Skipped("needs peers")
    rows, checks = [], []
    for nodes in NODES:
        # The caches can hold every sample, so a sample that is not in the node's own cache comes from another node's.
        job = bench.job(nodes, 1.1 / nodes, peers=True, assignment="locality", epochs=3)
        with bench.cluster.caches(job) as (made, caches):
            rounds = bench.cluster.train(job, made, caches)
            kept = [
                held(bench.empty, bench.cluster.scratch / "index-hollow", cache, capacity)
                for cache, capacity in zip(caches, job.capacities, strict=True)
            ]
        moved = sum(sum(round_.given(PEERS, "hits")) for round_ in rounds[1:])
        least = sum(
            least_moves(([number for number, _ in batch] for batch in round_.batches()), kept, job.batch_size)
            for round_ in rounds[1:]
        )
        used = (job.epochs - 1) * bench.samples
        same = bench.same(job, rounds)
        rows.append(
            [
                str(nodes),
                str(sum(map(len, kept))),
                f"{moved / used:.3f}",
                f"{least / used:.3f}",
                f"{1 - 1 / nodes:.3f}",
                "same" if same else "**other**",
            ]
        )
        checks.append(check(moved / max(least, 1), MOVES, f"{nodes} nodes: samples moved, in the fewest"))
        checks.append(check(same, True, f"{nodes} nodes: batches are a single node's", at_least=True))
    head = ["nodes", "kept", "moved", "at least", "by order", "batches"]
    return {"head": head, "rows": rows, "checks": checks}


def waiting(bench: Bench) -> dict:
    """Measure the waiting of a node that consumes half of what it can decode, by the place of its samples."""
    batch_size = GLOBAL_BATCH // 4
    # A process checks once whether files of the storage have changed; that time does not belong to the path of samples.
    own = Job(
        (2 * bench.total,) * 2, batch_size, epochs=2, image_size=PACED_SIZE, immutable=True, hashed=False
    )
    jobs = {"own NVMe": own}
    if bench.peers:
        jobs["peers"] = replace(own, capacities=unequal(bench), peers=True)
    waits: dict[str, list[float]] = {way: [] for way in jobs}
    firsts: dict[str, list[float]] = {way: [] for way in jobs}
    with bench.cluster.caches(own) as (nodes, caches):
        places = {way: [Path(cache.parent, way, cache.name) for cache in caches] for way in jobs}
        for way, job in jobs.items():
            # So many draws that a node has read nearly every sample.
            warm = replace(job, epochs=1, image_size=0, epoch_size=FILLING * bench.samples)
            bench.cluster.train(warm, nodes, places[way])
        unpaced = bench.cluster.train(own, nodes, places["own NVMe"])[-1]
        step = 2 * unpaced.nodes[0].seconds / len(unpaced.nodes[0].waited)
        for number in range(ROUNDS):
            for way in sorted(jobs, reverse=number % 2 == 1):
                paced = replace(jobs[way], epochs=4, step_seconds=step, epoch_size=DRAWS * bench.samples)
                # The first epoch of a process also opens the existing cache.
                later = [round_.nodes[0] for round_ in bench.cluster.train(paced, nodes, places[way])[1:]]
                waits[way] += [sum(epoch.waited) / epoch.seconds for epoch in later]
                firsts[way] += [epoch.waited[0] / epoch.seconds for epoch in later]
                report.log(f"{way}: waited {figures(waits[way][-len(later) :])} of {later[-1].seconds:.2f} s")
    rows = [[way, *(percent(statistics.median(found[way])) for found in (waits, firsts))] for way in jobs]
    checks = []
    if bench.peers:
        own, peers = (statistics.median(waits[way]) for way in jobs)
        bound = max(WAITING * own, own + UNNOTICED)
        checks.append(check(peers, bound, "share of an epoch waited for samples from a peer"))
    head = ["samples from", "waited", "of it for the first batch"]
    return {"head": head, "rows": rows, "checks": checks, "waited": waits, "first": firsts}


def percent(share: float) -> str:
    """Return a share of a whole as a cell of a table."""
    return f"{100 * share:.2f} %"


def link(bench: Bench) -> dict:
    """Measure the share of a link's rate that samples from peers reach."""
    job = Job(
        unequal(bench),
        GLOBAL_BATCH // 2,
        peers=bench.peers,
        rate=f"{LINK // 10**6}mbit",
        epoch_size=DRAWS * bench.samples,
        hashed=False,
    )
    rates, checks = {}, []
    with bench.cluster.caches(job) as (nodes, caches):
        rates["one plain TCP stream"] = stream.rate(nodes[1], nodes[0], LINK_BYTES)
        if bench.peers:
            rounds = bench.cluster.train(job, nodes, caches)
            got = [round_.given(PEERS)[0] / round_.nodes[0].seconds for round_ in rounds[1:]]
            rates["samples from a peer"] = statistics.median(got)
            used = 8 * rates["samples from a peer"] / LINK
            checks.append(check(used, LINK_SHARE, "samples from a peer, of the link's rate", at_least=True))
    rows = [[name, f"{rate / 1e6:.1f}", f"{8 * rate / LINK:.3f}"] for name, rate in rates.items()]
    return {"head": [f"{LINK / 1e9:g} Gbit/s", "MB/s", "of the link"], "rows": rows, "checks": checks}


def unequal(bench: Bench) -> tuple[int, int]:
    """Return the cache sizes of two nodes: the first can store almost nothing, the other everything."""
    return 2 * bench.largest, 2 * bench.total


PARTS = {
    "storage": Part(
        storage,
        "Bytes of the slow storage, as shares of the dataset",
        "c is a node's cache as a share of the dataset. The shares that were read from the storage in each epoch come "
        "from its own counter. LRU is computed: `foreload simulate` replays the same order on each node through a "
        "least-recently-used cache of the same size. So is the prediction, which is compared with all epochs together. "
        "Own and peers are the shares from nodes' own caches and from those of others in the last epoch, by the "
        "loaders' counters. Late are samples that were not stored because writing was too slow, while processors or "
        "drive were busy with something else: they are read again. Batches are compared with a single node's by the "
        "SHA-256 of every global batch, over the position, number and bytes of each sample.",
    ),
    "seconds": Part(
        seconds,
        "Seconds of these epochs",
        "Of the slowest node, compared with what `foreload simulate` predicts from the storage's bandwidth and the "
        "rate at which a single node reads its own cache. The time to open a loader, before the first epoch, is a "
        "separate column: all processes start at once, and the nodes meet. Nodes share one machine's processors "
        f"here, so an epoch is only judged if these were in use for less than {100 * BUSY:.0f} % of it.",
    ),
    "locality": Part(
        locality,
        "Samples that move between nodes where ranks take what their node keeps",
        "Shares of the samples of the second and third epoch. The fewest are computed from each global batch and "
        "from the contents of the nodes' caches: of a node's samples, all above its part of the batch. By order is "
        "the share that ranks would get from others if they took their part of the order.",
    ),
    "waiting": Part(
        waiting,
        "Waiting at half the rate of decoding",
        "The share of an epoch that the first of two nodes waits, each with one thread that decodes, and a training "
        "step that takes as long as decoding its batch twice; medians of nine epochs.",
    ),
    "link": Part(
        link,
        "A link that is full",
        "The first node has next to no cache, so that its samples come from the second one's. A frame of Ethernet "
        "has 1448 of 1514 bytes for TCP's content.",
    ),
}
