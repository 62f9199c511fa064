//! The table of settings. The name, type, default, form, topic and meaning of each are defined here only.
//!
//! To add a setting, add a row. Users read the comment above it in Rust, in Python's `help()`, in the stub, in
//! `docs/settings.md` and in the help of the command line. So it says units and what `None` means. After the topic
//! comes [which part of a batch](Affects) depends on the setting. The clauses after that are defined in [`Setting`].
//!
//! Which settings batches depend on (`Setting::decides_batches`, `Setting::is_of_recipe`) also decides which loaders
//! can share batches.

use super::SettingsObject::Resources as OfResources;
use super::forms::{
    AnyPath, AnyText, BoolOrBlocks, BoolOrName, Bounds, ByteCount, Channels, ClassList, ClassNameList,
    DeviceName, FieldList, Indices, LabelSource, Maybe, MixList, OneOf, OwnDirectory, PeersChoice,
    Probability, Ratios, ShareOfOne, SideLengths, SizesByEpoch, TierList, TransformList, Truth, WeightsValue,
    WholeNumber,
};
use super::{Affects, Description, Form, Setting, Topic};
use crate::config::{
    CacheChoice, CpuDecode, FieldOptions, GpuDecoder, Labels, OnError, Peers, SharingPolicy, Weights,
};
use data::dataset::{BadShards, Changed, ClassRef};
use data::schedule::{Assignment, LastBatch, Shuffling};
use pixels::augment::{
    CROP_RATIO, CROP_SCALE, DType, Fidelity, ImageTransforms, MAX_SIDE, MemoryFormat, Mixing,
};
use pixels::decode::{Damaged, Orientation};
use std::collections::BTreeMap;
use std::path::PathBuf;
use store::io::{Direct, IoChoice};
use store::tier::Verify;

/// Largest number of draws of an epoch. Larger numbers of draws would not be exact in the arithmetic of shares.
const MAX_DRAWS: u64 = 1 << 48;

/// Most times that a sample comes in a row; more than any training recipe uses.
const MAX_REPEATS: u64 = 1024;

/// Largest number of threads; no machine has as many processors.
const MAX_THREADS: u64 = 1024;

/// Largest number of reads that the kernel lets one io_uring hold.
const DEEPEST_QUEUE: u64 = 32_768;

/// Most batches that are kept for loaders that share them, and most such loaders.
const MAX_SHARED: u64 = 1024;
const MAX_CONSUMERS: u64 = 256;

