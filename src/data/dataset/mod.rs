//! What is there: sample id → (file, offset, length, label), in a persistent index.
//!
//! Images lie in class directories, as torchvision's `ImageFolder` reads them ([`Layout::Folder`]), or in tar shards as
//! WebDataset writes them ([`Layout::Tar`]), or in shards that are tables (`layouts/`), with labels or without
//! ([`DatasetIndex::is_labeled`]). [`Contents::Files`] takes files of any kind below a directory, or the records of
//! TFRecord shards ([`Layout::TfRecord`]). What was packed of either kind ([`Layout::Packed`]) has the samples, the
//! order and the fingerprint of its source. All are listed once, by several threads, into a file that later starts read
//! whole; nothing of the dataset is then listed again.
//! Whether it is still what the index says is looked at in every start (`changes.rs`); what changes later is found when
//! it is read, by [`DatasetIndex::shard_stamp`] and by lengths. Several datasets can be opened as one
//! ([`DatasetIndex::open_all`]), and a part of the samples selected ([`Select`]).

use base::names::named;
use base::notices::Notices;
use std::path::PathBuf;

pub mod archive;
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
mod columns;
mod dataset_card;
mod directory;
mod folder;
mod format;
mod gather;
mod hugging_face;
mod ignored;
mod index;
pub mod kind;
pub mod label_column;
mod labels;
pub mod layouts;
mod left_out;
mod manifest;
mod member;
mod names_stamp;
mod numbered;
mod open;
pub mod packed;
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
mod stretches;
mod summary;
mod survey;
pub mod table;
mod unlabeled;
mod unpack;
mod unpacked;
mod value_kinds;
mod whole_file;

pub use crate::source::{COARSE_TICK, is_url, shown as shown_root, without_secrets};
pub use crate::source::{FileVersion, Stamp, TICK};
pub use crate::source::{ReadAt, SizedFile};
pub use bad_shards::{BadShard, BadShards};
pub use blocks::FileBlock;
pub use classes::{UNLISTED, read_class_names};
pub use columns::{ColumnItem, ColumnValues, LabelTable, SampleColumn, typed as typed_column};
pub use ignored::is_ignored;
pub use index::BlockCosts;
pub use index::DatasetIndex;
pub use index::LiveSamples;
pub use kind::FieldKind;
pub use labels::{class_number_in_json, class_number_in_text};
pub use layouts::Layout;
pub use select::{ClassRef, Select};
pub use selected_members::MemberBytes;
pub use selected_members::{IMAGE, choices};
pub use splits::is_for_evaluation;
pub use stretches::MOST_OF_STRETCH;
pub use stretches::Stretches;
pub use summary::TableField;
pub use summary::{IndexOrigin, IndexSummary};
pub use summary::{IndexRequests, Notes, SampleBytes, Skipped};
pub use unpacked::{BlockTaker, UNPACKED_KEPT, UnpackStats, UnpackedBlocks};

/// The hash of what defines the dataset: layout, relative paths, extents, labels. Times are no part of it, so a copy
/// has the same fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The number of a file in the index, which is a shard or, of loose files, the sample itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The place of a sample's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub file: FileId,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}

/// The kind of samples. A dataset has an index for each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Contents {
    /// Images that can be decoded, by their extensions: loose, by class directory, or in tar shards.
    #[default]
    Images,
    /// Files of any kind below a directory, hidden ones left out, or the records of the `.tfrecord` shards in it. Where
    /// all files lie in subdirectories, these are the classes; else there are no labels, nor for records.
    Files,
}

/// The consequence when a dataset is not what its index says at the start. A directory that was only touched does not
/// count, and a file that changes during a run is refused by name when it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Changed {
    /// The index is built anew, with a notice: samples, order and fingerprint are those of the dataset as it is.
    #[default]
    Rebuild,
    /// The old index stays, with a notice, so that the order does. Files that are gone, have another length or lie in
    /// shards whose samples are others are refused when they are read.
    Warn,
    /// It is an error, [`base::error::Error::DatasetChanged`].
    Refuse,
}

named!(Changed: "rebuild" => Rebuild, "warn" => Warn, "refuse" => Refuse);

/// How to find or build the index.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// The directory of index files. `None` stands for `$FORELOAD_INDEX_DIR`, else `$XDG_CACHE_HOME/foreload/index`,
    /// else `~/.cache/foreload/index`, else, where these cannot be written, a directory of the user's own among the
    /// temporary files, with a notice. It is never inside the dataset, because sources are read-only.
    pub directory: Option<PathBuf>,
    /// Whether the index is built anew although there is one.
    pub rebuild: bool,
    /// The consequence when the dataset is not what its index says.
    pub changed: Changed,
    /// The consequence of shards that cannot be read.
    pub bad_shards: BadShards,
    /// Whether shards that cannot be read are an error only when a selection names them.
    pub bad_shards_later: bool,
    /// Whether a progress bar is shown on stderr, if that is a terminal.
    pub progress: bool,
    /// The number of threads that list and parse. 0 stands for one per available processor and at least 4, because
    /// listing waits more than it works.
    pub threads: usize,
    /// The kind of samples.
    pub contents: Contents,
    /// The split that is the dataset, where one lies in splits. `None` stands for the only one.
    pub split: Option<String>,
    /// The members that are read of each sample in tar shards, by their keys: the ends of their names behind the first
    /// dot, in lower case, and [`IMAGE`] for the image. `None` stands for the image alone.
    pub members: Option<Vec<String>>,
    /// The members among these that a sample need not have.
    pub optional: Vec<String>,
    /// The members that are asked for as the bytes of files. Where a manifest has a column of texts by such a name,
    /// these name files.
    pub of_files: Vec<String>,
    /// Whether all stems of tar shards are samples, those without an image too. Unless each has an image, this is
    /// another dataset, with an index and an order of its own.
    pub every_stem: bool,
    /// Whether the field `label` is asked for by its name, so that a column of that name is read where it holds no
    /// class numbers.
    pub label_column: bool,
    /// The column of tables, or the member or key of a `.json` member in tar shards, that is the label. `None` stands
    /// for the usual names. Samples have other labels by it, so that the dataset has an index for each.
    pub label: Option<String>,
    /// Whether nobody asks for labels. Then it is no error if some are missing or are no class numbers, and the dataset
    /// has none.
    pub without_labels: bool,
    /// The names of the classes in the order of their numbers. `None` stands for the numbers that the dataset gives
    /// its classes. Neither the index file nor the fingerprint depends on it.
    pub class_names: Option<Vec<String>>,
    /// The notices to the user about the index and everything that reads by it.
    pub notices: Notices,
}
