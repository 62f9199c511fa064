"""Hostile servers and clients in place of a node, or between nodes, for `test_nodes.py`.

`false_peer.py lie ADDRESS PORT SEED` listens there and answers requests for samples with garbage, partial responses and
silence. `false_peer.py between ADDRESS PORT NAMESPACE SEED HOW` listens there and forwards data to the same address and
port in the network namespace of this file. If HOW is `damage`, it damages, delays or cuts off some of the data. If HOW
is `misdirect`, it flips a bit in the number of some samples that are requested or pushed. `false_peer.py strangers
ADDRESS PORT SEED HOW` sends requests without the token, and data that is not HTTP, to that server. It prints the number
of requests, the number of 401 responses, and unexpected responses. HOW is `plain`, or `tls` if the server encrypts.

The first two print `ready` when they listen, and end when their input ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable

PATIENCE = 3.0
"""The longest wait for a response that may be missing, in seconds."""
LONGEST_PATIENCE = 30.0
"""The longest wait for a response that must come, in seconds."""
CLONE_NEWNET = 0x40000000


def request_line(connection: socket.socket) -> bytes:
    """Return the first line of a request, after its whole head was read."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = connection.recv(65536)
        if not more:
            raise ConnectionResetError
        head += more
    return head.split(b"\r\n", 1)[0]


