"""`foreload doctor --peers` and `foreload bench --peers` in several processes: on one node, and on several."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import frameworks
import kills
import node_world
import pytest
from conftest import ONLY_ALL, ONLY_THOROUGH
from node_world import namespaces

SHORT = ("--seconds", "500ms", "--sample-size", "20KB", "--patience", "20s")
"""The duration and the sample size of measurements in tests that do not check the figures."""


def start(rank: int, world_size: int, *words: object, prefix: list[str] | None = None) -> subprocess.Popen:
    """Start a rank of a command."""
    variables = frameworks.environment(RANK=str(rank), WORLD_SIZE=str(world_size), SLURM_JOB_ID="77")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        variables.pop(name, None)
    command = [*(prefix or []), sys.executable, "-m", "foreload", *words]
    return kills.begin(*command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Return the exit code of each process, and its stdout and stderr."""
    said = [process.communicate(timeout=100) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


@contextlib.contextmanager
def nodes(count: int) -> Iterator[list[namespaces.Node]]:
    """Make nodes with their own networks, or skip the test."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.multiple(namespaces, **node_world.OWN))
        try:
            stack.enter_context(namespaces.alone())
            made = stack.enter_context(namespaces.network(count))
        except namespaces.Refused as refusal:
            if "CI" in os.environ:
                raise
            pytest.skip(f"no nodes: {refusal}")
        yield made


def test_processes_of_one_node_measure_its_loopback(tmp_path: Path) -> None:
    words = ("doctor", f"--peers={tmp_path}", *SHORT, "--tls")
    (code, report, told), (_, silent, _) = ends([start(rank, 2, *words, "--json") for rank in range(2)])
    assert code == 0, told
    assert silent == ""
    found = json.loads(report)
    assert found["place"] == "one_node"
    assert (found["problems"], found["rounds"], found["tls"]) == ([], 1, True)
    assert [node["rank"] for node in found["nodes"]] == [0, 1]
    for link in found["links"]:
        assert link["samples_per_s"] > 0
        assert 0 < link["p50_seconds"] <= link["p99_seconds"]
        assert link["bytes_per_s"] == pytest.approx(20_000 * link["samples_per_s"])
        assert link["failed"] == {}
    ((code, text, told), (_, silent, _)) = ends([start(rank, 2, *words) for rank in range(2)])
    assert code == 0, told
    assert silent == ""
    assert "all nodes are one host: this measures its loopback, not a network" in text
    assert "\nfor training: with samples of 20.0 KB, the median node gets " in text


def test_a_process_alone_is_told_what_to_run() -> None:
    ((code, _, told),) = ends([start(0, 1, "doctor", "--peers")])
    assert code == 2
    assert "this process is alone: start the command on every node" in told
    assert "srun foreload ... --peers=/a/directory" in told


def test_ranks_that_have_nothing_to_meet_by_are_told_of_a_directory() -> None:
    for code, _, told in ends([start(rank, 2, "doctor", "--peers") for rank in range(2)]):
        assert code == 2
        assert "pass a directory that all ranks share" in told


def test_ranks_of_mpi_without_its_package_are_told_of_both_ways(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('none in this test')")
    module = frameworks.environment()["PYTHONPATH"]
    variables = {"PMI_RANK": "0", "PMI_SIZE": "2", "PYTHONPATH": f"{tmp_path}:{module}"}
    command = [sys.executable, "-m", "foreload", "doctor", "--peers"]
    environment = frameworks.environment(**variables)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be imported (none in this test): install mpi4py, or pass a directory" in done.stderr


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    # The time of the unsuccessful reads comes in addition.
    words = ("doctor", f"--peers={tmp_path}", "--patience", "1s", "--rounds", "1", "--seconds", "1s")
    for code, report, told in ends([start(rank, 3, *words) for rank in (0, 2)]):
        assert (code, report) == (1, "")
        assert "rank 1" in told


def test_ranks_of_different_settings_are_refused(tmp_path: Path) -> None:
    sizes = ("10KB", "20KB")
    words = ("doctor", f"--peers={tmp_path}", "--sample-size")
    for code, _, told in ends([start(rank, 2, *words, size) for rank, size in enumerate(sizes)]):
        assert code == 2
        assert "have different settings or versions" in told


@ONLY_ALL
def test_nodes_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    with nodes(4) as world:
        namespaces.call("ip link set", f"{namespaces.BRIDGE}2", "nomaster")
        blocked = f"blackhole {world[1].address}/32"
        namespaces.call("ip -n", world[3].name, "route add", blocked)
        words = ("doctor", f"--peers={tmp_path}", *SHORT)
        ranks = [
            start(rank, 4, *words, "--listen", f"{node.address}:41000", prefix=node.command())
            for rank, node in enumerate(world)
        ]
        addresses = [node.address for node in world]
        (code, report, told), *others = ends(ranks)
    assert code == 1
    assert [(code, text) for code, text, _ in others] == [(0, "")] * 3, others
    assert "all nodes are containers on one machine" in report
    host = os.uname().nodename
    unplugged = f"node {host} (3) ({addresses[2]}:41000) reaches no other node, and none reaches it ("
    # Responses to node 1 are lost, and node 3's requests to it are lost, too.
    behind = f"node {host} (2) ({addresses[1]}:41000) cannot be reached from {host} (4), though from 1 other node ("
    for sentence in (unplugged, behind):
        assert f"broken: {sentence}" in report
        assert sentence in told
    assert "check for a firewall" in told


@ONLY_ALL
def test_a_bench_of_two_nodes_logs_and_reports_its_peers(dataset: Path, tmp_path: Path) -> None:
    with nodes(2) as world:
        ranks = [
            start(
                rank,
                2,
                *("bench", dataset, f"--peers={tmp_path / 'meeting'}", "--listen", node.address),
                *("--cache", tmp_path / f"cache-{rank}", "--cache-size", "1GB", "--fill", "use"),
                *("--epochs", 4, "--batch-size", 5, "--image-size", 32, "--consume", "200ms", "--json"),
                *("--trace", tmp_path / "run-{rank}.json"),
                prefix=node.command(),
            )
            for rank, node in enumerate(world)
        ]
        (tmp_path / "meeting").mkdir()
        ended = ends(ranks)
    for rank, (code, said, told) in enumerate(ended):
        assert code == 0, told
        bench = json.loads(said)
        assert (bench["rank"], bench["world_size"]) == (rank, 2)
        (other,) = [name for name, node in bench["peers"]["nodes"].items() if node["reads"] > 0]
        counted = bench["peers"]["nodes"][other]
        assert counted["hits"] > 0
        assert counted["breaker_state"] == "closed"
        assert bench["peers"]["served"]["served"] > 0
        log = tmp_path / f"run-{rank}.json"
        lines = [event for event in json.loads(log.read_text()) if event.get("cat") == "peers"]
        assert {line["name"] for line in lines} == {"all peers", f"peer {other}"}
        page = tmp_path / f"page-{rank}.html"
        report = reported(log, "--json", "--out", page)
        (peers,) = json.loads(report)["peers"]
        for name in ("reads", "hits", "bytes", "latency_p99_seconds"):
            # Zeros are omitted.
            assert peers["nodes"][other].get(name, 0) == pytest.approx(counted[name]), name
            assert peers["all"].get(name, 0) == pytest.approx(counted[name]), name
        table = reported(log)
        assert f"peers of foreload bench, rank {rank} of 2\nnode" in table
        assert f'<th>{other}<td class="number">{counted["hits"]}<' in page.read_text()


def reported(*words: object) -> str:
    """Return what `foreload report` prints."""
    command = [sys.executable, "-m", "foreload", "report", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_log_of_all_ranks_is_refused(dataset: Path, tmp_path: Path) -> None:
    words = ("bench", dataset, f"--peers={tmp_path}", "--trace", tmp_path / "run.json")
    for code, _, told in ends([start(rank, 2, *words) for rank in range(2)]):
        assert code == 2
        assert "put {rank} into its name" in told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=ONLY_THOROUGH), "mpiexec"])
def test_launchers_ranks_meet_by_what_these_offer(launcher: str) -> None:
    python = frameworks.interpreter()
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    start = torchrun if launcher == "torchrun" else [python.with_name(launcher), "-n", 2, python]
    command = [*start, "-m", "foreload", "doctor", "--peers", *SHORT]
    done = subprocess.run(
        list(map(str, command)),
        env=frameworks.environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\nfor training: with samples of 20.0 KB, the median node gets " in done.stdout
