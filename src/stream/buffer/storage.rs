//! The bytes of kept samples. With a directory, all bytes are in the directory and some are also in memory. Without a
//! directory, all bytes are in memory.

use super::super::ids::{IdSet, IdTable};
use super::super::live::{LiveBytes, LiveTable};
use super::super::record::Record;
use super::super::segments::{AppendError, MovedRecord, RecordPlace, SegmentStore};
use base::error::{Error, Result};
use base::slot::SlotPool;
use data::dataset::{Extent, FileId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::io::{DataSource, Direct, IoChoice, Reader, open_source};

/// A segment is rewritten to free space if less than this fraction of its bytes is needed.
const SPARSE: f64 = 0.8;

pub(crate) struct SampleStorage {
    memory: HashMap<u64, Arc<Record>>,
    in_memory: u64,
    /// The limit of `in_memory`, if there is a directory.
    max_in_memory: u64,
    stored: Option<StoredBytes>,
}

struct StoredBytes {
    store: SegmentStore,
    places: IdTable<RecordPlace>,
    live: Arc<LiveTable>,
}

impl SampleStorage {
    /// Without a `store` all bytes are in memory. With a store, all bytes are in the store, and up to `max_in_memory`
    /// bytes are also in memory.
    pub(super) fn new(store: Option<SegmentStore>, max_in_memory: u64, live: Arc<LiveTable>) -> Self {
        let stored = store.map(|store| StoredBytes { store, places: IdTable::default(), live });
        Self { memory: HashMap::new(), in_memory: 0, max_in_memory, stored }
    }

    pub(super) fn store(&mut self) -> Option<&mut SegmentStore> {
        self.stored.as_mut().map(|stored| &mut stored.store)
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.memory.contains_key(&id)
            || self.stored.as_ref().is_some_and(|stored| stored.places.contains_key(&id))
    }

    pub(super) fn keep(&mut self, record: &Arc<Record>) -> Result<()> {
        let bytes = record.bytes().len() as u64;
        if let Some(stored) = &mut self.stored {
            if !stored.places.contains_key(&record.id) {
                stored.append(record)?;
            }
            if self.in_memory + bytes > self.max_in_memory {
                return Ok(());
            }
        }
        if self.memory.insert(record.id, record.clone()).is_none() {
            self.in_memory += bytes;
        }
        Ok(())
    }

    /// The bytes of a sample, for a batch.
    ///
    /// # Errors
    /// I/O errors of the directory; [`Error::Internal`] if the bytes are not kept.
    pub(super) fn for_batch(&self, id: u64) -> Result<LiveBytes> {
        if let Some(record) = self.memory.get(&id) {
            return Ok(LiveBytes::Memory(record.clone()));
        }
        let none = || Error::Internal(format!("sample {id} is rehearsed, but not stored"));
        let stored = self.stored.as_ref().ok_or_else(none)?;
        let place = stored.places.get(&id).ok_or_else(none)?;
        match stored.store.extent(place) {
            Some(extent) => Ok(LiveBytes::Stored { extent, crc: place.crc }),
            // The segment is not published yet, so no reader can open it.
            None => stored.record(id).map(|record| LiveBytes::Memory(Arc::new(record))),
        }
    }

    pub(crate) fn read(&self, id: u64) -> Result<Vec<u8>> {
        let none = || Error::Unavailable(format!("sample {id} of a stream is no longer kept"));
        match (self.memory.get(&id), &self.stored) {
            (Some(record), _) => Ok(record.bytes().to_vec()),
            (None, Some(stored)) => stored.store.read(stored.places.get(&id).ok_or_else(none)?),
            (None, None) => Err(none()),
        }
    }

    pub(super) fn forget(&mut self, id: u64) -> Result<()> {
        if let Some(record) = self.memory.remove(&id) {
            self.in_memory -= record.bytes().len() as u64;
        }
        match &mut self.stored {
            Some(stored) => match stored.places.remove(&id) {
                Some(place) => stored.store.free(&place),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Keeps the `wanted` samples of an earlier run's directory, and drops all other samples.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn retain_on_disk(&mut self, wanted: &IdSet) -> Result<()> {
        let Some(stored) = &mut self.stored else { return Ok(()) };
        stored.store.retain(|id| wanted.contains(&id))?;
        stored.places = stored.store.places().map(|found| (found.id, found.place)).collect();
        Ok(())
    }

    /// Removes samples, so that no file contains their bytes. Samples of planned batches stay in memory until these
    /// batches are done.
    ///
    /// # Errors
    /// The errors of [`SegmentStore::withdraw`].
    pub(super) fn withdraw(&mut self, ids: &HashSet<u64>) -> Result<()> {
        for id in ids {
            if let Some(record) = self.memory.remove(id) {
                self.in_memory -= record.bytes().len() as u64;
            }
        }
        let Some(stored) = &mut self.stored else { return Ok(()) };
        for &id in ids.iter().filter(|id| stored.live.stored(**id).is_some()) {
            if stored.places.contains_key(&id) {
                let record = stored.record(id)?;
                stored.live.set_bytes(id, &LiveBytes::Memory(Arc::new(record)));
            }
        }
        let mut moved = Vec::new();
        let withdrawn = stored.store.withdraw(ids, &mut moved);
        for id in ids {
            stored.places.remove(id);
        }
        stored.follow(&moved);
        withdrawn.map(drop)
    }

    /// Opens a reader for the files in the directory of kept samples; `None` if samples are kept only in memory.
    ///
    /// # Errors
    /// The errors of [`open_source`].
    pub(crate) fn open_reader(
        &self,
        slots: &SlotPool,
        io: IoChoice,
        direct: Direct,
        depth: usize,
    ) -> Result<Option<Box<dyn Reader>>> {
        let Some(stored) = &self.stored else { return Ok(None) };
        let source = DataSource {
            files: stored.store.as_files(),
            root: stored.store.path().to_owned(),
            // This extent tests the reader. If the file does not exist yet, the reader tests itself on another file.
            first: Extent { file: FileId(0), offset: 0, length: 1 },
            bytes: stored.store.quota(),
        };
        open_source(&source, slots, io, direct, depth).map(Some)
    }
}

impl StoredBytes {
    /// Appends a sample. If the directory is full, sparse segments are rewritten first.
    fn append(&mut self, record: &Record) -> Result<()> {
        loop {
            match self.store.append(record) {
                Ok(place) => {
                    self.places.insert(record.id, place);
                    return Ok(());
                }
                Err(AppendError::Full(full)) => {
                    let mut moved = Vec::new();
                    let freed = self.store.compact(SPARSE, &mut moved);
                    self.follow(&moved);
                    if freed? == 0 {
                        return Err(full.into());
                    }
                }
                Err(AppendError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Updates the locations of samples whose bytes were moved, including samples of planned batches.
    fn follow(&mut self, moved: &[MovedRecord]) {
        for MovedRecord { id, from, to } in moved {
            if self.places.get(id) != Some(from) {
                continue;
            }
            match to {
                Some(to) => {
                    self.places.insert(*id, *to);
                    if let Some(extent) = self.store.extent(to)
                        && self.live.stored(*id).is_some()
                    {
                        self.live.set_bytes(*id, &LiveBytes::Stored { extent, crc: to.crc });
                    }
                }
                None => {
                    self.places.remove(id);
                }
            }
        }
    }

    fn record(&self, id: u64) -> Result<Record> {
        let none = || Error::Internal(format!("sample {id} is rehearsed, but not stored"));
        let bytes = self.store.read(self.places.get(&id).ok_or_else(none)?)?;
        Record::parse(bytes).map_err(|what| Error::Internal(format!("a kept sample is invalid: {what}")))
    }
}
