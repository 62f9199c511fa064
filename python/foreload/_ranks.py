"""Which part of each global batch belongs to this process: its rank and the number of ranks.

It is found when an iteration begins, not when a loader is made, because the process group may be initialised in
between. torch is never imported for it.
"""

from __future__ import annotations

import os
import re
import sys

from foreload._errors import config_error

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate launch, ...
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
)
"""Variables of rank and world size; the first launcher of which one variable is set counts."""

SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
"""Variables of an srun step. The second decides: a batch script, which is one process, has a SLURM_PROCID too, and the
SLURM_NTASKS of the whole job. They are read last, since mpirun's daemons pass their own step's variables to ranks."""

LOCAL_WORLD_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)

SLURM_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"


def resolve(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return (rank, world size): as given, else from an initialised `torch.distributed`, else from a launcher.

    Launchers are torchrun, MPI's mpirun and Slurm's srun, in this order; without any of them the result is (0, 1).

    Raises:
        foreload.ConfigError: Only one of a pair is given or set, a variable is no number, or the rank is not below
            the world size.
    """
    if (rank is None) != (world_size is None):
        missing = "rank" if rank is None else "world_size"
        raise config_error(missing, "is missing, rank and world_size must be given together")
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for names in LAUNCHERS:
        if any(name in os.environ for name in names):
            return _pair(*names)
    if SLURM[1] in os.environ:
        return _pair(*SLURM)
    return 0, 1


def local_world_size(given: int | None) -> int | None:
    """Return how many ranks share this node: as given, else from the launcher's variables; None if neither says it.

    Raises:
        foreload.ConfigError: The variable cannot be read.
    """
    if given is not None:
        return given
    for name in LOCAL_WORLD_SIZES:
        if name in os.environ:
            return _number("local_world_size", name, least=1)
    if SLURM_TASKS_PER_NODE in os.environ:
        return _tasks_of_this_node()
    return None


def _pair(rank_name: str, world_name: str) -> tuple[int, int]:
    """Return rank and world size from a launcher's two variables."""
    for name, other in ((rank_name, world_name), (world_name, rank_name)):
        if name not in os.environ:
            message = f"{other} is set in the environment, but {name} is not: set both or none"
            raise config_error("rank" if name == rank_name else "world_size", message)
    rank = _number("rank", rank_name, least=0)
    world_size = _number("world_size", world_name, least=1)
    if rank >= world_size:
        message = f"{rank_name}={rank} must be below {world_name}={world_size}"
        raise config_error("rank", message)
    return rank, world_size


def _number(setting: str, name: str, *, least: int) -> int:
    """Return the number in a variable of the environment."""
    text = os.environ[name].strip()
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise config_error(setting, f"{name}={text!r} must be a number, at least {least}")
    return int(text)


def _tasks_of_this_node() -> int:
    """Return this node's entry in Slurm's list, in which `4(x2),3` means 4, 4, 3."""
    text = os.environ[SLURM_TASKS_PER_NODE]
    tasks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([1-9][0-9]*)(?:\(x([1-9][0-9]*)\))?", part.strip())
        if found is None:
            message = f"{SLURM_TASKS_PER_NODE}={text!r} must be a list of numbers like 4(x2),3"
            raise config_error("local_world_size", message)
        tasks += [int(found[1])] * int(found[2] or 1)
    node = _number("local_world_size", "SLURM_NODEID", least=0) if "SLURM_NODEID" in os.environ else 0
    if node >= len(tasks):
        message = f"SLURM_NODEID={node} is not a node of {SLURM_TASKS_PER_NODE}={text!r}"
        raise config_error("local_world_size", message)
    return tasks[node]
