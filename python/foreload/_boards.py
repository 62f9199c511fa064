"""The boards of clusters: torch's store, an actor of Ray, JAX's store, and a directory that all ranks share."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import re
import secrets
import shutil
import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from foreload import _places
from foreload._alone import job_of_this_process
from foreload._core import UnavailableError
from foreload._engines import Board, BoardLostError
from foreload._errors import config_error

NO_VALUE = "there is no such key"
"""What no rank ever puts into a store: all values are JSON objects and what follows them."""


class TorchStore(Board):
    """The key-value store by which torch's processes find each other. Neither a GPU nor NCCL is touched."""

    _hosted: Any = None
    """The launcher's store, which ends when nobody in this process holds it. A process group that is made later at the
    same address goes on with it."""

    def __init__(self, name: str, store: Any) -> None:
        self.name = name
        # An agent counts a restart only where one of its own workers failed, so that TORCHELASTIC_RESTART_COUNT differs
        # between the nodes of one attempt. What an earlier attempt left in the agents' store is told by its sessions.
        run = os.environ.get("TORCHELASTIC_RUN_ID")
        self.generation = "" if run is None else f"TORCHELASTIC_RUN_ID={run}"
        self._store = sys.modules["torch.distributed"].PrefixStore(f"foreload/{self.generation}", store)

    @classmethod
    def of_process_group(cls) -> TorchStore | None:
        """Return the store of the initialised process group; None if it has none, as with torch's backend `mpi`."""
        # The store has no public name. What is public, all_gather_object, needs a group for the CPU, which under NCCL
        # all ranks would have to make, with connections from each to each.
        from torch.distributed import distributed_c10d

        store = distributed_c10d._get_default_store()
        return None if store is None else cls("torch.distributed's store", store)

    @classmethod
    def of_launcher(cls, rank: int, timeout: float) -> TorchStore:
        """Return the store at MASTER_ADDR and MASTER_PORT: torchrun's agent has one there, else rank 0 makes it.

        Raises:
            ImportError: torch is missing.
            foreload.UnavailableError: Nothing answers there.
        """
        import torch.distributed as distributed

        if cls._hosted is None:
            host, port = os.environ["MASTER_ADDR"], _places.number("peers", "MASTER_PORT", least=1)
            has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            try:
                cls._hosted = distributed.TCPStore(
                    host,
                    port,
                    is_master=rank == 0 and not has_agent,
                    timeout=timedelta(seconds=timeout),
                    wait_for_workers=False,
                    multi_tenant=True,
                )
            except RuntimeError as failure:
                message = f"torch's store at MASTER_ADDR={host}, MASTER_PORT={port} cannot be used: {failure}"
                raise UnavailableError(message) from failure
        return cls("torch's store at MASTER_ADDR", cls._hosted)

    def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        with self._failures():
            self._store.set(key, value)

    def get(self, key: str) -> bytes | None:
        """Return the value.

        The store's own `get` waits for one, also where it goes between a `check` and a `get`. A comparison does not
        wait: where there is no value it returns what it was told to expect.
        """
        with self._failures():
            value = self._store.compare_set(key, NO_VALUE, NO_VALUE)
        return None if value == NO_VALUE.encode() else value

    def drop(self, key: str) -> None:
        """Forget a value."""
        with self._failures():
            self._store.delete_key(key)

    @contextlib.contextmanager
    def _failures(self) -> Any:
        """Turn the failures of torch, which come in several classes, into ours."""
        try:
            yield
        except RuntimeError as failure:
            raise BoardLostError(f"{self.name} does not answer: {failure}") from failure


class Shelf:
    """What the actor of Ray is: a dictionary."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        self._values[key] = value

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._values.get(key)

    def drop(self, key: str) -> None:
        """Forget a value."""
        self._values.pop(key, None)


class RayActor(Board):
    """A named actor of Ray. It ends with the worker that made it, so that nothing of it outlives the training."""

    name = "an actor of Ray"

    def __init__(self, timeout: float) -> None:
        self._ray = sys.modules["ray"]
        self._timeout = timeout
        # Ray's job stays the same when a training is started again, and may have several trainings.
        self.generation = f"{job_of_this_process()} {self._training()}".strip()
        context = self._ray.get_runtime_context()
        self.life = context.get_actor_id() or context.get_task_id() or ""
        self._actor: Any = None

    def reopen(self) -> bool:
        """Let the next call make the actor, or find the one that another rank made."""
        self._actor = None
        return True

    def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        self._ask("put", key, value)

    def get(self, key: str) -> bytes | None:
        """Return the value."""
        return self._ask("get", key)

    def drop(self, key: str) -> None:
        """Forget a value."""
        self._ask("drop", key)

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Call the actor and wait for its answer."""
        options = {"name": self.generation, "namespace": "foreload", "get_if_exists": True, "num_cpus": 0}
        try:
            if self._actor is None:
                self._actor = self._ray.remote(Shelf).options(**options).remote()
            answer = getattr(self._actor, method).remote(*arguments)
            return self._ray.get(answer, timeout=self._timeout)
        except (ValueError, self._ray.exceptions.RayError) as failure:
            # A ValueError says that the name is still that of an actor which has just died.
            raise BoardLostError(f"{self.name} does not answer: {failure}") from failure

    def _training(self) -> str:
        """Return the name of Ray Train's experiment, where this is one of its workers."""
        if _places.of_ray_train() is None:
            return ""
        return str(sys.modules["ray.train"].get_context().get_experiment_name())


