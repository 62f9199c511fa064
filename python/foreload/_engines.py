"""What carries an exchange between ranks: the cluster's own means, of which the first that is there is taken.

A `Gather` gathers by itself. A `Board` keeps values under keys, which one rank puts and another gets; the keys of a
board lie apart from all others, under the job's generation.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from foreload import _places
from foreload._core import UnavailableError
from foreload._errors import config_error


class BoardLostError(Exception):
    """What kept a board has died, and its values with it."""


class RanksMissingError(Exception):
    """Not all ranks came in time."""


class Engine(ABC):
    """What carries an exchange."""

    name: str
    """As a user knows it."""
    generation: str = ""
    """The job's attempt; empty where the engine ends with it."""
    life: str = ""
    """What of this process takes part, where it may take part in several trainings one after another."""


class Gather(Engine):
    """An engine that gives the bytes of all ranks to all ranks in one call."""

    @abstractmethod
    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Return the bytes of all ranks, by rank.

        Raises:
            RanksMissingError: Some did not come until `deadline`, of `time.monotonic`.
        """


class Board(Engine):
    """An engine that keeps values under keys. Each method may raise `BoardLostError`."""

    @abstractmethod
    def put(self, key: str, value: bytes) -> None:
        """Keep a value, in the place of an earlier one of that key."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """Return the value, without waiting; None if there is none."""

    @abstractmethod
    def drop(self, key: str) -> None:
        """Forget a value, if there is one."""

    def close(self) -> None:
        """Remove the board itself, which rank 0 asks for when all have left it; most end with the job."""

    def apart(self, name: str) -> Board:
        """Return a board that others do not close, under the same keys; `name` has letters and digits."""
        return self

    def reopen(self) -> bool:
        """Open what takes the place of a board that was lost; return whether there can be such a thing."""
        return False


def choose(
    rank: int,
    world_size: int,
    allgather: Callable[[bytes], list[bytes]] | None,
    directory: str | os.PathLike[str] | None,
    timeout: float,
) -> Board | Gather:
    """Return the engine of this process's job: the user's own function, torch, Ray, MPI, JAX, or a shared directory.

    Raises:
        foreload.ConfigError: There is none.
        foreload.UnavailableError: There is one whose package is missing here.
    """
    from foreload import _boards

    if allgather is not None:
        return UsersOwn(allgather)
    torch_missing: ImportError | None = None
    if _places.of_torch() is not None and (store := _boards.TorchStore.of_process_group()) is not None:
        return store
    if {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys() and "RANK" in os.environ:
        try:
            return _boards.TorchStore.of_launcher(rank, timeout)
        except ImportError as error:
            torch_missing = error
    if _places.in_ray_worker():
        return _boards.RayActor(timeout)
    if _places.mpi_of_several() is not None:
        return Mpi()
    if _places.of_jax() is not None:
        return _boards.JaxStore()
    if directory is not None:
        return _boards.Folder(directory, rank, world_size)
    if torch_missing is not None:
        message = (
            "this job has MASTER_ADDR and MASTER_PORT, where torch's store is, but torch cannot be imported "
            f"({torch_missing}): install torch, or name a directory that all ranks share, or give allgather"
        )
        raise UnavailableError(message)
    message = (
        f"rank {rank} of {world_size} has nothing to find the others over: start the job by torchrun, initialise "
        "torch.distributed, jax.distributed or mpi4py before, run it in a worker of Ray, name a directory that all "
        "ranks share, or give allgather"
    )
    raise config_error("peers", message)


class UsersOwn(Gather):
    """The user's own function."""

    name = "the given allgather"

    def __init__(self, allgather: Callable[[bytes], list[bytes]]) -> None:
        self._allgather = allgather

    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Call it; how long it waits is its own affair."""
        return self._allgather(mine)


class Mpi(Gather):
    """MPI's collectives, on a communicator of our own, so that the user's messages and ours never meet."""

    name = "MPI"
    _communicator: Any = None
    """The duplicate of the world that all exchanges of this process use."""

    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Gather the lengths, then the bytes. A request that was given up stays as it is: MPI cannot take it back."""
        mpi = sys.modules["mpi4py.MPI"]
        if Mpi._communicator is None:
            communicator, request = mpi.COMM_WORLD.Idup()
            _complete(request, deadline)
            Mpi._communicator = communicator
        communicator = Mpi._communicator
        length = bytearray(len(mine).to_bytes(8, "little"))
        lengths = bytearray(8 * communicator.Get_size())
        _complete(communicator.Iallgather([length, mpi.BYTE], [lengths, mpi.BYTE]), deadline)
        counts = [int.from_bytes(lengths[at : at + 8], "little") for at in range(0, len(lengths), 8)]
        together = bytearray(sum(counts))
        _complete(communicator.Iallgatherv([mine, mpi.BYTE], [together, counts, mpi.BYTE]), deadline)
        ends = [sum(counts[: rank + 1]) for rank in range(len(counts))]
        return [bytes(together[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _complete(request: Any, deadline: float) -> None:
    """Wait until a request of MPI is complete.

    Raises:
        RanksMissingError: It is not in time.
    """
    while not request.Test():
        if time.monotonic() >= deadline:
            raise RanksMissingError
        time.sleep(0.001)
