//! What is there: sample id → (file, offset, length, label), in a persistent index.
//!
//! Images lie in class directories, as torchvision's `ImageFolder` reads them ([`Layout::Folder`]), or in tar shards as
//! WebDataset writes them ([`Layout::Tar`]). [`Contents::Files`] takes files of any kind below a directory, or the records
//! of TFRecord shards ([`Layout::TfRecord`]). All are listed once, by several threads, into a file that later starts map
//! into memory; nothing of the dataset is then listed again. What was changed since is found when it is read: see
//! [`DatasetIndex::check_directory`] and [`DatasetIndex::shard_stamp`]. Several datasets can be opened as one
//! ([`DatasetIndex::open_all`]), and a part of the samples selected ([`Select`]).

use crate::notices::Notices;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub mod archive;
pub mod build;
mod cancel;
mod classes;
mod folder;
mod format;
mod index;
mod open;
mod part;
pub mod records;
mod select;
pub mod shards;
pub mod source;
mod stamp;
mod summary;
mod survey;

pub use index::DatasetIndex;
pub use select::{ClassRef, Select};
pub use stamp::{Stamp, Version};
pub use summary::{Notes, Origin, Skipped, Summary};

/// Hash of what defines the dataset: layout, relative paths, extents, labels. Not of times: a copy has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Number of a file in the index: a shard, or (for loose files) the sample itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Where a sample's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// How the samples are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Every sample is a file of its own: `root/class/…/image.jpg`, or any file below the root.
    Folder,
    /// WebDataset-style tar shards: many samples a file.
    Tar,
    /// TFRecord shards: many records a file.
    TfRecord,
}

impl Layout {
    /// Whether many samples lie in a file.
    pub fn is_sharded(self) -> bool {
        self != Self::Folder
    }
}

/// What the samples are. Each has an index of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Contents {
    /// JPEG and PNG images: loose, by class directory, or in tar shards.
    #[default]
    Images,
    /// Files of any kind below a directory, hidden ones left out, or the records of the `.tfrecord` shards in it. Where all
    /// files lie in subdirectories, these are the classes; else all are of class 0, as records are.
    Files,
}

/// How to find or build the index.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// Where index files are kept; `None`: `$FORELOAD_INDEX_DIR`, else `$XDG_CACHE_HOME/foreload/index`, else
    /// `~/.cache/foreload/index`. Never inside the dataset: sources are read-only.
    pub directory: Option<PathBuf>,
    /// Build anew even when an index file is there.
    pub rebuild: bool,
    /// Show a progress bar on stderr (when it is a terminal).
    pub progress: bool,
    /// Threads that list and parse; 0: one per available processor, at least 4 (listing waits more than it works).
    pub threads: usize,
    /// What the samples are.
    pub contents: Contents,
    /// Where it is said what the user should hear, of the index and of all that is made of it.
    pub notices: Notices,
}
