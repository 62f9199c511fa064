//! One dataset of those in an index: what lies below one root. Samples and files are numbered from 0 here.

use super::format::{GROUP_ROW, Map, STAMP_ROW, Section, stamp_at, u32_at, u64_at};
use super::summary;
use super::{Extent, FileId, Fingerprint, Layout, Notes, Origin, Stamp, Summary};
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The index file of one root. Panics where a number is out of range, as [`super::DatasetIndex`] says.
pub(super) struct Part {
    /// As the user named it.
    pub(super) root: PathBuf,
    /// Absolute, so that a later change of the working directory does not matter.
    base: PathBuf,
    pub(super) map: Map,
    pub(super) notes: Notes,
    pub(super) origin: Origin,
    pub(super) seconds: f64,
    /// Directories already compared by [`Part::check_directory`].
    checked: Vec<AtomicBool>,
}

/// Extents end below this, so that adding offset and length never overflows, whatever a damaged index holds.
const MAX_OFFSET: u64 = i64::MAX as u64 - u32::MAX as u64;

impl Part {
    pub(super) fn new(root: &Path, map: Map) -> Result<Self> {
        let base = std::path::absolute(root).map_err(|error| Error::io("resolve", root, error))?;
        let notes = serde_json::from_slice(map.section(Section::Notes)).map_err(|error| {
            Error::dataset(map.path(), format!("not a usable index file: its notes are no JSON: {error}"))
        })?;
        let checked = (0..map.header().groups).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { root: root.to_path_buf(), base, map, notes, origin: Origin::Loaded, seconds: 0.0, checked })
    }

    pub(super) fn layout(&self) -> Layout {
        self.map.header().layout
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u64 {
        self.map.header().samples
    }

    /// Number of files.
    pub(super) fn files(&self) -> u32 {
        if self.layout().is_sharded() { self.checked.len() as u32 } else { self.len() as u32 }
    }

    pub(super) fn label(&self, sample: u64) -> u32 {
        // Clamped, as in `extent`: damage may make an answer wrong, not one that breaks its caller.
        self.column(Section::Labels, sample).min(self.num_classes().saturating_sub(1))
    }

    /// The samples of class `label`, of loose files: they are sorted by class.
    pub(super) fn samples_of_class(&self, label: u32) -> Range<u64> {
        let first = |above: u64| search(0, self.len(), |sample| u64::from(self.label(sample)) < above);
        let label = u64::from(label);
        first(label)..first(label + 1)
    }

    pub(super) fn extent(&self, sample: u64) -> Extent {
        let length = self.column(Section::Lengths, sample).min(self.map.header().largest);
        if self.layout().is_sharded() {
            let offset = u64_at(self.map.section(Section::Places), 8 * sample as usize).min(MAX_OFFSET);
            Extent { file: FileId(self.group_of(sample) as u32), offset, length }
        } else {
            Extent { file: FileId(sample as u32), offset: 0, length }
        }
    }

    pub(super) fn sample_of(&self, extent: Extent) -> Option<u64> {
        let sample = if self.layout().is_sharded() {
            // A shard's samples are indexed in the order they stand in it.
            let Range { start, end } = self.samples_of(extent.file);
            search(start, end, |sample| self.extent(sample).offset < extent.offset)
        } else {
            u64::from(extent.file.0)
        };
        (sample < self.len() && self.extent(sample) == extent).then_some(sample)
    }

    pub(super) fn samples_of(&self, file: FileId) -> Range<u64> {
        if self.layout().is_sharded() {
            let group = file.0 as usize;
            assert!(group < self.checked.len(), "file {group} of {}", self.checked.len());
            self.group_start(group, 0)..self.group_start(group + 1, 0)
        } else {
            u64::from(file.0)..u64::from(file.0) + 1
        }
    }

    pub(super) fn path(&self, file: FileId) -> PathBuf {
        if self.layout().is_sharded() {
            let path = self.group_path(file.0 as usize);
            return if path.is_empty() { self.base.clone() } else { self.base.join(OsStr::from_bytes(path)) };
        }
        let sample = u64::from(file.0);
        let group = self.group_of(sample);
        let (directory, prefix, suffix) = self.group_parts(group);
        let name = self.name(group, sample);
        // Files in the root itself have no directory below it.
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        // One allocation: this runs once a sample on the reading path.
        let parts = [self.base.as_os_str().as_bytes(), slash, directory, b"/", prefix, name, suffix].concat();
        PathBuf::from(OsString::from_vec(parts))
    }

    /// What stands between prefix and suffix in the name of a loose file of `group`.
    fn name(&self, group: usize, sample: u64) -> &[u8] {
        let names = self.section_of(group, 2, Section::Names);
        let end = |sample| self.column(Section::Places, sample) as usize;
        let first = sample == self.group_start(group, 0);
        let start = if first { 0 } else { end(sample - 1) };
        names.get(start..end(sample)).unwrap_or_default()
    }

    /// Tells `visit` every file's path below the root, in order; a root that is a shard has its own name.
    pub(super) fn each_path(&self, mut visit: impl FnMut(FileId, &[u8])) {
        let mut path = Vec::new();
        for group in 0..self.checked.len() {
            let (directory, prefix, suffix) = self.group_parts(group);
            if self.layout().is_sharded() {
                let own = || self.base.file_name().unwrap_or_default().as_bytes();
                visit(FileId(group as u32), if directory.is_empty() { own() } else { directory });
                continue;
            }
            for sample in self.group_start(group, 0)..self.group_start(group + 1, 0) {
                path.clear();
                path.extend(directory);
                if !directory.is_empty() {
                    path.push(b'/');
                }
                [prefix, self.name(group, sample), suffix].iter().for_each(|bytes| path.extend(*bytes));
                visit(FileId(sample as u32), &path);
            }
        }
    }

    /// Class names by number, as bytes; none where the dataset has only numbers.
    pub(super) fn class_names(&self) -> Vec<&[u8]> {
        summary::class_names(self.map.section(Section::Classes))
    }

    pub(super) fn num_classes(&self) -> u32 {
        self.map.header().classes
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.map.header().fingerprint)
    }

    pub(super) fn stamps_digest(&self) -> [u8; 32] {
        self.map.digest(Section::Stamps)
    }

    pub(super) fn shard_stamp(&self, file: FileId) -> Option<Stamp> {
        self.layout().is_sharded().then(|| self.group_stamp(file.0 as usize))
    }

    pub(super) fn check_directory(&self, file: FileId) -> Result<()> {
        if self.layout().is_sharded() {
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

    pub(super) fn summary(&self) -> Summary {
        let header = self.map.header();
        Summary {
            root: self.root.clone(),
            layout: self.layout(),
            samples: self.len(),
            classes: self.num_classes(),
            total_bytes: header.total_bytes,
            largest: header.largest,
            groups: header.groups,
            notes: self.notes.clone(),
            fingerprint: self.fingerprint().to_string(),
            index_path: self.map.path().to_path_buf(),
            index_bytes: self.map.len(),
            origin: self.origin.clone(),
            seconds: self.seconds,
        }
    }

    fn column(&self, section: Section, sample: u64) -> u32 {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        u32_at(self.map.section(section), 4 * sample as usize)
    }

    /// The directory or shard of a sample, by binary search over the groups' ends.
    fn group_of(&self, sample: u64) -> usize {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        search(0, self.checked.len() as u64, |group| self.group_start(group as usize + 1, 0) <= sample)
            as usize
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
        stamp_at(self.map.section(Section::Stamps), STAMP_ROW * group)
    }
}

/// The first of `low..high` that is not `before`, or `high`: those before come first.
fn search(mut low: u64, mut high: u64, before: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
