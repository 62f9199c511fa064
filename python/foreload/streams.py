"""Sources of samples that arrive while training runs, for `foreload.StreamLoader`.

A sample is a dict of members, as in WebDataset: `{"jpg": bytes, "cls": 3, "json": {...}}`. Each sample has a key that
is unique in its stream. The `name` of a source is part of its samples' identity and of states, and contains no secrets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from foreload._errors import config_error

__all__ = ["Folder", "Iterator", "Redis", "Source", "ZeroMQ"]

if not TYPE_CHECKING:  # Type checkers would accept every name.

    def __getattr__(name: str) -> Any:
        """Raise an error that says what to use instead of a source that was removed."""
        what = ": use Redis, ZeroMQ, Folder or an Iterator" if name in ("Feeder", "Socket") else ""
        raise AttributeError(f"foreload.streams has no {name}{what}")


class Source:
    """The base of all sources. Use one of the classes below."""

    _kind: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise config_error("name", f"is {name!r}, must be a text that names the stream")
        self.name = name

    def _described(self) -> tuple[str, Any]:
        """Return the source as JSON, and the Python object that it reads, or None."""
        described = {"kind": self._kind, "name": self.name, **self._options()}
        return json.dumps(described), self._object()

    def _options(self) -> dict[str, Any]:
        return {}

    def _object(self) -> Any:
        return None

    def __repr__(self) -> str:
        """Return the class and the name, without secrets."""
        return f"foreload.streams.{type(self).__name__}(name={self.name!r})"


class Folder(Source):
    """A directory that grows. Samples are its files, also those in directories below it.

    A file counts as complete as soon as it has its name. Write it under a name that begins with a dot or ends in `.tmp`
    or `.part`, in the same file system, and rename it. Files that already exist are also samples, in the order of their
    names. A program that can only write in place must write a marker last, which `done` names.

    Every file is read once, when it is found. A state has the names of all used files, unless files are deleted or
    moved after they are acknowledged.

    Args:
        path: The directory.
        name: The name of the stream. None: the directory's own name.
        members: The files of a sample, by the ends of their names after the common beginning and a dot, such as
            `["jpg", "cls"]`. A sample is complete when all of them exist. None: each image is a sample.
        done: The end of the name of a marker, such as `".done"`: `0001.done` says that `0001.jpg` and, with `members`,
            the other files are complete.
        classes: The names of the directories that are classes: images in `cat` have the number of `"cat"` in this
            list. None: a `.cls` or `.json` member has the class, if there is one.
        after: What happens to the files of samples that are acknowledged (`StreamLoader.acknowledge`): they stay, are
            deleted, or are moved to `move_to`, on the same file system.
        move_to: The directory for `after="move"`.
        watch: How new files are found. `inotify`: the kernel reports them. `poll`: the directory is listed
            periodically, as network file systems need. `auto`: by the file system.
        poll: The seconds from one listing to the next. Large directories are listed less often, so that listing takes
            at most a quarter of the time. Directories whose time of change is the same are not listed.
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
        """Return the directory and the name."""
        return f"foreload.streams.Folder({self.path!r}, name={self.name!r})"


class Redis(Source):
    """A stream in a Redis or Valkey server: the fields of its entries are the members, and their ids are the keys.

        XADD images MAXLEN ~ 100000 * jpg <bytes> cls 3

    Without `group`, the stream is read in order from `start` on, and a state has the position. With `group`, the server
    distributes entries among the readers of the group, and keeps them until they are acknowledged. If a reader is
    silent for `claim_after` seconds, others take over its entries. In both cases, each entry is used once, also if the
    trainer or the server is killed. Entries that were trimmed before they were read are counted as missing, if the
    server reports them (Redis 7). In a group they are counted as failed, if they had been distributed.

    Args:
        url: The server: `redis://host:6379/0`, `rediss://host:6379` for TLS, `unix:///path`.
        stream: The key of the stream.
        name: The name of the stream here. None: its key.
        group: The name of a group of consumers, which is created if it does not exist.
        consumer: The name of this reader in the group. It must be unique, and the same after a restart. None: `rank-0`.
        start: Where to begin without a state: `first`, `new`, or after the entry with this id.
        username: The user, instead of the URL's.
        password: The password, instead of the URL's. It is in no state, message or log.
        trim: Whether entries are removed from the server once they are acknowledged: for a stream without other
            readers.
        claim_after: The seconds after which the entries of a silent reader of the group are taken over.
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
    """A PULL or SUB socket of ZeroMQ. Samples that are not used when the process ends are lost, and counted.

    The frames of a message are alternating names and values of members: `[b"jpg", <bytes>, b"cls", b"3"]`. For SUB, a
    frame with the topic may come first. A member `__seq__`, a running decimal number of the sender, is the sample's
    key, and missing numbers are counted. Without it, samples are numbered as they arrive, and messages that SUB misses
    are not counted.

    Args:
        endpoints: An address such as `tcp://host:5555` or `ipc:///path`, or a list of several.
        socket: `pull` or `sub`.
        bind: Whether this end binds to the addresses, and others connect. Otherwise, this end connects.
        topics: For `sub`: the topics. The first frame must begin with one of them. None: all messages.
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
    """Any iterable of Python: an iterator, a generator, a consumer of a broker.

    It yields samples, which are dicts of members, or pairs (key, sample). A member is bytes, a text, a whole number, or
    anything that `json.dumps` takes. `label` is another name of `cls`. Without keys, or with None as the key, samples
    are numbered from 0. A sample whose key came before is skipped, and `stats()["stream"]["repeated"]` counts it. One
    thread of Foreload calls the iterator, and holds the GIL during calls. A call may wait for as long as it likes, but
    samples cannot be acknowledged during that time. So yield None from time to time while nothing arrives.

    An object that can resume after a restart has a method `seek(key)`. It is called once before the first sample, with
    None or the key of the last settled sample, which never has to be yielded again. The object must then yield the
    samples after this key. An object that can forget samples has `acknowledge(key)`, which `StreamLoader.acknowledge`
    calls: all samples up to this key are settled.

    Args:
        iterable: The iterable of samples.
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
