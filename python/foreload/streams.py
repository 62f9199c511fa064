"""Sources of samples that arrive while training runs, for `foreload.StreamLoader`.

A sample is a dict of members, as in WebDataset: `{"jpg": bytes, "cls": 3, "json": {...}}`. Each has a key, which tells
it from all others of its stream. A source's `name` is part of its samples' identity and of states, and holds no secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from foreload._errors import config_error

__all__ = ["Folder", "Iterator", "Redis", "Source", "ZeroMQ"]

if not TYPE_CHECKING:  # Type checkers would take every name for one that is here.

    def __getattr__(name: str) -> Any:
        """Say what to use in place of a source that was removed."""
        what = ": use Redis, ZeroMQ, Folder or an Iterator" if name in ("Feeder", "Socket") else ""
        raise AttributeError(f"foreload.streams has no {name}{what}")


class Source:
    """What all sources have in common. Make one of the classes below."""

    _kind: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise config_error("name", f"is {name!r}, must be a text that names the stream")
        self.name = name

    def _described(self) -> tuple[str, Any]:
        """Return the source in JSON, and the object of Python's that it is made of or None."""
        described = {"kind": self._kind, "name": self.name, **self._options()}
        return json.dumps(described), self._object()

    def _options(self) -> dict[str, Any]:
        return {}

    def _object(self) -> Any:
        return None

    def __repr__(self) -> str:
        """Show what it is, without secrets."""
        return f"foreload.streams.{type(self).__name__}(name={self.name!r})"


class Folder(Source):
    """A directory that grows. Samples are its files, also those in directories below it.

    A file is complete from the moment it has its name: write it under a name that begins with a dot or ends in `.tmp`
    or `.part`, in the same file system, and rename it. Files that are there before are samples, too, in the order of
    their names. Where a program can only write in place, let it make a marker last, and say so by `done`.

    Every file is read once, when it is found. A state has the names of all that were used, unless files are removed or
    moved once they are acknowledged.

    Args:
        path: The directory.
        name: The name of the stream. None: the directory's own name.
        members: The files of a sample, by what their names end in behind the common beginning and a dot, such as
            `["jpg", "cls"]`: a sample is complete when all are there. None: each image is a sample.
        done: The end of the name of a marker, such as `".done"`: `0001.done` says that `0001.jpg` and, with `members`,
            the others are complete.
        classes: The names of the directories that are classes: images in `cat` have the number of `"cat"` in this
            list. None: a `.cls` or `.json` member has the class, if there is one.
        after: What becomes of the files of samples that are acknowledged (`StreamLoader.acknowledge`): they stay, are
            deleted, or are moved to `move_to`, on the same file system.
        move_to: The directory for `after="move"`.
        watch: `inotify`: the kernel tells what appears. `poll`: the directory is listed again and again, as network
            file systems need. `auto`: by the file system.
        poll: Seconds from one listing to the next. Of large directories fewer are made, so that listing takes at most
            a quarter of the time; those whose time of change is the same are not listed.
    """

    _kind = "folder"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        members: Sequence[str] | None = None,
        done: str | None = None,
        classes: Sequence[str] | None = None,
        after: Literal["keep", "delete", "move"] = "keep",
        move_to: str | os.PathLike[str] | None = None,
        watch: Literal["auto", "inotify", "poll"] = "auto",
        poll: float = 1.0,
    ) -> None:
        self.path = os.fspath(path)
        super().__init__(name or os.path.basename(os.path.abspath(self.path)))
        self.members = None if members is None else [str(member).lstrip(".") for member in members]
        self.done = done
        self.classes = None if classes is None else [str(each) for each in classes]
        self.after = after
        self.move_to = None if move_to is None else os.fspath(move_to)
        self.watch = watch
        self.poll = float(poll)

    def _options(self) -> dict[str, Any]:
        names = ("path", "members", "done", "classes", "after", "move_to", "watch")
        return {**{name: getattr(self, name) for name in names}, "poll": f"{self.poll:.9f}s"}

    def __repr__(self) -> str:
        """Show the directory."""
        return f"foreload.streams.Folder({self.path!r}, name={self.name!r})"


