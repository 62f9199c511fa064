"""Ranks find themselves and each other under real launchers: torchrun, mpirun, JAX, Ray and Slurm.

The tests run in the frameworks' own environments: `make test-frameworks`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import foreload
import frameworks
import kills
import numpy as np
import pytest
import slurm
from conftest import ONLY_THOROUGH

# Each test starts several processes, and torch is slow to load if it was not read recently.
pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
MEETING = str(HERE / "meeting.py")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


def run(*command: object, **variables: str) -> None:
    """Run a program to its end, which must be a success."""
    done = subprocess.run(
        list(map(str, command)),
        env=frameworks.environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def check(
    notes: Path, dataset: Path, engine: str, *, ranks: int = 2, local: object = 2, warnings: int = 0
) -> list[Any]:
    """Check the notes of the ranks, and return them."""
    told = [json.loads((notes / f"{rank}.json").read_text()) for rank in range(ranks)]
    for rank, one in enumerate(told):
        assert (one["rank"], one["world_size"]) == (rank, ranks)
        assert one["local_world_size"] == (local[rank] if isinstance(local, list) else local)
        assert len(one["warnings"]) == warnings, one["warnings"]
        for met, first in zip(one["meetings"], told[0]["meetings"], strict=True):
            assert met["engine"] == engine
            assert met["nodes"] == [list(range(ranks))]
            assert (met["token"], met["generation"]) == (first["token"], first["generation"])
    # Together they get the same samples as one process, step by step.
    whole = foreload.ImageLoader(dataset, batch_size=12, image_size=16, seed=4, rank=0, world_size=1)
    parts = zip(*(one["ids"] for one in told), strict=True)
    together = [[sample for part in step for sample in part] for step in parts]
    assert together == [np.from_dlpack(batch.sample_ids).tolist() for batch in whole]
    return told


def test_torchrun(dataset: Path, tmp_path: Path) -> None:
    run(frameworks.interpreter(), *TORCHRUN, "--standalone", MEETING, "torch", dataset, tmp_path)
    for one in check(tmp_path, dataset, "torch.distributed's store"):
        assert one["listening"][0] in ("127.0.0.1", "::1")
        assert "by which this node reaches MASTER_ADDR=" in one["listening"][1]


@ONLY_THOROUGH
def test_torchrun_starts_again(dataset: Path, tmp_path: Path) -> None:
    """The agent keeps the store, with the data of the first attempt."""
    command = [*TORCHRUN, "--standalone", "--max-restarts", "1", MEETING, "dies", dataset, tmp_path]
    run(frameworks.interpreter(), *command)
    check(tmp_path, dataset, "torch's store at MASTER_ADDR")


def test_variables_alone(dataset: Path, tmp_path: Path) -> None:
    """As in the pods of a Kubernetes job: rank 0 makes the store, and a process group uses it later."""
    (port,) = slurm.free_ports(1)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [str(frameworks.interpreter()), MEETING, "none", str(dataset), str(tmp_path)]
    run_together(*((command, shared | {"RANK": str(rank)}) for rank in range(2)))
    check(tmp_path, dataset, "torch's store at MASTER_ADDR", local=None)


def run_together(*commands: tuple[list[str], dict[str, str]]) -> None:
    """Run programs at the same time."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [
        kills.begin(*command, env=frameworks.environment(**variables), **pipes)
        for command, variables in commands
    ]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0] * len(both), said


def test_mpirun(dataset: Path, tmp_path: Path) -> None:
    python = frameworks.interpreter()
    run(python.with_name("mpiexec"), "-n", 3, python, MEETING, "mpi", dataset, tmp_path)
    for one in check(tmp_path, dataset, "MPI", ranks=3, local=3):
        assert "the address of this node's name" in one["listening"][1]


def test_jax(dataset: Path, tmp_path: Path) -> None:
    (port,) = slurm.free_ports(1)
    python = str(frameworks.interpreter())
    arguments = [str(dataset), str(tmp_path)]
    run_together(
        *(([python, MEETING, f"jax=127.0.0.1:{port},2,{process}", *arguments], {}) for process in range(2))
    )
    for one in check(tmp_path, dataset, "jax.distributed's store", local=None):
        assert not one["backend"]
        assert "JAX's coordinator=127.0.0.1" in one["listening"][1]


