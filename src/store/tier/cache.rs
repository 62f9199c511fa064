//! A pipeline's cache: its tiers with copies of samples, their plans, and the threads that fill the tiers and convert
//! copies.

mod blocks;
mod epoch_plan;
mod filling;
mod forms;
mod keep;
mod open;

use super::convert::{Converter, FormChoice, FormatDecision};
use super::copies::{CacheTier, CopyFault, LocalTier, Location, Publish};
use super::fill::{Fill, FillChoice};
use super::peers::{PeerNetwork, PeersOptions, ServedTiers, SharedJob};
use super::reader::TieredReader;
use super::stage::Stager;
use super::stats::{CacheStats, SourceCounters, UseCounters};
use super::store::{UnitLock, Verify};
use crate::io::{Direct, IoChoice, Reader};
use crate::peers::{PeerStats, ServerStats};
use base::error::{Error, Result};
use base::locks::lock;
use base::slot::SlotPool;
use base::tier_name::TierName;
use base::trace::Trace;
use data::dataset::arrays::MAX_RECORD;
use data::dataset::{DatasetIndex, Extent, FileId};
use data::schedule::{Order, SampleOwners, Schedule};
use epoch_plan::{EpochPlan, EpochRules};
pub use forms::NoForms;
pub(super) use keep::{SampleOrigin, TierPlace};
use open::OpenedTiers;
pub use open::TierOptions;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// The settings of a cache.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The tiers, from the fastest to the slowest.
    pub tiers: Vec<TierOptions>,
    /// Whether the tiers are filled on use, or ahead of the use by staging.
    pub fill: FillChoice,
    /// The maximum bandwidth of staging from the source, in bytes per second. `None`: staging uses the bandwidth that
    /// the pipeline leaves unused.
    pub stage_bandwidth: Option<u64>,
    /// How a cached copy is verified to match the dataset.
    pub verify: Verify,
    /// The number of consecutive ranks that share the tiers; `None` if all ranks share them.
    pub local_world_size: Option<u32>,
    /// How the cache's files are read.
    pub io: IoChoice,
    /// Whether the cache's files are read with O_DIRECT.
    pub direct: Direct,
    /// The maximum number of reads in flight for each tier.
    pub queue_depth: usize,
    /// How the job's nodes share their caches; `None` if they do not.
    pub peers: Option<PeersOptions>,
    /// The reason why copies are not converted to another storage format; `None` if conversion is allowed.
    pub no_forms: Option<NoForms>,
}

impl CacheOptions {
    /// Returns the names of the tiers.
    pub fn names(&self) -> impl Iterator<Item = TierName> {
        let peers = self.peers.as_ref().map(|_| TierName::PEERS);
        self.tiers.iter().map(TierOptions::name).chain(peers)
    }
}

/// Opens a reader of the source on the calling thread. The arguments are the pool of the slots to read into, the number
/// of reads in flight, and the purpose of the reads.
pub type OpenSource = dyn Fn(&SlotPool, usize, SourceUse) -> Result<Box<dyn Reader>> + Send + Sync;

/// The purpose of reads from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceUse {
    /// Reads of samples for batches, in the order of the batches.
    Batches,
    /// Reads of large chunks, by staging or by a measurement of the source.
    Staging,
}

/// A pipeline's cache: tiers that keep copies of samples.
pub struct Cache {
    pub(super) index: Arc<DatasetIndex>,
    pub(super) options: CacheOptions,
    pub(super) trace: Trace,
    tiers: Vec<KeptTier>,
    network: Option<Arc<PeerNetwork>>,
    /// The plan of each tier; `None` for a tier that keeps samples in the order of their first use until it is full.
    plans: Mutex<Vec<Option<EpochPlan>>>,
    rules: EpochRules,
    /// How the cache is filled, and the reason as a text. Set when the source has been opened.
    fill: OnceLock<(Fill, String)>,
    staging: Mutex<StagingState>,
    /// The decision for each tier about the storage format of its copies.
    format_decisions: Mutex<Vec<FormatDecision>>,
    /// A bit for each sample: whether a tier has taken the sample in this epoch, even if no reader can locate it yet.
    taken: Vec<AtomicU64>,
    /// Whether the pipeline waits for reads from the source. The stager then slows down, unless its bandwidth is set.
    pub(super) demand_waits: AtomicBool,
    /// Whether the pipeline waits for reads from this node's own tiers. The node's server then serves peers more
    /// slowly.
    pub(super) own_reads_wait: Arc<AtomicBool>,
    /// Whether no tier has space for more staging in this epoch.
    full: AtomicBool,
    /// Whether some sample did not fit into a tier in this epoch.
    lacks_room: AtomicBool,
    pub(super) counted: SourceCounters,
    last_error: Mutex<Option<String>>,
    /// The files that this process has locked: it keeps all samples of these files' compressed blocks.
    block_locks: Mutex<HashMap<FileId, Vec<UnitLock>>>,
    /// The id of the process that opened the cache. A forked child does not have the cache's threads.
    process: u32,
}

