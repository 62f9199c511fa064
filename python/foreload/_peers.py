"""How the nodes of a job come to share their caches: `peers=` of a loader, for the core, which asks for it once."""

from __future__ import annotations

from typing import Any

from foreload import _exchange, _listen


class Meetings:
    """Meets the other ranks as `peers=` says, and knows where this node listens."""

    def __init__(self, peers: Any) -> None:
        choices = peers if isinstance(peers, dict) else {}
        self._listen = choices.get("listen")
        self._allgather = choices.get("allgather")
        self._directory = choices.get("directory")

    def meet(
        self, purpose: str, payload: bytes, rank: int, world_size: int
    ) -> tuple[list[bytes], list[list[int]], bytes]:
        """Give `payload` to all ranks.

        Returns:
            What each rank gave, the ranks of each node, and 32 bytes that only these ranks know.

        Raises:
            foreload.Error: The ranks do not come together; see `_exchange.meet`.
        """
        meeting = _exchange.meet(
            f"peers: {purpose}",
            payload,
            rank=rank,
            world_size=world_size,
            allgather=self._allgather,
            directory=self._directory,
        )
        return meeting.payloads, meeting.nodes, meeting.token

    def listen(self, nodes: int) -> tuple[str, int]:
        """Return the address and the port to listen on, where this is one of so many nodes.

        Raises:
            foreload.ConfigError: Nothing says which, or other nodes cannot reach it.
        """
        listening = _listen.listen_address(self._listen)
        listening.refuse_if_unreachable(nodes)
        return listening.address, listening.port
