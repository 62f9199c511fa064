//! The source of samples' bytes: a reader that one thread drives, and blocking reads of other threads.

use super::row_start_cache::RowStartCache;
use crate::config::LoaderConfig;
use base::error::Result;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::DatasetIndex;
use std::sync::{Arc, OnceLock};
use store::io::{ReadStats, Reader};
use store::tier::{Cache, CacheStats, OpenSource, SourceUse};
use stream::SampleStream;

/// Opens the reader, on the thread that will drive it.
pub type OpenReader =
    dyn Fn(&Arc<DatasetIndex>, &SlotPool, &LoaderConfig) -> Result<Box<dyn Reader>> + Send + Sync;

/// Opens the reader of a dataset with the configured I/O settings.
///
/// # Errors
/// The errors of [`store::io::open`].
pub fn open_reader(
    index: &Arc<DatasetIndex>,
    slots: &SlotPool,
    config: &LoaderConfig,
) -> Result<Box<dyn Reader>> {
    let neighbour_blocks = config.neighbour_blocks.as_ref();
    store::io::open_with_neighbours(
        index,
        neighbour_blocks,
        slots,
        config.io,
        config.direct,
        config.queue_depth,
    )
}

/// The dataset or the stream that samples are read from, and the tiers that keep copies.
pub(crate) struct SampleSource {
    pub index: Arc<DatasetIndex>,
    pub open_reader: Box<OpenReader>,
    pub stream: Option<Arc<SampleStream>>,
    pub cache: OnceLock<Arc<Cache>>,
    pub rows: RowStartCache,
}

impl SampleSource {
    /// Opens the reader, on the thread that drives it. With a cache, the reader reads from all tiers.
    ///
    /// # Errors
    /// The errors of opening files and io_uring.
    pub(crate) fn open(self: &Arc<Self>, config: &LoaderConfig, slots: &SlotPool) -> Result<Box<dyn Reader>> {
        let Some(cache) = self.cache.get() else { return (self.open_reader)(&self.index, slots, config) };
        let (source, config) = (self.clone(), config.clone());
        let open = move |slots: &SlotPool, queue_depth, source_use| {
            let mut config = LoaderConfig { queue_depth, ..config.clone() };
            if source_use == SourceUse::Staging {
                // Staging reads samples in its own order, and not in the order of these blocks.
                config.neighbour_blocks = None;
            }
            (source.open_reader)(&source.index, slots, &config)
        };
        let open: Arc<OpenSource> = Arc::new(open);
        cache.reader(open, slots)
    }

    /// Reads one sample's bytes from all tiers, for a thread that does not use the reader.
    ///
    /// # Errors
    /// The errors of reading.
    pub(crate) fn read_blocking(&self, sample: u64) -> Result<(Vec<u8>, TierName)> {
        if let Some(stream) = &self.stream {
            return stream.read(sample).map(|bytes| (bytes, TierName::RAM));
        }
        match self.cache.get() {
            Some(cache) if cache.is_ours() => cache.read_blocking(sample),
            _ => store::io::read_blocking(&*self.index, self.index.extent(sample))
                .map(|bytes| (bytes, TierName::SOURCE)),
        }
    }

    pub(crate) fn one_read(&self, sample: u64, bytes: u64) -> ReadStats {
        let is_remote = self.index.remote(self.index.extent(sample).file).is_some();
        let (opens, requests) = if is_remote { (0, 1) } else { (1, 0) };
        ReadStats { bytes, reads: 1, opens, requests, ..ReadStats::default() }
    }

    pub(crate) fn cached(&self) -> CacheStats {
        self.cache.get().map(|cache| cache.stats()).unwrap_or_default()
    }
}
