"""Exchanges a few bytes among the ranks of a stream at each step.

The ranks meet once, as for `peers=`, and get a secret that only they have. Afterwards they use the same engine: the
user's own allgather, or a board, on which rank 0 gathers the bytes of the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from foreload import _engines, _exchange
from foreload._core import UnavailableError

NAPS = (0.0002, 0.005)
"""Seconds between two reads of a board: the first pause, and the longest."""


class Agreement:
    """Exchanges bytes among the ranks of one loader. All ranks must create it and call it in the same order."""

    def __init__(
        self,
        what: bytes,
        *,
        rank: int,
        world_size: int,
        allgather: Callable[[bytes], list[bytes]] | None = None,
        directory: str | os.PathLike[str] | None = None,
        timeout: float = 300.0,
    ) -> None:
        """Meet the other ranks.

        Args:
            what: Settings that must be equal on all ranks, in any form.
            rank: This process's rank.
            world_size: The number of ranks.
            allgather: The user's own function.
            directory: A directory that all ranks share.
            timeout: Seconds to wait for the others, now and at each step.

        Raises:
            foreload.Error: The ranks cannot meet, or differ in their settings.
        """
        meeting = _exchange.meet(
            "a stream",
            what,
            rank=rank,
            world_size=world_size,
            allgather=allgather,
            directory=directory,
            timeout=timeout,
        )
        for other, theirs in enumerate(meeting.payloads):
            if theirs != meeting.payloads[0]:
                message = (
                    f"ranks 0 and {other} have different settings of a StreamLoader: {meeting.payloads[0].decode()} "
                    f"and {theirs.decode()}; all ranks must have the same"
                )
                raise UnavailableError(message)
        engine = _engines.choose(rank, world_size, allgather, directory, timeout)
        token = meeting.token.hex()[:32]
        self._engine = engine.apart(f"stream{token}") if isinstance(engine, _engines.Board) else engine
        self._rank, self._world_size, self._timeout = rank, world_size, timeout
        self._prefix = f"stream-{token}"
        self._round = 0

    def gather(self, mine: bytes) -> list[bytes]:
        """Give `mine` to all ranks, and return what each of them gave, by rank.

        Raises:
            foreload.UnavailableError: Some ranks did not take part in time.
        """
        deadline = time.monotonic() + self._timeout
        number, self._round = self._round, self._round + 1
        engine = self._engine
        if isinstance(engine, _engines.Gather):
            try:
                return engine.gather(mine, deadline)
            except _engines.RanksMissingError:
                raise self._missing("some ranks") from None
        assert isinstance(engine, _engines.Board)
        try:
            return self._over_board(engine, mine, number, deadline)
        except _engines.BoardLostError as error:
            message = (
                f"rank {self._rank} of {self._world_size} lost the store by which the ranks of a stream "
                f"agree: {error}"
            )
            raise UnavailableError(message) from error

    def _over_board(self, engine: _engines.Board, mine: bytes, number: int, deadline: float) -> list[bytes]:
        together = f"{self._prefix}-{number}"
        if self._rank != 0:
            engine.put(f"{together}-{self._rank}", mine)
            packed = self._wait(engine, together, deadline, "rank 0")
            size = len(packed) // self._world_size
            return [packed[at : at + size] for at in range(0, len(packed), size)]
        gathered = [mine]
        for rank in range(1, self._world_size):
            gathered.append(self._wait(engine, f"{together}-{rank}", deadline, f"rank {rank}"))
            engine.drop(f"{together}-{rank}")
        engine.put(together, b"".join(gathered))
        if number > 0:
            # All ranks have the previous result, because they put a value for this one.
            engine.drop(f"{self._prefix}-{number - 1}")
        return gathered

    def _wait(self, board: _engines.Board, key: str, deadline: float, whom: str) -> bytes:
        nap, longest = NAPS
        while (value := board.get(key)) is None:
            if time.monotonic() >= deadline:
                raise self._missing(whom)
            time.sleep(nap)
            nap = min(2 * nap, longest)
        return value

    def _missing(self, whom: str) -> UnavailableError:
        return UnavailableError(
            f"rank {self._rank} of {self._world_size} waited {self._timeout:.0f} s for {whom} to agree on a step of a "
            "stream: all ranks must take the same number of batches, and iterate in the same way. If one needs longer, "
            'pass meeting={"timeout": seconds}'
        )
