//! The samples of a stream that are in use: the samples of batches that are planned and not delivered yet.
//!
//! The pipeline sees this table as its dataset: an index of the samples in use, by sample id.

use super::record::{self, Record};
use base::locks::{read_lock, write_lock};
use data::dataset::kind::image_rank;
use data::dataset::{Extent, FileId, Fingerprint, IMAGE, StreamSamples, choices};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// The file number of all samples in use. The offset of a sample in this virtual file is the sample's id.
const LIVE: FileId = FileId(u32::MAX);

#[derive(Debug, Clone)]
pub(super) enum LiveBytes {
    Memory(Arc<Record>),
    /// In a file of the rehearsal buffer, with this checksum.
    Stored {
        extent: Extent,
        crc: u32,
    },
}

struct LiveSample {
    /// The number of batch positions with this sample.
    users: u32,
    label: u32,
    bytes: LiveBytes,
}

pub(crate) struct LiveTable {
    name: PathBuf,
    fingerprint: Fingerprint,
    /// The size limit of a sample, and a typical size of a sample, in bytes.
    sizes: (u32, u32),
    samples: RwLock<HashMap<u64, LiveSample>>,
}

impl LiveTable {
    pub(super) fn new(streams: &[&str], sizes: (u32, u32)) -> Self {
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
        }
    }

    /// Records that one more batch position uses this sample.
    pub(super) fn add_user(&self, id: u64, label: Option<u32>, bytes: LiveBytes) {
        let mut samples = write_lock(&self.samples);
        let sample = LiveSample { users: 0, label: label.unwrap_or(0), bytes };
        samples.entry(id).or_insert(sample).users += 1;
    }

    /// Records that one batch position no longer uses this sample. The sample leaves the table with its last user.
    pub(super) fn remove_user(&self, id: u64) {
        let mut samples = write_lock(&self.samples);
        if let Some(sample) = samples.get_mut(&id) {
            sample.users -= 1;
            if sample.users == 0 {
                samples.remove(&id);
            }
        }
    }

    pub(super) fn record(&self, id: u64) -> Option<Arc<Record>> {
        self.with(id, |sample| match &sample.bytes {
            LiveBytes::Memory(record) => Some(record.clone()),
            LiveBytes::Stored { .. } => None,
        })?
    }

    pub(super) fn bytes(&self, id: u64) -> Option<LiveBytes> {
        self.with(id, |sample| sample.bytes.clone())
    }

    /// The place of a sample in a file, and its checksum. `None` for a sample in memory, or not in use.
    pub(super) fn stored(&self, id: u64) -> Option<(Extent, u32)> {
        self.with(id, |sample| match sample.bytes {
            LiveBytes::Memory(_) => None,
            LiveBytes::Stored { extent, crc } => Some((extent, crc)),
        })?
    }

    pub(super) fn set_bytes(&self, id: u64, bytes: &LiveBytes) {
        let mut samples = write_lock(&self.samples);
        if let Some(sample) = samples.get_mut(&id) {
            sample.bytes = bytes.clone();
        }
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&LiveSample) -> T) -> Option<T> {
        read_lock(&self.samples).get(&id).map(act)
    }
}

impl StreamSamples for LiveTable {
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
        let length = self.with(sample, |found| match &found.bytes {
            LiveBytes::Memory(record) => record.bytes().len() as u32,
            LiveBytes::Stored { extent, .. } => extent.length,
        });
        // For a sample that is no longer in use the length is 0, and the reader fails.
        Extent { file: LIVE, offset: sample, length: length.unwrap_or(0) }
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
            LiveBytes::Memory(record) => Path::new(record.stream()).join(record.key()),
            LiveBytes::Stored { .. } => self.name.join(format!("rehearsed sample {sample}")),
        });
        shown.unwrap_or_else(|| self.name.clone())
    }

    fn path(&self, _: FileId) -> PathBuf {
        self.name.clone()
    }
}
