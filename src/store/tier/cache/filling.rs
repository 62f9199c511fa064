//! Fills the cache, on use or ahead by the stager, and tracks the progress of staging.

use super::{Cache, OpenSource, SourceUse, TierPlace, epoch_plan};
use crate::tier::fill::{self, Fill, FillChoice, FillJob};
use crate::tier::measure;
use crate::tier::rates::TierRates;
use crate::tier::store::UnitLock;
use base::counting::count;
use base::locks::lock;
use base::slot::SlotPool;
use data::schedule::Schedule;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MEASURE_FOR: Duration = Duration::from_millis(300);

/// Smaller datasets (in bytes) are not measured, because the measurement reads too much of them. At 1 GB/s, it reads 1
/// to 2 % of this size.
const MIN_MEASURED_BYTES: u64 = 20_000_000_000;

impl Cache {
    /// Chooses how the cache is filled. The source must be readable before this call.
    pub(super) fn choose_fill(&self, open: &Arc<OpenSource>) {
        self.fill.get_or_init(|| {
            if self.network.is_some() || lock(&self.staging).epoch.is_none() {
                return (Fill::Use, fill::KEPT_AS_READ.into());
            }
            // Staging reads the record of each sample alone. Only chunks that samples share are read less often.
            let is_auto = self.options.fill == FillChoice::Auto;
            if is_auto && self.index.has_arrays() && !self.index.has_blocks() {
                return (Fill::Use, "reading arrays ahead would need as many reads".into());
            }
            let (all, bytes) = (self.index.len(), self.index.total_bytes());
            let drawn = |(schedule, _): &(Schedule, u64)| schedule.order().selection().members();
            let samples = lock(&self.staging).epoch.as_ref().map_or(all, drawn);
            let job = FillJob {
                samples,
                bytes: epoch_plan::part_of(bytes, samples, all),
                shards: self.index.is_sharded(),
                depth: self.options.queue_depth,
                charged: self.index.is_charged(),
            };
            fill::choose(self.options.fill, &job, self.measure(&job, open))
        });
    }

    /// Measures the rates of the source, if the choice depends on them and the dataset is large enough. Otherwise, the
    /// error is the reason why nothing was measured.
    fn measure(&self, job: &FillJob, open: &Arc<OpenSource>) -> Result<TierRates, String> {
        if self.options.fill != FillChoice::Auto || !job.shards || job.bytes < MIN_MEASURED_BYTES {
            return Err("the dataset is too small to measure its storage".into());
        }
        let singly = |slots: &SlotPool, depth| open(slots, depth, SourceUse::Staging);
        let measured = measure::source(&self.index, &singly, job.depth, MEASURE_FOR);
        let measured = measured.map_err(|error| format!("its storage could not be measured: {error}"))?;
        count(&self.counted.source_bytes, measured.bytes());
        count(&self.counted.staged_requests, measured.requests);
        Ok(measured.rates)
    }

    /// Returns whether a tier may be filled ahead: it keeps samples in the order of their first use, and serves all
    /// ranks.
    pub(super) fn fills_ahead(&self, place: TierPlace) -> bool {
        self.keeps_first(place) && self.rules.are_of_all_ranks(place)
    }

    /// Locks a staging unit (the shard with this number) for all tiers; `None` if another process has locked it.
    pub(in crate::tier) fn lock_unit(&self, unit: u64) -> Option<Vec<UnitLock>> {
        self.tiers().filter_map(|tier| tier.parts().shared).map(|shared| shared.lock_unit(unit)).collect()
    }

    pub(in crate::tier) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Tells the stager that the pipeline begins to read another batch.
    pub fn begin_batch(&self) {
        if let Some(stager) = &lock(&self.staging).stager {
            stager.begin_batch();
        }
    }

    /// Returns the number of steps that staging must be ahead of the pipeline, if each sample is a file. A sample that
    /// is staged later than this is not published when it is used, and is read twice.
    pub(in crate::tier) fn steps_ahead(&self, schedule: &Schedule) -> u64 {
        let mean = self.index.mean_bytes().max(1);
        let shared = self.tiers().filter_map(|tier| tier.parts().shared);
        let unpublished = shared.map(|shared| shared.unpublished()).max().unwrap_or(0) / mean;
        unpublished.div_ceil(schedule.samples_per_batch()) + 2
    }

    /// Returns how many bytes per second this process may stage; `None` if the user set no limit.
    pub(in crate::tier) fn stage_bandwidth(&self) -> Option<u64> {
        let ranks = u64::from(self.options.local_world_size.unwrap_or(1).max(1));
        self.options.stage_bandwidth.map(|bandwidth| (bandwidth / ranks).max(1))
    }
}
