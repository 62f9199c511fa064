"""Lets the ranks of a job meet: each gives some bytes and gets those of all, by an engine of the cluster.

`_engines.py` chooses the engine. This file defines the messages. By them, ranks are detected that ask for different
things, take part twice, or died in an earlier attempt of the job.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from foreload import _engines
from foreload._core import Error
from foreload._engines import Board, BoardLostError, Gather, RanksMissingError

LONGEST_PAUSE = 0.5
"""The longest pause between two reads of a board in seconds, if there are few ranks. The first pauses are shorter."""

MOST_LOOKS = 2000
"""The most reads of a board in a second by all ranks together. A board answers about ten thousand."""

SAME_LOADERS = (
    "make the same loaders in the same order, all with peers= or none, or run the same command with --peers"
)
"""What ranks must do to meet."""

VERDICT = 5.0
"""Seconds after the deadline in which the other ranks wait for the result of rank 0."""

LONGEST_PARTING = 30.0
"""The most seconds that rank 0 waits until the others have read the result. They read every `LONGEST_PAUSE`."""


class ExchangeError(Error):
    """The ranks of a job could not meet; the message says which are missing or differ, and what to do."""


@dataclass(frozen=True)
class Meeting:
    """The result of an exchange among all ranks of a job."""

    rank: int
    world_size: int
    payloads: list[bytes]
    """The payload of each rank, by rank."""
    nodes: list[list[int]]
    """The ranks of each node, ascending; nodes in the order of their first ranks. Network namespaces on one machine are
    several nodes."""
    node: int
    """The index of this rank's node in `nodes`."""
    token: bytes
    """32 random bytes that rank 0 drew for this meeting. Only the ranks of this job have them."""
    engine: str
    """The engine's name in messages."""
    generation: str
    """The job's attempt, as its launcher numbers attempts; empty if the engine ends with the attempt."""


@dataclass(frozen=True)
class Card:
    """The message with which a rank takes part."""

    rank: int
    world_size: int
    purpose: str
    """The purpose of the exchange."""
    call: int
    """The number of earlier exchanges of this process."""
    host: str
    pid: int
    node: str
    nonce: str
    """Random, so that a rank recognises its own card among those of processes that died."""
    token: str = ""
    """The token of rank 0, in hexadecimal digits."""
    payload: bytes = b""

    def pack(self) -> bytes:
        """Return the card as one line of JSON and the payload."""
        document = asdict(self)
        del document["payload"]
        return json.dumps(document).encode() + b"\n" + self.payload

    @classmethod
    def unpack(cls, packed: bytes) -> Card:
        """Return the card that `pack` has packed.

        Raises:
            ValueError: The bytes are not a card.
        """
        line, _, payload = packed.partition(b"\n")
        document = json.loads(line)
        if not isinstance(document, dict) or document.keys() | {"payload"} != cls.__dataclass_fields__.keys():
            raise ValueError("these bytes are not the card of a rank")
        return cls(**document, payload=payload)

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


_calls: Counter[str] = Counter()
"""The number of exchanges that each `life` of this process has begun, so that those of several loaders do not mix."""


def meet(
    purpose: str,
    payload: bytes,
    *,
    rank: int,
    world_size: int,
    allgather: Callable[[bytes], list[bytes]] | None = None,
    directory: str | os.PathLike[str] | None = None,
    timeout: float = 300.0,
) -> Meeting:
    """Wait for all ranks of the job and return the payload of each. All ranks must call it in the same order.

    Args:
        purpose: The purpose of the exchange, which must be the same on all ranks.
        payload: The bytes that this rank gives to all.
        rank: This process's rank.
        world_size: The number of ranks.
        allgather: The user's own function, which gives this rank's bytes to all ranks and returns those of all ranks,
            by rank. Its own timeout applies.
        directory: A directory that all ranks share, for jobs without an engine.
        timeout: Seconds to wait for the others.

    Raises:
        foreload.ConfigError: There is no engine, or the given one cannot be used. foreload.UnavailableError: The
        package of the job's engine is not installed here, or the engine does not answer.
        ExchangeError: Ranks are missing after `timeout`, or differ in what they ask for.
    """
    deadline = time.monotonic() + timeout
    engine = _engines.choose(rank, world_size, allgather, directory, timeout) if world_size > 1 else None
    life = engine.life if engine is not None else ""
    card = Card(
        rank=rank,
        world_size=world_size,
        purpose=purpose,
        call=_calls[life],
        host=socket.gethostname(),
        pid=os.getpid(),
        node=this_node(),
        nonce=secrets.token_hex(16),
        token=secrets.token_hex(32) if rank == 0 else "",
        payload=payload,
    )
    if engine is None:
        return _meeting(card, [card], "none, for one rank alone", "")
    _calls[life] += 1
    if isinstance(engine, Board):
        cards = _meet_at_board(engine, card, deadline, timeout)
    else:
        cards = _meet_by(engine, card, deadline, timeout)
    return _meeting(card, cards, engine.name, engine.generation)