class JaxStore(Board):
    """The key-value store of `jax.distributed`, which ends with the coordinator.

    It has no public name; checkpoint libraries use it as this does. JAX's public `process_allgather` runs on devices,
    whose memory it takes.
    """

    name = "jax.distributed's store"

    def __init__(self) -> None:
        self._client = getattr(_places.jax_state(), "client", None)
        if not hasattr(self._client, "key_value_try_get_bytes"):
            message = (
                "this version of JAX has no store that can be asked without waiting: take a newer one, or give "
                "allgather"
            )
            raise UnavailableError(message)

    def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        with self._failures():
            self._client.key_value_set_bytes(f"foreload/{key}", value, allow_overwrite=True)

    def get(self, key: str) -> bytes | None:
        """Return the value."""
        with self._failures():
            try:
                return self._client.key_value_try_get_bytes(f"foreload/{key}")
            except RuntimeError as failure:
                if "NOT_FOUND" in str(failure):
                    return None
                raise

    def drop(self, key: str) -> None:
        """Forget a value."""
        with self._failures():
            self._client.key_value_delete(f"foreload/{key}")

    @contextlib.contextmanager
    def _failures(self) -> Any:
        """Turn JAX's error, which is a RuntimeError, into ours."""
        try:
            yield
        except RuntimeError as failure:
            raise BoardLostError(f"{self.name} does not answer: {failure}") from failure


class Folder(Board):
    """Files in a directory that all ranks share, each published by a rename, gone when the ranks have met.

    They lie in a folder named by job, step and attempt. What a killed attempt left behind rank 0 of the next removes.
    """

    def __init__(self, directory: str | os.PathLike[str], rank: int, world_size: int) -> None:
        job, attempt = _job_and_attempt(world_size)
        self.name = "a directory that all ranks share"
        self.generation = f"{job}, attempt {attempt}"
        stem = "foreload-ranks-" + "".join(letter if letter.isalnum() else "-" for letter in job)
        self._folder = Path(directory) / f"{stem}-{attempt}"
        try:
            if self._owner() != os.geteuid():
                raise config_error("peers", f"{self._folder} belongs to another user: name another directory")
            if rank == 0:
                for earlier in Path(directory).glob(f"{stem}*"):
                    named = re.fullmatch(r"(?:\.\w+)?-(\d+)", earlier.name.removeprefix(stem))
                    if named is not None and int(named[1]) < attempt:
                        shutil.rmtree(earlier, ignore_errors=True)
        except OSError as failure:
            message = f"the directory that all ranks share cannot be used: {failure}"
            raise config_error("peers", message) from failure

    def _owner(self) -> int:
        """Return who owns the folder, which is made where it is missing.

        Rank 0 of the exchange before may remove it at any moment: then it is made again.
        """
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # With `exist_ok`, mkdir raises where the folder goes between its two looks at it.
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                found = self._folder.lstat()
                if not stat.S_ISDIR(found.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._folder))
                return found.st_uid

    def put(self, key: str, value: bytes) -> None:
        """Write a file and rename it, so that nobody sees a part of it."""
        path = self._path(key)
        unfinished = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(value)
            unfinished.replace(path)
        except OSError as failure:
            raise BoardLostError(f"cannot write to {self._folder}: {failure}") from failure

    def get(self, key: str) -> bytes | None:
        """Read a file."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise BoardLostError(f"cannot read from {self._folder}: {failure}") from failure

    def drop(self, key: str) -> None:
        """Remove a file."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def close(self) -> None:
        """Remove the folder; the next exchange makes it again."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def apart(self, name: str) -> Folder:
        """Return a board in a folder of its own: this one is gone when the ranks have met."""
        stem, _, attempt = self._folder.name.rpartition("-")
        other = copy.copy(self)
        other._folder = self._folder.with_name(f"{stem}.{name}-{attempt}")
        other.reopen()
        return other

    def reopen(self) -> bool:
        """Make the folder again, which rank 0 may have removed after the last exchange."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return True

    def _path(self, key: str) -> Path:
        """Return where a value lies."""
        return self._folder / key.replace("/", "-")


def _job_and_attempt(world_size: int) -> tuple[str, int]:
    """Return what names this job, and how often it was started again before.

    Raises:
        foreload.ConfigError: Nothing names it, so that two jobs could not be told apart in the directory.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Its agents do not agree on the number of an attempt.
        return f"torchrun {os.environ['TORCHELASTIC_RUN_ID']} {os.environ.get('MASTER_PORT', '')}", 0
    if "SLURM_JOB_ID" in os.environ:
        job = f"slurm {os.environ['SLURM_JOB_ID']}"
        # Where mpirun started the ranks, some may be of its daemons' step and some of the batch script.
        if os.environ.get(_places.SLURM[1]) == str(world_size) and "SLURM_STEP_ID" in os.environ:
            job += f" {os.environ['SLURM_STEP_ID']}"
        restarts = "SLURM_RESTART_COUNT"
        return job, _places.number("peers", restarts, least=0) if restarts in os.environ else 0
    job = job_of_this_process()
    if job is None:
        message = (
            "no variable of a launcher names this job, so that two jobs could not be told apart in the shared "
            "directory: start it by srun, mpirun or torchrun, or give allgather"
        )
        raise config_error("peers", message)
    return job, 0
