"""A Redis server for the benchmark, and the part of its protocol that a producer needs.

So no client must be installed if only Foreload is measured; the usual way uses redis-py.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from harness.environments import Unavailable

PIPELINED = 16
"""The number of commands that are sent before their responses are read."""
PATIENCE = 10.0
NONE = "no redis-server: apt-get install redis-server"
"""The message if there is no server."""


class Connection:
    """A connection to a server."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader = connected.makefile("rb")

    def ask(self, *words: bytes) -> None:
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts += [b"$%d\r\n" % len(word), word, b"\r\n"]
        self._socket.sendall(b"".join(parts))

    def answers(self, count: int) -> list[bytes]:
        """Read responses that are not lists.

        Raises:
            RuntimeError: The server returns an error.
        """
        found = []
        for _ in range(count):
            line = self._reader.readline().rstrip(b"\r\n")
            if line[:1] == b"-" or not line:
                raise RuntimeError(f"Redis: {line[1:].decode() or 'the connection ended'}")
            if line[:1] == b"$":
                line = self._reader.read(int(line[1:]) + 2)[:-2]
            found.append(line)
        return found


def connect(url: str) -> Connection:
    """Connect to `redis://host:port` or `unix:///path`."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(parts.path)
    else:
        connected = socket.create_connection((parts.hostname, parts.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected)


class RedisServer:
    """A server on this machine that stores nothing on the drive; it ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.program = shutil.which("redis-server") or shutil.which("valkey-server")

    def __enter__(self) -> RedisServer:
        """Start it.

        Raises:
            Unavailable: Redis is not installed, or does not start.
        """
        if self.program is None:
            raise Unavailable(NONE)
        self._folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}"
        words = [self.program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            words, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.pid = self._process.pid
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.empty()
                return self
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.__exit__()
                    raise Unavailable("redis-server does not start") from None
                time.sleep(0.05)

    def empty(self) -> None:
        connection = connect(self.url)
        connection.ask(b"FLUSHALL")
        connection.answers(1)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
