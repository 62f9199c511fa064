//! What is there: sample id → (file, offset, length, label), in a persistent index.
//!
//! Two layouts are known: class directories of loose images, as torchvision's `ImageFolder` reads them
//! ([`Layout::Folder`]), and tar shards as WebDataset writes them ([`Layout::Tar`]). Either is listed once, by several
//! threads, into a file that later starts map into memory; nothing of the dataset is then listed again. What was changed
//! since is found when it is read: see [`DatasetIndex::check_directory`] and [`DatasetIndex::shard_stamp`].

use crate::error::{Error, Result};
use cancel::Cancel;
use format::{GROUP_ROW, Map, STAMP_ROW, Section, u32_at, u64_at};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub mod archive;
pub mod build;
mod cancel;
mod folder;
mod format;
mod open;
pub mod shards;
mod summary;

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
    /// `root/class/…/image.jpg`: every sample is a file of its own.
    Folder,
    /// WebDataset-style tar shards: many samples a file.
    Tar,
}

/// By what a changed file or directory is recognised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes; 0 for directories, whose size says nothing.
    pub size: u64,
    /// Last modification, in nanoseconds since 1970.
    pub mtime: i64,
}

impl Stamp {
    /// The stamp of what `metadata` describes.
    pub fn of(metadata: &Metadata) -> Self {
        let mtime = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { size: if metadata.is_dir() { 0 } else { metadata.len() }, mtime }
    }
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
pub struct DatasetIndex {
    root: PathBuf,
    /// Absolute, so that a later change of the working directory does not matter.
    base: PathBuf,
    map: Map,
    classes: Vec<String>,
    notes: Notes,
    origin: Origin,
    seconds: f64,
    /// Directories already compared by [`DatasetIndex::check_directory`].
    checked: Vec<AtomicBool>,
}

/// Extents end below this, so that adding offset and length never overflows, whatever a damaged index holds.
const MAX_OFFSET: u64 = i64::MAX as u64 - u32::MAX as u64;

impl DatasetIndex {
    /// Loads the index of `root`, or builds and keeps it.
    ///
    /// `root` is a directory of class directories, a directory of `.tar` shards, or one `.tar` file. Processes that
    /// start together build one index: the first builds, the others wait for it.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] when entries were added to the root or removed since it was indexed;
    /// [`Error::Dataset`] for a root without samples or of neither layout, shards that cannot be indexed, and an index
    /// directory inside the dataset; [`Error::Io`] when something cannot be read or written.
    pub fn open(root: &Path, options: &IndexOptions) -> Result<Self> {
        open::open(root, options, &Cancel::default())
    }

    /// As [`DatasetIndex::open`], and given up soon after another thread sets `cancel`, for Ctrl-C: listing a large
    /// dataset takes minutes. Waiting for another process that builds the index ends too. Nothing half-built is left
    /// behind; an index that is already there is loaded all the same.
    ///
    /// # Errors
    /// Those of `open`; [`Error::Dataset`], "indexing was interrupted", when it was given up.
    pub fn open_cancellable(root: &Path, options: &IndexOptions, cancel: &Arc<AtomicBool>) -> Result<Self> {
        open::open(root, options, &Cancel::by(cancel))
    }

    /// Loads the index file at `file` as that of `root`, without looking at `root`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::Dataset`] when it is not a sound index file.
    pub fn load(root: &Path, file: &Path) -> Result<Self> {
        Self::from_map(root, Map::load(file)?)
    }

    fn from_map(root: &Path, map: Map) -> Result<Self> {
        let base = std::path::absolute(root).map_err(|error| Error::io("resolve", root, error))?;
        let classes = summary::class_names(map.section(Section::Classes));
        let notes = serde_json::from_slice(map.section(Section::Notes)).map_err(|error| {
            Error::dataset(map.path(), format!("not a usable index file: its notes are no JSON: {error}"))
        })?;
        let checked = (0..map.header().groups).map(|_| AtomicBool::new(false)).collect();
        let root = root.to_path_buf();
        Ok(Self { root, base, map, classes, notes, origin: Origin::Loaded, seconds: 0.0, checked })
    }

    /// The dataset's directory as the user named it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How the samples are stored.
    pub fn layout(&self) -> Layout {
        if self.map.header().tar { Layout::Tar } else { Layout::Folder }
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.map.header().samples
    }

