//! Dataset indexing: which samples a dataset has, and where the bytes of each sample are stored. The result is a
//! persistent index: sample id → (file, offset, length, label).
//!
//! Layouts:
//!
//! - class directories of images, as torchvision's `ImageFolder` reads them ([`Layout::Folder`]);
//! - tar shards, as WebDataset writes them ([`Layout::Tar`]);
//! - shards that are tables: Parquet, Arrow, MDS, `tf.Example` (`layouts/`);
//! - files that a table or COCO annotations list ([`Layout::Manifest`]);
//! - directories whose files belong together by their names, such as images and masks (`pairs/`);
//! - with [`Contents::Files`], files of any kind below a directory, or the records of TFRecord shards
//!   ([`Layout::TfRecord`]);
//! - shards that `foreload pack` wrote ([`Layout::Packed`]), with the samples, the order and the fingerprint of their
//!   source (→ `tests/load/pack/`).
//!
//! Several threads list a dataset once, into an index file outside the dataset. Later starts read this file whole and
//! do not list the dataset again (→ `tests/data/index_file.rs`). Every start compares the stamps of the root, of
//! directories and of shards with the index (`changes.rs`, → `tests/data/changes.rs`). A file that changes later is
//! detected when it is read, by its stamp ([`DatasetIndex::shard_stamp`]) and by its length. Several datasets can be
//! opened as one ([`DatasetIndex::open_all`]), and samples can be selected by number, class or list ([`Select`]).
//!
//! Where to find what:
//!
//! - `survey.rs` detects the layout of a root. `layouts/` has the table of layouts, and for each layout the code that
//!   recognises it and parses its shards. `ignored.rs` has the names that are skipped in directories and archives of
//!   all layouts.
//! - Parsers of tables return a `ShardTable` (`table.rs`), whose cells are byte ranges or small values.
//!   `rows_of_table.rs` converts it to samples. Small values become columns of the index (`cells.rs`,
//!   `selected_columns.rs`). A column is read only if a field needs it. `parquet/` and `arrow/` share the limits in
//!   `gather.rs`. `manifest.rs` makes samples of the files that a table lists, or COCO annotations (`coco/`).
//! - `splits.rs` assigns files to splits by their names or by a README (`dataset_card.rs`). `split_directories.rs`
//!   assigns directories to splits.
//! - A sample of arrays can be stored in many places. `arrays/` computes these places.
//! - A value in a compressed block has no offset in its shard. `blocks.rs` gives the value an address after the shard's
//!   end, so that extents, members and caches work as for any sample. `whole_file.rs` treats a compressed shard as one
//!   block, and `unpacked.rs` is the shared cache of decompressed blocks.
//! - `arrays/` has samples whose bytes are in many places: computed lists of extents, which are read at once.
//! - `neighbour_blocks.rs` groups neighbouring samples of an epoch, so that one read fetches a group. `packed/` has the
//!   format of packed datasets.

use base::names::named;
use base::notices::Notices;
use std::path::PathBuf;

pub mod archive;
pub mod arrays;
pub mod arrow;
mod bad_shards;
mod below;
mod blocks;
pub mod build;
mod cancel;
mod cells;
mod changes;
mod checks;
mod class_names;
mod classes;
mod coco;
mod columns;
mod dataset_card;
mod directory;
mod folder;
mod format;
mod gather;
mod hdf5;
mod hugging_face;
mod ignored;
pub mod image_sizes;
mod index;
pub mod kind;
pub mod label_column;
mod labels;
pub mod layouts;
mod left_out;
mod lz4;
mod manifest;
mod member;
mod names_stamp;
mod neighbour_blocks;
mod numbered;
mod open;
pub mod packed;
mod pairs;
mod parallel;
pub mod parquet;
mod part;
mod places;
mod publish;
mod rows_of_table;
mod samples;
mod section_writer;
mod select;
mod selected_columns;
mod selected_members;
pub mod shards;
mod spill;
mod split_directories;
mod splits;
mod summary;
mod survey;
pub mod table;
mod unlabeled;
mod unpack;
mod unpacked;
mod value_kinds;
mod whole_file;
mod zarr;

pub use crate::source::RequestCounts as IndexRequests;
pub use crate::source::{COARSE_TICK, is_url, shown as shown_root, without_secrets};
pub use crate::source::{FileVersion, Stamp, TICK};
pub use crate::source::{ReadAt, SizedFile};
pub use bad_shards::{BadShard, BadShards};
pub use blocks::FileBlock;
pub use cells::CellValue;
pub use classes::{UNLISTED, read_class_names};
pub use columns::{ColumnItem, ColumnValues, LabelTable, SampleColumn, typed as typed_column};
pub use ignored::is_ignored;
pub use index::BlockCosts;
pub use index::DatasetIndex;
pub use index::StreamSamples;
pub use kind::FieldKind;
pub use labels::{class_number_in_json, class_number_in_text};
pub use layouts::Layout;
pub use neighbour_blocks::MAX_NEIGHBOUR_BLOCK_BYTES;
pub use neighbour_blocks::NeighbourBlocks;
pub use pairs::DirectoryField;
pub use parallel::for_each as in_parallel;
pub use select::{ClassRef, SampleSet, Select};
pub use selected_columns::{ColumnKind, ColumnReader};
pub use selected_members::MemberBytes;
pub use selected_members::{IMAGE, choices};
pub use splits::is_for_evaluation;
pub use summary::TableField;
pub use summary::{IndexOrigin, IndexSummary};
pub use summary::{Notes, SampleBytes, Skipped};
pub use unpacked::{BlockCache, BlockObserver, MAX_CACHED_BYTES, UnpackStats};

