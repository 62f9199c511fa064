"""How a process finds its rank, and errors if the rank is ambiguous."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import foreload
import frameworks
import numpy as np
import pytest
from foreload import _ranks

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "4",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "5", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "5"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_SIZE": "1"}
# The variables of a batch script that requests 11 tasks, and those that a step of 7 tasks adds to them.
SBATCH = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "11", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
SRUN = SBATCH | {
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4,3",
}
# srun starts mpirun's daemons, one per node; their ranks inherit the variables of that step.
DAEMON = SRUN | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "PMI", "MPI_", "MV2_")) or name in TORCHRUN:
            monkeypatch.delenv(name)
        if name.startswith(("MASTER_", "TORCHELASTIC_", "JAX_COORDINATOR", "PMIX_", "JOB_COMPLETION")):
            monkeypatch.delenv(name)
    # Frameworks that another test has imported count as not initialised.
    for name in ("torch.distributed", "ray", "ray.train", "jax", "mpi4py.MPI"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(_ranks, "_said", set())


def put(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)


@pytest.mark.parametrize(
    ("variables", "rank", "local"),
    [
        pytest.param({}, (0, 1), None, id="nothing"),
        pytest.param(TORCHRUN, (3, 8), 2, id="torchrun"),
        pytest.param(OPEN_MPI, (4, 6), 3, id="Open MPI"),
        pytest.param(MPICH, (2, 5), 5, id="MPICH"),
        pytest.param(MVAPICH, (0, 2), 1, id="MVAPICH"),
        pytest.param(SBATCH, (0, 1), None, id="batch script"),
        pytest.param(SRUN, (6, 7), 3, id="srun"),
        pytest.param(SRUN | TORCHRUN, (3, 8), 2, id="torchrun in srun"),
        pytest.param(MPICH | TORCHRUN, (3, 8), 2, id="torchrun in mpirun"),
        pytest.param(DAEMON | OPEN_MPI, (4, 6), 3, id="Open MPI's mpirun in Slurm"),
        pytest.param(DAEMON | MPICH, (2, 5), 5, id="MPICH's mpirun in Slurm"),
        pytest.param(SRUN | {"PMI_RANK": "6", "PMI_SIZE": "7"}, (6, 7), 3, id="srun --mpi=pmi2"),
        pytest.param({"RANK": " 1", "WORLD_SIZE": "2\n"}, (1, 2), None, id="white space"),
    ],
)
def test_launchers(
    variables: dict[str, str], rank: tuple[int, int], local: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, variables)
    assert _ranks.resolve(None, None) == rank
    assert _ranks.local_world_size(None) == local
    # Explicit arguments take precedence.
    assert _ranks.resolve(1, 4) == (1, 4)
    assert _ranks.local_world_size(9) == 9


@pytest.mark.parametrize("initialized", [True, False])
def test_a_process_group_comes_before_variables(initialized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, TORCHRUN)
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: initialized,
        get_rank=lambda: 5,
        get_world_size=lambda: 6,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert _ranks.resolve(None, None) == ((5, 6) if initialized else (3, 8))
    assert _ranks.resolve(0, 1) == (0, 1)


def with_torch(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)


def with_ray(monkeypatch: pytest.MonkeyPatch, *, worker: bool = True) -> SimpleNamespace:
    ray = SimpleNamespace(WORKER_MODE=1, is_initialized=lambda: True)
    ray.get_runtime_context = lambda: SimpleNamespace(
        worker=SimpleNamespace(mode=1 if worker else 0), get_job_id=lambda: "01", gcs_address="here:1"
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def with_ray_train(monkeypatch: pytest.MonkeyPatch, context: Any, session: Any = None) -> None:
    with_ray(monkeypatch)
    train = ModuleType("ray.train")
    train.get_context = context
    monkeypatch.setitem(sys.modules, "ray.train", train)
    sessions = SimpleNamespace(get_session=lambda: session)
    monkeypatch.setitem(sys.modules, "ray.train._internal.session", sessions)


class SecondContext:
    """The context of the second version of Ray Train in a worker."""

    __module__ = "ray.train.v2.api.context"
    get_world_rank, get_world_size, get_local_world_size = (lambda self: 2, lambda self: 6, lambda self: 3)


def outside() -> Any:
    """The same function outside of a worker."""
    raise RuntimeError("Ray Train function utilities not initialized.")


def with_jax(
    monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int, *, initialized: bool = True
) -> None:
    def never(*_: object) -> int:
        pytest.fail("this would initialise JAX's backend")

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(process_index=never, process_count=never))
    asked = SimpleNamespace(is_initialized=lambda: initialized)
    monkeypatch.setitem(sys.modules, "jax.distributed", asked)
    state = SimpleNamespace(
        process_id=rank, num_processes=world_size, coordinator_address=None, client=object()
    )
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))


def with_mpi(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int, *, up: bool = True) -> None:
    world = SimpleNamespace(Get_rank=lambda: rank, Get_size=lambda: world_size)
    mpi = SimpleNamespace(Is_initialized=lambda: up, Is_finalized=lambda: False, COMM_WORLD=world)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)


def test_ray_train_comes_before_what_ray_start_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, SRUN)
    with_ray_train(monkeypatch, SecondContext)
    assert _ranks.resolve(None, None) == (2, 6)
    assert _ranks.local_world_size(None) == 3
    session = SimpleNamespace(world_rank=1, world_size=4, local_world_size=2)
    with_ray_train(monkeypatch, outside, session)
    assert _ranks.resolve(None, None) == (1, 4)
    assert _ranks.local_world_size(None) == 2
    # A task or an actor, or a trial of Tune, has no rank except one that its own code sets.
    for session in (None, SimpleNamespace(world_rank=None)):
        with_ray_train(monkeypatch, outside, session)
        assert _ranks.resolve(None, None) == (0, 1)
        assert _ranks.local_world_size(None) is None
    put(monkeypatch, TORCHRUN)
    assert _ranks.resolve(None, None) == (3, 8)
    assert _ranks.local_world_size(None) == 2


def test_a_driver_of_ray_is_a_rank_of_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, SRUN)
    with_ray(monkeypatch, worker=False)
    assert _ranks.resolve(None, None) == (6, 7)


def test_jax_and_mpi_where_they_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with_jax(monkeypatch, 1, 3, initialized=False)
    assert _ranks.resolve(None, None) == (0, 1)
    with_jax(monkeypatch, 1, 3)
    assert _ranks.resolve(None, None) == (1, 3)
    for name in ("jax", "jax.distributed", "jax._src.distributed"):
        monkeypatch.delitem(sys.modules, name)
    with_mpi(monkeypatch, 1, 2, up=False)
    assert _ranks.resolve(None, None) == (0, 1)
    with_mpi(monkeypatch, 1, 2)
    assert _ranks.resolve(None, None) == (1, 2)


@pytest.mark.parametrize(
    ("torch", "jax", "mpi", "variables", "told"),
    [
        pytest.param((1, 4), None, (3, 4), {}, None, id="MPI numbers the ranks otherwise"),
        pytest.param((1, 4), (0, 1), None, {}, None, id="JAX by itself in each rank"),
        pytest.param((1, 8), None, None, OPEN_MPI, None, id="mpirun starts torchruns"),
        pytest.param((1, 4), None, None, SRUN, None, id="srun starts torchruns"),
        pytest.param((1, 4), None, None, {"RANK": "0", "WORLD_SIZE": "1"}, None, id="left in a shell"),
        pytest.param((0, 1), None, None, {"RANK": "x", "WORLD_SIZE": "2"}, None, id="of no use"),
        pytest.param((0, 1), None, None, {}, None, id="a group of one"),
        pytest.param(
            (1, 4), None, (2, 5), {}, "torch.distributed says rank 1 of 4, but MPI says rank 2 of 5", id="MPI"
        ),
        pytest.param(
            (0, 1),
            None,
            None,
            TORCHRUN,
            "rank 0 of 1, but RANK with WORLD_SIZE says rank 3 of 8",
            id="own groups",
        ),
        pytest.param(
            None,
            None,
            None,
            {"RANK": "0", "WORLD_SIZE": "1"} | SRUN,
            "RANK with WORLD_SIZE says rank 0 of 1, but SLURM_PROCID with SLURM_STEP_NUM_TASKS says rank 6 of 7",
            id="torchruns that do not know of each other",
        ),
    ],
)
def test_contradictions_are_told(
    torch: tuple[int, int] | None,
    jax: tuple[int, int] | None,
    mpi: tuple[int, int] | None,
    variables: dict[str, str],
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, variables)
    for place, with_framework in ((torch, with_torch), (jax, with_jax), (mpi, with_mpi)):
        if place is not None:
            with_framework(monkeypatch, *place)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = _ranks.resolve(None, None)
        assert first == _ranks.resolve(None, None) == (torch or (0, 1))
        assert _ranks.resolve(0, 1) == (0, 1)
    assert [str(one.message).startswith(("torch", "RANK")) for one in caught] == [True] * bool(told)
    if told:
        assert told in str(caught[0].message)
        assert "pass rank= and world_size=" in str(caught[0].message)


def test_frameworks_of_which_one_alone_knows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, 0, 1)
    with_jax(monkeypatch, 1, 4)
    complaint = "torch.distributed says rank 0 of 1, but jax.distributed says rank 1 of 4: pass rank="
    with pytest.raises(foreload.ConfigError, match=f"^config: world_size: {complaint}"):
        _ranks.resolve(None, None)
    assert _ranks.resolve(1, 4) == (1, 4)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"RANK": "0"}, "world_size: RANK is set in the environment, but WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "rank: WORLD_SIZE is set in the environment, but RANK is not"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "but OMPI_COMM_WORLD_RANK is not"),
        ({"PMI_RANK": "0"}, "but PMI_SIZE is not"),
        ({"MV2_COMM_WORLD_RANK": "0"}, "but MV2_COMM_WORLD_SIZE is not"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "but SLURM_PROCID is not"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "rank: RANK='one' must be a number, at least 0"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "rank: RANK='-1' must be"),
        ({"RANK": "٣", "WORLD_SIZE": "4"}, "rank: RANK='٣' must be"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "world_size: WORLD_SIZE='0' must be a number, at least 1"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "rank: RANK='' must be"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank: RANK=2 must be below WORLD_SIZE=2"),
        ({"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "7"}, "SLURM_PROCID=9 must be below"),
    ],
)
def test_ranks_that_cannot_be(
    variables: dict[str, str], complaint: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = foreload.ImageLoader(dataset, image_size=16)
    put(monkeypatch, variables)
    with pytest.raises(foreload.ConfigError, match=f"^config: .*{complaint}"):
        iter(loader)


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "4"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "1"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, 3),
        ({"SLURM_STEP_TASKS_PER_NODE": "1,8(x12)", "SLURM_NODEID": "12"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "2"}, "SLURM_NODEID=2 is not a node of"),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x)"}, "must be a list of numbers"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "must be a list of numbers"),
        ({"SLURM_STEP_TASKS_PER_NODE": "0"}, "must be a list of numbers"),
        ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE='0' must be a number, at least 1"),
        ({"MPI_LOCALNRANKS": "two"}, "MPI_LOCALNRANKS='two' must be"),
    ],
)
def test_ranks_of_a_node(
    variables: dict[str, str], local: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, variables)
    if isinstance(local, int):
        assert _ranks.local_world_size(None) == local
    else:
        with pytest.raises(foreload.ConfigError, match=f"^config: local_world_size: .*{local}"):
            _ranks.local_world_size(None)


RANK_OF_MPI = """
import json, sys
import foreload, numpy
from foreload import _ranks
loader = foreload.ImageLoader(sys.argv[1], batch_size=10, image_size=16, seed=4, progress=False)
ids = [numpy.from_dlpack(batch.sample_ids).tolist() for batch in loader]
with open(f"{sys.argv[2]}/{_ranks.resolve(None, None)[0]}.json", "w") as out:
    json.dump([_ranks.local_world_size(None), ids], out)