    /// Whether there are no samples; an index without samples is refused when it is built.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Class number of a sample.
    ///
    /// # Panics
    /// When `sample` is not below [`DatasetIndex::len`].
    pub fn label(&self, sample: u64) -> u32 {
        // Clamped, as in `extent`: damage may make an answer wrong, not one that breaks its caller.
        self.column(Section::Labels, sample).min(self.num_classes().saturating_sub(1))
    }

    /// Where a sample's image bytes are.
    ///
    /// # Panics
    /// When `sample` is not below [`DatasetIndex::len`].
    pub fn extent(&self, sample: u64) -> Extent {
        let length = self.column(Section::Lengths, sample).min(self.largest());
        match self.layout() {
            Layout::Folder => Extent { file: FileId(sample as u32), offset: 0, length },
            Layout::Tar => {
                let offset = u64_at(self.map.section(Section::Places), 8 * sample as usize).min(MAX_OFFSET);
                Extent { file: FileId(self.group_of(sample) as u32), offset, length }
            }
        }
    }

    /// The sample whose bytes `extent` is; `None` where no sample is exactly that.
    pub fn sample_of(&self, extent: Extent) -> Option<u64> {
        let file = extent.file.0;
        let sample = match self.layout() {
            Layout::Folder => u64::from(file),
            Layout::Tar if (file as usize) < self.checked.len() => {
                // A shard's samples are indexed in the order they stand in it.
                let Range { start: mut low, end: mut high } = self.samples_of(extent.file);
                while low < high {
                    let middle = low.midpoint(high);
                    if self.extent(middle).offset < extent.offset { low = middle + 1 } else { high = middle }
                }
                low
            }
            Layout::Tar => return None,
        };
        (sample < self.len() && self.extent(sample) == extent).then_some(sample)
    }

    /// All files: shards, or the loose files of the samples.
    pub fn files(&self) -> impl Iterator<Item = FileId> + use<> {
        let files = match self.layout() {
            Layout::Folder => self.len() as u32,
            Layout::Tar => self.checked.len() as u32,
        };
        (0..files).map(FileId)
    }

    /// The samples of a file, in the order they stand in it.
    ///
    /// # Panics
    /// When the index has no such file.
    pub fn samples_of(&self, file: FileId) -> Range<u64> {
        match self.layout() {
            Layout::Folder => u64::from(file.0)..u64::from(file.0) + 1,
            Layout::Tar => {
                let group = file.0 as usize;
                assert!(group < self.checked.len(), "file {group} of {}", self.checked.len());
                self.group_start(group, 0)..self.group_start(group + 1, 0)
            }
        }
    }

    /// Full path of a file.
    ///
    /// # Panics
    /// When the index has no such file.
    pub fn path(&self, file: FileId) -> PathBuf {
        match self.layout() {
            Layout::Tar => {
                let path = self.group_path(file.0 as usize);
                if path.is_empty() { self.base.clone() } else { self.base.join(OsStr::from_bytes(path)) }
            }
            Layout::Folder => {
                let sample = u64::from(file.0);
                let group = self.group_of(sample);
                let names = self.section_of(group, 2, Section::Names);
                let end = |sample| self.column(Section::Places, sample) as usize;
                let first = sample == self.group_start(group, 0);
                let start = if first { 0 } else { end(sample - 1) };
                let name = names.get(start..end(sample)).unwrap_or_default();
                let (directory, prefix, suffix) = self.group_parts(group);
                // One allocation: this runs once a sample on the reading path.
                let parts =
                    [self.base.as_os_str().as_bytes(), b"/", directory, b"/", prefix, name, suffix].concat();
                PathBuf::from(OsString::from_vec(parts))
            }
        }
    }

    /// Class names by number; empty where the dataset has only numbers (tar with `.cls`).
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Number of classes: with names, how many; else the largest class number and one.
    pub fn num_classes(&self) -> u32 {
        self.map.header().classes
    }

    /// The dataset's fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.map.header().fingerprint)
    }

    /// Hash of the sizes and times of all shards, or the times of all directories, when they were indexed: what the
    /// fingerprint leaves out. Who keeps copies of samples tells by both whether they are still the dataset's.
    pub fn stamps_digest(&self) -> [u8; 32] {
        self.map.digest(Section::Stamps)
    }

    /// Bytes of the largest sample.
    pub fn largest(&self) -> u32 {
        self.map.header().largest
    }

