"""Finds the rank of this process and the number of ranks, which decide its part of each global batch.

They are determined when an iteration begins, not when a loader is made, because the process group may be initialised in
between.
"""

from __future__ import annotations

import os
import re

from foreload import _alone, _places
from foreload._core import ConfigError
from foreload._errors import config_error
from foreload._notices import warn
from foreload._places import Place, number

LOCAL_WORLD_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)

SLURM_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"

REMEDY = "pass rank= and world_size=, which override all other sources"

_said: set[str] = set()
"""The warnings that this process has issued. It determines its rank again at every iteration."""


def resolve(rank: int | None, world_size: int | None, dataset: str | None = None) -> tuple[int, int]:
    """Return (rank, world size): as given, else from a framework of this process, else from a launcher.

    Frameworks are torch.distributed, Ray Train, jax.distributed and MPI, if they are initialised. Launchers are
    torchrun, MPI's mpirun and Slurm's srun, by their variables. The first one that is available counts, in this order;
    without any of them, the result is (0, 1). A warning is issued if another one contradicts it, or if another process
    of the same job also reads the same dataset as rank 0 of 1.

    Args:
        rank: The user's setting.
        world_size: The user's setting.
        dataset: The fingerprint of the dataset that this rank reads, by which other processes that read it are found.

    Raises:
        foreload.ConfigError: Only one of a pair is given or set, a variable is not a number, the rank is not below the
        world size, or frameworks differ about whether this process is alone.
    """
    if (rank is None) != (world_size is None):
        missing = "rank" if rank is None else "world_size"
        raise config_error(missing, "is missing, rank and world_size must be given together")
    if rank is not None and world_size is not None:
        return rank, world_size
    frameworks = _places.live()
    place = frameworks[0] if frameworks else next(_places.launched(), None)
    if place is not None:
        _compare(place, frameworks)
    # A framework that was initialised for one process is right about this training; the other sources may lack the
    # information.
    if not frameworks and (place is None or place.world_size == 1):
        _ask_for_others(dataset)
    return (0, 1) if place is None else (place.rank, place.world_size)


def local_world_size(given: int | None) -> int | None:
    """Return the number of ranks on this node: as given, else from Ray Train or the launcher; None if it is unknown.

    JAX and MPI need an exchange among all ranks for it. A loader that only one rank makes would wait for that for ever,
    so they are not used. MPI's launchers mostly set a variable.

    Raises:
        foreload.ConfigError: The variable cannot be read.
    """
    if given is not None:
        return given
    train = _places.of_ray_train()
    if train is not None:
        return train.local_world_size
    for name in LOCAL_WORLD_SIZES[:1] if _places.in_ray_worker() else LOCAL_WORLD_SIZES:
        if name in os.environ:
            return number("local_world_size", name, least=1)
    if SLURM_TASKS_PER_NODE in os.environ and not _places.in_ray_worker():
        return _tasks_of_this_node()
    return None


def _compare(place: Place, frameworks: list[Place]) -> None:
    """Report sources that contradict the one that counts.

    Equal world sizes are no contradiction, because ranks may be numbered in another order. There is none either if the
    processes of a launcher start several ranks each, as torchrun in a step of srun, or if this process alone uses a
    framework. If the process is alone by one source and one of several by another, this is mostly a mistake: each
    process would train on everything.
    """
    for other in frameworks:
        if other.world_size in (1, place.world_size):
            continue
        if place.world_size == 1:
            message = f"{place}, but {other}: {REMEDY}"
            raise config_error("world_size", message)
        _warn_once(f"{place}, but {other}; the first counts. If that is wrong, {REMEDY}")
    if place.world_size > 1 or place.source == "Ray Train":
        return
    try:
        others = [other for other in _places.launched() if other.world_size > 1]
    except ConfigError:
        # Variables that do not determine the rank may be wrong.
        return
    for other in others[:1]:
        message = (
            f"{place}, but {other}: if these processes train one model, each of them trains on everything; {REMEDY}; "
            "pass rank=0 and world_size=1 if each trains its own"
        )
        _warn_once(message)


def _ask_for_others(dataset: str | None) -> None:
    """Warn if other processes of this job also run as rank 0 of 1."""
    others = _alone.others(dataset) if dataset is not None else None
    if others is not None:
        message = (
            f"{others}: if they train one model, each of them trains on everything; {REMEDY}; pass rank=0 and "
            "world_size=1 if each trains its own"
        )
        _warn_once(message)


def _warn_once(message: str) -> None:
    """Issue a warning that this process has not issued yet."""
    if message not in _said:
        _said.add(message)
        warn(message)


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
    node = number("local_world_size", "SLURM_NODEID", least=0) if "SLURM_NODEID" in os.environ else 0
    if node >= len(tasks):
        message = f"SLURM_NODEID={node} is not a node of {SLURM_TASKS_PER_NODE}={text!r}"
        raise config_error("local_world_size", message)
    return tasks[node]
