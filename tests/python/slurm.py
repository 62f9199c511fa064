"""A Slurm cluster of two nodes on this machine, in its own folder, for tests of srun.

Its nodes are this machine twice, or hosts of `job_hosts`. The first host runs the controller.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from job_hosts import Host
from waiting import until

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PACKAGES = "apt-get install -y --no-install-recommends munge slurmctld slurmd slurm-client"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Node:
    """A node of the cluster, and the host of its daemon."""

    name: str
    host: str
    address: str
    command: Callable[..., list[str]]
    """Returns the command that runs some words on the host."""

    @classmethod
    def here(cls, name: str) -> Node:
        """Return a node that is this machine."""
        return cls(name, socket.gethostname().partition(".")[0], "127.0.0.1", lambda *words: list(words))

    @classmethod
    def on(cls, host: Host) -> Node:
        """Return a node that is a separate host."""
        return cls(host.name, host.name, host.address, host.command)

    def line(self, port: int) -> str:
        """Return the node's line in the configuration."""
        who = f"NodeName={self.name} NodeHostname={self.host} NodeAddr={self.address}"
        return f"{who} Port={port} CPUs=2 State=UNKNOWN\n"


def require() -> None:
    """Skip the test, or fail it, if there can be no cluster."""
    absent = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons start tasks as root alone")
    if absent:
        reason = f"{', '.join(absent)} of Slurm are not installed: {PACKAGES}"
        if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def cluster(folder: Path, hosts: Sequence[Host] = ()) -> Iterator[dict[str, str]]:
    """Run the daemons; yield the variables with which srun finds them."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    nodes = [Node.on(host) for host in hosts] or [Node.here("n1"), Node.here("n2")]
    first = nodes[0]
    controller, *ports = free_ports(1 + len(nodes))
    lines = CONFIGURATION.lstrip().format(
        folder=folder, host=first.host, address=first.address, port=controller, user=getpass.getuser()
    )
    lines += "".join(node.line(port) for node, port in zip(nodes, ports, strict=True))
    configuration = folder / "slurm.conf"
    configuration.write_text(lines)
    variables = {"SLURM_CONF": str(configuration)}
    environment = os.environ | variables | {"PATH": PATH}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    daemons = []

    def start(command: list[str]) -> None:
        with (folder / f"{len(daemons)}.out").open("wb") as log:
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    try:
        start(munge)
        _until("munged is ready", folder, (folder / "munge.socket").exists)
        start(first.command("slurmctld", "-D"))
        for node in nodes:
            start(node.command("slurmd", "-D", "-N", node.name))

        def states() -> list[str]:
            states = first.command("sinfo", "--noheader", "--Node", "--format=%T")
            said = subprocess.run(states, env=environment, capture_output=True, text=True, check=False)
            return said.stdout.split()

        _until("both nodes are idle", folder, states, lambda said: said == ["idle", "idle"])
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def free_ports(count: int) -> list[int]:
    """Return ports on which no server listens now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _until(what: str, folder: Path, *look: Callable[..., object]) -> None:
    """Wait until a daemon is ready, or raise an error with the daemons' logs."""
    try:
        until(what, *look)
    except TimeoutError as late:
        logs = folder.glob("*.[lo][ou][gt]")
        said = [f"{path.name}: {path.read_text(errors='replace')[-800:]}" for path in logs]
        raise TimeoutError("\n".join([str(late), *said])) from late
