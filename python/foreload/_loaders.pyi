"""The loader of images: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from typing_extensions import Self

from foreload._core import Loader
from foreload._objects import *
from foreload._sheet import Sheet
from foreload._types import Array, BatchMix, Numbers, View, WithClasses
from foreload.fields import Field
from foreload.transforms import Mixing, Transforms

# What `make stub` writes of ImageLoader begins here.
@final
class ImageLoader(Loader):
    """Shuffled, augmented, normalised batches from a directory of images or of tar shards.

    The order and every crop depend on (dataset, selection, seed, epoch) alone.

    Args:
        path: `path/class/.../image.jpg` (classes as torchvision's ImageFolder sorts them), or a directory of
            WebDataset-style `.tar` shards, or one such shard. Members of a shard that share a stem are a sample,
            wherever they lie in it: an image, known by its extension, and its class number in `.cls` or in `.json` (key
            `label` or `cls`). Either all samples have a class number or none has: then batches have no `labels`.
            Several datasets, in a list, are one: their samples follow one another, and classes of one name are one
            class. It may be a URL of http:// or https://, as a string: of a shard, of a list of shards (`.txt`), of a
            packed dataset, or of a directory with an index page.
        batch_size: Samples per step and rank.
        seed: Seed of order and augmentation.
        train: True: random crops and flips, in shuffled order. False: Resize and CenterCrop, in the dataset's order.
            With `transforms` it says only what `shuffle` and `last_batch` are by default. None: False where `split`
            names an evaluation (`validation`, `val`, `dev`, `test`, `eval`, also as a word of a longer name), else
            True. The loader's `repr` shows what was decided.
        shuffle: Whether the order is shuffled. True: at random over the whole epoch. `"blocks"`: at random, but that
            samples which lie beside one another come near one another, and are read together: each compressed block is
            unpacked once, and each 4 MiB of a shard on a server are one request. None: as `train` says.
        shuffle_ranks: With `shuffle="blocks"`: the number of ranks that blocks are divided among, each of which reads
            its own. A training that goes on within an epoch with another number of ranks sets the number that it began
            with. None: as many as there are.
        last_batch: What happens to the samples that do not fill the last global batch. `drop` leaves them out, `pad`
            fills the batch from the epoch's beginning (`mask` says which), `partial` makes a smaller batch. None: drop
            in training, else partial. With `partial` too, no rank has an empty batch: where fewer samples than ranks
            are left, each rank without one has one sample from the epoch's beginning, and a warning says so.
        keep: How many batches you keep at a time, including the latest. The pools are sized for it.
        split: The split that is read, of a dataset that has several: by the names of Parquet and Arrow files, by a
            README.md as the Hugging Face hub has it, or by directories: those of `save_to_disk` and of MosaicML
            Streaming, and those that are named like splits (`train`, `val`, `test` and so on) and hold a dataset. A
            split that is a directory must be named, even if it is the only one. None: a dataset without splits, or the
            only split of Parquet or Arrow files.
        indices: Numbers of the samples to draw from, each once. The order of a shuffled epoch does not depend on how
            they are listed; a sequential epoch takes them as they stand. None: all.
        classes: Names or numbers of the classes to draw from. Labels stay what they are, see `class_names`. None: all.
        class_names: The names of all classes, in the order of their numbers, if they must differ from the dataset's
            own: a list, a text file with a name on each line, or an object with the list as `classes`, such as the
            loader of the training data. A validation set that lacks a class then numbers its classes as training does.
            A class of the dataset that the list lacks is an error, unless `classes` leaves it out. The order of the
            samples does not depend on it. None: the classes of the dataset, numbered by it.
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
        fields: What the batches hold of each sample: a list of names, or of objects of `foreload.fields` that say more.
            A name is `image`, `label`, or the key of a member in a shard, which is what follows the first dot of its
            name: `["jpg", "seg.png", "txt"]`. `batch["txt"]` gives it. A command line has names parted by commas, or a
            JSON list in which an object says more: `["jpg", {"Mask": {"name": "seg.png", "dtype": "int64"}}]`. None:
            image and label.
        label: The column of a table, or in tar shards the end of a member's name or a key of `.json` members, that is
            the label: `label="fine_label"`. Whole numbers are class numbers, and texts names of classes. Each choice
            has an index and a fingerprint of its own. None: `label` and other usual names.
        labels: Columns of your own: a table in a file, whose column `file_name` (a path below the dataset, with or
            without extension) or `sample_id` says which sample a row is of, and whose others are fields by their names;
            or a number or truth value, or a list of as many of them, for each sample in the index's order: the field
            `label`. Whole numbers are int64, others float32, truth values uint8, `[n]` or `[n, length]`; anything else
            text. A number that its type cannot hold is an error. `foreload.fields.Integer`, `Float` and `Text` choose a
            column's type. A sample without a row is an error. `classes` and `weights` go by the dataset's own classes.
            None: the dataset's labels.
        transforms: What is done to images: a list of `foreload.transforms`, or `Views` of one. Where samples have
            several images, the first leads and the others follow its geometry; or a dict has for each image field what
            is done to it. It takes the place of `image_size`, `scale`, `ratio`, `flip`, `resize`, `dtype`, `mean` and
            `std`, the one-line way to the usual lists. None: the list that these mean.
        mix: What mixes finished images: `[transforms.MixUp(...)]`, `[transforms.CutMix(...)]`, or
            `[transforms.RandomChoice([...])]` of these, drawn for each batch. Of each four places of a batch, every
            image is mixed with the one before it, the first with the last, so `batch_size` must be a multiple of 4.
            With `num_classes` of these transforms labels are mixed, too: float32, `[n, num_classes]`; vectors that
            `labels` gives are mixed as they are. Otherwise `mixed` of a batch has the class numbers, those of the
            partners, and the shares. Padding and failed samples are left out. A command line has JSON: `[{"MixUp":
            {"alpha": 0.2, "num_classes": 1000}}]`. None: nothing.
        image_size: Side of the square output in pixels, or (height, width).
        image_size_from: Sizes of the output from later epochs on, by the first epoch of each, as `image_size` has them:
            `image_size=160, image_size_from={16: 192, 35: 224}` begins a training with small images (progressive
            resizing). The epoch alone decides, also when a training goes on. None: one size for all epochs.
        scale: Training: lower and upper bound of the random crop's share of the image's area.
        ratio: Training: lower and upper bound of the random crop's width divided by its height.
        flip: Training: probability of a horizontal flip.
        resize: Evaluation: length in pixels of the shorter side after Resize. None: 8/7 of the image size (256 for
            224).
        mean: Mean of each channel, of values scaled to 0..1; ImageNet's by default. Numbers above 1, which other
            loaders take for values in 0..255, get a warning.
        std: Standard deviation of each channel, of values scaled to 0..1; ImageNet's by default.
        dtype: Element type of the images: `float32`, `float16`, `bfloat16`, or `uint8` (grey levels 0..255, not
            normalised).
        memory_format: Order of the images' dimensions: `nchw` or `nhwc`.
        decode: `fast` resizes the decoded planes and converts colours at output size; `exact` is what PIL and
            torchvision compute.
        orientation: What happens where EXIF or XMP says that an image is stored turned or mirrored. It is decoded as it
            is stored in any case, as torchvision does by default. With `warn` the first such image is reported, as
            `ImageDataset.from_huggingface` asks for, because `datasets` turns such images.
        decoded: False: batches hold the files' bytes (`files` instead of `images`) for a decoder of your own; packed
            images are rebuilt into the files that they were made of. Order, `labels`, `sample_ids` and `mask` stay the
            same, and the settings of images have no effect. `on_error` deals with files that cannot be read, or that
            are no images by their first bytes.
        device: Where batches end: `cpu`, `cuda` (the GPU of this process's local rank, which its launcher sets, else
            the first), `cuda:N`, or `auto`: a GPU where one serves (see `foreload doctor`), else the CPU. On a GPU,
            batches are the same as on the CPU but for the decoders' rounding.
        decoder: Who decodes images on a GPU. With `auto` packed images and the indexed copies of caches are decoded by
            kernels of Foreload's own, with the CPU's samples, and JPEGs by nvJPEG. With `own` nvJPEG is neither needed
            nor used: the CPU decodes what is neither packed nor indexed, so that all batches have the bytes that they
            have with `device="cpu"`. With `nvjpeg` the CPU decodes packed images, and nvJPEG the JPEG in an indexed
            one.
        cpu_decode: What the CPU decodes when batches end on a GPU. With `fallback` it decodes what the GPU's decoders
            do not know (PNG, CMYK; see `decoder`), or would have the host half decode (progressive images; batches of
            fewer than 51 where there is no decoding engine). With `auto` it also decodes as many more JPEGs as makes
            the whole fastest. With `never`, what the GPU's decoders do not know is an error of its sample; a substitute
            for it (`on_error="skip"`) is decoded by the CPU in any case.
        damaged: What happens to JPEGs with damage inside their coded data (wrong bits, lost or stray bytes or restart
            markers). With `conceal` they give, sample by sample, what PIL and torchvision make of them;
            `stats()["concealed"]`, `concealed` and a warning tell of it. What PIL refuses is a failure here, too, above
            all files that were cut short; so are damaged headers. With `refuse` all damage that is found is a failure
            (see `on_error`); damage below the crop is not looked for. On a GPU, the CPU decodes what nvJPEG refuses in
            its strict mode; nvJPEG does not report the damage that it passes over.
        on_error: What happens when a sample cannot be read or decoded. `raise` raises the first failure of a batch.
            With `skip` another sample, chosen by (dataset, seed, epoch, position) alone, takes its place, so batches
            stay full and equal on every rank. With `zero` its image is zeros, or its file has no bytes, and its mask is
            False. Of the other fields, those that are read of the sample are zero in tensors, None in lists, and
            without rows in ragged arrays; what is known without reading it stays: its class number in the index, and
            `labels=`.
        max_errors: The number of failures that an epoch of this rank survives with `skip` and `zero`, including those
            before it was resumed (of the rank whose state was loaded). None: no limit.
        max_pixels: Images of more pixels are refused, because they may be decompression bombs. By default 2**27.
        resources: `threads`, `memory` and others of these settings in one object, a `foreload.Resources`, or in a dict;
            what it says cannot be said beside it. None: each by itself.
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
        shared: Whether batches are shared with other processes of this user on this node, such as the trials of a
            search or several members of an ensemble: those that ask for the same samples (dataset, order, rank) attach
            to one process that makes each batch once, and are lent it without a copy; those with other recipes have
            batches of their own from the same read and decode. True, or a name: only loaders with the same name share.
            The process is started by the first and ends after the last of them, or is `foreload serve`; what it takes
            of the machine (`threads`, `memory` ...) is said by the loader that starts it.
        shared_window: With `shared`: how many batches back the process keeps for those that are behind the fastest.
        shared_policy: With `shared`: what happens to a loader that falls behind the window. With `leave` the others go
            on, and it goes on by itself, or with others that are where it is. With `wait` the others wait for it.
        shared_consumers: With `shared`: the number of loaders that begin together; the first batch comes when they are
            there, or after a minute.
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
        DatasetError: There is no dataset at `path`, or its index cannot be read; images lie both in class directories
            and in shards beside them; a sample of a shard has two members of one kind, or a label that is no class
            number.
        UnavailableError: The device is not there or cannot serve.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int = 64,
        seed: int = 0,
        train: bool | None = None,
        shuffle: bool | Literal["blocks"] | None = None,
        shuffle_ranks: int | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = None,
        keep: int = 1,
        split: str | None = None,
        indices: Sequence[int] | Array | None = None,
        classes: Sequence[str | int] | None = None,
        class_names: Sequence[str] | str | os.PathLike[str] | WithClasses | None = None,
        files: str | os.PathLike[str] | None = None,
        weights: Literal["balanced"] | Mapping[str, float] | Mapping[int, float] | Numbers | None = None,
        ratios: Numbers | None = None,
        epoch_size: int | None = None,
        repeats: int = 1,
        fields: Sequence[str | Field] | None = None,
        label: str | None = None,
        labels: str | os.PathLike[str] | Sequence[float] | Sequence[Sequence[float]] | Array | None = None,
        transforms: Transforms | Mapping[str, Transforms] | None = None,
        mix: Mixing | Sequence[Mixing] | None = None,
        image_size: int | Sequence[int] = 224,
        image_size_from: Mapping[int, int | Sequence[int]] | None = None,
        scale: Numbers | None = (0.08, 1.0),
        ratio: Numbers | None = (0.75, 1.3333333333333333),
        flip: float = 0.5,
        resize: int | None = None,
        mean: Numbers | None = (0.485, 0.456, 0.406),
        std: Numbers | None = (0.229, 0.224, 0.225),
        dtype: Literal["float32", "float16", "bfloat16", "uint8"] = "float32",
        memory_format: Literal["nchw", "nhwc"] = "nchw",
        decode: Literal["fast", "exact"] = "fast",
        orientation: Literal["ignore", "warn"] = "ignore",
        decoded: bool = True,
        device: str = "auto",
        decoder: Literal["auto", "own", "nvjpeg"] = "auto",
        cpu_decode: Literal["fallback", "auto", "never"] = "fallback",
        damaged: Literal["refuse", "conceal"] = "conceal",
        on_error: Literal["raise", "skip", "zero"] = "raise",
        max_errors: int | None = 100,
        max_pixels: int | None = 134217728,
        resources: Resources | Mapping[str, Any] | None = None,
        threads: int | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        io: Literal["auto", "io_uring", "pread"] = "auto",
        direct: Literal["auto", "on", "off"] = "auto",
        queue_depth: int | None = None,
        device_memory: int | str | None = None,
        shared: bool | str = False,
        shared_window: int = 4,
        shared_policy: Literal["leave", "wait"] = "leave",
        shared_consumers: int = 1,
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
    @property
    def device(self) -> str:
        """Where batches end: `cpu` or `cuda:N`."""
    @property
    def device_reason(self) -> str:
        """Why there: the GPU's name, or why none serves."""
    @property
    def dtype(self) -> Literal["float32", "float16", "bfloat16", "uint8"]:
        """Element type of the images; of several image fields or views, that of the first."""
    @property
    def memory_format(self) -> Literal["nchw", "nhwc"]:
        """Order of the images' dimensions."""
    @property
    def fields(self) -> dict[str, str]:
        """What the batches' fields hold, by name: `image`, `mask`, `text`, `json`, `array`, `integer`, ..."""
    @property
    def _optional(self) -> list[str]: ...
    @property
    def _mixes_hard_labels(self) -> bool: ...
    def _dense(self) -> list[tuple[str, str, int]]: ...
    def mix(self, position: int, epoch: int | None = None) -> BatchMix | None:
        """What an epoch (None: the one that `epoch` says) makes of the images of the batch that has this position.

        Position p is place p - step * global_batch - rank * batch_size of the batch of its step. All images of a global
        batch have the same draw. Each becomes lam * image + (1 - lam) * partner with MixUp; with CutMix it shows its
        partner in the box (left, top, right, bottom), in pixels, and lam is the share of the rest. The partner is the
        image before it among positions 4k to 4k + 3, the last one for the first, where places that do not count (see
        `Batch.mask`) are left out. An image that is alone there is not mixed. None without `mix=`.
        """
    def view(
        self,
        sample_id: int,
        epoch: int | None = None,
        *,
        occurrence: int = 0,
        view: int = 0,
        field: str | None = None,
    ) -> View:
        """What an epoch (None: the one that `epoch` says) makes of a sample, in the draw number `occurrence` of it.

        Source pixels x..x+width, y..y+height, with `padding` added to them at the left, top, right and bottom, are
        resized to resized_width x resized_height, of which the output, of output_width x output_height, shows the
        window that begins at (left, top), and padding outside of it; flip and vertical_flip mirror that. `ops` is what
        is done to the grey levels then, in order: each a dict of the name of a function of
        `torchvision.transforms.v2.functional` ("op") and its parameters; `erasures` are rectangles of the finished
        image that are overwritten. With `mix=`, `mix` has what becomes of it and its partner then.

        Args:
            sample_id: The sample's number.
            epoch: Which epoch.
            occurrence: Which of its draws, where the epoch has several of a sample: they are numbered from 0, but come
                in any order. `batch.occurrences` has the numbers of what a batch holds.
            view: Which view of the image, where there are several.
            field: Which image of the sample, where there are several. None: the first.

        Raises:
            ConfigError: There is no such sample, no such view or no such image.
            SampleError: The sample cannot be read or decoded.
        """

    def show(
        self,
        samples: Sequence[int] | None = None,
        *,
        rows: int = 8,
        epoch: int | None = None,
        epochs: int = 1,
        field: str | None = None,
    ) -> Sheet:
        """A contact sheet of what the network sees of some samples, which notebooks show.

        Each row is a sample: the whole image, then each view of it, with what was drawn below. Values that were
        normalised are turned back into grey levels. With `mix=` the images are mixed with the partners that they have
        in that epoch, which are named below with lam; a sample that the epoch does not draw stays as it is. The CPU
        makes it, beside any iteration.

        Args:
            samples: The samples' numbers. None: the first `rows` that the epoch draws.
            rows: How many samples, where they are not given.
            epoch: The first epoch to show. None: the one that `epoch` says.
            epochs: How many epochs to show side by side: each draws anew.
            field: Which image of the sample, where there are several. None: the first.

        Raises:
            ConfigError: There is no such sample or image, or the sheet would have too many pictures.
            SampleError: A sample, or one that it is mixed with, cannot be read or decoded.
        """
