//! Segments as files that readers read by number.

use super::RecordPlace;
use data::dataset::{Extent, FileId, Stamp};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::io::Files;

/// The files of the segments that are published. A segment that is written anew is another file, so that no reader
/// reads from the one that is gone by the places of the other.
pub(super) struct SegmentFiles {
    directory: PathBuf,
    table: Mutex<FileTable>,
    gone: AtomicU64,
}

#[derive(Default)]
struct FileTable {
    next: u32,
    files: HashMap<FileId, (PathBuf, Stamp)>,
    of_segments: HashMap<u64, FileId>,
}

impl SegmentFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, table: Mutex::default(), gone: AtomicU64::new(0) }
    }

    /// Enters a segment that has just been published, in place of the file that it was.
    pub(super) fn enter(&self, segment: u64, path: PathBuf, stamp: Stamp) {
        self.leave(segment);
        let mut table = self.table();
        let file = FileId(table.next);
        table.next = table.next.wrapping_add(1);
        // Naming the file changed its change time, so that only size and modification time are known.
        let stamp = Stamp { size: stamp.size, mtime: stamp.mtime, ..Stamp::default() };
        table.files.insert(file, (path, stamp));
        table.of_segments.insert(segment, file);
    }

    /// Forgets a segment that is gone.
    pub(super) fn leave(&self, segment: u64) {
        let mut table = self.table();
        if let Some(file) = table.of_segments.remove(&segment) {
            table.files.remove(&file);
            self.gone.fetch_add(1, Relaxed);
        }
    }

    /// Where readers find the sample at `place`; `None` unless its segment is published.
    pub(super) fn extent(&self, place: &RecordPlace) -> Option<Extent> {
        let file = *self.table().of_segments.get(&place.segment)?;
        Some(Extent { file, offset: place.offset, length: place.length })
    }

    fn table(&self) -> MutexGuard<'_, FileTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for SegmentFiles {
    fn path(&self, file: FileId) -> PathBuf {
        let known = self.table().files.get(&file).map(|(path, _)| path.clone());
        known.unwrap_or_else(|| self.directory.join("a segment that is gone"))
    }

    fn stamp(&self, file: FileId) -> Option<Stamp> {
        Some(self.table().files.get(&file).map_or_else(Stamp::default, |(_, stamp)| *stamp))
    }

    fn never_change(&self) -> bool {
        true
    }

    fn is_gone(&self, file: FileId) -> bool {
        !self.table().files.contains_key(&file)
    }

    fn gone(&self) -> u64 {
        self.gone.load(Relaxed)
    }
}
