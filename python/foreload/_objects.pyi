"""Groups of settings: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has them."""

# Written by `make stub`.

import os
from typing import Any, Literal, final

from typing_extensions import Self

@final
class Ram:
    """A cache in memory, for `cache=` of a loader.

    Memory suits datasets on slow storage, alone or before a `Directory`: each sample is kept once, so that their sizes
    add up. It is gone with the process. Each rank keeps what it reads itself.

    Args:
        size: Bytes of this node's memory that copies may take, or a text such as `"20GB"`. Each of the node's ranks has
            an equal part, beside `memory`, and takes it as it fills. It must be free when the first epoch begins.
        form: The form in which copies are kept in memory, as in a directory.

    Raises:
        ConfigError: A setting cannot work, or there is none of that name.
    """

    def __new__(
        cls,
        size: int | str,
        form: Literal["auto", "as-is", "indexed", "packed"] = "auto",
    ) -> Self: ...
    @property
    def size(self) -> int | str: ...
    @property
    def form(self) -> Literal["auto", "as-is", "indexed", "packed"]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class Directory:
    """A cache in a directory on local NVMe, for `cache=` of a loader.

    What is there is used again by the next run, and other loaders, ranks, jobs and datasets may share it. The dataset
    itself is never touched.

    Args:
        path: A directory on local NVMe, made where it is missing.
        size: Bytes the directory may take, or a text such as `"800GB"`.
        fill: How the cache is filled. `use`: with what is read anyway. `ahead`: also by whole shards in large
            sequential reads beside training, in the order of their next use (where all ranks share one cache). `auto`:
            by rates measured at the start.
        stage_bandwidth: Bytes per second that filling ahead may take of the dataset's storage, of all ranks that share
            the cache together, or a text such as `"500MB"`. None: whatever the reads that training waits for leave.
        form: The form in which copies are kept. `packed`: JPEGs without their entropy coder, which take half to two
            thirds of the CPU time for the same pixels and 1.2 times the room. `indexed`: JPEGs with an index of their
            rows, 1.01 times. `as-is`: as they are read. `auto`: packed where there is room for all samples in that
            form, else indexed where there is room for that. Samples are kept as they are read and brought to the form
            during training, by a thread of low priority; what is no JPEG, is one of more than about 15 megapixels, or
            has several members, stays as it is.

    Raises:
        ConfigError: A setting cannot work, or there is none of that name.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str],
        size: int | str,
        fill: Literal["auto", "use", "ahead"] = "auto",
        stage_bandwidth: int | str | None = None,
        form: Literal["auto", "as-is", "indexed", "packed"] = "auto",
    ) -> Self: ...
    @property
    def path(self) -> str | os.PathLike[str]: ...
    @property
    def size(self) -> int | str: ...
    @property
    def fill(self) -> Literal["auto", "use", "ahead"]: ...
    @property
    def stage_bandwidth(self) -> int | str | None: ...
    @property
    def form(self) -> Literal["auto", "as-is", "indexed", "packed"]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class Resources:
    """What of the machine a loader takes, for `resources=` of a loader.

    The same settings are keywords of the loaders; each may be said in one place only. What is not given is chosen.

    Args:
        threads: Decoding threads. None: the processors this process may use, or its share where the other ranks of the
            node (see `local_world_size`) may use the same ones; one with `decoded=False`.
        cpu: The share of this node's processors that loading may take, above 0 and at most 1. As many decoding threads
            are started, rounded up and at most `threads`, and they rest when they and the reading thread take more time
            than that. The node's loaders to which a share was given have it together, in equal parts while they run;
            `stats()["cores"]` says how many processors this loader may take now. A quota of a container or control
            group counts as that many processors. None: no bound but `threads`.
        memory: Cap of all pools together: bytes, or a text such as `"300MB"`. None: what the settings need, and more
            while batches are kept, up to a quarter of the machine's memory for all ranks of the node together. What
            differs in size from sample to sample comes on top: images and masks of their own sizes, texts, arrays. With
            a cap, two batches of such images are made ahead, and a warning says so; a transform that fixes the size
            brings them under it. What is remembered of JPEGs, half a KB for a photograph, comes on top, up to a
            sixteenth of the cap, or without one a thirty-second of the rank's part of the machine's memory. On a GPU
            some page-locked tables come on top, and where slots run short 4 MB for each of three lanes, more for larger
            images.
        io: How files are read: `auto` (io_uring where it works, else threads), `io_uring` or `pread`.
        direct: Whether reads bypass the page cache: `auto` (by file system and size), `on` or `off`.
        queue_depth: The number of reads in flight. None: 32. Where a dataset is on a server, to which there are as many
            connections, 256, or as many as 96 MiB of slots (or `memory`) have room for, but at least 64; and 64 with
            `peers`. With `pread` each read takes a thread of its own, of which there are up to 256, with about 30 KB of
            memory each; network file systems are faster the more of them there are.
        device_memory: Cap of the memory on the GPU, beside what nvJPEG takes: bytes, or a text such as `"8GB"`. None: a
            quarter of it.
        local_world_size: How many ranks this node has, numbered one after another: they share the cache, processors and
            memory. None: what the launcher (see `rank`) says, else all share the cache, and this process has processors
            and memory alone.

    Raises:
        ConfigError: A setting cannot work, or there is none of that name.
    """

    def __new__(
        cls,
        *,
        threads: int | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        io: Literal["auto", "io_uring", "pread"] = "auto",
        direct: Literal["auto", "on", "off"] = "auto",
        queue_depth: int | None = None,
        device_memory: int | str | None = None,
        local_world_size: int | None = None,
    ) -> Self: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def cpu(self) -> float | None: ...
    @property
    def memory(self) -> int | str | None: ...
    @property
    def io(self) -> Literal["auto", "io_uring", "pread"]: ...
    @property
    def direct(self) -> Literal["auto", "on", "off"]: ...
    @property
    def queue_depth(self) -> int | None: ...
    @property
    def device_memory(self) -> int | str | None: ...
    @property
    def local_world_size(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