class Redis(Source):
    """A stream in a Redis or Valkey server: the fields of its entries are the members, and their ids are the keys.

        XADD images MAXLEN ~ 100000 * jpg <bytes> cls 3

    Without `group` the stream is read in order from `start` on, and a state says how far. With `group` the server deals
    entries out among the readers of the group, and keeps them until they are acknowledged: those of a reader that was
    silent for `claim_after` seconds are taken over by others. Either way each entry is used once, also when trainer or
    server are killed. What was trimmed before it was read is counted as missing, where the server says so (Redis 7);
    in a group as failed, if it had been dealt out.

    Args:
        url: The server: `redis://host:6379/0`, `rediss://host:6379` for TLS, `unix:///path`.
        stream: The key of the stream.
        name: The name of the stream here. None: its key.
        group: The name of a group of consumers, which is made where it is missing.
        consumer: The name of this reader in the group: the same after a restart, and no other's. None: `rank-0`.
        start: Without a state: `first`, `new`, or the id of an entry, behind which it begins.
        username: The user, in place of the URL's.
        password: The password, in place of the URL's. It is in no state, message or log.
        trim: Whether entries are removed from the server once they are acknowledged: for a stream without other
            readers.
        claim_after: Seconds after which the entries of a reader of the group that is silent are taken over.
    """

    _kind = "redis"

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        name: str | None = None,
        group: str | None = None,
        consumer: str | None = None,
        start: str = "first",
        username: str | None = None,
        password: str | None = None,
        trim: bool = False,
        claim_after: float = 60.0,
    ) -> None:
        super().__init__(name or stream)
        self._url, self._username, self._password = url, username, password
        self.stream, self.group, self.consumer, self.start = stream, group, consumer, start
        self.trim, self.claim_after = bool(trim), float(claim_after)

    def _options(self) -> dict[str, Any]:
        names = ("stream", "group", "consumer", "start", "trim")
        hidden = {"url": self._url, "username": self._username, "password": self._password}
        return {
            **{name: getattr(self, name) for name in names},
            **hidden,
            "claim_after": f"{self.claim_after:.9f}s",
        }


class ZeroMQ(Source):
    """A PULL or SUB socket of ZeroMQ. What it has received and was not used when the process ends is lost, and counted.

    A message has frames by twos, a member's name and its bytes: `[b"jpg", <bytes>, b"cls", b"3"]`; for SUB a frame with
    the topic may come before. A member `__seq__`, a running decimal number of the sender's, is the sample's key, and
    numbers that are missing are counted; without it samples are numbered as they come, and what SUB misses nobody
    knows.

    Args:
        endpoints: An address such as `tcp://host:5555` or `ipc:///path`, or a list of several.
        socket: `pull` or `sub`.
        bind: Whether others connect to the addresses; else this end connects.
        topics: For `sub`: what the first frame must begin with, one of these. None: all messages.
        name: The name of the stream.
    """

    _kind = "zeromq"

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        socket: Literal["pull", "sub"] = "pull",
        bind: bool = False,
        topics: Sequence[str] | None = None,
        name: str = "zeromq",
    ) -> None:
        super().__init__(name)
        self.endpoints = [endpoints] if isinstance(endpoints, str) else [str(each) for each in endpoints]
        self.socket, self.bind, self.topics = socket, bool(bind), [str(topic) for topic in topics or ()]

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("socket", "endpoints", "bind", "topics")}


class Iterator(Source):
    """Any iterable of Python's: an iterator, a generator, a consumer of a broker.

    It gives samples, dicts of members, or pairs (key, sample). A member is bytes, a text, a whole number, or anything
    that `json.dumps` takes; `label` is another name of `cls`. Without keys, or with None as the key, samples are
    numbered from 0. A sample whose key came before is left out, and `stats()["stream"]["repeated"]` counts it. The
    iterator is used by one thread of Foreload's, which holds the GIL meanwhile; it may wait for as long as it likes.
    But as long as it waits, nobody can tell it what is acknowledged: let it give None now and then when nothing comes.

    An object that can go on after a restart has a method `seek(key)`: it is called once before the first sample, with
    the key of the last sample that is settled or None, and what is given from then on is what lies behind. One that can
    let go of samples has `acknowledge(key)`, called by `StreamLoader.acknowledge`: all up to this key is settled.

    Args:
        iterable: What gives samples.
        name: The name of the stream.
    """

    _kind = "iterator"

    def __init__(
        self, iterable: Iterable[Mapping[str, Any] | tuple[Any, Mapping[str, Any]] | None], *, name: str
    ) -> None:
        super().__init__(name)
        self.iterable = iterable

    def _object(self) -> Any:
        return self.iterable
