"""Detects several processes of one job on a node that each run as rank 0 of 1.

Each process binds a Unix socket in Linux's abstract namespace. Its name is made of user, job and dataset. The kernel
refuses the second process that binds the same name. There is no file, and the kernel frees the name when the process
ends, however it ends. Processes on other nodes, or in containers with their own networks, are not detected.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
import struct
import sys
import threading

from foreload import _places
from foreload._notices import inform
from foreload._places import jax_state

SCHEDULERS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PBS_JOBID",),
    ("LSB_JOBID", "LSB_JOBINDEX"),  # LSF
    ("FLUX_JOB_ID",),
    ("PALS_APID",),  # Cray's launcher
    ("PMIX_NAMESPACE",),  # Open MPI 5 and what else starts processes by PMIx
    ("OMPI_MCA_ess_base_jobid",),  # Open MPI 4
)
"""The variables that together name a job; the first of each must be set."""

POD = "JOB_COMPLETION_INDEX"
"""The variable by which Kubernetes numbers the pods of an Indexed Job."""

VISITORS = 1024
"""The number of later processes that can find out which process holds a name. The others report "another process"."""

_held: dict[str, socket.socket] = {}
"""The sockets of this process: one for each dataset, however many loaders read it."""
_told: dict[str, str] = {}
"""The sentences for datasets whose name another process holds."""
_lock = threading.Lock()


def others(dataset: str) -> str | None:
    """Return a sentence about another process of this job that reads the dataset as rank 0 of 1; None if none is known.

    The first process holds the name until it ends, and gets None. Later processes get a sentence about it.
    """
    job = job_of_this_process()
    if job is None:
        return None
    if os.environ.get(POD, "").isdigit() and int(os.environ[POD]) > 0:
        return f"{POD}={os.environ[POD]} says that there are other pods, but no variable says how many ranks there are"
    key = hashlib.sha256("\0".join((str(os.geteuid()), job, dataset)).encode()).hexdigest()
    name = f"\0foreload/{key}".encode()
    with _lock:
        if key in _held or key in _told:
            return _told.get(key)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(name)
            claim.listen(VISITORS)
        except OSError as failure:
            claim.close()
            if failure.errno != errno.EADDRINUSE:
                inform(
                    f"cannot check for other processes of {job} that read this dataset as rank 0 of 1: {failure}"
                )
                return None
        else:
            _held[key] = claim
            return None
        holder = _holder(name)
        process = "another process" if holder is None else f"process {holder}"
        _told[key] = f"{process} of the same job ({job}) reads this dataset as rank 0 of 1, too"
        return _told[key]


def job_of_this_process() -> str | None:
    """Return a name for the job of this process, of several jobs the innermost; None if it is unknown."""
    if _places.in_ray_worker():
        return _ray_job()
    run, address, port = (
        os.environ.get(name) for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    )
    if address is not None and port is not None:
        return f"MASTER_ADDR={address} MASTER_PORT={port}" + (f" TORCHELASTIC_RUN_ID={run}" if run else "")
    coordinator = getattr(jax_state(), "coordinator_address", None) or os.environ.get(
        "JAX_COORDINATOR_ADDRESS"
    )
    if coordinator is not None:
        return f"JAX_COORDINATOR_ADDRESS={coordinator}"
    for names in SCHEDULERS:
        if names[0] in os.environ:
            return " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    if POD in os.environ:
        return f"Kubernetes' {re.sub(r'-[0-9]+$', '', socket.gethostname())}"
    return None


def _ray_job() -> str:
    """Return a name for the Ray job and trial of this worker. Each trial of Tune trains alone."""
    context = sys.modules["ray"].get_runtime_context()
    job = f"Ray's job {context.get_job_id()} at {context.gcs_address}"
    # Tune's public context warns if there is no trial.
    trial = getattr(_places.ray_session(), "trial_info", None)
    return job if trial is None else f"{job}, trial {trial.id}"


def _holder(name: bytes) -> int | None:
    """Return the process that holds a name; None if it is not visible in this one's namespace, or has just ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.setblocking(False)
        try:
            visitor.connect(name)
            credentials = visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    return struct.unpack("3i", credentials)[0] or None


def _forget() -> None:
    """Close the copies of the parent's sockets in a forked process, which is a separate process."""
    global _lock
    _lock = threading.Lock()
    for claim in _held.values():
        claim.close()
    _held.clear()
    _told.clear()


os.register_at_fork(after_in_child=_forget)