struct KeptTier {
    tier: Box<dyn CacheTier>,
    form: FormChoice,
    used: UseCounters,
}

impl KeptTier {
    /// Returns the size of the samples that fit into the tier, in bytes: nine tenths of the capacity, because space is
    /// lost at the ends of many small segments.
    fn room(&self) -> u64 {
        self.tier.parts().capacity() / 10 * 9
    }
}

/// The cache's background threads: the stager, which fills tiers ahead, and the converter, which changes the storage
/// format of copies.
#[derive(Default)]
struct StagingState {
    stager: Option<Stager>,
    converter: Option<Converter>,
    /// The schedule of the current epoch and its first step, if a tier is filled ahead.
    epoch: Option<(Schedule, u64)>,
    closed: bool,
}

impl Cache {
    /// Opens the tiers for a dataset, and loads the copies that they already have. The cache's threads log their work
    /// in `trace`. Returns `None` if no tier can be used, because training can continue without a cache. If nodes share
    /// their caches, waits for the other ranks of the `job` and exchanges addresses with them.
    ///
    /// # Errors
    /// The errors of settings that are wrong for any directory, and of the exchange with the other ranks.
    pub fn open(
        index: &Arc<DatasetIndex>,
        options: CacheOptions,
        trace: Trace,
        job: &SharedJob<'_>,
    ) -> Result<Option<Arc<Self>>> {
        let OpenedTiers { tiers, network } = open::tiers(index, &options, &trace, job)?;
        if tiers.is_empty() {
            return Ok(None);
        }
        let kept = |(tier, form)| KeptTier { tier, form, used: UseCounters::default() };
        let tiers = tiers.into_iter().map(kept);
        let taken = (0..index.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let own_reads_wait =
            network.as_ref().map(|network| network.own_reads_wait.clone()).unwrap_or_default();
        let cache = Arc::new(Self {
            index: index.clone(),
            options,
            trace,
            tiers: tiers.collect(),
            network,
            plans: Mutex::default(),
            rules: EpochRules::default(),
            fill: OnceLock::new(),
            staging: Mutex::default(),
            format_decisions: Mutex::default(),
            taken,
            demand_waits: AtomicBool::default(),
            own_reads_wait,
            full: AtomicBool::default(),
            lacks_room: AtomicBool::default(),
            counted: SourceCounters::default(),
            last_error: Mutex::default(),
            block_locks: Mutex::default(),
            process: std::process::id(),
        });
        if let Some((network, server)) =
            cache.network.as_ref().and_then(|network| Some((network, network.server.as_ref()?)))
        {
            server.share(network.dataset, Arc::new(ServedTiers::new(&cache)));
        }
        if let (Some(network), Some(peers)) = (&cache.network, &cache.options.peers) {
            network.wait_for_all(peers, job.place)?;
        }
        Ok(Some(cache))
    }

    /// Opens a reader over all tiers and the source, driven by the calling thread. `open` makes the reader of the
    /// source, which has its own thread. If the cache is filled ahead, staging of the current epoch begins.
    ///
    /// # Errors
    /// The errors of opening any reader.
    pub fn reader(self: &Arc<Self>, open: Arc<OpenSource>, slots: &SlotPool) -> Result<Box<dyn Reader>> {
        let source = {
            let (open, slots, depth) = (open.clone(), slots.clone(), self.options.queue_depth);
            move || open(&slots, depth, SourceUse::Batches)
        };
        let reader = TieredReader::new(self.clone(), source, slots)?;
        self.listen_for_blocks();
        self.choose_fill(&open);
        let converter = self.start_converter()?;
        let mut staging = lock(&self.staging);
        if staging.closed {
            return Err(Error::Unavailable("the pipeline was dropped while its storage was opened".into()));
        }
        staging.converter = converter;
        if self.fill.get().is_some_and(|(fill, _)| *fill == Fill::Ahead) {
            let stager = Stager::start(self.clone(), open)?;
            // The epoch has begun before its reader is opened, so tell the new stager about it.
            if let Some((schedule, first_step)) = &staging.epoch {
                stager.begin(schedule.clone(), *first_step);
            }
            staging.stager = Some(stager);
        }
        drop(staging);
        Ok(Box::new(reader))
    }

    /// Begins an epoch: plans what the tiers keep, and starts staging for the epoch. `order_of` returns the sample
    /// order of any epoch.
    pub fn begin(&self, epoch: u64, schedule: &Schedule, first_step: u64, order_of: &dyn Fn(u64) -> Order) {
        self.taken.iter().for_each(|word| word.store(0, Relaxed));
        if self.options.verify.compares_in_each_epoch(&self.index) {
            self.mark_unverified();
        }
        let room = |kept: &KeptTier| {
            let stats = kept.tier.stats();
            (stats.quota_bytes, stats.quota_bytes.saturating_sub(stats.held_bytes))
        };
        let (quota, left) =
            self.tiers.iter().map(room).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        // A nearly full cache counts as full: reading large chunks is a waste if almost none of their samples can be
        // kept.
        self.full.store(left < u64::from(self.index.largest()).max(quota / 100), Relaxed);
        self.plan(epoch, schedule, order_of);
        if self.network.is_some() {
            // Publish samples that slower nodes have pushed since the end of the previous epoch.
            self.publish();
        }
        let lacks_room = self.lacks_room.swap(false, Relaxed) && self.rules.whole().is_none();
        if lacks_room && self.network.as_ref().is_some_and(|network| network.is_first) {
            self.evict_samples_of_others();
        }
        let nodes = self.tiers().filter_map(|tier| tier.parts().nodes);
        nodes.for_each(|nodes| nodes.begin(schedule, first_step));
        // Only tiers that are filled ahead need staging. Other tiers keep samples as they are read.
        let keeps_first = (0..self.tiers.len()).any(|place| self.fills_ahead(place));
        let mut staging = lock(&self.staging);
        if let Some(converter) = &staging.converter {
            converter.begin();
        }
        staging.epoch = keeps_first.then(|| (schedule.clone(), first_step));
        if let (Some(stager), Some((schedule, first_step))) = (&staging.stager, &staging.epoch) {
            stager.begin(schedule.clone(), *first_step);
        }
    }

    /// Publishes the taken samples that wait to be written together. Tiers that are full or have failed do not try
    /// again.
    pub(super) fn publish(&self) {
        self.local_tiers().for_each(|(_, local)| local.publish(Publish::Soon));
    }

    /// Ends an epoch: publishes the taken samples that wait to be written together, for the next epoch and for other
    /// processes.
    pub fn end(&self) {
        self.local_tiers().for_each(|(_, local)| local.publish(Publish::AtEnd));
    }

    /// Waits until all samples that were taken so far can be read from the tiers.
    pub fn flush(&self) {
        self.local_tiers().for_each(|(_, local)| local.publish(Publish::Now));
    }

    /// Describes how the cache is filled, which storage formats its copies have, and the reasons. Empty before the
    /// first epoch.
    pub fn describe(&self) -> String {
        let fill = |(fill, why): &(Fill, String)| {
            let words = if *fill == Fill::Ahead { "ahead" } else { "on use" };
            format!("filled {words} ({why})")
        };
        let forms = self.describe_formats();
        self.fill.get().map(fill).into_iter().chain(forms).collect::<Vec<_>>().join("; ")
    }

    /// Returns the latest error despite which training continued.
    pub fn last_error(&self) -> Option<String> {
        let own = lock(&self.last_error).clone();
        own.or_else(|| self.local_tiers().find_map(|(_, local)| local.counters().last_error()))
    }

    /// Clears the error that [`Cache::last_error`] returns, at the begin of an epoch.
    pub fn forget_error(&self) {
        *lock(&self.last_error) = None;
        self.local_tiers().for_each(|(_, local)| local.counters().forget_error());
    }

    /// Returns the counters since the cache was opened, and the present values of the gauges.
    pub fn stats(&self) -> CacheStats {
        let tiers = self.tiers.iter().map(|kept| (kept.tier.name(), kept.used.with(&*kept.tier)));
        CacheStats { source: self.counted.read(), tiers: tiers.collect() }
    }

    /// Returns the statistics of the requests to each of the job's nodes since the cache was opened, by node name.
    pub fn peers(&self) -> Vec<(String, PeerStats)> {
        self.tiers().filter_map(|tier| tier.parts().nodes).flat_map(|nodes| nodes.peers()).collect()
    }

    /// Returns the table of the samples' owner nodes; `None` if nodes do not share their caches.
    pub fn owners(&self) -> Option<SampleOwners> {
        let network = self.network.as_ref()?;
        let owners = network.owners.clone();
        Some(SampleOwners::new(network.node_of_rank.clone(), move |sample| owners.owner(sample)))
    }

    /// Returns the counters of this node's server since the cache was opened; `None` if there is no server, or if
    /// another process of this node runs it.
    pub fn served(&self) -> Option<ServerStats> {
        Some(self.network.as_ref()?.server.as_ref()?.stats())
    }

    /// Returns whether a tier keeps samples in the order of their first use until it is full. Otherwise it decides by
    /// their next use.
    fn keeps_first(&self, place: TierPlace) -> bool {
        self.rules.keep_first(place)
    }

    /// Returns whether this process opened the cache. In a forked child, another thread of the parent may hold the
    /// cache's locks for ever.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn tiers(&self) -> impl ExactSizeIterator<Item = &dyn CacheTier> {
        self.tiers.iter().map(|kept| &*kept.tier)
    }