def lies(rng: random.Random) -> bytes | None:
    """Return a wrong response; `None` means silence."""
    length = rng.randint(5_000, 30_000)
    head = (
        f'HTTP/1.1 200 OK\r\ncontent-length: {length}\r\netag: "{rng.getrandbits(64):016x}"\r\n'
        f"foreload-crc32c: {rng.getrandbits(32):08x}\r\n\r\n"
    ).encode()
    status = rng.choice([100, 204, 206, 301, 400, 401, 404, 409, 412, 500, 503, 999])
    return rng.choice(
        [
            rng.randbytes(length),
            head + rng.randbytes(length),
            head + rng.randbytes(length // 2),
            head[: rng.randrange(len(head))],
            head + rng.randbytes(2 * length),
            head.replace(b"content-length", b"transfer-encoding: chunked\r\nx"),
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
            f"HTTP/1.1 {status} Why\r\ncontent-length: 0\r\n\r\n".encode(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n" + rng.randbytes(length),
            b"",
            None,
        ]
    )


def lie_to(connection: socket.socket, rng: random.Random) -> None:
    """Answer the requests of a connection with wrong responses."""
    with connection:
        while request_line(connection):
            answer = lies(rng)
            if answer is None:
                time.sleep(rng.uniform(0, 5))
                return
            connection.sendall(answer)
            if not answer or rng.random() < 0.5:
                return


def serve(listener: socket.socket, converse: Callable[[socket.socket], None]) -> None:
    """Serve each connection in its own thread, until the input ends."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()

    def alone(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            converse(connection)

    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=alone, args=(connection,), daemon=True).start()


def pass_on(giver: socket.socket, taker: socket.socket, rng: random.Random, spoil: float) -> None:
    """Forward data in one direction, and damage a chunk with this probability."""
    try:
        while piece := bytearray(giver.recv(65536)):
            chance = rng.random() / spoil
            if chance < 0.6:
                for _ in range(rng.randint(1, 4)):
                    piece[rng.randrange(len(piece))] ^= 1 << rng.randrange(8)
            elif chance < 0.8:
                taker.sendall(piece[: rng.randrange(len(piece))])
                break
            elif chance < 1.0:
                time.sleep(rng.uniform(0, 1.5))
            taker.sendall(piece)
    except OSError:
        pass
    for one in (giver, taker):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def misdirect(giver: socket.socket, taker: socket.socket, rng: random.Random) -> None:
    """Forward requests, some of them for another sample."""

    def other(line: re.Match[bytes]) -> bytes:
        return line[1] + bytes([line[2][0] ^ 1]) + b" " if rng.random() < 0.2 else line[0]

    with contextlib.suppress(OSError):
        while piece := giver.recv(65536):
            taker.sendall(re.sub(rb"((?:GET|PUT) /v1/\S*)(\d) ", other, piece))
    for one in (giver, taker):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def between(address: str, port: int, namespace: str, seed: int, how: str) -> None:
    """Forward data between other nodes and the node with this address."""
    listener = socket.create_server((address, port))
    # From here on, new sockets are in the node's namespace; the listening socket stays where it is.
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace) as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    rng = random.Random(seed)

    def converse(connection: socket.socket) -> None:
        behind = socket.create_connection((address, port), timeout=PATIENCE)
        behind.settimeout(None)
        asks, answers = random.Random(rng.random()), random.Random(rng.random())
        if how == "misdirect":
            there, spoil = (misdirect, (connection, behind, asks)), 1e-9
        else:
            there, spoil = (pass_on, (connection, behind, asks, 0.05)), 0.3
        threading.Thread(target=there[0], args=there[1], daemon=True).start()
        pass_on(behind, connection, answers, spoil)

    serve(listener, converse)


def stranger_requests(rng: random.Random) -> list[tuple[bytes, bool]]:
    """Return the data that strangers send, and whether each is a request that must be answered with 401."""
    path = f"/v1/{rng.randbytes(32).hex()}/{rng.getrandbits(64)}/samples/{rng.randrange(600)}"
    tokens = ["", "authorization: Bearer\r\n", f"authorization: Bearer {rng.randbytes(32).hex()}\r\n"]
    asked = [
        (f"{method} {target} HTTP/1.1\r\nhost: x\r\n{token}content-length: 0\r\n\r\n".encode(), True)
        for method in ("GET", "PUT", "DELETE")
        for target in (path, "/", "/v1/stats")
        for token in tokens
    ]
    pushed = f"PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n".encode() + rng.randbytes(9999)
    noise = [
        rng.randbytes(rng.randint(1, 100_000)),
        b"\x16\x03\x01\x02\x00" + rng.randbytes(512),
        b"GET " + b"/" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0" * 1000,
        b"",
    ]
    return [*rng.sample(asked, 8), (pushed, True), *((one, False) for one in rng.sample(noise, 4))]


def connect(address: str, port: int, patience: float, tls: bool) -> socket.socket:
    """Return a connection to a server without checking its certificate."""
    connection = socket.create_connection((address, port), timeout=patience)
    if not tls:
        return connection
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def ask(address: str, port: int, sent: bytes, patience: float, tls: bool) -> bytes:
    """Return a server's response, until it closes the connection or pauses for a while."""
    said = b""
    with contextlib.suppress(OSError), connect(address, port, patience, tls) as server:
        with contextlib.suppress(OSError):
            server.sendall(sent)
        while more := server.recv(65536):
            said += more
    return said


def strangers(address: str, port: int, seed: int, tls: bool) -> None:
    """Send requests of many kinds, while some more connections are held open and get single bytes."""
    rng = random.Random(seed)
    slow = []
    with contextlib.suppress(OSError):
        for _ in range(20):
            slow.append(socket.create_connection((address, port), timeout=PATIENCE))
    requests, refused, odd = 0, 0, []
    for sent, is_request in stranger_requests(rng):
        requests += is_request
        for one in slow:
            with contextlib.suppress(OSError):
                one.sendall(b"G")
        began = time.monotonic()
        said = ask(address, port, sent, LONGEST_PATIENCE if is_request else PATIENCE, tls)
        if is_request and (took := time.monotonic() - began) > LONGEST_PATIENCE / 3:
            odd.append(f"{sent[:60]!r}: {said[:200]!r} after {took:.1f} s")
        status = said.split(b" ", 2)[1:2]
        if is_request and status == [b"401"]:
            refused += 1
        body = said.split(b"\r\n\r\n", 1)[1:]
        if (said and not status[0].startswith(b"4")) or body not in ([], [b""]):
            odd.append(f"{sent[:60]!r}: {said[:200]!r}")
    print(json.dumps({"requests": requests, "refused": refused, "odd": odd}), flush=True)


if __name__ == "__main__":
    what, at, number, *rest = sys.argv[1:]
    if what == "lie":
        chosen = random.Random(int(rest[0]))
        serve(
            socket.create_server((at, int(number))), lambda one: lie_to(one, random.Random(chosen.random()))
        )
    elif what == "between":
        between(at, int(number), rest[0], int(rest[1]), rest[2])
    else:
        strangers(at, int(number), int(rest[0]), rest[1] == "tls")
