"""The parts of the benchmark: what each runs, its figures, and the bounds that they are judged by."""

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
"""Samples of a step, on however many nodes: what they are is the same for all."""
NODES = (2, 4, 8)
TOGETHER = (0.5, 1.0)
"""What the caches of all nodes hold together, as a share of the dataset."""
MOST_FIRST = 1.03
MARGIN = 0.02
PREDICTED = 0.03
PREDICTED_SECONDS = 0.15
BUSY = 0.6
"""The share of the processors above which they decide how long an epoch takes, and not what is simulated."""
UNLIMITED = 1e10
"""Bytes a second of what has no limit."""
MOVES = 1.05
WAITING = 1.1
UNNOTICED = 0.002
"""A difference in waiting, as a share of an epoch, that the scheduling of processes makes."""
LINK = 1_000_000_000
"""Bits a second."""
LINK_SHARE = 0.9
LINK_BYTES = 200_000_000
DRAWS = 3
"""How many times each sample comes in an epoch whose beginning and end are to be little of it."""
PACED_SIZE = 224
FILLING = 10
ROUNDS = 3


@dataclass(frozen=True)
class Reference:
    """What a single node gets, which is what any number of nodes must get."""

    places: list[dict[int, int]]
    """The position of each sample in each epoch's order."""
    sha256: str
    """Over all global batches."""
    rate: float
    """The bytes a second that it takes of what is in its own cache."""


@dataclass
class Bench:
    """Where jobs run, and what is known of them so far."""

    cluster: Cluster
    program: Path
    folder: Path
    """The dataset itself, without its slow storage."""
    empty: Path
    """A mounted hollow dataset."""
    samples: int
    total: int
    """The bytes of all samples."""
    largest: int
    """The bytes of the largest sample, for which every cache must have room."""
    peers: bool
    """Whether nodes read from each other; if not, only private caches are measured, and no bound of peers judged."""
    ran: dict[str, tuple[list[Round], list[prediction.Predicted]]] = field(default_factory=dict)
    """The epochs of the jobs that ran on the slow storage, by the jobs' names, beside what was predicted of them."""

    def job(self, nodes: int, share: float, **more: object) -> Job:
        """Return a job on so many nodes, of which each keeps a share of the dataset."""
        return Job((int(share * self.total),) * nodes, GLOBAL_BATCH // nodes, **more)

    def shares(self, rounds: list[Round]) -> list[float]:
        """Return the share of the dataset that left the storage in each epoch."""
        return [round_.storage_bytes / self.total for round_ in rounds]

    @cached_property
    def alone(self) -> Reference:
        rounds = self.cluster.run(self.job(1, 1.0))
        places = [positions(round_) for round_ in rounds]
        quickest = min(round_.seconds for round_ in rounds[1:])
        return Reference(places, fingerprint(rounds, places), self.total / quickest)

    def predict(self, job: Job) -> dict[str, list[prediction.Predicted]]:
        """Return what is said of a job before it runs, for each policy."""
        stored = min(self.cluster.storage.bandwidth(), UNLIMITED)
        rates = prediction.Rates(stored=stored, consumed=self.alone.rate)
        beside = self.cluster.scratch / "scenario.toml"
        return prediction.predict(self.program, self.folder, self.cluster.index, job, rates, beside)

    def same(self, job: Job, rounds: list[Round]) -> bool:
        """Return whether all global batches are those of a single node, and in its order where a job keeps that."""
        kept = job.assignment != "order" or [positions(round_) for round_ in rounds] == self.alone.places
        return kept and fingerprint(rounds, self.alone.places) == self.alone.sha256


def figures(shares: list[float], between: str = ", ") -> str:
    return between.join(f"{share:.3f}" for share in shares)


def storage(bench: Bench) -> dict:
    """Measure the bytes of the slow storage by nodes and caches, with peers and with private caches, beside an LRU."""
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
                checks.append(check(error, PREDICTED, f"{name}: all bytes beside the prediction"))
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
    """Compare how long epochs took with what was predicted, where the processors did not decide."""
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
            checks.append(check(most, PREDICTED_SECONDS, f"{name}: seconds beside the prediction"))
    return {
        "head": ["nodes, c", "opening", "seconds", "predicted", "busy", "off by"],
        "rows": rows,
        "checks": checks,
    }


def locality(bench: Bench) -> dict:
    """Measure the samples that move between nodes where ranks take what their node keeps."""
    if not bench.peers:
        raise Skipped("needs peers")
    rows, checks = [], []
    for nodes in NODES:
        # Every sample has a place, so that what does not come from the node's own cache comes from another's.
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
        checks.append(check(moved / max(least, 1), MOVES, f"{nodes} nodes: samples moved beside the fewest"))
        checks.append(check(same, True, f"{nodes} nodes: batches are a single node's", at_least=True))
    head = ["nodes", "kept", "moved", "at least", "by order", "batches"]
    return {"head": head, "rows": rows, "checks": checks}


def waiting(bench: Bench) -> dict:
    """Measure how long a node waits that consumes half of what it decodes, by where its samples come from."""
    batch_size = GLOBAL_BATCH // 4
    # What a process asks of the storage once, whether its files changed, is no part of the way that samples take.
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
            # So many draws that next to no sample is left which a node has not read.
            warm = replace(job, epochs=1, image_size=0, epoch_size=FILLING * bench.samples)
            bench.cluster.train(warm, nodes, places[way])
        unpaced = bench.cluster.train(own, nodes, places["own NVMe"])[-1]
        step = 2 * unpaced.nodes[0].seconds / len(unpaced.nodes[0].waited)
        for number in range(ROUNDS):
            for way in sorted(jobs, reverse=number % 2 == 1):
                paced = replace(jobs[way], epochs=4, step_seconds=step, epoch_size=DRAWS * bench.samples)
                # The first epoch of a process also opens what is there.
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
    """Measure what of a link's rate samples from peers get."""
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
    """Return the caches of two nodes, of which the first has no room to speak of, the other room for all."""
    return 2 * bench.largest, 2 * bench.total


PARTS = {
    "storage": Part(
        storage,
        "Bytes of the slow storage, as shares of the dataset",
        "c is a node's cache as a share of the dataset. The shares that left the storage in each epoch are by its "
        "own counter. LRU is computed: `foreload simulate` replays the same order on each node through a "
        "least-recently-used cache of the same bytes. So is the prediction, beside which all epochs together are "
        "put. Own and peers are what nodes' own caches and those of others gave in the last epoch, by the loaders' "
        "counters. Late are samples that were not kept because writing was behind, as it is where processors or "
        "drive are busy with something else: they are read again. Batches are compared with a single node's by the "
        "SHA-256 of every global batch, over the position, number and bytes of each sample.",
    ),
    "seconds": Part(
        seconds,
        "Seconds of these epochs",
        "Of the slowest node, beside what `foreload simulate` says of the storage's bandwidth and of the rate at "
        "which a single node goes through its own cache. What a loader takes to open, before the first epoch, is "
        "beside it: there all processes start at once, and the nodes meet. Nodes share one machine's processors "
        f"here, so that an epoch is judged only where these were in use for less than {100 * BUSY:.0f} % of it.",
    ),
    "locality": Part(
        locality,
        "Samples that move between nodes where ranks take what their node keeps",
        "Shares of the samples of the second and third epoch. The fewest are computed from each global batch and "
        "from what lies in the nodes' caches: of a node's samples, all above its part of the batch. By order is "
        "what ranks would get from others if they took their part of the order.",
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
