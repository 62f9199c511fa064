"""The engines of a cluster by which ranks exchange bytes. The first one that is available is used.

A `Gather` gathers the bytes of all ranks in one call. A `Board` keeps values under keys, which one rank puts and
another one gets. The keys of a board are separate from all others, under the job's generation.
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
    """The process or store that kept a board has ended, and its values are lost."""


class RanksMissingError(Exception):
    """Not all ranks took part in time."""


class Engine(ABC):
    """The base of all engines."""

    name: str
    """Its name in messages."""
    generation: str = ""
    """The job's attempt; empty if the engine ends with the attempt."""
    life: str = ""
    """The actor or task of this process that takes part, if the process may run several trainings one after another."""


class Gather(Engine):
    """An engine that gives the bytes of all ranks to all ranks in one call."""

    @abstractmethod
    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Return the bytes of all ranks, by rank.

        Raises:
            RanksMissingError: Some ranks did not take part before `deadline`, a time of `time.monotonic`.
        """


class Board(Engine):
    """An engine that keeps values under keys. Each method may raise `BoardLostError`."""

    @abstractmethod
    def put(self, key: str, value: bytes) -> None:
        """Keep a value, which replaces an earlier one with the same key."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """Return the value, without waiting; None if there is none."""

    @abstractmethod
    def drop(self, key: str) -> None:
        """Remove a value, if there is one."""

    def close(self) -> None:
        """Remove the board. Rank 0 calls this when all ranks are done with it; most boards end with the job."""

    def apart(self, name: str) -> Board:
        """Return a board with the same keys that other users do not close; `name` has letters and digits."""
        return self

    def reopen(self) -> bool:
        """Open a replacement for a board that was lost, and return whether there can be one."""
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
        foreload.ConfigError: There is no engine. foreload.UnavailableError: There is an engine, but its package is not
        installed here.
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
            "torch's store is at MASTER_ADDR and MASTER_PORT of this job, but torch cannot be imported "
            f"({torch_missing}): install torch, or pass a directory that all ranks share, or allgather"
        )
        raise UnavailableError(message)
    message = (
        f"rank {rank} of {world_size} has no way to find the other ranks: start the job with torchrun, initialise "
        "torch.distributed, jax.distributed or mpi4py before, run it in a worker of Ray, or pass a directory that all "
        "ranks share, or allgather"
    )
    raise config_error("peers", message)


class UsersOwn(Gather):
    """The user's own function."""

    name = "the given allgather"

    def __init__(self, allgather: Callable[[bytes], list[bytes]]) -> None:
        self._allgather = allgather

    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Call it. Its own timeout applies."""
        return self._allgather(mine)


class Mpi(Gather):
    """MPI's collectives, on a separate communicator, so that the user's messages and Foreload's never mix."""

    name = "MPI"
    _communicator: Any = None
    """The duplicate of the world that all exchanges of this process use."""

    def gather(self, mine: bytes, deadline: float) -> list[bytes]:
        """Gather the lengths, then the bytes. A request that timed out stays pending, because MPI cannot cancel it."""
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
        RanksMissingError: It is not complete before `deadline`.
    """
    while not request.Test():
        if time.monotonic() >= deadline:
            raise RanksMissingError
        time.sleep(0.001)
