//! The tier in a directory on a local drive: the [`Store`], which all ranks of a node share, as one tier of the list.

use super::copies::{CacheTier, CopyFault, Location, Offer, TierReader};
use super::counters::CopyStats;
use super::reader::fault;
use super::store::Store;
use crate::dataset::{Extent, FileId, FileVersion};
use crate::error::{Error, Result};
use crate::io::{DataSource, Direct, IoChoice, open_source, read_blocking};
use crate::peers::CopyBytes;
use crate::slot::SlotPool;
use crate::tier_name::TierName;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A store, and how its files are read.
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

/// The most segments that are open for other nodes.
const MOST_SERVED: usize = 256;

/// The segments that are open to serve other nodes from.
#[derive(Default)]
pub(super) struct ServedFiles(Mutex<HashMap<FileId, Arc<File>>>);

impl ServedFiles {
    /// The file of a segment, open for reading.
    fn open(&self, store: &Store, file: FileId) -> Result<Arc<File>> {
        let files = store.files();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&file) {
            return Ok(file.clone());
        }
        // An open segment keeps its bytes on the drive after its end.
        open.retain(|file, _| !files.is_gone(*file));
        if open.len() >= MOST_SERVED
            && let Some(any) = open.keys().next().copied()
        {
            open.remove(&any);
        }
        let path = files.path(file);
        let opened = Arc::new(File::open(&path).map_err(|error| Error::io("open", path, error))?);
        open.insert(file, opened.clone());
        Ok(opened)
    }
}

impl CacheTier for Directory {
    fn name(&self) -> TierName {
        self.name
    }

    fn capacity(&self) -> u64 {
        self.size
    }

    fn is_shared(&self) -> bool {
        true
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

    fn outdate(&self, sample: u64, location: &Location) {
        self.store.outdate(sample, location);
    }

    fn forget(&self, sample: u64, location: &Location) {
        self.store.forget(sample, location);
    }

    fn damaged(&self, sample: u64, location: Location, why: CopyFault) {
        self.store.damaged(sample, location, why);
    }

    fn groups(&self) -> BTreeMap<u64, u64> {
        self.store.groups()
    }

    fn evict_group(&self, group: u64) {
        self.store.evict_group(group);
    }

    fn seal(&self) {
        self.store.seal();
    }

    fn flush(&self) {
        self.store.flush();
    }

    fn unpublished(&self) -> u64 {
        2 * self.store.segment_bytes()
    }

    fn claim_unit(&self, unit: u64) -> Option<Box<dyn Any + Send>> {
        self.store.claim_unit(unit).map(|claim| Box::new(claim) as Box<dyn Any + Send>)
    }

    fn stats(&self) -> CopyStats {
        self.store.stats()
    }

    fn last_error(&self) -> Option<String> {
        self.store.last_error()
    }

    fn forget_error(&self) {
        self.store.forget_error();
    }

    fn reader(&self, slots: &SlotPool) -> TierReader {
        let source = DataSource {
            files: self.store.files(),
            root: self.path.clone(),
            // The store may hold nothing yet; then the reader tests itself on another file.
            first: Extent { file: FileId(0), offset: 0, length: 1 },
            bytes: self.size,
        };
        let (slots, io, direct, depth) = (slots.clone(), self.io, self.direct, self.queue_depth);
        TierReader::Waiting(Box::new(move || open_source(&source, &slots, io, direct, depth)))
    }

    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>> {
        read_blocking(&*self.store.files(), location.extent)
    }

    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>> {
        let Extent { file, offset, length } = location.extent;
        let file = self.served.open(&self.store, file).map_err(|error| fault(&error))?;
        Ok(CopyBytes::File { file, offset, length, alignment: 1 })
    }
}