def test_ray(dataset: Path, tmp_path: Path) -> None:
    python = frameworks.interpreter("ray")
    # Variables of the user who ran `ray start`, which Ray's workers inherit.
    outer = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1", "SLURM_STEP_TASKS_PER_NODE": "3"}
    run(python, HERE / "ray_meeting.py", dataset, tmp_path, **outer, **frameworks.RAY)
    assert (tmp_path / "died").exists()
    assert (tmp_path / "done").exists()
    for one in check(tmp_path / "train", dataset, "an actor of Ray"):
        assert one["listening"][1] == "this node's address in Ray"


def test_the_example_of_ray(dataset: Path, tmp_path: Path) -> None:
    """A worker is killed, and all workers resume from the last checkpoint and get the same losses."""
    python = frameworks.interpreter("ray")
    # By rank, by worker, by epoch and step of that worker: Ray prints some lines twice.
    losses: dict[str, dict[str, dict[str, str]]] = {"0": {}, "1": {}}
    pattern = re.compile(r"pid=([0-9]+).* rank ([01]) (epoch [0-9] step [0-9]) loss ([0-9.]+)")
    lines = []
    with subprocess.Popen(
        [python, frameworks.EXAMPLES / "ray_trainer.py", dataset, tmp_path / "checkpoint.pt"],
        env=frameworks.environment(HOME=str(tmp_path), **frameworks.RAY),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout:
            lines.append(line)
            for worker, rank, step, loss in pattern.findall(line):
                seen = losses[rank].setdefault(worker, {})
                if rank == "1" and len(losses["1"]) == 1 and len(seen) == 7 and step not in seen:
                    os.kill(int(worker), signal.SIGKILL)
                seen[step] = loss
    assert process.returncode == 0, "".join(lines)
    for rank in losses.values():
        first, second = (list(seen.values()) for seen in rank.values())
        # The last checkpoint is that of the fifth step, or of a later one if the worker did not end at once.
        saved = 21 - len(second)
        assert saved in (5, 12, 19), "".join(lines)
        assert second[: len(first) - saved] == first[saved:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two nodes of Slurm."""
    slurm.require()
    with slurm.cluster(tmp_path_factory.mktemp("slurm") / "cluster") as variables:
        yield variables


def test_slurm(cluster: dict[str, str], dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    program = [frameworks.interpreter(), MEETING, "none", dataset, tmp_path, tmp_path / "shared"]
    run("srun", "--nodes=2", "--ntasks=3", *program, **cluster)
    told = check(tmp_path, dataset, "a directory that all ranks share", ranks=3, local=[2, 2, 1])
    assert re.fullmatch(r"slurm [0-9]+ 0, attempt 0", told[0]["meetings"][0]["generation"])
    assert "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1" in told[0]["listening"][1]
    assert list((tmp_path / "shared").iterdir()) == []


@ONLY_THOROUGH
def test_the_example_of_slurm(cluster: dict[str, str], dataset: Path, tmp_path: Path) -> None:
    """The job is cancelled and started again."""
    program = [frameworks.interpreter(), frameworks.EXAMPLES / "slurm_ddp.py", dataset]

    def losses(checkpoint: Path, stop_after: int | None = None) -> list[str]:
        command = ["srun", "--nodes=2", "--ntasks-per-node=1", *program, checkpoint]
        environment = frameworks.environment(**cluster)
        with subprocess.Popen(
            list(map(str, command)),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            said, found = [], []
            for line in process.stdout:
                said.append(line)
                found += re.findall(r"epoch [0-9] loss [0-9.]+", line)
                if len(found) == stop_after:
                    subprocess.run(["scancel", "--me", "--signal=KILL"], env=environment, check=True)
                    break
        assert stop_after or process.returncode == 0, said
        return found

    whole = losses(tmp_path / "unused.pt")
    assert len(whole) == 21, whole
    first = losses(tmp_path / "checkpoint.pt", stop_after=9)
    assert first == whole[:9]
    second = losses(tmp_path / "checkpoint.pt")
    # The last checkpoint is that of the fifth step, or of a later one if the job did not end at once.
    assert 21 - len(second) in (5, 12, 19)
    assert second == whole[-len(second) :]


def test_slurms_nodes_measure_their_network(cluster: dict[str, str], tmp_path: Path) -> None:
    program = [
        frameworks.interpreter(),
        "-m",
        "foreload",
        "doctor",
        f"--peers={tmp_path}",
        "--seconds",
        "500ms",
    ]
    run("srun", "--nodes=2", "--ntasks-per-node=1", *program, **cluster)
