"""Groups of settings: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has them."""

# Written by `make stub`.

import os
from typing import Any, Literal, final

from typing_extensions import Self

@final
class Buckets:
    """Sizes of batches with about the same number of pixels, for `buckets=` of a loader.

    Each side is a multiple of `step`. There is a size for each width, as high as `area` allows, if neither side is more
    than `max_ratio` times the other; of several with the same aspect ratio, only the largest.

    Args:
        area: The largest number of pixels of a size.
        step: The number of pixels that divides each side.
        max_ratio: The largest ratio of the longer side to the shorter side.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
    """

    def __new__(
        cls,
        area: int,
        step: int = 64,
        max_ratio: float = 2.0,
    ) -> Self: ...
    @property
    def area(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def max_ratio(self) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class Ram:
    """A cache in memory, for `cache=` of a loader.

    Memory suits datasets on slow storage, alone or in front of a `Directory`. Each sample is kept once, so the sizes
    add up. The copies end with the process. Each rank keeps the samples that it reads itself.

    Args:
        size: The bytes of this node's memory that copies may take, or a text such as `"20GB"`. Each of the node's ranks
            has an equal part, in addition to `memory`, and allocates it as it fills. It must be free when the first
            epoch begins.
        form: The storage format of copies in memory, as for a `Directory`.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
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

    The next run uses the copies again, and other loaders, ranks, jobs and datasets may share the directory. The dataset
    itself is never changed.

    Args:
        path: The directory, on local NVMe. It is created if it does not exist.
        size: The bytes that the directory may take, or a text such as `"800GB"`.
        fill: How the cache is filled. `use`: with the samples that training reads. `ahead`: also with whole shards, in
            large sequential reads during training, in the order of their next use (if all ranks share one cache).
            `auto`: chosen by rates that are measured at the start.
        stage_bandwidth: The bytes per second that filling ahead may read from the dataset's storage, for all ranks that
            share the cache together, or a text such as `"500MB"`. None: the bandwidth that is left by reads that
            training waits for.
        form: The storage format of copies. `packed`: JPEGs without their entropy coding, which take half to two thirds
            of the CPU time for the same pixels, and 1.2 times the space. `indexed`: JPEGs with an index of their rows,
            1.01 times the space. `as-is`: as they are read. `auto`: packed if there is room for all samples in that
            format, else indexed if there is room for that. Samples are kept as they are read, and a thread of low
            priority converts them during training. Samples that are not JPEGs, have more than about 15 megapixels, or
            have several members stay as they are.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
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
    """The threads, memory and reads of a loader, for `resources=` of a loader.

    The same settings are keywords of the loaders; each may be given in one place only. Settings that are not given are
    chosen for you.

    Args:
        threads: The number of decoding threads. None: the processors that this process may use, or its share of them if
            the other ranks of the node (see `local_world_size`) may use the same ones; one with `decoded=False`.
        cpu: The share of this node's processors that loading may use, above 0 and at most 1. The number of decoding
            threads is this share of the processors, rounded up, but at most `threads`. The threads rest when they and
            the reading thread have used more than the share. If several loaders of the node have a share, they divide
            it equally while they run; `stats()["cores"]` is the number of processors that this loader may use now. A
            quota of a container or control group counts as that many processors. None: limited only by `threads`.
        memory: The limit of all memory pools: bytes, or a text such as `"300MB"`. None: what the settings need, and
            more while batches are kept, up to a quarter of the machine's memory for all ranks of the node. Images and
            masks of their own sizes, texts and arrays are extra. With a limit, two batches of such images are made
            ahead, with a warning; a transform to a fixed size includes them. Row positions of JPEGs (half a KB for a
            photograph) are extra: up to 1/16 of the limit, else 1/32 of the rank's part of memory. On a GPU,
            page-locked tables are extra, and if slots run short, 4 MB or more for each of three lanes.
        io: How files are read: `auto` (io_uring if it works, else threads), `io_uring` or `pread`.
        direct: Whether reads bypass the page cache: `auto` (by file system and size), `on` or `off`.
        queue_depth: The number of reads in flight. None: 32. For a dataset on a server, the default is 256, or as many
            as fit into 96 MiB of slots (or `memory`), but at least 64; with `peers` it is 64. Each read from a server
            has its own connection. With `pread`, each read has its own thread, up to 256, with about 30 KB of memory
            each; network file systems are faster with more of them.
        device_memory: The limit of the memory on the GPU, without that of nvJPEG: bytes, or a text such as `"8GB"`.
            None: a quarter of the GPU's memory.
        local_world_size: The number of ranks on this node, which have consecutive numbers and share the cache,
            processors and memory. None: the launcher's number (see `rank`). Without a launcher, all ranks are taken to
            be on this node and to share a cache directory, but processors and memory are not divided between them.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
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
