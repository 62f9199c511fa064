"""Lets the processes of a job meet, for `peers=` of a loader and for `--peers` of the command line.

The core calls it, once for each loader.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from foreload import _exchange, _listen, _places, _ranks
from foreload._core import UnavailableError

PATIENCE = 300.0
"""Seconds that a rank of a training waits for the others."""


def find(
    directory: str | os.PathLike[str] | None, listen: str | None, patience: float
) -> tuple[int, int, int | None, Meetings]:
    """Find the job of this process for the command line, for which no framework was initialised.

    Returns:
        The rank, the number of ranks, the number of this node's ranks if it is known, and the meetings of the ranks.

    Raises:
        foreload.ConfigError: The variables of the launcher cannot be used. foreload.UnavailableError: MPI's launcher
        has started the job, and mpi4py is not installed.
    """
    if directory is None:
        _begin_mpi()
    rank, world_size = _ranks.resolve(None, None)
    meetings = Meetings({"directory": directory, "listen": listen}, patience)
    return rank, world_size, _ranks.local_world_size(None), meetings


def _begin_mpi() -> None:
    """Initialise MPI if its launcher has started several processes, and there is no store of torch.

    Raises:
        foreload.UnavailableError: mpi4py is not installed.
    """
    if {"MASTER_ADDR", "MASTER_PORT", "RANK"} <= os.environ.keys() or "mpi4py.MPI" in sys.modules:
        return
    by_mpi = [size for _, size in _places.MPI_LAUNCHERS if os.environ.get(size, "1") != "1"]
    if not by_mpi:
        return
    try:
        importlib.import_module("mpi4py.MPI")
    except ImportError as error:
        message = (
            f"peers: {by_mpi[0]} says that MPI's launcher started this job, but mpi4py cannot be imported ({error}): "
            "install mpi4py, or pass a directory that all nodes share: --peers=DIRECTORY"
        )
        raise UnavailableError(message) from error


class Meetings:
    """Meets the other ranks as `peers=` says, and finds the address at which this node listens."""

    def __init__(self, peers: Any, patience: float = PATIENCE) -> None:
        choices = peers if isinstance(peers, dict) else {}
        self._patience = patience
        self._listen = choices.get("listen")
        self._allgather = choices.get("allgather")
        self._directory = choices.get("directory")

    def meet(
        self, purpose: str, payload: bytes, rank: int, world_size: int
    ) -> tuple[list[bytes], list[list[int]], bytes]:
        """Give `payload` to all ranks.

        Returns:
            The payload of each rank, the ranks of each node, and 32 bytes that only these ranks have.

        Raises:
            foreload.Error: The ranks cannot meet; see `_exchange.meet`.
        """
        meeting = _exchange.meet(
            f"peers: {purpose}",
            payload,
            rank=rank,
            world_size=world_size,
            allgather=self._allgather,
            directory=self._directory,
            timeout=self._patience,
        )
        return meeting.payloads, meeting.nodes, meeting.token

    def listen(self, nodes: int) -> tuple[str, int]:
        """Return the address and the port to listen on, in a job with this number of nodes.

        Raises:
            foreload.ConfigError: No address is known, or other nodes cannot reach it.
        """
        listening = _listen.listen_address(self._listen)
        listening.refuse_if_unreachable(nodes)
        return listening.address, listening.port
