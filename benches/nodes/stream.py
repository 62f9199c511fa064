"""The rate of a link with plain TCP, which is the reference for transfers between peers.

`stream.py serve ADDRESS BYTES` prints its port, and sends this many bytes to the first client. `stream.py read ADDRESS
PORT` reads all bytes from there, and prints bytes per second.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import programs
from harness.environments import Unavailable
from namespaces import Node

PIECE = 1 << 20
PATIENCE = 30


def serve(address: str, count: int) -> None:
    with socket.create_server((address, 0)) as server:
        server.settimeout(PATIENCE)
        print(server.getsockname()[1], flush=True)
        with server.accept()[0] as reader:
            piece = bytes(PIECE)
            for begin in range(0, count, PIECE):
                reader.sendall(piece[: min(PIECE, count - begin)])


def read(address: str, port: int) -> float:
    """Return bytes per second of a stream, from its first byte to its last."""
    with socket.create_connection((address, port), timeout=PATIENCE) as sender:
        space = bytearray(PIECE)
        first = sender.recv_into(space)
        count, started = 0, time.perf_counter()
        while first and (arrived := sender.recv_into(space)):
            count += arrived
        return count / (time.perf_counter() - started)


def rate(giver: Node, taker: Node, count: int) -> float:
    """Return the bytes per second of `count` bytes from one node to another.

    Raises:
        Unavailable: They cannot reach each other.
    """
    serving = giver.command(sys.executable, __file__, "serve", giver.address, count)
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = server.stdout.readline().strip()
            reading = taker.command(sys.executable, __file__, "read", giver.address, port)
            return float(programs.output_of(reading, timeout=PATIENCE))
        except Unavailable as reason:
            raise Unavailable(f"no stream from {giver.name} to {taker.name}: {reason}") from reason
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        print(read(sys.argv[2], int(sys.argv[3])))
