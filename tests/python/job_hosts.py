"""The hosts of a cluster on one machine, for launchers that start ranks on several nodes.

A host is a network namespace with its own host name. Programs on it find all hosts by their names in its own
/etc/hosts, and see the same files as all others.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches" / "nodes"))
import namespaces

OWN = {
    "PREFIX": "foreload-job-",
    "BRIDGE": "fljob",
    "SUBNET": "10.219.79",
    "LOCK": Path("/run/foreload-job-hosts.lock"),
}
"""The names of these namespaces, which differ from the benchmark's, because a benchmark may run on the same machine."""

BECOME = 'mount --bind "$1" /etc/hosts && echo "$2" >/proc/sys/kernel/hostname && shift 2 && exec "$@"'
"""The commands that put a process on a host with this /etc/hosts and this name, in its own namespaces."""


@dataclass(frozen=True)
class Host:
    """A host of the cluster."""

    name: str
    address: str
    names: Path
    """Its /etc/hosts."""
    namespace: namespaces.Node

    def command(self, *words: object) -> list[str]:
        """Return the command that runs `words` on the host."""
        become = ("unshare", "--uts", "--mount", "sh", "-c", BECOME, "sh", self.names, self.name)
        return self.namespace.command(*become, *words)


@contextmanager
def hosts(folder: Path, count: int) -> Iterator[list[Host]]:
    """Make hosts `node0`, `node1`, ... that can reach each other, with their files in `folder`.

    Raises:
        namespaces.Refused: The system refuses namespaces, or another run uses these.
    """
    with patch.multiple(namespaces, **OWN), namespaces.alone(), namespaces.network(count) as nodes:
        names = folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{node.address} node{node.number}" for node in nodes)]
        names.write_text("".join(f"{line}\n" for line in lines))
        yield [Host(f"node{node.number}", node.address, names, node) for node in nodes]


def remote_shell(path: Path, hosts: Sequence[Host]) -> Path:
    """Write a program that launchers call like ssh: `-x HOST COMMAND`."""
    enter = [f'{host.name}) exec {shlex.join(map(str, host.command("sh", "-c")))} "$*" ;;' for host in hosts]
    path.write_text("\n".join(["#!/bin/sh", "shift; host=$1; shift", "case $host in", *enter, "esac", ""]))
    path.chmod(0o755)
    return path
