"""The loader of files: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from typing_extensions import Self

from foreload._core import Loader
from foreload._objects import *
from foreload._types import Array, Numbers

# What `make stub` writes of FileLoader begins here.
@final
class FileLoader(Loader):
    """Files of any kind, or the records of `.tfrecord` shards, as bytes that are not decoded.

    Batches have `files`, `sample_ids` and `mask`. If all files are in subdirectories, batches also have `labels`, the
    number of the sample's first subdirectory.

    Args:
        path: A directory: all files in it and below it are samples. Or a directory of `*.tfrecord*` shards: their
            records are samples. A list of several directories is one dataset. A URL of http:// or https:// is accepted
            as a string.
        batch_size: Samples per step and rank.
        seed: Seed of the sample order and of the augmentation.
        shuffle: Whether the order is shuffled. `"blocks"`: samples that are stored next to each other stay close in the
            order and are read together.
        shuffle_ranks: The number of ranks among which `shuffle="blocks"` divides the blocks. Each rank reads its own
            blocks. A training that resumes within an epoch with another number of ranks sets the number that it began
            with. None: the current number of ranks.
        last_batch: What happens to the samples that do not fill the last global batch. `drop` leaves them out. `pad`
            fills the batch with samples from the epoch's beginning, for which `mask` is False. `partial` makes a
            smaller batch, but never an empty one: if fewer samples than ranks are left, each rank without a sample gets
            one from the epoch's beginning, and a warning reports it.
        keep: The number of batches that you keep at a time, including the latest. The memory pools are sized for it.
        indices: The numbers of the samples to draw from, without duplicates. The order of the list does not affect a
            shuffled epoch; a sequential epoch takes the samples in this order. None: all samples.
        files: A text file that lists what to draw from, one path a line, relative to the dataset. A path is that of a
            file (with or without extension), or of a shard for all its samples. If several of `indices`, `classes` and
            `files` are given, a sample must match all of them. None: all samples.
        weights: How often samples are drawn, relative to each other. `"balanced"` draws every class equally often. A
            dict has the weights of classes; other classes have weight 1. A list has one number for each sample of the
            dataset. A weight is 0, or from 1e-50 to 1e50. In every epoch, the numbers of draws of two samples of equal
            weight differ by at most one, and each weight gets its share of the draws to within two. A sample that is
            drawn again in an epoch is augmented differently. None: all samples equally often.
        ratios: The share of each dataset in an epoch, if there are several, in any unit. None: in proportion to their
            numbers of samples.
        epoch_size: The number of samples that an epoch draws, for all ranks together. None: the number of samples to
            draw from.
        repeats: How many times each sample comes in a global batch, each time with its own augmentation: 3 in DeiT's
            repeated augmentation. An epoch keeps its number of draws, so it shows only one in `repeats` of the samples.
            The repeats of a sample are spread over the ranks, as by torchvision's `RASampler`.
        buckets: Sizes of batches, for images of different shapes: each batch has one size, and each image is in batches
            of the size with the nearest aspect ratio. All ranks have the same size in the same step. Transforms use it
            as `size="bucket"`. Without `transforms`, images are resized to cover it, and cropped. A list has (height,
            width). None: the size that the transforms give.
        on_error: What happens if a sample cannot be read or decoded. `raise` raises the first failure of a batch. With
            `skip`, another sample takes its place, chosen by (dataset, seed, epoch, position) alone, so batches stay
            full and equally large on every rank. With `zero`, its image is zeros, or its file has no bytes, and its
            mask is False. Its other fields that are read from the sample are zero in tensors, None in lists, and
            without rows in ragged arrays. Values that are known without reading it stay: its class number in the index,
            and `labels=`.
        max_errors: The largest number of failures in an epoch of this rank with `skip` and `zero`. It includes the
            failures before the epoch was resumed (of the rank whose state was loaded). None: no limit.
        resources: `threads`, `memory` and others of these settings in one object: a `foreload.Resources` or a dict. A
            setting in it must not also be given as a keyword. None: use the keywords.
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
        local_world_size: The number of ranks on this node, which have consecutive numbers and share the cache,
            processors and memory. None: the launcher's number (see `rank`). Without a launcher, all ranks are taken to
            be on this node and to share a cache directory, but processors and memory are not divided between them.
        cache: Where copies of samples are kept: a `foreload.Directory` on local NVMe or a dict of its arguments, a
            `foreload.Ram`, or a list of both, from the fastest to the slowest. Samples are then read from the dataset's
            storage once and not in every epoch. None: no copies.
        verify: How a cached copy of an earlier run or another process is compared with the dataset before this run uses
            it. `stamp`: the file must have the size, times and inode that it had when it was copied. `checksum`: the
            dataset is read once a run and compared. Samples that have changed are copied again. A change after the
            check is noticed by the next run. Only a write within the same tick of the file system's clock leaves the
            stamp unchanged.
        immutable: Whether the dataset never changes, so that cached copies are used without checking its files.
        peers: Whether nodes of a job read samples from each other's `cache`. Data that fits into all caches together is
            kept once and read from storage once. `off`: no. `auto`: ranks meet by torch.distributed, the store at
            MASTER_ADDR and MASTER_PORT (with RANK), Ray, MPI or JAX. Each node listens, for this job alone, at the
            address by which it reaches the launcher. A dict can set `listen`, this node's address and port, and `tls`,
            which encrypts traffic. If ranks cannot meet otherwise, it sets `directory`, shared by all nodes, or
            `allgather`, a function that returns a list of all ranks' bytes, given this rank's. Ranks must set it alike
            and begin their first epochs together. On one node it does nothing.
        index_dir: The directory of index files. None: `$FORELOAD_INDEX_DIR`, else the user's cache directory; if that
            is not writable, a private directory among the temporary files, with a warning.
        rebuild_index: Whether the dataset is indexed again.
        changed: What happens if the dataset differs from its index, which is checked at every start. `rebuild` indexes
            it again, with a warning. `warn` continues with the old index and order, and refuses samples that cannot be
            right when they are read. `refuse` raises DatasetChangedError. Files that only look changed (after `touch`)
            do not count.
        bad_shards: What happens to shards that cannot be read when the dataset is indexed, because they are damaged,
            cut short or missing. `error` raises an error that names them all, unless `files` names only other shards.
            `skip` leaves them out, with a warning that names them: the remaining shards are then another dataset with
            its own order. A shard that is repaired is noticed at the next start (see `changed`). A failed read, for
            example because a server does not answer, is always an error.
        progress: Whether a progress bar is shown while indexing, if stderr is a terminal.
        rank: The rank of this process. None: from the first that is available of an initialised `torch.distributed`,
            Ray Train in its workers, an initialised `jax.distributed`, an initialised mpi4py, and the variables of a
            launcher (torchrun, MPI's mpirun or Slurm's srun), else 0. It is determined again at each iteration.
        world_size: The number of ranks. None: determined like `rank`.
        assignment: Which rank gets which sample of a global batch. `order`: each rank gets its slice. `locality`: ranks
            of the node that caches a sample get it, until their batches are full, so little data goes between nodes;
            needs `peers`. `even_locality`: the same, and ranks get about equal numbers of bytes to decode, if no more
            samples go between nodes for it. Every global batch has the same samples, augmented and mixed in the same
            way, and states are the same. Only a rank's own batch differs: its samples, their order, and results of it
            alone, such as unsynchronised batch normalisation. The repeats of a sample (`repeats`) go to one node. An
            incomplete last global batch is divided into slices.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
        DatasetError: There is no dataset at `path`, or its index cannot be read.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int = 64,
        seed: int = 0,
        shuffle: bool | Literal["blocks"] | None = True,
        shuffle_ranks: int | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = "drop",
        keep: int = 1,
        indices: Sequence[int] | Array | None = None,
        files: str | os.PathLike[str] | None = None,
        weights: Literal["balanced"] | Mapping[str, float] | Mapping[int, float] | Numbers | None = None,
        ratios: Numbers | None = None,
        epoch_size: int | None = None,
        repeats: int = 1,
        buckets: Buckets | dict[str, Any] | Sequence[Sequence[int]] | None = None,
        on_error: Literal["raise", "skip", "zero"] = "raise",
        max_errors: int | None = 100,
        resources: Resources | Mapping[str, Any] | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        io: Literal["auto", "io_uring", "pread"] = "auto",
        direct: Literal["auto", "on", "off"] = "auto",
        queue_depth: int | None = None,
        local_world_size: int | None = None,
        cache: Ram | Directory | dict[str, Any] | Sequence[Ram | Directory | dict[str, Any]] | None = None,
        verify: Literal["stamp", "checksum"] = "stamp",
        immutable: bool = False,
        peers: Literal["off", "auto"] | dict[str, Any] = "off",
        index_dir: str | os.PathLike[str] | None = None,
        rebuild_index: bool = False,
        changed: Literal["rebuild", "warn", "refuse"] = "rebuild",
        bad_shards: Literal["error", "skip"] = "error",
        progress: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        assignment: Literal["order", "locality", "even_locality"] = "order",
    ) -> Self: ...
    # What it writes ends here.
