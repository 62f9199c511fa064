"""The boards by which ranks meet: torch's store, an actor of Ray, JAX's store, and a directory that all ranks share."""

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
"""A value that no rank puts into a store, because all values begin with a JSON object."""


class Store(Board):
    """A key-value store of a framework, whose errors are RuntimeErrors; torch's have several classes."""

    @contextlib.contextmanager
    def _failures(self) -> Any:
        """Convert the store's errors to `BoardLostError`."""
        try:
            yield
        except RuntimeError as failure:
            raise BoardLostError(f"{self.name} does not answer: {failure}") from failure


class TorchStore(Store):
    """The key-value store by which torch's processes find each other. It uses neither a GPU nor NCCL."""

    _hosted: Any = None
    """The launcher's store, which ends when no object in this process refers to it. A process group that is made later
    at the same address continues to use it."""

    def __init__(self, name: str, store: Any) -> None:
        self.name = name
        # An agent counts a restart only if one of its own workers failed, so TORCHELASTIC_RESTART_COUNT differs between
        # the nodes of one attempt. Values that an earlier attempt left in the agents' store are recognised by their
        # sessions.
        run = os.environ.get("TORCHELASTIC_RUN_ID")
        self.generation = "" if run is None else f"TORCHELASTIC_RUN_ID={run}"
        self._store = sys.modules["torch.distributed"].PrefixStore(f"foreload/{self.generation}", store)

    @classmethod
    def of_process_group(cls) -> TorchStore | None:
        """Return the store of the initialised process group; None if it has none, as with torch's backend `mpi`."""
        # The store has no public name. The public all_gather_object needs a group for the CPU. With NCCL, all ranks
        # would have to make one, with connections between all of them.
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

        The store's own `get` waits for a value, also if the value is removed between a `check` and a `get`. A
        comparison does not wait: if there is no value, it returns the expected one.
        """
        with self._failures():
            value = self._store.compare_set(key, NO_VALUE, NO_VALUE)
        return None if value == NO_VALUE.encode() else value

    def drop(self, key: str) -> None:
        """Forget a value."""
        with self._failures():
            self._store.delete_key(key)


class Shelf:
    """The dictionary that runs as an actor of Ray."""

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
    """A named actor of Ray. It ends with the worker that made it, so nothing remains after the training."""

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
            # A ValueError means that the name still belongs to an actor that has just died.
            raise BoardLostError(f"{self.name} does not answer: {failure}") from failure

    def _training(self) -> str:
        """Return the name of Ray Train's experiment; empty outside of its workers."""
        if _places.of_ray_train() is None:
            return ""
        return str(sys.modules["ray.train"].get_context().get_experiment_name())


class JaxStore(Store):
    """The key-value store of `jax.distributed`, which ends with the coordinator.

    It has no public name; checkpoint libraries use it in the same way. JAX's public `process_allgather` runs on
    devices, and takes memory there.
    """

    name = "jax.distributed's store"

    def __init__(self) -> None:
        self._client = getattr(_places.jax_state(), "client", None)
        if not hasattr(self._client, "key_value_try_get_bytes"):
            message = (
                "this version of JAX has no store that can be read without waiting: install a newer one, or pass "
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


class Folder(Board):
    """Files in a directory that all ranks share, each published by a rename, and removed when the ranks have met.

    They are in a folder named by job, step and attempt. Rank 0 removes the folders of earlier attempts that were
    killed.
    """

    def __init__(self, directory: str | os.PathLike[str], rank: int, world_size: int) -> None:
        job, attempt = _job_and_attempt(world_size)
        self.name = "a directory that all ranks share"
        self.generation = f"{job}, attempt {attempt}"
        stem = "foreload-ranks-" + "".join(letter if letter.isalnum() else "-" for letter in job)
        self._folder = Path(directory) / f"{stem}-{attempt}"
        try:
            if self._owner() != os.geteuid():
                raise config_error("peers", f"{self._folder} belongs to another user: use another directory")
            if rank == 0:
                for earlier in Path(directory).glob(f"{stem}*"):
                    named = re.fullmatch(r"(?:\.\w+)?-(\d+)", earlier.name.removeprefix(stem))
                    if named is not None and int(named[1]) < attempt:
                        shutil.rmtree(earlier, ignore_errors=True)
        except OSError as failure:
            message = f"the directory that all ranks share cannot be used: {failure}"
            raise config_error("peers", message) from failure

    def _owner(self) -> int:
        """Return the owner of the folder, which is created if it does not exist.

        Rank 0 of the previous exchange may remove it at any moment; then it is created again.
        """
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # With `exist_ok`, mkdir raises if the folder is removed between its two checks.
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                found = self._folder.lstat()
                if not stat.S_ISDIR(found.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._folder))
                return found.st_uid

    def put(self, key: str, value: bytes) -> None:
        """Write a file and rename it, so that no rank reads a part of it."""
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
        """Return a board in a separate folder, because this one is removed when the ranks have met."""
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
        """Return the path of a value's file."""
        return self._folder / key.replace("/", "-")


def _job_and_attempt(world_size: int) -> tuple[str, int]:
    """Return a name for this job, and the number of its earlier restarts.

    Raises:
        foreload.ConfigError: No variable names the job, so two jobs could not be distinguished in the directory.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Its agents do not agree on the number of an attempt.
        return f"torchrun {os.environ['TORCHELASTIC_RUN_ID']} {os.environ.get('MASTER_PORT', '')}", 0
    if "SLURM_JOB_ID" in os.environ:
        job = f"slurm {os.environ['SLURM_JOB_ID']}"
        # If mpirun started the ranks, some may belong to the step of its daemons, and some to the batch script.
        if os.environ.get(_places.SLURM[1]) == str(world_size) and "SLURM_STEP_ID" in os.environ:
            job += f" {os.environ['SLURM_STEP_ID']}"
        restarts = "SLURM_RESTART_COUNT"
        return job, _places.number("peers", restarts, least=0) if restarts in os.environ else 0
    job = job_of_this_process()
    if job is None:
        message = (
            "no variable of a launcher names this job, so two jobs could not be distinguished in the shared "
            "directory: start it with srun, mpirun or torchrun, or pass allgather"
        )
        raise config_error("peers", message)
    return job, 0
