"""The sources of this process's rank: frameworks that are initialised in it, and the variables of launchers.

Reading the rank never imports or initialises a framework, and never makes it use a device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from foreload._errors import config_error

MPI_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
)
"""Variables of rank and world size that launchers of MPI set."""

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate launch, ...
    *MPI_LAUNCHERS,
)
"""Variables of rank and world size. The first launcher that has one of its variables set counts."""

SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
"""Variables of an srun step. The second decides: a batch script, which is one process, has a SLURM_PROCID too, and the
SLURM_NTASKS of the whole job. They are read last, because mpirun's daemons pass the variables of their own step to
ranks."""


@dataclass(frozen=True)
class Place:
    """This process's rank, the number of ranks, and their source."""

    rank: int
    world_size: int
    source: str
    """Its name in errors: `torch.distributed`, or the names of two variables."""
    local_world_size: int | None = None
    """The number of ranks on this node, if the source has it."""

    def __str__(self) -> str:
        return f"{self.source} says rank {self.rank} of {self.world_size}"


def live() -> list[Place]:
    """Return the places by the frameworks that are initialised in this process. The first one counts."""
    answers = (of_torch(), of_ray_train(), of_jax(), of_mpi())
    return [place for place in answers if place is not None]


def launched() -> Iterator[Place]:
    """Yield the places by the variables of launchers. The first one counts.

    Ray's workers inherit the variables of the shell that ran `ray start`, so only RANK and WORLD_SIZE are the worker's
    own.

    Raises:
        foreload.ConfigError: Only one of a pair is set, a variable is not a number, or the rank is not below the world
        size.
    """
    for names in LAUNCHERS[:1] if in_ray_worker() else LAUNCHERS:
        if any(name in os.environ for name in names):
            yield _pair(*names)
    if SLURM[1] in os.environ and not in_ray_worker():
        yield _pair(*SLURM)


def of_torch() -> Place | None:
    """Return the place by an initialised process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return Place(distributed.get_rank(), distributed.get_world_size(), "torch.distributed")


def of_ray_train() -> Place | None:
    """Return the place by Ray Train, in one of its workers."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    # Outside of a worker, the first version's context returns 0 and 1, and Ray warns. So its session is used.
    session = ray_session()
    if getattr(session, "world_rank", None) is not None:
        return Place(session.world_rank, session.world_size, "Ray Train", session.local_world_size)
    try:
        context = train.get_context()
        if not type(context).__module__.startswith("ray.train.v2."):
            return None
        place = (
            context.get_world_rank(),
            context.get_world_size(),
            "Ray Train",
            context.get_local_world_size(),
        )
    except RuntimeError:
        # The second version raises this outside of a worker.
        return None
    return Place(*place)


def ray_session() -> Any:
    """Return the session of Ray Train's first version, or of a trial of Ray Tune; None if there is none."""
    sessions = sys.modules.get("ray.train._internal.session")
    return sessions.get_session() if sessions is not None else None


def of_jax() -> Place | None:
    """Return the place by `jax.distributed`, if it is initialised.

    `jax.process_index()` would initialise the backend, which takes most of a GPU's memory. Before that, only the state
    that `jax.distributed.initialize` filled has the rank. It has no public name. It is always used, so that the result
    is the same before and after.
    """
    jax, distributed = sys.modules.get("jax"), sys.modules.get("jax.distributed")
    state = jax_state()
    initialized = getattr(distributed, "is_initialized", None)
    if not (initialized() if initialized is not None else getattr(state, "client", None) is not None):
        return None
    if state is not None:
        return Place(state.process_id, state.num_processes, "jax.distributed")
    return Place(jax.process_index(), jax.process_count(), "jax.distributed")


def jax_state() -> Any:
    """Return the state that `jax.distributed.initialize` filled; None without JAX, or if JAX keeps it elsewhere."""
    return getattr(sys.modules.get("jax._src.distributed"), "global_state", None)


def of_mpi() -> Place | None:
    """Return the place by MPI, if mpi4py has initialised it for several processes."""
    mpi = mpi_of_several()
    return None if mpi is None else Place(mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size(), "MPI")


def mpi_of_several() -> Any:
    """Return the module `mpi4py.MPI` if it is imported and initialised for several processes, else None."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() == 1:
        return None
    return mpi


def in_ray_worker() -> bool:
    """Return whether this process runs Ray's tasks or actors."""
    ray = sys.modules.get("ray")
    # A module that is just being imported has no functions yet.
    if ray is None or not hasattr(ray, "get_runtime_context") or not ray.is_initialized():
        return False
    return ray.get_runtime_context().worker.mode == ray.WORKER_MODE


def number(setting: str, name: str, *, least: int) -> int:
    """Return the number in a variable of the environment.

    Raises:
        foreload.ConfigError: It is not a number, or less than `least`.
    """
    text = os.environ[name].strip()
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise config_error(setting, f"{name}={text!r} must be a number, at least {least}")
    return int(text)


def _pair(rank_name: str, world_name: str) -> Place:
    """Return the place by the two variables of a launcher."""
    for name, other in ((rank_name, world_name), (world_name, rank_name)):
        if name not in os.environ:
            message = f"{other} is set in the environment, but {name} is not: set both or none"
            raise config_error("rank" if name == rank_name else "world_size", message)
    rank = number("rank", rank_name, least=0)
    world_size = number("world_size", world_name, least=1)
    if rank >= world_size:
        message = f"{rank_name}={rank} must be below {world_name}={world_size}"
        raise config_error("rank", message)
    return Place(rank, world_size, f"{rank_name} with {world_name}")
