"""Nodes on one machine: network namespaces, each with its own interface on one bridge.

A process in a namespace sees the same files as all others, but only its node's network interface. A run removes the
leftovers of a killed run, so only one run at a time is possible on a machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "foreload-bench-"
BRIDGE = "flbench"
"""The name of the bridge and, with a number, of a node's end on it; the kernel allows 15 characters."""
SUBNET = "10.219.77"
NAMESPACES = Path("/run/netns")
LOCK = Path("/run/foreload-bench-nodes.lock")


class Refused(Exception):
    """The error that this machine does not allow namespaces, with the reason."""


class NotShaped(Refused):
    """The error that this kernel cannot limit a node's rate, with the reason."""


@dataclass(frozen=True)
class Node:
    """A namespace that acts as a node."""

    number: int

    @property
    def name(self) -> str:
        """The name of the namespace for `ip netns`."""
        return f"{PREFIX}{self.number}"

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.number + 1}"

    def command(self, *words: object) -> list[str]:
        """Return the command that runs `words` on this node; unlike `ip netns exec` it does not change the mounts."""
        return ["nsenter", f"--net={NAMESPACES / self.name}", *map(str, words)]


def call(*words: object) -> str:
    """Run a command of the system and return its output.

    Raises:
        Refused: It failed, or does not exist.
    """
    text = " ".join(map(str, words))
    try:
        done = subprocess.run(text.split(), capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"{text}: {error.strerror}: install iproute2 and util-linux") from error
    if done.returncode != 0:
        raise Refused(f"{text}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


@contextmanager
def alone() -> Iterator[None]:
    """Ensure that this is the only run on this machine and that it may make nodes; remove the leftovers of other runs.

    Raises:
        Refused: Another run is active, the user is not root, or the system refuses namespaces.
    """
    if os.geteuid() != 0:
        raise Refused("network namespaces and their links need root: run this as root")
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused("another run of this benchmark has the namespaces: wait for it") from error
        clear()
        with network(1):
            pass
        yield


def clear() -> None:
    """Remove all namespaces of this benchmark with their processes, and the bridge."""
    for found in json.loads(call("ip -json netns list") or "[]"):
        name = found["name"]
        if name.startswith(PREFIX):
            for pid in call("ip netns pids", name).split():
                os.kill(int(pid), signal.SIGKILL)
            call("ip netns delete", name)
    for link in json.loads(call("ip -json link show") or "[]"):
        # A link is removed with its namespace, but only after the last process in it has ended.
        if link["ifname"].startswith(BRIDGE):
            subprocess.run(["ip", "link", "delete", link["ifname"]], capture_output=True, check=False)


@contextmanager
def network(count: int, rate: str | None = None) -> Iterator[list[Node]]:
    """Make `count` nodes that can reach each other. With a `rate` in the format of `tc`, such as `1gbit`, no node sends
    faster.

    Raises:
        Refused: The system refuses namespaces or links.
        NotShaped: It refuses the rate.
    """
    nodes = [Node(number) for number in range(count)]
    try:
        call("ip link add", BRIDGE, "type bridge")
        call("ip link set", BRIDGE, "up")
        for node in nodes:
            call("ip netns add", node.name)
            call("ip link add", f"{BRIDGE}{node.number}", "type veth peer name net0 netns", node.name)
            call("ip link set", f"{BRIDGE}{node.number}", "master", BRIDGE, "up")
            call("ip -n", node.name, "address add", f"{node.address}/24", "dev net0")
            call("ip -n", node.name, "link set net0 up")
            call("ip -n", node.name, "link set lo up")
            if rate:
                limit = f"root tbf rate {rate} burst 256k latency 20ms"
                try:
                    call("tc -n", node.name, "qdisc replace dev net0", limit)
                except Refused as refusal:
                    raise NotShaped(str(refusal)) from refusal
        yield nodes
    finally:
        clear()
