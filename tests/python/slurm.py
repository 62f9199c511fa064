"""A Slurm cluster of two nodes on this machine, in a folder of its own: for tests of what srun starts."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PACKAGES = "apt-get install -y --no-install-recommends munge slurmctld slurmd slurm-client"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Return why there can be no cluster here; None if there can."""
    absent = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if absent:
        return f"{', '.join(absent)} of Slurm are not installed: {PACKAGES}"
    return None if os.geteuid() == 0 else "Slurm's daemons start tasks as root alone"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run the daemons; yield the variables by which srun finds them."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    ports = dict(zip(("controller", "first", "second"), free_ports(3), strict=True))
    configuration = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    configuration.write_text(
        CONFIGURATION.format(folder=folder, host=host, user=getpass.getuser(), **ports).lstrip()
    )
    variables = {"SLURM_CONF": str(configuration)}
    environment = os.environ | variables | {"PATH": PATH}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    daemons = []

    def start(*command: str) -> None:
        with (folder / f"{len(daemons)}.out").open("wb") as log:
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    try:
        start(*munge)
        _wait(lambda: (folder / "munge.socket").exists(), folder)
        start("slurmctld", "-D")
        for node in ("n1", "n2"):
            start("slurmd", "-D", "-N", node)

        def idle() -> bool:
            states = ["sinfo", "--noheader", "--Node", "--format=%T"]
            said = subprocess.run(states, env=environment, capture_output=True, text=True, check=False)
            return said.stdout.split() == ["idle", "idle"]

        _wait(idle, folder)
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
    """Return ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(condition: object, folder: Path) -> None:
    """Wait until a daemon is ready, or raise an error with what they wrote."""
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    logs = "\n".join(
        f"{path.name}: {path.read_text(errors='replace')[-800:]}" for path in folder.glob("*.[lo][ou][gt]")
    )
    raise TimeoutError(f"Slurm's daemons are not ready after 30 s\n{logs}")
