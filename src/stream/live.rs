//! The samples of a stream that are in use: those of batches that are planned and not delivered yet.

use super::record::{self, Record};
use crate::dataset::kind::image_rank;
use crate::dataset::{Extent, FileId, Fingerprint, IMAGE, LiveSamples, choices};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The file that stands for memory: samples that lie there are told apart by their offset, which is their id.
pub(super) const IN_MEMORY: FileId = FileId(u32::MAX);

/// Where the bytes of a sample are.
#[derive(Debug, Clone)]
pub(super) enum SampleBytes {
    Memory(Arc<Record>),
    /// In a file of the rehearsal buffer.
    Stored(Extent),
}

/// A sample that is in use.
struct LiveSample {
    /// The number of places in batches that show it.
    users: u32,
    label: u32,
    bytes: SampleBytes,
}

/// The samples in use, by their ids.
pub(crate) struct LiveTable {
    name: PathBuf,
    fingerprint: Fingerprint,
    /// The bytes of the largest sample and of one of usual size.
    sizes: (u32, u32),
    samples: RwLock<HashMap<u64, LiveSample>>,
    /// The paths of the rehearsal buffer's files.
    paths: Box<dyn Fn(FileId) -> PathBuf + Send + Sync>,
}

impl LiveTable {
    /// The table of the streams with these names, whose buffer has files at these `paths`.
    pub(super) fn new(
        streams: &[&str],
        sizes: (u32, u32),
        paths: Box<dyn Fn(FileId) -> PathBuf + Send + Sync>,
    ) -> Self {
        let mut hash = Sha256::new_with_prefix(b"foreload streams 1");
        for stream in streams {
            hash.update((stream.len() as u64).to_le_bytes());
            hash.update(stream);
        }
        Self {
            name: streams.join(", ").into(),
            fingerprint: Fingerprint(hash.finalize().into()),
            sizes,
            samples: RwLock::default(),
            paths,
        }
    }

    /// Notes that one more place shows a sample.
    pub(super) fn enter(&self, id: u64, label: Option<u32>, bytes: SampleBytes) {
        let mut samples = self.samples.write().unwrap_or_else(PoisonError::into_inner);
        let sample = LiveSample { users: 0, label: label.unwrap_or(0), bytes };
        samples.entry(id).or_insert(sample).users += 1;
    }

    /// Notes that a place no longer shows a sample.
    pub(super) fn leave(&self, id: u64) {
        let mut samples = self.samples.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = samples.get_mut(&id) {
            sample.users -= 1;
            if sample.users == 0 {
                samples.remove(&id);
            }
        }
    }

    /// The sample, if it lies in memory.
    pub(super) fn record(&self, id: u64) -> Option<Arc<Record>> {
        self.with(id, |sample| match &sample.bytes {
            SampleBytes::Memory(record) => Some(record.clone()),
            SampleBytes::Stored(_) => None,
        })?
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&LiveSample) -> T) -> Option<T> {
        self.samples.read().unwrap_or_else(PoisonError::into_inner).get(&id).map(act)
    }
}

impl LiveSamples for LiveTable {
    fn name(&self) -> &Path {
        &self.name
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn sizes(&self) -> (u32, u32) {
        self.sizes
    }

    fn extent(&self, sample: u64) -> Extent {
        let extent = self.with(sample, |found| match &found.bytes {
            SampleBytes::Memory(record) => {
                Extent { file: IN_MEMORY, offset: sample, length: record.bytes().len() as u32 }
            }
            SampleBytes::Stored(extent) => *extent,
        });
        // Whoever asks for a sample that has gone is told so by its reader.
        extent.unwrap_or(Extent { file: IN_MEMORY, offset: sample, length: 0 })
    }

    fn label(&self, sample: u64) -> u32 {
        self.with(sample, |found| found.label).unwrap_or(0)
    }

    fn member(&self, name: &str, bytes: &[u8]) -> Option<Range<usize>> {
        choices(name).find_map(|choice| match choice {
            IMAGE => {
                let images = record::members(bytes)
                    .filter_map(|(name, range)| Some((image_rank(name.as_bytes())?, range)));
                images.min_by_key(|(rank, _)| *rank).map(|(_, range)| range)
            }
            name => record::find(bytes, name),
        })
    }

    fn shown(&self, sample: u64) -> PathBuf {
        let shown = self.with(sample, |found| match &found.bytes {
            SampleBytes::Memory(record) => Path::new(record.stream()).join(record.key()),
            SampleBytes::Stored(extent) => (self.paths)(extent.file),
        });
        shown.unwrap_or_else(|| self.name.clone())
    }

    fn path(&self, file: FileId) -> PathBuf {
        if file == IN_MEMORY { self.name.clone() } else { (self.paths)(file) }
    }
}
