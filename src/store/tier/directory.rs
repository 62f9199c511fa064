//! The tier in a directory on a local drive: presents the [`Store`], which all ranks of a node share, as a tier.

use super::copies::{CacheTier, CopyFault, LocalTier, Location, Offer, Publish, TierParts, TierReader};
use super::counters::{CopyCounters, CopyStats};
use super::reader::fault;
use super::store::Store;
use crate::io::{DataSource, Direct, Files, IoChoice, open_source, read_blocking};
use crate::peers::CopyBytes;
use base::error::{Error, Result};
use base::locks::lock;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{Extent, FileId, FileVersion};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

pub(super) struct Directory {
    pub(super) name: TierName,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) store: Arc<Store>,
    pub(super) io: IoChoice,
    pub(super) direct: Direct,
    pub(super) queue_depth: usize,
    pub(super) served: ServedFiles,
}

const MAX_READS: usize = 64;

/// The maximum number of segments that are kept open for serving other nodes.
const MAX_SERVED: usize = 256;

#[derive(Default)]
pub(super) struct ServedFiles(Mutex<ServedTable>);

#[derive(Default)]
struct ServedTable {
    /// Open files, each with the value of `uses` at its latest use.
    open: HashMap<FileId, (Arc<File>, u64)>,
    uses: u64,
}

impl ServedFiles {
    /// Returns the open file of a segment. If too many files are open, closes the least recently used one.
    fn open(&self, files: &dyn Files, file: FileId) -> Result<Arc<File>> {
        let ServedTable { open, uses } = &mut *lock(&self.0);
        *uses += 1;
        if let Some((file, last)) = open.get_mut(&file) {
            *last = *uses;
            return Ok(file.clone());
        }
        // Close removed segments, because an open file keeps its bytes on the drive.
        open.retain(|file, _| !files.is_gone(*file));
        if open.len() >= MAX_SERVED {
            let oldest = open.iter().min_by_key(|(_, (_, last))| *last).map(|(file, _)| *file);
            oldest.and_then(|oldest| open.remove(&oldest));
        }
        let path = files.path(file);
        let opened = Arc::new(File::open(&path).map_err(|error| Error::io("open", path, error))?);
        open.insert(file, (opened.clone(), *uses));
        Ok(opened)
    }
}

impl CacheTier for Directory {
    fn name(&self) -> TierName {
        self.name
    }

    fn parts(&self) -> TierParts<'_> {
        TierParts {
            local: Some(self),
            shared: Some(&*self.store),
            convertible: Some(&*self.store),
            ..TierParts::default()
        }
    }

    fn locate(&self, sample: u64) -> Option<Location> {
        self.store.locate(sample)
    }

    fn is_open(&self) -> bool {
        self.store.is_open()
    }

    fn can_take(&self) -> bool {
        self.store.can_take()
    }

    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        self.store.offer(group, sample, version, bytes)
    }

    fn confirm(&self, sample: u64, location: &Location) {
        self.store.confirm(sample, location);
    }

    fn drop_stale(&self, sample: u64, location: &Location) {
        self.store.drop_stale(sample, location);
    }

    fn damaged(&self, sample: u64, location: Location, why: CopyFault) {
        self.store.damaged(sample, location, why);
    }

    fn stats(&self) -> CopyStats {
        self.store.stats()
    }

    fn reader(&self, slots: &SlotPool) -> TierReader {
        let source = DataSource {
            files: self.store.files(),
            root: self.path.clone(),
            // If the store is empty, this extent does not exist. The reader then tests itself on another file.
            first: Extent { file: FileId(0), offset: 0, length: 1 },
            bytes: self.size,
        };
        // With pread, each read in flight needs a thread. So limit a queue depth that was chosen for a dataset on
        // servers.
        let depth = self.queue_depth.min(MAX_READS);
        let (slots, io, direct) = (slots.clone(), self.io, self.direct);
        TierReader::Waiting(Box::new(move || open_source(&source, &slots, io, direct, depth)))
    }
}

impl LocalTier for Directory {
    fn capacity(&self) -> u64 {
        self.size
    }

    fn groups(&self) -> BTreeMap<u64, u64> {
        self.store.groups()
    }

    fn evict_group(&self, group: u64) {
        self.store.evict_group(group);
    }

    fn publish(&self, when: Publish) {
        match when {
            Publish::Soon => self.store.publish(),
            Publish::AtEnd => self.store.publish_at_end(),
            Publish::Now => self.store.flush(),
        }
    }

    fn mark_unverified(&self) {
        self.store.mark_unverified();
    }

    /// Returns `true`, because the write buffers always exist.
    fn offers_at_once(&self, _group: u64, _length: u32) -> bool {
        true
    }

    fn counters(&self) -> &CopyCounters {
        self.store.counters()
    }

    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>> {
        read_blocking(&*self.store.files(), location.extent)
    }

    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>> {
        let Extent { file, offset, length } = location.extent;
        let file = self.served.open(&*self.store.files(), file).map_err(|error| fault(&error))?;
        Ok(CopyBytes::File { file, offset, length, alignment: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::dataset::Stamp;

    struct OneFile(PathBuf);

    impl Files for OneFile {
        fn path(&self, _: FileId) -> PathBuf {
            self.0.clone()
        }

        fn stamp(&self, _: FileId) -> Option<Stamp> {
            None
        }
    }

    #[test]
    fn the_segment_that_was_not_asked_for_for_longest_is_closed() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let (files, served) = (OneFile(named.path().to_owned()), ServedFiles::default());
        let open = |file: usize| served.open(&files, FileId(file as u32)).unwrap();
        let first: Vec<_> = (0..MAX_SERVED).map(open).collect();
        open(0);
        let more: Vec<_> = (MAX_SERVED..2 * MAX_SERVED - 1).map(open).collect();
        assert!(Arc::ptr_eq(&first[0], &open(0)), "it was asked for again");
        assert!(std::iter::zip(MAX_SERVED.., &more).all(|(file, kept)| Arc::ptr_eq(kept, &open(file))));
        assert!(!Arc::ptr_eq(&first[1], &open(1)));
    }
}
