"""Real processes that are ranks of a job. They can be killed and frozen, and each has its own variables."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import kills

LAUNCHERS = (
    "SLURM_",
    "OMPI_",
    "PMI",
    "MPI_",
    "MV2_",
    "MASTER_",
    "TORCHELASTIC_",
    "JAX_",
    "PBS_",
    "LSB_",
    "FLUX_",
)
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PALS_APID", "JOB_COMPLETION_INDEX")
NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000
"""The flags of unshare(2)."""

# Each process is forked from one that has imported Foreload and has no threads, which takes milliseconds.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["foreload._exchange", "foreload._listen"])


class Failure(str):
    """An exception that a function raised in another process, as `Class: message`."""


class Process:
    """A process that calls a function and sends back its result."""

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        variables: dict[str, str] | None = None,
        own_network: bool = False,
    ) -> None:
        self._answer, theirs = _processes.Pipe(duplex=False)
        self._process = _processes.Process(
            target=_answer, args=(theirs, function, arguments, variables or {}, own_network), daemon=True
        )
        self._process.start()
        theirs.close()
        kills.begun(self)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process by SIGKILL and wait for its end."""
        self._process.kill()
        self._process.join()

    def result(self, timeout: float = 60) -> Any:
        """Return the function's result, or its `Failure`. The process has ended then."""
        try:
            if not self._answer.poll(timeout):
                raise TimeoutError(f"no answer of process {self.pid} within {timeout} s")
            return self._answer.recv()
        finally:
            self.kill()


def _answer(
    answer: Any, function: Callable[..., Any], arguments: Any, variables: dict[str, str], own_network: bool
) -> None:
    """Call the function in the new process."""
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in RANKS:
            del os.environ[name]
    os.environ.update(variables)
    try:
        if own_network:
            unshare_network()
        answer.send(function(*arguments))
    except PermissionError as failure:
        answer.send(failure)
    except BaseException as failure:
        answer.send(Failure("".join(traceback.format_exception_only(failure)).strip()))
    # The process stays, with all its objects, until it is ended.
    signal.pause()


def unshare_network() -> None:
    """Move this process into its own network namespace.

    Raises:
        PermissionError: The kernel does not allow this for this user.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK if os.geteuid() == 0 else NEW_NETWORK | NEW_USER) != 0:
        raise PermissionError(os.strerror(ctypes.get_errno()))
