//! What is there: sample id → (file, offset, length, label), in a persistent index.

use crate::error::Result;
use std::path::{Path, PathBuf};

/// Hash of what defines the dataset: layout, relative paths, extents, labels. Not of times: a copy has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `root/class/…/image.jpg`: every sample is a file of its own.
    Folder,
    /// WebDataset-style tar shards: many samples a file.
    Tar,
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
}

/// All samples' extents and labels. Memory-mapped: opening costs no time or memory per sample.
pub struct DatasetIndex {}

impl DatasetIndex {
    /// Loads the index of `root`, or builds and keeps it.
    pub fn open(_root: &Path, _options: &IndexOptions) -> Result<Self> {
        todo!()
    }
    /// The dataset's directory as the user named it.
    pub fn root(&self) -> &Path {
        todo!()
    }
    /// How the samples are stored.
    pub fn layout(&self) -> Layout {
        todo!()
    }
    /// Number of samples.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether there are no samples; an index without samples is refused when it is built.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Class number of a sample.
    pub fn label(&self, _sample: u64) -> u32 {
        todo!()
    }
    /// Where a sample's image bytes are.
    pub fn extent(&self, _sample: u64) -> Extent {
        todo!()
    }
    /// Full path of a file.
    pub fn path(&self, _file: FileId) -> PathBuf {
        todo!()
    }
    /// Class names by number; empty where the dataset has only numbers (tar with `.cls`).
    pub fn classes(&self) -> &[String] {
        todo!()
    }
    /// The dataset's fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        todo!()
    }
    /// Bytes of the largest sample.
    pub fn largest(&self) -> u32 {
        todo!()
    }
    /// Bytes of all samples.
    pub fn total_bytes(&self) -> u64 {
        todo!()
    }
    /// Size in bytes and mtime in nanoseconds of a shard when it was indexed; `None` for loose files.
    pub fn shard_stamp(&self, _file: FileId) -> Option<(u64, i64)> {
        todo!()
    }
    /// Compares the directory that holds a loose file with its mtime at indexing, once per directory; cheap after that.
    /// The reader calls it before a directory's first read.
    pub fn check_directory(&self, _file: FileId) -> Result<()> {
        todo!()
    }
}