/// Defines a type of options with its defaults, its place in [`LoaderOptions`], and the table of its settings.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+ $type_name:ident, |$options:ident| $place:expr;
        $(#[doc = $about_table:literal])+ $table:ident;
        $(
            $(#[doc = $line:literal])+
            $name:ident: $type:ty = $default:expr, $form:expr,
                $topic:ident, $decides:ident $(.$clause:ident($($argument:expr),*))*;
        )*
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub struct $type_name {
            $($(#[doc = $line])+ pub $name: $type,)*
        }

        impl Default for $type_name {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        $(#[doc = $about_table])+
        pub(super) static $table: &[Setting] = &[$(
            Setting {
                name: stringify!($name),
                topic: Topic::$topic,
                decides: Affects::$decides,
                member: None,
                flag: Some(stringify!($name)),
                flag_alias: None,
                images_only: false,
                datasets_only: false,
                in_files: None,
                none_is_default: false,
                lines: &[$($line),+],
                describe: || Description::of::<$type>(&$form),
                given_by: |word| Form::<$type>::given_by(&$form, word),
                write: |$options, given| Form::read(&$form, given).map(|value| $place.$name = value),
                reset: |$options| $place.$name = $default,
                check: |$options| Form::check(&$form, &$place.$name),
                show: |$options| Form::show(&$form, &$place.$name),
                shows_all: || Form::<$type>::shows_all(&$form),
            }
            $(.$clause($($argument),*))*
        ),*];
    };
}
pub(super) use settings;

settings! {
    /// The settings as the user asked for them. `None` means "choose for me".
    LoaderOptions, |options| *options;

    /// All settings, by topic.
    SETTINGS;

    /// Samples per step and rank.
    batch_size: u32 = 64, WholeNumber::from(1), Batches, Batch;

    /// Seed of order and augmentation.
    seed: u64 = 0, WholeNumber::any(), Batches, Batch;

    /// True: random crops and flips, in shuffled order. False: Resize and CenterCrop, in the dataset's order. With
    /// `transforms` it says only what `shuffle` and `last_batch` are by default. None: False where `split` names an
    /// evaluation (`validation`, `val`, `dev`, `test`, `eval`, also as a word of a longer name), else True. The
    /// loader's `repr` shows what was decided.
    train: Option<bool> = None, Maybe(Truth), Batches, Batch.images_only();

    /// Whether the order is shuffled. True: at random over the whole epoch. `"blocks"`: at random, but that samples
    /// which lie beside one another come near one another, and are read together: each compressed block is unpacked
    /// once, and each 4 MiB of a shard on a server are one request. None: as `train` says.
    shuffle: Option<Shuffling> = None, Maybe(BoolOrBlocks), Batches, Batch.in_files(
        "True",
        "Whether the order is shuffled. `\"blocks\"`: samples that lie beside one another come near one another, and \
         are read together."
    ).datasets_only();

    /// With `shuffle="blocks"`: the number of ranks that blocks are divided among, each of which reads its own. A
    /// training that goes on within an epoch with another number of ranks sets the number that it began with. None: as
    /// many as there are.
    shuffle_ranks: Option<u32> = None, Maybe(WholeNumber::from(1)), Batches, Batch.datasets_only();

    /// What happens to the samples that do not fill the last global batch. `drop` leaves them out, `pad` fills the
    /// batch from the epoch's beginning (`mask` says which), `partial` makes a smaller batch. None: drop in training,
    /// else partial. With `partial` too, no rank has an empty batch: where fewer samples than ranks are left, each rank
    /// without one has one sample from the epoch's beginning, and a warning says so.
    last_batch: Option<LastBatch> = None, Maybe(OneOf::names()), Batches, Batch.in_files(
        "\"drop\"",
        "What happens to the samples that do not fill the last global batch. `drop` leaves them out, `pad` fills the \
         batch from the epoch's beginning (`mask` says which), `partial` makes a smaller batch. With `partial` too, \
         no rank has an empty batch: where fewer samples than ranks are left, each rank without one has one sample \
         from the epoch's beginning, and a warning says so."
    ).datasets_only();

    /// How many batches you keep at a time, including the latest. The pools are sized for it.
    keep: u32 = 1, WholeNumber::from(1), Batches, Nothing.no_flag();

    /// The split that is read, of a dataset that has several: by the names of Parquet and Arrow files, by a README.md
    /// as the Hugging Face hub has it, or by directories: those of `save_to_disk` and of MosaicML Streaming, and those
    /// that are named like splits (`train`, `val`, `test` and so on) and hold a dataset. A split that is a directory
    /// must be named, even if it is the only one. None: a dataset without splits, or the only split of Parquet or Arrow
    /// files.
    split: Option<String> = None, Maybe(AnyText), Selection, Batch.images_only();

    /// Numbers of the samples to draw from, each once. The order of a shuffled epoch does not depend on how they are
    /// listed; a sequential epoch takes them as they stand. None: all.
    indices: Option<Vec<u64>> = None, Maybe(Indices), Selection, Batch.no_flag();

    /// Names or numbers of the classes to draw from. Labels stay what they are, see `class_names`. None: all.
    classes: Option<Vec<ClassRef>> = None, Maybe(ClassList), Selection, Batch.images_only().no_flag();

    /// The names of all classes, in the order of their numbers, if they must differ from the dataset's own: a list, a
    /// text file with a name on each line, or an object with the list as `classes`, such as the loader of the training
    /// data. A validation set that lacks a class then numbers its classes as training does. A class of the dataset that
    /// the list lacks is an error, unless `classes` leaves it out. The order of the samples does not depend on it.
    /// None: the classes of the dataset, numbered by it.
    class_names: Option<Vec<String>> = None, Maybe(ClassNameList), Selection, Batch.images_only().datasets_only();

    /// A text file that lists what to draw from, one path a line, relative to the dataset: files (with or without
    /// extension), or shards for all their samples. Where several of `indices`, `classes` and `files` are given, all
    /// must hold. None: everything.
    files: Option<PathBuf> = None, Maybe(AnyPath), Selection, Batch;

    /// How often samples are drawn compared with one another: `"balanced"`, every class as often as every other; a dict
    /// of classes, others weigh 1; or one number for each sample of the dataset. A weight is 0, or from 1e-50 to 1e50.
    /// In every epoch, samples of equal weight are drawn equally often, or once more, and each weight's share of the
    /// draws is kept to within two. A sample that comes up again in an epoch is augmented differently. None: every
    /// sample alike.
    weights: Option<Weights> = None, Maybe(WeightsValue), Selection, Batch.no_flag();

    /// The share of each of several datasets in an epoch, in any unit. None: by their numbers of samples.
    ratios: Option<Vec<f64>> = None, Maybe(Ratios), Selection, Batch.no_flag();

    /// The number of samples that an epoch draws, for all ranks together. None: as many as there are to draw from.
    epoch_size: Option<u64> = None, Maybe(WholeNumber::from(1).to(MAX_DRAWS)), Selection, Batch;

    /// How many times each sample comes in a global batch, each time augmented anew: 3 in DeiT's repeated augmentation.
    /// An epoch has as many draws as without, so it shows one in so many of the samples. The repeats of a sample are
    /// spread over the ranks, as torchvision's `RASampler` does.
    repeats: u32 = 1, WholeNumber::from(1).to(MAX_REPEATS), Selection, Batch;

    /// What the batches hold of each sample: a list of names, or of objects of `foreload.fields` that say more. A name
    /// is `image`, `label`, or the key of a member in a shard, which is what follows the first dot of its name:
    /// `["jpg", "seg.png", "txt"]`. `batch["txt"]` gives it. A command line has names parted by commas, or a JSON list
    /// in which an object says more: `["jpg", {"Mask": {"name": "seg.png", "dtype": "int64"}}]`. None: image and label.
    fields: Option<Vec<FieldOptions>> = None, Maybe(FieldList), Fields, Batch.images_only();

    /// The column of a table, or in tar shards the end of a member's name or a key of `.json` members, that is the
    /// label: `label="fine_label"`. Whole numbers are class numbers, and texts names of classes. Each choice has an
    /// index and a fingerprint of its own. None: `label` and other usual names.
    label: Option<String> = None, Maybe(AnyText), Fields, Batch.images_only().datasets_only();

    /// Columns of your own: a table in a file, whose column `file_name` (a path below the dataset, with or without
    /// extension) or `sample_id` says which sample a row is of, and whose others are fields by their names; or a number
    /// or truth value, or a list of as many of them, for each sample in the index's order: the field `label`. Whole
    /// numbers are int64, others float32, truth values uint8, `[n]` or `[n, length]`; anything else text. A number that
    /// its type cannot hold is an error. `foreload.fields.Integer`, `Float` and `Text` choose a column's type. A sample
    /// without a row is an error. `classes` and `weights` go by the dataset's own classes. None: the dataset's labels.
    labels: Option<Labels> = None, Maybe(LabelSource), Fields, Batch.images_only().datasets_only();

    /// What is done to images: a list of `foreload.transforms`, or `Views` of one. Where samples have several images,
    /// the first leads and the others follow its geometry; or a dict has for each image field what is done to it. It
    /// takes the place of `image_size`, `scale`, `ratio`, `flip`, `resize`, `dtype`, `mean` and `std`, the one-line way
    /// to the usual lists. None: the list that these mean.
    transforms: Option<ImageTransforms> = None, Maybe(TransformList), Images, Recipe.images_only();

    /// What mixes finished images: `[transforms.MixUp(...)]`, `[transforms.CutMix(...)]`, or
    /// `[transforms.RandomChoice([...])]` of these, drawn for each batch. Of each four places of a batch, every image
    /// is mixed with the one before it, the first with the last, so `batch_size` must be a multiple of 4. With
    /// `num_classes` of these transforms labels are mixed, too: float32, `[n, num_classes]`; vectors that `labels`
    /// gives are mixed as they are. Otherwise `mixed` of a batch has the class numbers, those of the partners, and the
    /// shares. Padding and failed samples are left out. A command line has JSON:
    /// `[{"MixUp": {"alpha": 0.2, "num_classes": 1000}}]`. None: nothing.
    mix: Option<Mixing> = None, Maybe(MixList), Images, Batch.images_only();

    /// Side of the square output in pixels, or (height, width).
    image_size: (u32, u32) = (224, 224), SideLengths { to: MAX_SIDE }, Images, Recipe.images_only();

    /// Sizes of the output from later epochs on, by the first epoch of each, as `image_size` has them:
    /// `image_size=160, image_size_from={16: 192, 35: 224}` begins a training with small images (progressive resizing).
    /// The epoch alone decides, also when a training goes on. None: one size for all epochs.
    image_size_from: Option<BTreeMap<u64, (u32, u32)>> = None, Maybe(SizesByEpoch(SideLengths { to: MAX_SIDE })),
        Images, Recipe.images_only().datasets_only();

    /// Training: lower and upper bound of the random crop's share of the image's area.
    scale: (f64, f64) = CROP_SCALE, Bounds { to: 1.0 }, Images, Recipe.images_only().or_none();

    /// Training: lower and upper bound of the random crop's width divided by its height.
    ratio: (f64, f64) = CROP_RATIO, Bounds { to: 1e6 }, Images, Recipe.images_only().or_none();

    /// Training: probability of a horizontal flip.
    flip: f64 = 0.5, Probability, Images, Recipe.images_only();

    /// Evaluation: length in pixels of the shorter side after Resize. None: 8/7 of the image size (256 for 224).
    resize: Option<u32> = None, Maybe(WholeNumber::from(1).to(MAX_SIDE as u64)), Images, Recipe.images_only();

    /// Mean of each channel, of values scaled to 0..1; ImageNet's by default. Numbers above 1, which other loaders take
    /// for values in 0..255, get a warning.
    mean: [f32; 3] = [0.485, 0.456, 0.406], Channels::Finite, Images, Recipe.images_only().or_none();

    /// Standard deviation of each channel, of values scaled to 0..1; ImageNet's by default.
    std: [f32; 3] = [0.229, 0.224, 0.225], Channels::Positive, Images, Recipe.images_only().or_none();

    /// Element type of the images: `float32`, `float16`, `bfloat16`, or `uint8` (grey levels 0..255, not normalised).
    dtype: DType = DType::F32, OneOf::names(), Images, Recipe.images_only();

    /// Order of the images' dimensions: `nchw` or `nhwc`.
    memory_format: MemoryFormat = MemoryFormat::Nchw, OneOf::names(), Images, Recipe.images_only();

    /// `fast` resizes the decoded planes and converts colours at output size; `exact` is what PIL and torchvision
    /// compute.
    decode: Fidelity = Fidelity::Fast, OneOf::names(), Images, Recipe.images_only();

    /// What happens where EXIF or XMP says that an image is stored turned or mirrored. It is decoded as it is stored in
    /// any case, as torchvision does by default. With `warn` the first such image is reported, as
    /// `ImageDataset.from_huggingface` asks for, because `datasets` turns such images.
    orientation: Orientation = Orientation::Ignore, OneOf::names(), Images, Recipe.images_only();

    /// False: batches hold the files' bytes (`files` instead of `images`) for a decoder of your own; packed images are
    /// rebuilt into the files that they were made of. Order, `labels`, `sample_ids` and `mask` stay the same, and the
    /// settings of images have no effect. `on_error` deals with files that cannot be read, or that are no images by
    /// their first bytes.
    decoded: bool = true, Truth, Images, Batch.images_only().no_flag().datasets_only();

    /// Where batches end: `cpu`, `cuda` (the GPU of this process's local rank, which its launcher sets, else the
    /// first), `cuda:N`, or `auto`: a GPU where one serves (see `foreload doctor`), else the CPU. On a GPU, batches are
    /// the same as on the CPU but for the decoders' rounding.
    device: String = "auto".into(), DeviceName, Images, Nothing.images_only();

    /// Who decodes images on a GPU. With `auto` packed images and the indexed copies of caches are decoded by kernels
    /// of Foreload's own, with the CPU's samples, and JPEGs by nvJPEG. With `own` nvJPEG is neither needed nor used:
    /// the CPU decodes what is neither packed nor indexed, so that all batches have the bytes that they have with
    /// `device="cpu"`. With `nvjpeg` the CPU decodes packed images, and nvJPEG the JPEG in an indexed one.
    decoder: GpuDecoder = GpuDecoder::Auto, OneOf::names(), Images, Nothing.images_only();

    /// What the CPU decodes when batches end on a GPU. With `fallback` it decodes what the GPU's decoders do not know
    /// (PNG, CMYK; see `decoder`), or would have the host half decode (progressive images; batches of fewer than 51
    /// where there is no decoding engine). With `auto` it also decodes as many more JPEGs as makes the whole fastest.
    /// With `never`, what the GPU's decoders do not know is an error of its sample; a substitute for it
    /// (`on_error="skip"`) is decoded by the CPU in any case.
    cpu_decode: CpuDecode = CpuDecode::Fallback, OneOf::names(), Images, Nothing.images_only();

    // Users of torchvision have trained on such files: its decoders conceal the damage, at most with a warning.
    /// What happens to JPEGs with damage inside their coded data (wrong bits, lost or stray bytes or restart markers).
    /// With `conceal` they give, sample by sample, what PIL and torchvision make of them; `stats()["concealed"]`,
    /// `concealed` and a warning tell of it. What PIL refuses is a failure here, too, above all files that were cut
    /// short; so are damaged headers. With `refuse` all damage that is found is a failure (see `on_error`); damage
    /// below the crop is not looked for. On a GPU, the CPU decodes what nvJPEG refuses in its strict mode; nvJPEG does
    /// not report the damage that it passes over.
    damaged: Damaged = Damaged::Conceal, OneOf::names(), Failures, Batch.images_only();

    /// What happens when a sample cannot be read or decoded. `raise` raises the first failure of a batch. With `skip`
    /// another sample, chosen by (dataset, seed, epoch, position) alone, takes its place, so batches stay full and
    /// equal on every rank. With `zero` its image is zeros, or its file has no bytes, and its mask is False. Of the
    /// other fields, those that are read of the sample are zero in tensors, None in lists, and without rows in ragged
    /// arrays; what is known without reading it stays: its class number in the index, and `labels=`.
    on_error: OnError = OnError::Raise, OneOf::names(), Failures, Batch;

    /// The number of failures that an epoch of this rank survives with `skip` and `zero`, including those before it was
    /// resumed (of the rank whose state was loaded). None: no limit.
    max_errors: Option<u64> = Some(100), Maybe(WholeNumber::any()), Failures, Nothing;

    // PIL's own threshold for a decompression bomb is 89 478 485; this is the next power of two.
    /// Images of more pixels are refused, because they may be decompression bombs. By default 2**27.
    max_pixels: u64 = 1 << 27, WholeNumber::from(1), Failures, Batch.images_only().or_none();

    /// Decoding threads. None: the processors this process may use, or its share where the other ranks of the node (see
    /// `local_world_size`) may use the same ones; one with `decoded=False`.
    threads: Option<u32> = None, Maybe(WholeNumber::from(1).to(MAX_THREADS)), Resources, Nothing
        .images_only().in_object(OfResources);

    /// The share of this node's processors that loading may take, above 0 and at most 1. As many decoding threads are
    /// started, rounded up and at most `threads`, and they rest when they and the reading thread take more time than
    /// that. The node's loaders to which a share was given have it together, in equal parts while they run;
    /// `stats()["cores"]` says how many processors this loader may take now. A quota of a container or control group
    /// counts as that many processors. None: no bound but `threads`.
    cpu: Option<f64> = None, Maybe(ShareOfOne), Resources, Nothing.in_object(OfResources);

    /// Cap of all pools together: bytes, or a text such as `"300MB"`. None: what the settings need, and more while
    /// batches are kept, up to a quarter of the machine's memory for all ranks of the node together. What differs in
    /// size from sample to sample comes on top: images and masks of their own sizes, texts, arrays. With a cap, two
    /// batches of such images are made ahead, and a warning says so; a transform that fixes the size brings them under
    /// it. What is remembered of JPEGs, half a KB for a photograph, comes on top, up to a sixteenth of the cap, or
    /// without one a thirty-second of the rank's part of the machine's memory. On a GPU some page-locked tables come on
    /// top, and where slots run short 4 MB for each of three lanes, more for larger images.
    memory: Option<u64> = None, Maybe(ByteCount), Resources, Nothing.in_object(OfResources);

    /// How files are read: `auto` (io_uring where it works, else threads), `io_uring` or `pread`.
    io: IoChoice = IoChoice::Auto, OneOf::names(), Resources, Nothing.in_object(OfResources);

    /// Whether reads bypass the page cache: `auto` (by file system and size), `on` or `off`.
    direct: Direct = Direct::Auto, OneOf::names(), Resources, Nothing.in_object(OfResources);

    /// The number of reads in flight. None: 32. Where a dataset is on a server, to which there are as many connections,
    /// 256, or as many as 96 MiB of slots (or `memory`) have room for, but at least 64; and 64 with `peers`. With
    /// `pread` each read takes a thread of its own, of which there are up to 256, with about 30 KB of memory each;
    /// network file systems are faster the more of them there are.
    queue_depth: Option<u32> = None, Maybe(WholeNumber::from(1).to(DEEPEST_QUEUE)), Resources, Nothing
        .in_object(OfResources);

    /// Cap of the memory on the GPU, beside what nvJPEG takes: bytes, or a text such as `"8GB"`. None: a quarter of it.
    device_memory: Option<u64> = None, Maybe(ByteCount),
        Resources, Nothing.images_only().in_object(OfResources);

    /// Whether batches are shared with other processes of this user on this node, such as the trials of a search or
    /// several members of an ensemble: those that ask for the same samples (dataset, order, rank) attach to one process
    /// that makes each batch once, and are lent it without a copy; those with other recipes have batches of their own
    /// from the same read and decode. True, or a name: only loaders with the same name share. The process is started by
    /// the first and ends after the last of them, or is `foreload serve`; what it takes of the machine (`threads`,
    /// `memory` ...) is said by the loader that starts it.
    shared: Option<String> = None, BoolOrName, Resources, Nothing.images_only().datasets_only();

    /// With `shared`: how many batches back the process keeps for those that are behind the fastest.
    shared_window: u32 = 4, WholeNumber::from(1).to(MAX_SHARED), Resources, Nothing.images_only().datasets_only();

    /// With `shared`: what happens to a loader that falls behind the window. With `leave` the others go on, and it goes
    /// on by itself, or with others that are where it is. With `wait` the others wait for it.
    shared_policy: SharingPolicy = SharingPolicy::Leave, OneOf::names(),
        Resources, Nothing.images_only().datasets_only();

    /// With `shared`: the number of loaders that begin together; the first batch comes when they are there, or after a
    /// minute.
    shared_consumers: u32 = 1, WholeNumber::from(1).to(MAX_CONSUMERS),
        Resources, Nothing.images_only().datasets_only();

    /// How many ranks this node has, numbered one after another: they share the cache, processors and memory. None:
    /// what the launcher (see `rank`) says, else all share the cache, and this process has processors and memory alone.
    local_world_size: Option<u32> = None, Maybe(WholeNumber::from(1)), Resources, Nothing
        .in_object(OfResources);

    /// Where samples are kept near: a `foreload.Directory` on local NVMe or a dict of its arguments, a `foreload.Ram`,
    /// or a list of both, from the fastest to the slowest. Samples are read from the dataset's storage once and not in
    /// every epoch. None: nowhere.
    cache: CacheChoice = CacheChoice::default(), TierList, Cache, Nothing.no_flag();

    /// How a cached copy of an earlier run or another process is known to be the dataset's before this run uses it.
    /// `stamp`: its file has the size, times and inode it had when it was copied. `checksum`: the dataset is read once
    /// a run and compared. What has changed is copied again, what changes after the check is seen by the next run. Only
    /// a write within the same tick of the file system's clock leaves the stamp as it was.
    verify: Verify = Verify::Stamp, OneOf::names(), Cache, Nothing;

    /// The dataset never changes, so cached copies are used without checking its files.
    immutable: bool = false, Truth, Cache, Nothing;

    /// Whether the nodes of a job read from one another what each keeps in its `cache`: then all of them together keep
    /// each sample once, and what fits into their caches together is read from the dataset's storage once and not in
    /// every epoch. `off`: each node has its own. `auto`: the ranks meet on the cluster's engine (torch.distributed,
    /// torchrun, Ray, MPI, JAX), and each node listens on its side of the launcher, for this job alone. A dict says
    /// more: `listen`, the address and port of this node; `allgather`, a function that gives this rank's bytes to all
    /// and returns a list of those of all; `directory`, which all nodes share, for ranks that have nothing better to
    /// meet by; `tls`, whether what travels is encrypted. All ranks must give it alike, and begin their first epochs
    /// together. On one node it does nothing.
    peers: Peers = Peers::default(), PeersChoice, Cache, Nothing.no_flag();

    /// Where index files are kept. None: `$FORELOAD_INDEX_DIR`, else the user's cache directory; where that cannot be
    /// written, a directory of the user's own among the temporary files, with a warning.
    index_dir: Option<PathBuf> = None, Maybe(OwnDirectory), Index, Nothing;

    /// Index the dataset again.
    rebuild_index: bool = false, Truth, Index, Nothing.flag_alias("rebuild");

    /// What happens when the dataset is not what its index says, which is checked at every start: `rebuild` indexes it
    /// again, with a warning; `warn` goes on with the old index and order, and refuses what cannot be right when it is
    /// read; `refuse` raises DatasetChangedError. Files that only look changed (after `touch`) do not count.
    changed: Changed = Changed::Rebuild, OneOf::names(), Index, Nothing;

    /// What happens to shards that cannot be read when the dataset is indexed, because they are damaged, cut short or
    /// missing. `error` names them all; where `files` names only other shards, it is no error. `skip` leaves them out,
    /// with a warning that names them: the dataset is then another one, with an order of its own. A shard that is
    /// repaired is noticed at the next start (see `changed`). A read that fails, for example of a server that does not
    /// answer, is always an error.
    bad_shards: BadShards = BadShards::Error, OneOf::names(), Index, Nothing;

    /// Show a progress bar while indexing, when stderr is a terminal.
    progress: bool = true, Truth, Index, Nothing.no_flag();

    /// This process's rank. None: of an initialised `torch.distributed`, else of Ray Train in its workers, else of an
    /// initialised `jax.distributed`, else of an initialised mpi4py, else of the launcher: torchrun, MPI's mpirun or
    /// Slurm's srun, by their variables; else 0. Asked again at each iteration.
    rank: Option<u32> = None, Maybe(WholeNumber::any()), Ranks, Nothing.no_flag();

    /// The number of ranks. None: found like `rank`.
    world_size: Option<u32> = None, Maybe(WholeNumber::from(1)), Ranks, Nothing.no_flag();

    /// Which rank takes which sample of a global batch. `order`: each rank takes its slice. `locality`: the ranks of
    /// the node whose cache keeps a sample take it, as far as their number allows, so that little goes from node to
    /// node; needs `peers`. Every global batch has the same samples, augmented and mixed in the same way, and states
    /// are the same, too. What differs is a rank's own batch: which samples it has, their order, and so what is
    /// computed of it alone, such as the statistics of batch normalisation that is not synchronised. The repeats of a
    /// sample (`repeats`) come to one node. The ranks of an incomplete last global batch take slices. `even_locality`:
    /// the same, and ranks get about as many bytes each, and so about as much to decode, as far as no more samples
    /// go from node to node for it.
    assignment: Assignment = Assignment::Order, OneOf::names(), Ranks, Nothing.datasets_only();
}