"""


def test_under_a_real_mpirun(dataset: Path, tmp_path: Path) -> None:
    python = frameworks.interpreter()
    command = [python.with_name("mpiexec"), "-n", "3", python, "-c", RANK_OF_MPI, dataset, tmp_path]
    subprocess.run(list(map(str, command)), check=True, env=frameworks.environment(), timeout=100)
    parts = []
    for rank in range(3):
        local, ids = json.loads((tmp_path / f"{rank}.json").read_text())
        assert local == 3
        parts.append(ids)
    whole = foreload.ImageLoader(dataset, batch_size=30, image_size=16, seed=4)
    together = [[sample for part in step for sample in part] for step in zip(*parts, strict=True)]
    assert together == [np.from_dlpack(batch.sample_ids).tolist() for batch in whole]


THREADS = """
import os, re, sys
import foreload
if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
loader = foreload.ImageLoader(sys.argv[1], image_size=16, progress=False)
print(re.search(r"threads=([0-9]+)", repr(loader))[1])
"""


def threads_of(dataset: Path, *more: str, **variables: str) -> int:
    """Return the number of decoding threads of a loader in a process with these variables."""
    command = [sys.executable, "-c", THREADS, str(dataset), *more]
    run = subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, **variables}, timeout=60
    )
    return int(run.stdout)


def test_ranks_of_a_node_share_its_processors(dataset: Path) -> None:
    processors = threads_of(dataset)
    assert processors <= os.cpu_count()
    for local in (1, 2, 3, 8, 1000):
        ranks = {"RANK": "0", "WORLD_SIZE": "1000", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(local)}
        assert threads_of(dataset, **ranks) == max(1, processors // local)
    # A rank that is bound to one processor starts one thread.
    one = str(min(os.sched_getaffinity(0)))
    ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    assert threads_of(dataset, one, **ranks) == 1


def test_a_ranks_part_of_the_memory(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single process could store enough of such batches, and each of very many ranks could not."""
    settings = {"batch_size": 16, "image_size": 64}
    foreload.ImageLoader(dataset, **settings)
    put(monkeypatch, {"LOCAL_WORLD_SIZE": "1000000"})
    with pytest.raises(foreload.ConfigError, match=r"config: batch_size: .*this rank's share"):
        foreload.ImageLoader(dataset, **settings)