    pub(super) fn tier(&self, place: TierPlace) -> &dyn CacheTier {
        &*self.tiers[place].tier
    }

    pub(super) fn local_tiers(&self) -> impl Iterator<Item = (TierPlace, &dyn LocalTier)> {
        self.tiers().enumerate().filter_map(|(place, tier)| Some((place, tier.parts().local?)))
    }

    pub(super) fn is_of_nodes(&self, place: TierPlace) -> bool {
        self.tier(place).parts().nodes.is_some()
    }

    pub(super) fn locate(&self, sample: u64) -> Option<(TierPlace, Location)> {
        // Nodes are asked for any sample that they may own.
        if self.network.is_some() && !self.index.is_record(sample) {
            return None;
        }
        self.tiers().enumerate().find_map(|(place, tier)| Some((place, tier.locate(sample)?)))
    }

    /// Returns whether the bytes of a sample can be kept at all. Samples that are too large, or whose version is not
    /// known, are read from the dataset in every epoch.
    pub(super) fn may_keep(&self, sample: u64) -> bool {
        let may = self.index.is_record(sample);
        if !may {
            self.index.notices().warn_once("records", || {
                let length = self.index.extent(sample).length;
                format!(
                    "some samples are not cached, and are read from the dataset in every epoch, e.g. sample {sample} \
                     with {length} bytes: no cache keeps samples of more than {MAX_RECORD} bytes"
                )
            });
        }
        may
    }