    /// Bytes of all samples.
    pub fn total_bytes(&self) -> u64 {
        self.map.header().total_bytes
    }

    /// Size in bytes and mtime in nanoseconds of a shard when it was indexed; `None` for loose files.
    pub fn shard_stamp(&self, file: FileId) -> Option<(u64, i64)> {
        let tar = self.layout() == Layout::Tar;
        tar.then(|| self.group_stamp(file.0 as usize)).map(|stamp| (stamp.size, stamp.mtime))
    }

    /// Compares the directory that holds a loose file with its mtime at indexing, once per directory; cheap after that.
    /// The reader calls it before a directory's first read.
    ///
    /// A file overwritten in place with as many bytes is not noticed: its directory does not change.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] naming the directory when entries were added, removed or replaced, at every call;
    /// [`Error::Io`] when it cannot be looked at.
    pub fn check_directory(&self, file: FileId) -> Result<()> {
        if self.layout() == Layout::Tar {
            return Ok(());
        }
        let group = self.group_of(u64::from(file.0));
        if self.checked[group].load(Ordering::Relaxed) {
            return Ok(());
        }
        // Directories without samples have nobody else to ask for them: the next one with samples answers for those
        // before it, the last also for those behind.
        let empty = |group: &usize| self.group_start(*group, 0) == self.group_start(*group + 1, 0);
        let before = (0..group).rev().take_while(empty);
        let last = self.group_start(group + 1, 0) == self.len();
        let behind = if last { group + 1..self.checked.len() } else { 0..0 };
        for group in before.chain(behind).chain([group]) {
            self.check_group(group)?;
        }
        Ok(())
    }

    fn check_group(&self, group: usize) -> Result<()> {
        let path = self.base.join(OsStr::from_bytes(self.group_path(group)));
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
        if Stamp::of(&metadata).mtime != self.group_stamp(group).mtime {
            let message =
                "files were added, removed or replaced in this directory since it was indexed".to_owned();
            return Err(Error::DatasetChanged { path, message });
        }
        self.checked[group].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Compares the whole index file with its digests: reads all of it, about a second a gigabyte.
    ///
    /// # Errors
    /// [`Error::Dataset`] naming the index file when it is damaged.
    pub fn verify(&self) -> Result<()> {
        self.map.verify()
    }

    /// What `foreload index` shows.
    pub fn summary(&self) -> Summary {
        summary::summarise(self)
    }

    fn column(&self, section: Section, sample: u64) -> u32 {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        u32_at(self.map.section(section), 4 * sample as usize)
    }

    /// The directory or shard of a sample, by binary search over the groups' ends.
    fn group_of(&self, sample: u64) -> usize {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        let (mut low, mut high) = (0, self.checked.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.group_start(middle + 1, 0) <= sample { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Where a group begins in samples (`field` 0), paths (1) or names (2): where the one before ends.
    fn group_start(&self, group: usize, field: usize) -> u64 {
        match group.checked_sub(1) {
            None => 0,
            Some(before) => u64_at(self.map.section(Section::Groups), GROUP_ROW * before + 8 * field),
        }
    }

    /// A group's part of the paths (`field` 1) or of the names (2).
    fn section_of(&self, group: usize, field: usize, section: Section) -> &[u8] {
        let bytes = self.map.section(section);
        let end = (self.group_start(group + 1, field) as usize).min(bytes.len());
        &bytes[(self.group_start(group, field) as usize).min(end)..end]
    }

    /// A group's path below the root, and what all its names begin and end with.
    fn group_parts(&self, group: usize) -> (&[u8], &[u8], &[u8]) {
        assert!(group < self.checked.len(), "file {group} of {}", self.checked.len());
        let row = self.map.section(Section::Groups);
        let affix = |field| u32_at(row, GROUP_ROW * group + field) as usize;
        let path = self.section_of(group, 1, Section::Paths);
        let (path, suffix) = path.split_at(path.len().saturating_sub(affix(28)));
        let (path, prefix) = path.split_at(path.len().saturating_sub(affix(24)));
        (path, prefix, suffix)
    }

    fn group_path(&self, group: usize) -> &[u8] {
        self.group_parts(group).0
    }

    fn group_stamp(&self, group: usize) -> Stamp {
        let stamps = self.map.section(Section::Stamps);
        let at = STAMP_ROW * group;
        Stamp { size: u64_at(stamps, at), mtime: u64_at(stamps, at + 8) as i64 }
    }
}
