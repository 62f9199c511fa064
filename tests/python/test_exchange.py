"""How ranks meet: in real processes over a directory, if they are missing, doubled, killed or frozen; and over
functions of the user.

The engines of clusters are tested in test_clusters.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import foreload
import kills
import pytest
from conftest import ONLY_ALL
from foreload import _boards, _exchange
from foreload._exchange import Meeting
from job import Process
from waiting import until

SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}


def one_rank(
    rank: int, world_size: int, directory: Path, purposes: list[str], timeout: float, payload: str
) -> list[Meeting]:
    """Meet the others once per purpose."""
    return [
        _exchange.meet(
            purpose,
            f"{payload}\n{purpose}\0{rank}".encode() * rank,
            rank=rank,
            world_size=world_size,
            directory=directory,
            timeout=timeout,
        )
        for purpose in purposes
    ]


def start(
    rank: int,
    world_size: int,
    directory: Path,
    *purposes: str,
    timeout: float = 30.0,
    payload: str = "",
    own_network: bool = False,
    **variables: str,
) -> Process:
    """Start a rank of the job."""
    arguments = rank, world_size, directory, list(purposes or ["tests"]), timeout, payload
    return Process(one_rank, *arguments, variables=SLURM | variables, own_network=own_network)


def test_all_get_what_each_gave(tmp_path: Path) -> None:
    purposes = ["train", "validation", "train"]
    met = [process.result() for process in [start(rank, 5, tmp_path, *purposes) for rank in range(5)]]
    for number, purpose in enumerate(purposes):
        meetings = [ranks[number] for ranks in met]
        for rank, meeting in enumerate(meetings):
            assert meeting.payloads == [f"\n{purpose}\0{giver}".encode() * giver for giver in range(5)]
            assert (meeting.rank, meeting.world_size) == (rank, 5)
            assert (meeting.nodes, meeting.node) == ([[0, 1, 2, 3, 4]], 0)
            assert meeting.generation == "slurm 77, attempt 0"
            assert meeting.engine == "a directory that all ranks share"
        assert len({meeting.token for meeting in meetings}) == 1
        assert len(meetings[0].token) == 32
    assert len({meeting.token for meeting in met[0]}) == 3
    assert list(tmp_path.iterdir()) == []


def test_network_namespaces_are_nodes(tmp_path: Path) -> None:
    ranks = [start(rank, 3, tmp_path, own_network=rank == 1, timeout=20) for rank in range(3)]
    met = [rank.result() for rank in ranks]
    if isinstance(met[1], PermissionError):
        pytest.skip(f"a network namespace cannot be made here: {met[1]}")
    assert [meetings[0].nodes for meetings in met] == [[[0, 2], [1]]] * 3
    assert [meetings[0].node for meetings in met] == [0, 1, 0]


def test_one_rank_alone_needs_nothing() -> None:
    meeting = _exchange.meet("tests", b"mine", rank=0, world_size=1)
    assert (meeting.payloads, meeting.nodes, meeting.node) == ([b"mine"], [[0]], 0)
    assert len(meeting.token) == 32


@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        ([0, 1, 3, 4], "ranks 2, 5-6 of 7 did not join the exchange for 'tests' within 1 s"),
        ([0], "ranks 1-6 of 7 did not join"),
        ([1, 2, 3, 4, 5, 6], "within 1 s over a directory that all ranks share: rank 0 did not join"),
    ],
)
def test_missing_ranks_are_named(there: list[int], complaint: str, tmp_path: Path) -> None:
    for process in [start(rank, 7, tmp_path, timeout=1.0) for rank in there]:
        assert complaint in process.result()


def test_a_frozen_rank_0(tmp_path: Path) -> None:
    first = start(0, 3, tmp_path)
    until("rank 0 opens a session", lambda: list(tmp_path.rglob("0-session")))
    first.signal(signal.SIGSTOP)
    second = start(1, 3, tmp_path, timeout=1.0)
    assert "rank 0 joined, rank 2 did not" in second.result()
    # When it continues, it meets the ranks that are there by then.
    first.signal(signal.SIGCONT)
    for process in [first, *(start(rank, 3, tmp_path) for rank in (1, 2))]:
        assert isinstance(process.result(), list)


def test_ranks_that_differ_are_told_of_each_other(tmp_path: Path) -> None:
    def complaints(name: str, *processes: Process) -> list[str]:
        return [process.result() for process in processes]

    orders = {0: ["train", "validation"], 1: ["train", "validation"], 2: ["validation", "train"]}
    for said in complaints("orders", *(start(rank, 3, tmp_path / "a", *orders[rank]) for rank in orders)):
        assert "is at exchange 0, for 'train', and rank 2" in said
        assert "for 'validation': all ranks must make the same loaders in the same order" in said
    sizes = [start(0, 2, tmp_path / "b"), start(1, 3, tmp_path / "b")]
    for said in complaints("sizes", *sizes):
        assert "counts 2 ranks and rank 1" in said
        assert "counts 3" in said


def test_a_folder_is_opened_while_rank_0_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 removes the folder of an exchange that has ended. Another rank may open it for the next exchange at that
    moment.
    """
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    folder = _boards.Folder(tmp_path, 0, 2)._folder
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            shutil.rmtree(folder, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for _ in range(5000):
            _boards.Folder(tmp_path, 1, 2)
    finally:
        ended.set()
        remover.join()


@pytest.mark.parametrize("there", ["nothing behind the directory's link", "a file", "a link to nothing"])
def test_a_folder_that_cannot_be_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    shared = tmp_path / "shared"
    if there.startswith("nothing"):
        shared.symlink_to(tmp_path / "not mounted")
    else:
        folder = _boards.Folder(shared, 0, 2)._folder
        folder.rmdir()
        folder.touch() if there == "a file" else folder.symlink_to(tmp_path / "nothing")
    with pytest.raises(foreload.ConfigError, match="the directory that all ranks share cannot be used"):
        _boards.Folder(shared, 1, 2)


@ONLY_ALL
def test_two_processes_of_one_rank(tmp_path: Path) -> None:
    ranks = [start(rank, 3, tmp_path / "first", timeout=4.0) for rank in (0, 1, 1)]
    time.sleep(1.5)
    met = [rank.result() for rank in [*ranks, start(2, 3, tmp_path / "first", timeout=4.0)]]
    doubled = [said for said in met[1:3] if isinstance(said, str)]
    assert len(doubled) == 1, met
    # It names the other process if it saw that process's card before the ranks had met.
    assert "took part as this rank" in doubled[0]
    assert isinstance(met[0], list)
    assert isinstance(met[3], list)
    leaders = [start(0, 2, tmp_path / "second", timeout=3.0) for _ in range(2)]
    said = [leader.result() for leader in leaders]
    assert any(f"process {leaders[1].pid} on" in one or f"process {leaders[0].pid} on" in one for one in said)
    assert any("both say that they are rank 0" in one for one in said)


def test_agents_count_restarts_each_for_itself(tmp_path: Path) -> None:
    """An agent of torchrun counts only restarts that one of its own workers caused."""
    ranks = [
        start(rank, 2, tmp_path, TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT=str(rank))
        for rank in range(2)
    ]
    assert [process.result()[0].generation for process in ranks] == ["torchrun job , attempt 0"] * 2


def test_jobs_in_one_directory_do_not_mix(tmp_path: Path) -> None:
    ranks = [
        start(rank, 3, tmp_path, "a", "b", payload=job, SLURM_JOB_ID=job)
        for rank in range(3)
        for job in ("1", "2", "11")
    ]
    for number, process in enumerate(ranks):
        job = ("1", "2", "11")[number % 3]
        for meeting, purpose in zip(process.result(), "ab", strict=True):
            assert meeting.payloads == [f"{job}\n{purpose}\0{giver}".encode() * giver for giver in range(3)]
    assert list(tmp_path.iterdir()) == []


@ONLY_ALL
def test_killed_at_any_moment_and_started_again(tmp_path: Path) -> None:
    """An attempt never meets processes of an earlier one, even if the launcher does not count its attempts."""
    runs = int(os.environ.get("FORELOAD_EXCHANGES", "10"))
    chance = random.Random(kills.seed())
    for run in range(runs):
        world_size = chance.randrange(2, 6)
        counted = chance.random() < 0.5
        for attempt in range(2):
            variables = {"SLURM_JOB_ID": str(run)}
            if counted and attempt:
                variables["SLURM_RESTART_COUNT"] = str(attempt)
            ranks = [
                start(rank, world_size, tmp_path, "a", "b", "c", payload=f"{attempt}", **variables)
                for rank in chance.sample(range(world_size), world_size)
            ]
            if attempt == 0:
                kills.end_within(chance, (0, 0.06), *ranks)
        for process in ranks:
            met = process.result()
            assert isinstance(met, list), f"run {run}: {met}"
            for meeting, purpose in zip(met, "abc", strict=True):
                assert meeting.payloads == [
                    f"{attempt}\n{purpose}\0{giver}".encode() * giver for giver in range(world_size)
                ], f"run {run}"
    assert list(tmp_path.iterdir()) == []


def through_parent(rank: int, pipe: Any, spoil: str) -> Any:
    """Meet two others over a function that sends to the test, and receives the test's (perhaps changed) response."""

    def allgather(mine: bytes) -> list[bytes]:
        pipe.send(mine)
        return pipe.recv()

    return _exchange.meet(spoil, bytes([rank]), rank=rank, world_size=3, allgather=allgather)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        ("nothing", None),
        ("fewer", "returned 2 values, must be a list of 3 byte strings"),
        ("order", "answered in the place of rank"),
        ("another", "is at exchange"),
        ("garbage", "returned bytes that no rank gave"),
        ("tuple", "returned a tuple, must be a list of 3 byte strings"),
        ("nothing at all", "returned a NoneType, must be"),
        ("text", "returned a str among them, must be"),
        ("own", "did not give"),
    ],
)
def test_a_function_of_the_user(spoil: str, complaint: str | None) -> None:
    from multiprocessing import Pipe

    pipes = [Pipe() for _ in range(3)]
    ranks = [Process(through_parent, rank, pipes[rank][1], spoil) for rank in range(3)]
    given: Any = [pipe[0].recv() for pipe in pipes]
    if spoil == "another":
        line, _, payload = given[2].partition(b"\n")
        given[2] = json.dumps(json.loads(line) | {"purpose": "other"}).encode() + b"\n" + payload
    elif spoil == "own":
        given = [one + b"!" for one in given]
    elif spoil != "nothing":
        given = {
            "fewer": given[:2],
            "order": given[::-1],
            "garbage": [b"1"] * 3,
            "tuple": tuple(given),
            "nothing at all": None,
            "text": [one.decode() for one in given],
        }[spoil]
    for pipe in pipes:
        pipe[0].send(given)
    for process in ranks:
        met = process.result()
        if complaint is None:
            assert met.payloads == [b"\0", b"\1", b"\2"]
            assert met.engine == "the given allgather"
        else:
            assert complaint in met


def test_nothing_to_meet_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("torch", "torch.distributed", "ray", "jax", "mpi4py.MPI"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in list(os.environ):
        if name.startswith(("MASTER_", "TORCHELASTIC_", "SLURM_", "PMIX_", "OMPI_")) or name == "RANK":
            monkeypatch.delenv(name)
    with pytest.raises(
        foreload.ConfigError, match=r"^config: peers: rank 1 of 2 has no way to find the other ranks"
    ):
        _exchange.meet("tests", b"", rank=1, world_size=2)
    with pytest.raises(foreload.ConfigError, match="no variable of a launcher names this job"):
        _exchange.meet("tests", b"", rank=1, world_size=2, directory=tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    (tmp_path / "file").touch()
    with pytest.raises(
        foreload.ConfigError, match=r"peers: the directory that all ranks share cannot be used"
    ):
        _exchange.meet("tests", b"", rank=1, world_size=2, directory=tmp_path / "file")
    for name, text in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(
        foreload.UnavailableError, match=r"torch cannot be imported .*: install torch, or pass a"
    ):
        _exchange.meet("tests", b"", rank=1, world_size=2)
