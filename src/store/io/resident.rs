//! A dataset in memory, and a reader that copies from it. Its speed is the upper bound for any storage.

use super::storage::memory_limit;
use super::{ImmediateReader, read_blocking};
use base::error::{Error, Result};
use base::slot::Slot;
use data::dataset::{DatasetIndex, Extent};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a dataset's samples, by sample id.
pub struct InMemoryDataset {
    index: Arc<DatasetIndex>,
    files: HashMap<u64, Box<[u8]>>,
}

impl InMemoryDataset {
    /// Makes a dataset from the bytes of its samples.
    pub fn new(index: &Arc<DatasetIndex>, files: HashMap<u64, Box<[u8]>>) -> Arc<Self> {
        Arc::new(Self { index: index.clone(), files })
    }

    /// Checks that the samples fit in half of the memory that this process may use.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if they do not fit.
    pub fn check(index: &DatasetIndex) -> Result<()> {
        let (needed, half) = (index.total_bytes(), memory_limit() / 2);
        if needed <= half {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "the samples of {} have {needed} bytes, more than half of the memory that this process may use ({half} \
             bytes): they cannot be loaded into memory",
            index.root().display()
        )))
    }

    /// Reads all samples with up to 16 threads. Calls `progress` with the number of samples that arrived since the
    /// previous call.
    ///
    /// # Errors
    /// The errors of [`InMemoryDataset::check`] and of reading.
    pub fn load(index: &Arc<DatasetIndex>, progress: &(dyn Fn(u64) + Sync)) -> Result<Arc<Self>> {
        Self::check(index)?;
        let threads = 16.min(index.len()).max(1);
        let part = |n: u64| n * index.len() / threads..(n + 1) * index.len() / threads;
        let parts: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..threads).map(|n| scope.spawn(move || load_part(index, part(n), progress))).collect();
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or_else(|panic| Err(Error::panicked("reading", &*panic))))
                .collect()
        });
        let mut files = HashMap::with_capacity(index.len() as usize);
        for part in parts {
            files.extend(part?);
        }
        Ok(Self::new(index, files))
    }

    /// Makes a reader of these samples with up to `depth` requests in flight.
    pub fn reader(self: &Arc<Self>, depth: usize) -> ImmediateReader {
        let samples = self.clone();
        ImmediateReader::new(depth.max(1), "from memory", move |extent, slot| samples.copy(extent, slot))
    }

    fn copy(&self, extent: Extent, slot: &mut Slot) -> Result<usize> {
        let sample = self.index.sample_of(extent);
        let Some(bytes) = sample.and_then(|sample| self.files.get(&sample)) else {
            let path = self.index.path(extent.file);
            let message = format!("has no sample at {}+{} in memory", extent.offset, extent.length);
            return Err(Error::dataset(path, message));
        };
        let too_small = || Error::Unavailable("windows of samples cannot be read from memory".to_owned());
        slot.bytes_mut().get_mut(..bytes.len()).ok_or_else(too_small)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

fn load_part(
    index: &DatasetIndex,
    samples: Range<u64>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<(u64, Box<[u8]>)>> {
    let load = |sample| {
        let bytes = read_blocking(index, index.extent(sample))?;
        progress(1);
        Ok((sample, bytes.into_boxed_slice()))
    };
    samples.map(load).collect()
}