/// Digest of what defines the dataset: layout, relative paths, extents and labels. The digest includes no times, so a
/// copy of the dataset has the same fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Index of a file among the files of all datasets. In a dataset of shards, a file is a shard. In a dataset of loose
/// files, a file is a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Location of a sample's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The file that holds the sample.
    pub file: FileId,
    /// The offset of the sample's first byte in the file.
    pub offset: u64,
    /// The size of the sample in bytes.
    pub length: u32,
}

/// Kind of samples to index. A dataset has a separate index for each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Contents {
    /// Images with an extension that can be decoded, in class directories or in shards.
    #[default]
    Images,
    /// All files below a directory except hidden ones, or the records of the `.tfrecord` shards in it. If all files are
    /// in subdirectories, these directories are the classes. Otherwise samples have no labels. Records have no labels
    /// either.
    Files,
}

/// What happens if a dataset differs from its index at the start. A directory whose times alone changed is not a
/// difference. A file that changes during a run causes an error when it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Changed {
    /// The index is rebuilt, with a warning. Samples, order and fingerprint are those of the current dataset.
    #[default]
    Rebuild,
    /// The old index stays in use, with a warning, so the order stays the same. Reading fails for files that were
    /// removed or have another length, and for shards that now hold other samples.
    Warn,
    /// Opening fails with [`base::error::Error::DatasetChanged`].
    Refuse,
}

named!(Changed: "rebuild" => Rebuild, "warn" => Warn, "refuse" => Refuse);

/// What one sample of a dataset of arrays is. Each value makes another dataset, with its own index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SampleAxis {
    /// A row: the elements with one index in the first dimension. All arrays that are read have equally many rows.
    #[default]
    Axis0,
    /// A file with all of its arrays.
    File,
}

named!(SampleAxis: "0" => Axis0, "file" => File);

/// Options for finding or building the index.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// Directory of index files. `None` selects `$FORELOAD_INDEX_DIR`, else `$XDG_CACHE_HOME/foreload/index`, else
    /// `~/.cache/foreload/index`. If this directory cannot be written, the user's own directory below the temporary
    /// directory is used, with a warning. The directory is never inside the dataset, because datasets are read-only.
    pub directory: Option<PathBuf>,
    /// Whether the index is rebuilt even if one exists.
    pub rebuild: bool,
    /// The fields that are read as parallel directories of the root, if all of them name such directories. The first
    /// one has the samples' images. The order of the others does not matter.
    pub parallel: Vec<DirectoryField>,
    /// What happens if the dataset differs from its index.
    pub changed: Changed,
    /// How unreadable shards are handled.
    pub bad_shards: BadShards,
    /// If true, an unreadable shard is an error only when a selection names it.
    pub bad_shards_later: bool,
    /// Whether a progress bar is shown on stderr, if stderr is a terminal.
    pub progress: bool,
    /// Number of threads that list directories and parse shards. 0 selects 64 for datasets on a server (16 for tables),
    /// else one per available processor and at least 4 (16 for arrays), because listing mostly waits for I/O.
    pub threads: usize,
    /// The kind of samples.
    pub contents: Contents,
    /// Split to open, if the dataset has splits. `None` selects the only split.
    pub split: Option<String>,
    /// Keys of the members to read of each sample in shards, and [`IMAGE`] for the image. A key is the part of a
    /// member's name after the first dot, in lower case. `None` selects the image alone.
    pub members: Option<Vec<String>>,
    /// The members in `members` that a sample may lack.
    pub optional: Vec<String>,
    /// Members that are requested as contents of files. If a manifest has a text column with the name of one of them,
    /// its strings are read as file names.
    pub of_files: Vec<String>,
    /// In a dataset of arrays, what one sample is. Other layouts ignore it.
    pub sample_axis: SampleAxis,
    /// Whether every stem of tar shards is a sample, even without an image. If some stems have no image, this option
    /// makes another dataset, with its own index and order.
    pub every_stem: bool,
    /// Whether the field `label` is requested by name. If so, a column of this name is read, unless it holds class
    /// numbers.
    pub label_column: bool,
    /// Columns of tables that are loaded in addition to those in `members`.
    pub columns: Vec<String>,
    /// Column of tables, or in tar shards a member or a key of the `.json` member, that holds the label. `None` selects
    /// the usual names. Labels depend on this option, so each value of the option has its own index.
    pub label: Option<String>,
    /// The directory of the images that COCO annotations list, or its URL. `None` selects one of the usual places. Each
    /// value has its own index.
    pub images: Option<String>,
    /// Whether labels are not needed. If so, missing labels, or labels that are not class numbers, are not an error,
    /// and the dataset has no labels.
    pub without_labels: bool,
    /// Names of the classes in the order of their numbers. `None` keeps the dataset's own class numbers. The index file
    /// and the fingerprint do not depend on this option.
    pub class_names: Option<Vec<String>>,
    /// Messages to the user about the index and about reading the dataset.
    pub notices: Notices,
}

impl IndexOptions {
    /// The members that can be arrays, sorted; `None` if the user chose none. Loaders of images ask for [`IMAGE`]
    /// without a kind, also where it is no array.
    fn chosen_arrays(&self) -> Option<Vec<String>> {
        let may_be = |name: &String| name != IMAGE || self.of_files.contains(name);
        let mut chosen: Vec<String> = self.members.clone()?.into_iter().filter(may_be).collect();
        chosen.sort_unstable();
        chosen.dedup();
        (!chosen.is_empty()).then_some(chosen)
    }

    /// Those of the chosen arrays that a shard may lack.
    fn optional_arrays(&self) -> Vec<String> {
        let chosen = self.chosen_arrays().unwrap_or_default();
        chosen.into_iter().filter(|name| self.optional.contains(name)).collect()
    }
}