def this_node() -> str:
    """Return an identifier of this node: host name, boot and network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        # Without /proc, only the host name identifies the node.
        boot, network = "", 0
    return f"{socket.gethostname()} {boot} {network}"


def _meeting(card: Card, cards: list[Card], engine: str, generation: str) -> Meeting:
    """Return the result of an exchange from the cards of all ranks."""
    nodes: dict[str, list[int]] = {}
    for other in cards:
        nodes.setdefault(other.node, []).append(other.rank)
    return Meeting(
        rank=card.rank,
        world_size=card.world_size,
        payloads=[other.payload for other in cards],
        nodes=list(nodes.values()),
        node=list(nodes).index(card.node),
        token=bytes.fromhex(cards[0].token),
        engine=engine,
        generation=generation,
    )


def _difference(cards: list[Card]) -> str | None:
    """Return why the cards, one of each rank, do not belong together; None if they do."""
    first = cards[0]
    for number, card in enumerate(cards):
        if card.rank != number:
            return f"{card} answered in the place of rank {number}"
        if card.world_size != first.world_size:
            return f"{first} counts {first.world_size} ranks and {card} counts {card.world_size}"
        if (card.purpose, card.call) != (first.purpose, first.call):
            return (
                f"{first} is at exchange {first.call}, for {first.purpose!r}, and {card} at exchange {card.call}, for "
                f"{card.purpose!r}: all ranks must {SAME_LOADERS}"
            )
    return None


def _meet_by(engine: Gather, card: Card, deadline: float, timeout: float) -> list[Card]:
    """Return the cards of all ranks, by one call of an engine that gathers them itself."""
    try:
        packed = engine.gather(card.pack(), deadline)
    except RanksMissingError as late:
        message = (
            f"not all {card.world_size} ranks joined the exchange for {card.purpose!r} within {timeout:g} s; "
            f"{engine.name} does not say which are missing"
        )
        raise ExchangeError(message) from late
    found = None
    if not isinstance(packed, list):
        found = f"a {type(packed).__name__}"
    elif len(packed) != card.world_size:
        found = f"{len(packed)} values"
    elif odd := [one for one in packed if not isinstance(one, (bytes, bytearray, memoryview))]:
        found = f"a {type(odd[0]).__name__} among them"
    if found is not None:
        message = f"{engine.name} returned {found}, must be a list of {card.world_size} byte strings, by rank"
        raise ExchangeError(message)
    try:
        cards = [Card.unpack(bytes(one)) for one in packed]
    except (TypeError, ValueError) as failure:
        raise ExchangeError(f"{engine.name} returned bytes that no rank gave: {failure}") from failure
    difference = _difference(cards)
    if difference is None and cards[card.rank] != card:
        difference = (
            f"{engine.name} returned a card of {cards[card.rank]} that this process, {card}, did not give"
        )
    if difference is not None:
        raise ExchangeError(difference)
    return cards


def _meet_at_board(board: Board, card: Card, deadline: float, timeout: float) -> list[Card]:
    """Return the cards of all ranks, exchanged by a board.

    Rank 0 opens a session with a random name. The others put their cards under that name. Rank 0 gathers them and puts
    the result there. So rank 0 never reads the card of a process that died earlier. The others accept a result only if
    their own card is in it; otherwise they wait for the next session. A rank that has the result removes its card. Rank
    0 leaves last, because the board may end with it.
    """
    while True:
        try:
            if card.rank == 0:
                return _lead(board, card, deadline, timeout)
            return _follow(board, card, deadline, timeout)
        except BoardLostError as lost:
            if time.monotonic() >= deadline or not board.reopen():
                raise ExchangeError(f"the exchange for {card.purpose!r} failed: {lost}") from lost
            # The board has ended, perhaps with an earlier attempt of the job. The next one starts empty.
            time.sleep(LONGEST_PAUSE)


def _lead(board: Board, card: Card, deadline: float, timeout: float) -> list[Card]:
    """Gather the cards as rank 0."""
    session = secrets.token_hex(8)
    opened = json.dumps({"session": session, "by": str(card)}).encode()
    board.put(f"{card.call}/session", opened)
    cards = {0: card}
    looks = Looks(deadline, card.world_size)
    for rank in range(1, card.world_size):
        while (packed := board.get(f"{card.call}/{session}/{rank}")) is None and looks.again():
            found = board.get(f"{card.call}/session")
            if found is not None and found != opened:
                other = json.loads(found)["by"]
                raise ExchangeError(f"{other} and this process, {card}, both say that they are rank 0")
        if packed is not None:
            cards[rank] = Card.unpack(packed)
    missing = [rank for rank in range(card.world_size) if rank not in cards]
    if missing:
        failure: str | None = (
            f"{_names(missing)} of {card.world_size} did not join the exchange for {card.purpose!r} within "
            f"{timeout:g} s of rank 0: look for their errors, and check that they {SAME_LOADERS}"
        )
    else:
        failure = _difference([cards[rank] for rank in range(card.world_size)])
    head = {
        "failure": failure,
        "nonces": {rank: other.nonce for rank, other in cards.items()},
        "sizes": [len(cards[rank].pack()) for rank in sorted(cards)],
    }
    packed_cards = [] if failure else [cards[rank].pack() for rank in sorted(cards)]
    board.put(f"{card.call}/{session}/all", json.dumps(head).encode() + b"\n" + b"".join(packed_cards))
    _part(board, card.call, session, sorted(cards)[1:])
    if failure is not None:
        raise ExchangeError(failure)
    return [cards[rank] for rank in sorted(cards)]


def _part(board: Board, call: int, session: str, ranks: list[int]) -> None:
    """Wait until these ranks have the result, and remove everything but the session's name."""
    # Only rank 0 reads, one rank after another, and most ranks have left by then.
    looks = Looks(time.monotonic() + LONGEST_PARTING, 1)
    try:
        for rank in ranks:
            while board.get(f"{call}/{session}/{rank}") is not None and looks.again():
                pass
        board.drop(f"{call}/{session}/all")
        board.close()
    except BoardLostError:
        # Rank 0 has its result; ranks without one report that.
        return


