"""The results that `make bench-nodes` computes from the nodes' reports: the digest of batches, the fewest moves, the
verdicts.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "nodes"))
import homes
import node
import parts
import prediction
import storage
import training
from harness import aims


def epoch(samples: list[list[int]], hits: int = 0) -> node.Epoch:
    """Return the report of a rank that got these samples, by step."""
    tiers = {"nvme": {"hits": hits, "bytes": 10 * hits}}
    steps = [[(sample, f"bytes of {sample}") for sample in step] for step in samples]
    return node.Epoch(1.0, 0.0, [0.1], {"source_bytes": 0, "tiers": tiers}, steps)


ONE = [training.Round(0, [epoch([[3, 1, 2, 0], [7, 5, 4, 6]])])]
PLACES = [training.positions(ONE[0])]


def test_batches_are_the_same_on_any_number_of_nodes_and_whichever_rank_takes_what() -> None:
    assert PLACES == [{3: 0, 1: 1, 2: 2, 0: 3, 7: 4, 5: 5, 4: 6, 6: 7}]
    alone = training.fingerprint(ONE, PLACES)
    by_order = [training.Round(0, [epoch([[3, 1], [7, 5]]), epoch([[2, 0], [4, 6]])])]
    by_locality = [training.Round(0, [epoch([[0, 1], [6, 7]]), epoch([[2, 3], [4, 5]])])]
    assert training.fingerprint(by_order, PLACES) == alone
    assert training.fingerprint(by_locality, PLACES) == alone


@pytest.mark.parametrize(
    "samples",
    [
        [[3, 1, 7, 0], [2, 5, 4, 6]],
        [[3, 1, 2, 2], [7, 5, 4, 6]],
        [[3, 1, 2], [7, 5, 4, 6]],
        [[3, 1, 2, 8], [7, 5, 4, 6]],
    ],
)
def test_a_sample_that_is_elsewhere_twice_or_lost_is_found(samples: list[list[int]]) -> None:
    assert training.fingerprint([training.Round(0, [epoch(samples)])], PLACES) != training.fingerprint(
        ONE, PLACES
    )


def test_other_bytes_are_found() -> None:
    steps = [*ONE[0].nodes[0].samples]
    steps[1] = [*steps[1][:3], (6, "other bytes")]
    other = training.Round(0, [replace(ONE[0].nodes[0], samples=steps)])
    assert training.fingerprint([other], PLACES) != training.fingerprint(ONE, PLACES)


def test_the_fewest_moves_are_what_nodes_keep_above_their_share() -> None:
    batches = [range(4), range(4, 8)]
    assert homes.least_moves(batches, [{0, 1, 4, 5}, {2, 3, 6, 7}], 2) == 0
    assert homes.least_moves(batches, [{0, 1, 2, 4}, {3, 5, 6, 7}], 2) == 2
    assert homes.least_moves(batches, [set(range(8)), set()], 2) == 4


def test_an_unknown_tier_is_an_error_and_not_nothing() -> None:
    one = training.Round(0, [epoch([[0]], hits=3)])
    assert (one.given("nvme"), one.given("nvme", "hits")) == ([30], [3])
    with pytest.raises(training.Unavailable, match="no tier 'peers', only nvme"):
        one.given("peers")


def test_a_verdict_depends_on_the_side_of_the_bound() -> None:
    assert aims.check(1.02, 1.03, "first")["met"]
    assert not aims.check(1.04, 1.03, "first")["met"]
    assert aims.check(0.95, 0.9, "link", at_least=True)["met"]
    assert not aims.check(0.85, 0.9, "link", at_least=True)["met"]


def test_ranks_gather_through_a_folder(tmp_path: Path) -> None:
    got: dict[int, list[list[bytes]]] = {}

    def rank(number: int) -> None:
        gather = node.SharedFolder(tmp_path, number, 3)
        got[number] = [gather(bytes([number, call])) for call in range(4)]

    ranks = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    expected = [[bytes([number, call]) for number in range(3)] for call in range(4)]
    assert got == dict.fromkeys(range(3), expected)


def test_a_hollow_dataset_has_names_and_sizes_and_no_contents(tmp_path: Path) -> None:
    files = {"a/0.jpg": 10, "a/1.jpg": 5000, "b/c/2.jpg": 1}
    for name, size in files.items():
        path = tmp_path / "full" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.full(size, 7, np.uint8).tobytes())
    empty = homes.hollow(tmp_path / "full", tmp_path / "empty")
    found = {str(path.relative_to(empty)): path.read_bytes() for path in empty.rglob("*.jpg")}
    assert found == {name: bytes(size) for name, size in files.items()}


def ran(*epochs: tuple[float, float, float]) -> parts.Bench:
    """Return a benchmark after a job. Each of `epochs` gives its seconds, its share of processors and its reported
    seconds.
    """
    rounds = [
        training.Round(0, [replace(epoch([[0]]), seconds=seconds + 2, opening=2.0), epoch([[1]])], busy)
        for seconds, busy, _ in epochs
    ]
    told = [prediction.Predicted(0.0, seconds) for *_, seconds in epochs]
    return parts.Bench(None, Path(), Path(), Path(), 2, 2, 1, True, {"nodes=2 c=1": (rounds, told)})


def test_seconds_are_judged_where_the_processors_do_not_decide() -> None:
    found = parts.seconds(ran((4.0, 0.3, 3.8), (2.2, 0.5, 2.0), (3.0, 0.9, 0.1)))
    assert found["rows"][0][-1] == "5.3 %, 10.0 %, busy"
    assert [(check["met"], round(check["value"], 3)) for check in found["checks"]] == [(True, 0.1)]
    assert not parts.seconds(ran((4.0, 0.3, 3.0)))["checks"][0]["met"]
    assert not parts.seconds(ran((4.0, 0.7, 3.0)))["checks"]


def test_processors_are_busy_with_what_runs() -> None:
    used, passed = training.processor_ticks()
    began = time.process_time()
    while time.process_time() < began + 0.5:
        pass
    busier, later = training.processor_ticks()
    assert 30 <= busier - used <= later - passed


@pytest.mark.parametrize(
    ("rates", "bandwidth"),
    [("open=1ms,read=1ms,bandwidth=50MB", 5e7), ("bandwidth=2GB", 2e9), ("open=0ms", float("inf"))],
)
def test_the_storages_bandwidth_is_what_it_is_told(rates: str, bandwidth: float) -> None:
    assert storage.Storage(Path(), rates).bandwidth() == bandwidth
