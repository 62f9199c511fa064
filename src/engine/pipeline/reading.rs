//! How a pipeline's bytes are read: by the reader that one thread drives, and by blocking calls.

use super::PipelineShared;
use crate::config::LoaderConfig;
use base::error::Result;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::DatasetIndex;
use std::sync::Arc;
use store::io::Reader;
use store::tier::{OpenSource, SourceUse};

/// Opens the reader, on the thread that will drive it.
pub type OpenReader =
    dyn Fn(&Arc<DatasetIndex>, &SlotPool, &LoaderConfig) -> Result<Box<dyn Reader>> + Send + Sync;

/// Opens the reader of a dataset that the settings ask for.
///
/// # Errors
/// Those of [`store::io::open`].
pub fn open_reader(
    index: &Arc<DatasetIndex>,
    slots: &SlotPool,
    config: &LoaderConfig,
) -> Result<Box<dyn Reader>> {
    let stretches = config.stretches.as_ref();
    store::io::open_near(index, stretches, slots, config.io, config.direct, config.queue_depth)
}

impl PipelineShared {
    /// Opens the reader of the pipeline, on the thread that drives it. It reads from all tiers where there is a cache.
    pub(super) fn open_reader(self: &Arc<Self>, slots: &SlotPool) -> Result<Box<dyn Reader>> {
        let Some(cache) = self.cache.get() else {
            return (self.open_reader)(&self.index, slots, &self.config);
        };
        let shared = self.clone();
        let open = move |slots: &SlotPool, queue_depth, source_use| {
            let mut config = LoaderConfig { queue_depth, ..shared.config.clone() };
            if source_use == SourceUse::Staging {
                // What is staged has an order of its own.
                config.stretches = None;
            }
            (shared.open_reader)(&shared.index, slots, &config)
        };
        let open: Arc<OpenSource> = Arc::new(open);
        cache.reader(open, slots)
    }

    /// Reads one sample's bytes for a thread that does not go through the reader, from all tiers.
    pub(super) fn read_blocking(&self, sample: u64) -> Result<(Vec<u8>, TierName)> {
        if let Some(stream) = &self.stream {
            return stream.read(sample).map(|bytes| (bytes, TierName::RAM));
        }
        match self.cache.get() {
            Some(cache) if cache.is_ours() => cache.read_blocking(sample),
            _ => store::io::read_blocking(&*self.index, self.index.extent(sample))
                .map(|bytes| (bytes, TierName::SOURCE)),
        }
    }
}