    /// Returns whether the whole record of a sample must be read, even if only parts of it are needed: a tier has a
    /// copy, which is verified whole, or wants one.
    pub fn needs_whole(&self, sample: u64) -> bool {
        self.locate(sample).is_some() || self.wants(sample)
    }

    pub(super) fn wants(&self, sample: u64) -> bool {
        if !self.may_keep(sample) {
            return false;
        }
        match self.responsible_tier(sample) {
            Some(place) => {
                self.tier(place).parts().nodes.is_some_and(|nodes| nodes.wants(sample))
                    || self.rules.whole().is_some_and(|whole| self.takes(whole))
            }
            None => (0..self.tiers.len()).any(|place| self.takes(place)),
        }
    }

    /// Marks all copies as unverified, as at the start of a run. Used when another loader attaches to a running
    /// pipeline.
    pub fn mark_unverified(&self) {
        if self.options.verify != Verify::Never {
            self.local_tiers().for_each(|(_, local)| local.mark_unverified());
        }
    }

    /// Handles a copy whose bytes differ from the sample's bytes in the source, although the source file has the same
    /// stamp: counts the mismatch, warns, and drops the copy.
    pub(super) fn mismatched(&self, sample: u64, place: TierPlace, location: &Location) {
        self.tiers[place].used.mismatched.fetch_add(1, Relaxed);
        self.index.notices().warn_once("mismatched copies", || {
            let extent = self.index.extent(sample);
            let (path, Extent { offset, length, .. }) = (self.index.path(extent.file), extent);
            format!(
                "the cached copy of sample {sample} ({}, bytes {offset}+{length}) differs from the dataset, although \
                 nothing shows that the file changed: it is cached again (`mismatched` of \
                 stats()[\"cache\"][\"tiers\"] counts such copies)",
                path.display()
            )
        });
        self.tier(place).drop_stale(sample, location);
    }

    /// Counts a sample that a tier had but could not return. If its copy has a defect, `fault` is the defect.
    pub(super) fn count_fallback(
        &self,
        sample: u64,
        place: TierPlace,
        location: Location,
        fault: Option<CopyFault>,
    ) {
        self.tiers[place].used.fallbacks.fetch_add(1, Relaxed);
        if let Some(fault) = fault {
            self.tier(place).damaged(sample, location, fault);
        }
    }

    /// Ends the cache's threads. Dropping the cache would not end them, because they hold references to it.
    pub fn close(&self) {
        // In a forked child, the threads belong to the parent process.
        if !self.is_ours() {
            return;
        }
        self.release_blocks();
        let mut staging = lock(&self.staging);
        staging.closed = true;
        let threads = (staging.stager.take(), staging.converter.take());
        // The threads may be waiting for this lock.
        drop(staging);
        drop(threads);
    }

    pub(super) fn note_error(&self, error: Error) {
        *lock(&self.last_error) = Some(error.to_string());
    }
}
