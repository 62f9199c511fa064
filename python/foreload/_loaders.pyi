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
            wherever they are in the shard: an image, recognised by its extension, and its class number in `.cls` or in
            `.json` (key `label` or `cls`). Either all samples have a class number, or none has and batches have no
            `labels`. A list of several datasets is one dataset: their samples follow one another, and classes with the
            same name are one class. A URL of http:// or https:// is accepted as a string: of a shard, of a list of
            shards (`.txt`), of a packed dataset, or of a directory with an index page.
        batch_size: Samples per step and rank.
        batch_tokens: The largest cost of a batch, for samples of different lengths: each batch is a bin, which takes as
            many samples as fit (see `cost`). None: batches of `batch_size` samples.
        cost: What a sample costs, with `batch_tokens`: the name of a column of whole numbers, or a list of names, whose
            sum is the cost. The columns are among `fields`, or come from `labels`. `"patches"` is the number of patches
            of the first image (see `transforms.Patchify`). A cost of 0 counts as 1.
        bins: With `batch_tokens`: the number of bins that all ranks together take in a step of training. It is a
            multiple of the number of ranks, and each rank takes an equal share of the bins, one batch after another.
            `last_batch` is about these steps. None: the number of ranks, so that a batch is a step.
        over_budget: What happens to samples that cost more than `batch_tokens`. `error` refuses the dataset. `skip`
            leaves them out of all epochs, and a warning reports their number.
        seed: Seed of the sample order and of the augmentation.
        train: Whether the loader is for training or for evaluation. True: random crops and flips, in shuffled order.
            False: Resize and CenterCrop, in the dataset's order. With `transforms`, it only sets the defaults of
            `shuffle` and `last_batch`. None: False if `split` names an evaluation split (`validation`, `val`, `dev`,
            `test`, `eval`, also as a word of a longer name), else True. The loader's `repr` shows the value in use.
        shuffle: Whether the order is shuffled. True: at random over the whole epoch. `"blocks"`: at random, but samples
            that are stored next to each other stay close in the order and are read together. Each compressed block is
            then decompressed once, and each 4 MiB of a shard on a server is one request. None: True for training, else
            False (see `train`).
        shuffle_ranks: The number of ranks among which `shuffle="blocks"` divides the blocks. Each rank reads its own
            blocks. A training that resumes within an epoch with another number of ranks sets the number that it began
            with. None: the current number of ranks.
        last_batch: What happens to the samples that do not fill the last global batch. `drop` leaves them out. `pad`
            fills the batch with samples from the epoch's beginning, for which `mask` is False. `partial` makes a
            smaller batch, but never an empty one: if fewer samples than ranks are left, each rank without a sample gets
            one from the epoch's beginning, and a warning reports it. None: `drop` for training, else `partial`.
        keep: The number of batches that you keep at a time, including the latest. The memory pools are sized for it.
        split: The split to read from a dataset that has several. Splits are found by the names of Parquet and Arrow
            files, by a README.md as on the Hugging Face hub, or by directories. Such directories are those of
            `save_to_disk` and of MosaicML Streaming, and those that contain a dataset and have the name of a split
            (`train`, `val`, `test` and so on). A split that is a directory must be named, even if it is the only one.
            None: a dataset without splits, or the only split of Parquet or Arrow files.
        indices: The numbers of the samples to draw from, without duplicates. The order of the list does not affect a
            shuffled epoch; a sequential epoch takes the samples in this order. None: all samples.
        classes: The names or numbers of the classes to draw from. Labels do not change, see `class_names`. None: all
            classes.
        class_names: The names of all classes in the order of their numbers, if they must differ from the dataset's own.
            It may be a list, a text file with a name on each line, or an object with the list as `classes`, such as the
            loader of the training data. A validation set that lacks a class then has the class numbers of training. A
            class of the dataset that the list lacks is an error, unless `classes` leaves it out. The order of the
            samples does not depend on it. None: the dataset's own classes and numbers.
        files: A text file that lists what to draw from, one path a line, relative to the dataset. A path is that of a
            file (with or without extension), or of a shard for all its samples. If several of `indices`, `classes` and
            `files` are given, a sample must match all of them. None: all samples.
        where: Which samples to draw from, by the sizes of their images and the columns of the dataset: `"width >= 512
            and aspect < 2 and lang == 'en'"`. `width`, `height` and `aspect` (width / height) are those of the image as
            it is shown. Other names are columns of the dataset's tables or of `labels`. There are `and`, `or` and
            `not`, all comparisons, `in`, `is missing`, the four operations of numbers, `len` and `lower`. A sample must
            also match `indices`, `classes` and `files`. None: all samples.
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
        fields: The fields of each sample in the batches: a list of their sources, or of objects of `foreload.fields`,
            which can set more. A source is `image`, `label`, a column of a table, the path of an array
            (`/climate/data`), or the key of a member in a shard, which is the part of its name after the first dot:
            `["jpg", "seg.png", "txt"]`. `batch["txt"]` returns this field; `fields.Text("txt", name="caption")` makes
            it `batch["caption"]`. The command line takes sources separated by commas, or a JSON list in which objects
            can set more: `["jpg", {"Mask": {"source": "seg.png", "dtype": "int64"}}]`. None: image and label.
        sample_axis: What a sample of a dataset of arrays is: with 0 a row, the elements with one index in the first
            dimension of all arrays; with `file` all arrays of a file.
        images: The directory of the images that COCO annotations list, or its URL: `ImageLoader("instances.json",
            images="train2017")`. None: one of the usual places next to the annotations.
        label: The column of a table that is the label: `label="fine_label"`. In tar shards, it is the end of a member's
            name, or a key of `.json` members. Whole numbers are class numbers, and texts are names of classes. Each
            choice has its own index and fingerprint. None: `label` and other usual names.
        labels: Columns of your own: a table file, or a list of values. The table's column `file_name` (a path below the
            dataset, with or without extension) or `sample_id` identifies the sample of each row; other columns are
            fields with their names. A list has a number or truth value, or equally many of them, for each sample in the
            index's order; it is the field `label`. Whole numbers are int64, others float32, truth values uint8, `[n]`
            or `[n, length]`; anything else is text. A number that does not fit its type is an error, and so is a sample
            without a row. `foreload.fields.Integer`, `Float` and `Text` choose a column's type. `classes` and `weights`
            use the dataset's own classes. None: the dataset's labels.
        transforms: The transforms of images: a list of `foreload.transforms`, or `Views` of one. If samples have
            several images, the list is for the first, and the others follow its geometry; a dict has the transforms of
            each image field instead. `transforms` replaces `image_size`, `scale`, `ratio`, `flip`, `resize`, `dtype`,
            `mean` and `std`, which are short forms of the usual lists. None: the list that these settings mean.
        buckets: Sizes of batches, for images of different shapes: each batch has one size, and each image is in batches
            of the size with the nearest aspect ratio. All ranks have the same size in the same step. Transforms use it
            as `size="bucket"`. Without `transforms`, images are resized to cover it, and cropped. A list has (height,
            width). None: the size that the transforms give.
        mix: Mixes finished images: `[transforms.MixUp(...)]`, `[transforms.CutMix(...)]`, or
            `[transforms.RandomChoice([...])]` of these, drawn for each batch. In each group of four neighbouring images
            of a batch, every image is mixed with the one before it, and the first with the last, so `batch_size` must
            be a multiple of 4. If these transforms have `num_classes`, labels are mixed, too: float32, `[n,
            num_classes]`. Vectors from `labels` are mixed as they are. Otherwise `mixed` of a batch has the class
            numbers, those of the partners, and the shares. Padding and failed samples are not mixed. A command line has
            JSON: `[{"MixUp": {"alpha": 0.2, "num_classes": 1000}}]`. None: no mixing.
        image_size: The size of the output in pixels: the side of a square, or (height, width).
        image_size_from: Output sizes of later epochs, each with the first epoch that has it, in the form of
            `image_size`: `image_size=160, image_size_from={16: 192, 35: 224}` starts a training with small images
            (progressive resizing). The size depends on the epoch alone, also when a training resumes. None: one size
            for all epochs.
        scale: Training: lower and upper bound of the random crop's area, as a fraction of the image's area.
        ratio: Training: lower and upper bound of the random crop's width divided by its height.
        flip: Training: probability of a horizontal flip.
        resize: Evaluation: length of the shorter side after Resize, in pixels. None: 8/7 of the image size (256 for
            224).
        mean: Mean of each channel, for values scaled to 0..1; ImageNet's by default. Numbers above 1 cause a warning,
            because other loaders have means for values in 0..255.
        std: Standard deviation of each channel, for values scaled to 0..1; ImageNet's by default.
        dtype: Element type of the images: `float32`, `float16`, `bfloat16`, or `uint8` (grey levels 0..255, not
            normalised).
        memory_format: Order of the images' dimensions: `nchw` or `nhwc`.
        decode: How images are decoded and resized. `fast` resizes the decoded planes and converts colours at output
            size. `exact` gives the values that PIL and torchvision compute.
        orientation: What happens to images that are stored rotated or mirrored, according to their EXIF or XMP data.
            `apply` turns them upright, and masks, boxes and crops are then those of the upright image. `warn` and
            `ignore` decode them as they are stored, as Pillow and torchvision do by default; `warn` reports the first
            one. `ImageDataset.from_huggingface` sets `apply`, because `datasets` turns such images.
        decoded: Whether images are decoded. False: batches hold the bytes of the files (`files` instead of `images`)
            for a decoder of your own, and packed images are converted back to their original files. Order, `labels`,
            `sample_ids` and `mask` stay the same, and the settings of images have no effect. `on_error` applies to
            files that cannot be read, or whose first bytes are not those of an image.
        device: The device of the batches: `cpu`, `cuda`, `cuda:N` or `auto`. `cuda` is the GPU of this process's local
            rank, which its launcher sets, else the first GPU. `auto` is a GPU if one can be used (see `foreload
            doctor`), else the CPU. On a GPU, batches differ from those on the CPU only by the decoders' rounding.
        decoder: The decoders on a GPU. With `auto`, Foreload's own kernels decode packed images and the indexed copies
            of caches to the same values as the CPU, and nvJPEG decodes JPEGs. With `own`, nvJPEG is neither needed nor
            used. The CPU then decodes images that are neither packed nor indexed, so all batches have the bytes that
            they have with `device="cpu"`. With `nvjpeg`, the CPU decodes packed images, and nvJPEG decodes the JPEG in
            an indexed one.
        cpu_decode: Which images the CPU decodes if batches are on a GPU. With `fallback`, it decodes images that the
            GPU's decoders do not support (PNG, CMYK; see `decoder`). It also decodes images that nvJPEG would decode
            half on the host: progressive ones, and batches of fewer than 51 on a GPU without a decoding engine. With
            `auto`, it also decodes as many more JPEGs as gives the highest total speed. With `never`, an image that the
            GPU's decoders do not support is an error of its sample; the CPU still decodes its substitute
            (`on_error="skip"`).
        damaged: What happens to JPEGs with damage inside their coded data (wrong bits, lost or stray bytes or restart
            markers). With `conceal`, each pixel value is the one that PIL and torchvision give, and
            `stats()["concealed"]`, `concealed` and a warning report it. Files that PIL refuses are failures here, too:
            mainly files that were cut short, and those with damaged headers. With `refuse`, all damage that is found is
            a failure (see `on_error`); damage below the crop is not looked for. On a GPU, the CPU decodes images that
            nvJPEG refuses in its strict mode. nvJPEG does not report the damage that it ignores.
        on_error: What happens if a sample cannot be read or decoded. `raise` raises the first failure of a batch. With
            `skip`, another sample takes its place, chosen by (dataset, seed, epoch, position) alone, so batches stay
            full and equally large on every rank. With `zero`, its image is zeros, or its file has no bytes, and its
            mask is False. Its other fields that are read from the sample are zero in tensors, None in lists, and
            without rows in ragged arrays. Values that are known without reading it stay: its class number in the index,
            and `labels=`.
        max_errors: The largest number of failures in an epoch of this rank with `skip` and `zero`. It includes the
            failures before the epoch was resumed (of the rank whose state was loaded). None: no limit.
        max_pixels: The largest number of pixels of an image. Larger ones are refused, because they may be decompression
            bombs. By default 2**27.
        resources: `threads`, `memory` and others of these settings in one object: a `foreload.Resources` or a dict. A
            setting in it must not also be given as a keyword. None: use the keywords.
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
        shared: Whether batches are shared with other processes of this user on this node, such as the trials of a
            search or the members of an ensemble. Loaders that ask for the same batches (dataset, order, rank,
            transforms) attach to one process, which makes each batch once and leases it to them without a copy. True,
            or a name: only loaders with the same name share. The first loader starts the process, which ends after the
            last one; or it is `foreload serve`. The loader that starts it sets its resources (`threads`, `memory` ...).
        shared_window: With `shared`: the number of past batches that are kept for loaders that are slower than the
            fastest.
        shared_policy: With `shared`: what happens to a loader that falls behind the window. With `leave`, the others
            continue, and it continues alone, or with others at the same position. With `wait`, the others wait for it.
        shared_consumers: With `shared`: the number of loaders that begin together and ask for the same batches. The
            first batch comes when all of them have attached, or after a minute.
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
        DatasetError: There is no dataset at `path`, or its index cannot be read. Images are both in class directories
            and in shards next to them. A sample of a shard has two members of one kind, or a label that is not a class
            number.
        UnavailableError: The device does not exist or cannot be used.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int = 64,
        batch_tokens: int | None = None,
        cost: str | Sequence[str] | None = None,
        bins: int | None = None,
        over_budget: Literal["error", "skip"] = "error",
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
        where: str | None = None,
        weights: Literal["balanced"] | Mapping[str, float] | Mapping[int, float] | Numbers | None = None,
        ratios: Numbers | None = None,
        epoch_size: int | None = None,
        repeats: int = 1,
        fields: Sequence[str | Field] | None = None,
        sample_axis: Literal[0, "file"] = 0,
        images: str | os.PathLike[str] | None = None,
        label: str | None = None,
        labels: str | os.PathLike[str] | Sequence[float] | Sequence[Sequence[float]] | Array | None = None,
        transforms: Transforms | Mapping[str, Transforms] | None = None,
        buckets: Buckets | dict[str, Any] | Sequence[Sequence[int]] | None = None,
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
        orientation: Literal["ignore", "warn", "apply"] = "warn",
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
    def dtype(self) -> Literal["float32", "float16", "bfloat16", "uint8"]:
        """The element type of the images; for several image fields or views, that of the first."""
    @property
    def memory_format(self) -> Literal["nchw", "nhwc"]:
        """The order of the images' dimensions."""
    def mix(self, position: int, epoch: int | None = None) -> BatchMix | None:
        """Return how the images of the batch with this position are mixed in an epoch; None without `mix=`.

        `epoch` is by default the property `epoch`. Position p is place p - step * global_batch - rank * batch_size of
        the batch of its step. All images of a global batch have the same draw. With MixUp, each becomes lam * image +
        (1 - lam) * partner. With CutMix, it shows its partner in the box (left, top, right, bottom), in pixels, and lam
        is the fraction of the rest. The partner is the image before it among positions 4k to 4k + 3, and the last one
        for the first. Places that do not count (see `Batch.mask`) are left out. An image that is alone there is not
        mixed.
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
        """Return how a sample is cropped and changed in an epoch, in its draw number `occurrence`.

        Source pixels x..x+width, y..y+height, with `padding` added at the left, top, right and bottom, are resized to
        resized_width x resized_height. The output, of output_width x output_height, shows the window of it that begins
        at (left, top), and padding outside of it. flip and vertical_flip mirror that. `orientation` is the EXIF
        orientation by which the source was turned upright before; 1 unless the setting is `apply`. `ops` are the
        operations that are then applied to the grey levels, in order. Each is a dict of the name of a function of
        `torchvision.transforms.v2.functional` ("op") and its parameters. `erasures` are rectangles of the finished
        image that are overwritten. The method `mix` returns how the image is then mixed with its partner.

        Args:
            sample_id: The sample's number.
            epoch: The epoch. None: that of the property `epoch`.
            occurrence: The number of the draw, if the epoch draws a sample several times. Draws are numbered from 0,
                and come in any order. `batch.occurrences` has the numbers for a batch.
            view: The number of the view, if there are several.
            field: The image field, if there are several. None: the first.

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
        """Return a contact sheet of some samples as the network sees them, which notebooks display.

        Each row is a sample: the whole image, then each view of it, with the drawn values below. Normalised values are
        converted back to grey levels. With `mix=`, the images are mixed with the partners that they have in that epoch,
        which are named below with lam. A sample that the epoch does not draw is not mixed. The CPU makes the sheet,
        independently of any iteration.

        Args:
            samples: The samples' numbers. None: the first `rows` that the epoch draws.
            rows: The number of samples, if they are not given.
            epoch: The first epoch to show. None: that of the property `epoch`.
            epochs: The number of epochs to show side by side, each with its own draws.
            field: The image field, if there are several. None: the first.

        Raises:
            ConfigError: There is no such sample or image, or the sheet would have too many pictures.
            SampleError: A sample, or one that it is mixed with, cannot be read or decoded.
        """
