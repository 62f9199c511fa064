//! The segments as numbered files for readers.

use super::RecordPlace;
use base::locks::lock;
use data::dataset::{Extent, FileId, Stamp};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::io::Files;

/// The files of the published segments. A rewritten segment gets another file number, so that no reader uses the new
/// places in the old file.
pub(super) struct SegmentFiles {
    directory: PathBuf,
    table: Mutex<FileTable>,
    gone: AtomicU64,
}

#[derive(Default)]
struct FileTable {
    next: u32,
    files: HashMap<FileId, (PathBuf, Stamp)>,
    by_segment: HashMap<u64, FileId>,
}

impl SegmentFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, table: Mutex::default(), gone: AtomicU64::new(0) }
    }

    /// Adds a segment that has just been published, and removes the file that it replaces.
    pub(super) fn add(&self, segment: u64, path: PathBuf, stamp: Stamp) {
        self.remove(segment);
        let mut table = lock(&self.table);
        let file = FileId(table.next);
        table.next = table.next.wrapping_add(1);
        // Giving the file its name changed its change time, so only size and modification time can be compared.
        let stamp = Stamp { size: stamp.size, mtime: stamp.mtime, ..Stamp::default() };
        table.files.insert(file, (path, stamp));
        table.by_segment.insert(segment, file);
    }

    pub(super) fn remove(&self, segment: u64) {
        let mut table = lock(&self.table);
        if let Some(file) = table.by_segment.remove(&segment) {
            table.files.remove(&file);
            self.gone.fetch_add(1, Relaxed);
        }
    }

    /// The extent at which readers find the sample at `place`. `None` if its segment is not published.
    pub(super) fn extent(&self, place: &RecordPlace) -> Option<Extent> {
        let file = *lock(&self.table).by_segment.get(&place.segment)?;
        Some(Extent { file, offset: place.offset, length: place.length })
    }
}

impl Files for SegmentFiles {
    fn path(&self, file: FileId) -> PathBuf {
        let known = lock(&self.table).files.get(&file).map(|(path, _)| path.clone());
        known.unwrap_or_else(|| self.directory.join("a segment that was removed"))
    }

    fn stamp(&self, file: FileId) -> Option<Stamp> {
        Some(lock(&self.table).files.get(&file).map_or_else(Stamp::default, |(_, stamp)| *stamp))
    }

    fn never_change(&self) -> bool {
        true
    }

    fn is_gone(&self, file: FileId) -> bool {
        !lock(&self.table).files.contains_key(&file)
    }

    fn gone(&self) -> u64 {
        self.gone.load(Relaxed)
    }
}