def _follow(board: Board, card: Card, deadline: float, timeout: float) -> list[Card]:
    """Gather the cards as a rank other than 0."""
    opened: bytes | None = None
    session = strange = ""
    last = False
    looks = Looks(deadline, card.world_size)
    while True:
        found = board.get(f"{card.call}/session")
        if found is not None and found != opened:
            opened, session, strange = found, json.loads(found)["session"], ""
            board.put(f"{card.call}/{session}/{card.rank}", card.pack())
        elif opened is not None:
            mine = board.get(f"{card.call}/{session}/{card.rank}")
            if mine is None:
                strange = (
                    strange or "the others met without it, because another process took part as this rank"
                )
            elif (other := Card.unpack(mine)).nonce != card.nonce:
                strange = (
                    f"process {other.pid} on {other.host} took part as this rank: give each its own rank="
                )
        result = board.get(f"{card.call}/{session}/all") if opened is not None else None
        if result is not None:
            line, _, packed = result.partition(b"\n")
            head = json.loads(line)
            if head["nonces"].get(str(card.rank)) == card.nonce:
                board.drop(f"{card.call}/{session}/{card.rank}")
                if head["failure"] is not None:
                    raise ExchangeError(head["failure"])
                return _cards_of(packed, head["sizes"])
            # The result is of an earlier attempt, or another process took this rank, or rank 0 did not wait that long.
            strange = strange or head["failure"] or "another process took part as this rank"
        if not looks.again():
            if opened is None or last:
                break
            # Rank 0 reports the missing ranks when its own time is over.
            looks, last = Looks(deadline + VERDICT, card.world_size), True
    if opened is None:
        reason = f"rank 0 did not join: look for its error, and check that all ranks {SAME_LOADERS}"
    else:
        ranks = range(1, card.world_size)
        missing = [rank for rank in ranks if board.get(f"{card.call}/{session}/{rank}") is None]
        absent = f"rank 0 joined, {_names(missing)} did not" if missing else "rank 0 joined, and has died"
        reason = strange or absent
        # Rank 0 may wait longer, and must not count this rank as present.
        board.drop(f"{card.call}/{session}/{card.rank}")
    message = (
        f"{card} could not complete the exchange for {card.purpose!r}, its number {card.call}, within {timeout:g} s "
        f"over {board.name}: {reason}"
    )
    raise ExchangeError(message)


def _cards_of(packed: bytes, sizes: list[int]) -> list[Card]:
    """Return the cards in `packed`, which follow one another and have these sizes."""
    cards, start = [], 0
    for size in sizes:
        cards.append(Card.unpack(packed[start : start + size]))
        start += size
    return cards


class Looks:
    """The pauses between reads of a board, which become longer until the deadline."""

    def __init__(self, deadline: float, ranks: int) -> None:
        self._deadline = deadline
        self._pause = 0.005
        self._longest = max(LONGEST_PAUSE, ranks / MOST_LOOKS)

    def again(self) -> bool:
        """Sleep, and return whether there is time for another read."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 1.5, self._longest)
        return True


def _names(ranks: list[int]) -> str:
    """Return ascending ranks in words: `ranks 1, 4-7`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(texts)}"
