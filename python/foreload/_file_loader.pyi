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
    """Files of any kind, or the records of `.tfrecord` shards, as bytes: the reader and the cache, without images.

    Batches have `files`, `sample_ids`, `mask`, and where all files lie in subdirectories `labels`, the number of the
    sample's first one.

    Args:
        path: A directory, whose files are the samples, in whatever directories below it; or a directory of
            `*.tfrecord*` shards, whose records are. Several of them, in a list, are one dataset. It may be a URL of
            http:// or https://, as a string.
        batch_size: Samples per step and rank.
        seed: Seed of order and augmentation.
        shuffle: Whether the order is shuffled. `"blocks"`: samples that lie beside one another come near one another,
            and are read together.
        shuffle_ranks: With `shuffle="blocks"`: the number of ranks that blocks are divided among, each of which reads
            its own. A training that goes on within an epoch with another number of ranks sets the number that it began
            with. None: as many as there are.
        last_batch: What happens to the samples that do not fill the last global batch. `drop` leaves them out, `pad`
            fills the batch from the epoch's beginning (`mask` says which), `partial` makes a smaller batch. With
            `partial` too, no rank has an empty batch: where fewer samples than ranks are left, each rank without one
            has one sample from the epoch's beginning, and a warning says so.
        keep: How many batches you keep at a time, including the latest. The pools are sized for it.
        indices: Numbers of the samples to draw from, each once. The order of a shuffled epoch does not depend on how
            they are listed; a sequential epoch takes them as they stand. None: all.
        files: A text file that lists what to draw from, one path a line, relative to the dataset: files (with or
            without extension), or shards for all their samples. Where several of `indices`, `classes` and `files` are
            given, all must hold. None: everything.
        weights: How often samples are drawn compared with one another: `"balanced"`, every class as often as every
            other; a dict of classes, others weigh 1; or one number for each sample of the dataset. A weight is 0, or
            from 1e-50 to 1e50. In every epoch, samples of equal weight are drawn equally often, or once more, and each
            weight's share of the draws is kept to within two. A sample that comes up again in an epoch is augmented
            differently. None: every sample alike.
        ratios: The share of each of several datasets in an epoch, in any unit. None: by their numbers of samples.
        epoch_size: The number of samples that an epoch draws, for all ranks together. None: as many as there are to
            draw from.
        repeats: How many times each sample comes in a global batch, each time augmented anew: 3 in DeiT's repeated
            augmentation. An epoch has as many draws as without, so it shows one in so many of the samples. The repeats
            of a sample are spread over the ranks, as torchvision's `RASampler` does.
        on_error: What happens when a sample cannot be read or decoded. `raise` raises the first failure of a batch.
            With `skip` another sample, chosen by (dataset, seed, epoch, position) alone, takes its place, so batches
            stay full and equal on every rank. With `zero` its image is zeros, or its file has no bytes, and its mask is
            False. Of the other fields, those that are read of the sample are zero in tensors, None in lists, and
            without rows in ragged arrays; what is known without reading it stays: its class number in the index, and
            `labels=`.
        max_errors: The number of failures that an epoch of this rank survives with `skip` and `zero`, including those
            before it was resumed (of the rank whose state was loaded). None: no limit.
        resources: `threads`, `memory` and others of these settings in one object, a `foreload.Resources`, or in a dict;
            what it says cannot be said beside it. None: each by itself.
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
        local_world_size: How many ranks this node has, numbered one after another: they share the cache, processors and
            memory. None: what the launcher (see `rank`) says, else all share the cache, and this process has processors
            and memory alone.
        cache: Where samples are kept near: a `foreload.Directory` on local NVMe or a dict of its arguments, a
            `foreload.Ram`, or a list of both, from the fastest to the slowest. Samples are read from the dataset's
            storage once and not in every epoch. None: nowhere.
        verify: How a cached copy of an earlier run or another process is known to be the dataset's before this run uses
            it. `stamp`: its file has the size, times and inode it had when it was copied. `checksum`: the dataset is
            read once a run and compared. What has changed is copied again, what changes after the check is seen by the
            next run. Only a write within the same tick of the file system's clock leaves the stamp as it was.
        immutable: The dataset never changes, so cached copies are used without checking its files.
        peers: Whether the nodes of a job read from one another what each keeps in its `cache`: then all of them
            together keep each sample once, and what fits into their caches together is read from the dataset's storage
            once and not in every epoch. `off`: each node has its own. `auto`: the ranks meet on the cluster's engine
            (torch.distributed, torchrun, Ray, MPI, JAX), and each node listens on its side of the launcher, for this
            job alone. A dict says more: `listen`, the address and port of this node; `allgather`, a function that gives
            this rank's bytes to all and returns a list of those of all; `directory`, which all nodes share, for ranks
            that have nothing better to meet by; `tls`, whether what travels is encrypted. All ranks must give it alike,
            and begin their first epochs together. On one node it does nothing.
        index_dir: Where index files are kept. None: `$FORELOAD_INDEX_DIR`, else the user's cache directory; where that
            cannot be written, a directory of the user's own among the temporary files, with a warning.
        rebuild_index: Index the dataset again.
        changed: What happens when the dataset is not what its index says, which is checked at every start: `rebuild`
            indexes it again, with a warning; `warn` goes on with the old index and order, and refuses what cannot be
            right when it is read; `refuse` raises DatasetChangedError. Files that only look changed (after `touch`) do
            not count.
        bad_shards: What happens to shards that cannot be read when the dataset is indexed, because they are damaged,
            cut short or missing. `error` names them all; where `files` names only other shards, it is no error. `skip`
            leaves them out, with a warning that names them: the dataset is then another one, with an order of its own.
            A shard that is repaired is noticed at the next start (see `changed`). A read that fails, for example of a
            server that does not answer, is always an error.
        progress: Show a progress bar while indexing, when stderr is a terminal.
        rank: This process's rank. None: of an initialised `torch.distributed`, else of Ray Train in its workers, else
            of an initialised `jax.distributed`, else of an initialised mpi4py, else of the launcher: torchrun, MPI's
            mpirun or Slurm's srun, by their variables; else 0. Asked again at each iteration.
        world_size: The number of ranks. None: found like `rank`.
        assignment: Which rank takes which sample of a global batch. `order`: each rank takes its slice. `locality`: the
            ranks of the node whose cache keeps a sample take it, as far as their number allows, so that little goes
            from node to node; needs `peers`. Every global batch has the same samples, augmented and mixed in the same
            way, and states are the same, too. What differs is a rank's own batch: which samples it has, their order,
            and so what is computed of it alone, such as the statistics of batch normalisation that is not synchronised.
            The repeats of a sample (`repeats`) come to one node. The ranks of an incomplete last global batch take
            slices. `even_locality`: the same, and ranks get about as many bytes each, and so about as much to decode,
            as far as no more samples go from node to node for it.

    Raises:
        ConfigError: A setting cannot work, or there is none of that name.
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
