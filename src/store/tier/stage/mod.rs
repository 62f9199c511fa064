//! Staging: a thread that copies samples into the tiers ahead of their use, during training.
//!
//! The thread reads the source in large chunks through its own reader, in the order of next use. It rests while the
//! pipeline waits for its own reads. Nothing waits for staging: a sample that is not staged in time is read directly.

mod pace;
mod units;

use super::END_LIMIT;
use super::cache::{Cache, OpenSource, SourceUse};
use super::copies::Offer;
use super::fill::STAGED_READ;
use super::revalidate::version_now;
use super::store::UnitLock;
use crate::io::{Completion, ReadRequest, Reader, Waker, largest_room, read_room, record_gap};
use base::counting::count;
use base::error::Result;
use base::locks::lock;
use base::slot::SlotPool;
use base::threads::BackgroundThread;
use base::trace::{Stage, StageWork, TraceLane};
use data::dataset::arrays::MAX_RECORD;
use data::dataset::{Extent, FileVersion};
use data::schedule::Schedule;
use pace::Pace;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use units::{StagedChunk, StagingUnit};

/// The number of staging reads in flight: one chunk is read while the other chunk is stored.
const DEPTH: usize = 2;
/// The number of staging reads in flight from servers, where a single connection gets only a part of the bandwidth.
const REMOTE_DEPTH: usize = 8;

pub(super) struct Stager {
    orders: Arc<StagingOrders>,
    thread: BackgroundThread,
}

#[derive(Default)]
struct StagingOrders {
    /// The schedule of the epoch to stage, until the staging thread takes it.
    order: Mutex<Option<Schedule>>,
    arrived: Condvar,
    /// Set when there is a new order or the thread must end. The current work is then abandoned.
    new_order: AtomicBool,
    over: AtomicBool,
    /// The number of batches that the pipeline has begun to read in this epoch.
    begun: AtomicU64,
    first_step: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl Stager {
    pub(super) fn start(cache: Arc<Cache>, open: Arc<OpenSource>) -> Result<Self> {
        let orders = Arc::new(StagingOrders::default());
        let work = {
            let orders = orders.clone();
            move || {
                if let Err(error) =
                    StagingWorker::new(&cache, &orders, &*open).and_then(|mut worker| worker.run())
                {
                    cache.note_error(error);
                }
            }
        };
        Ok(Self { orders, thread: BackgroundThread::start("foreload-stage", "a thread of the cache", work)? })
    }

    pub(super) fn begin(&self, schedule: Schedule, first_step: u64) {
        self.orders.first_step.store(first_step, Relaxed);
        self.orders.begun.store(0, Relaxed);
        let mut order = lock(&self.orders.order);
        *order = Some(schedule);
        // Set the flag under the lock, because the thread takes the order and the flag together.
        self.orders.new_order.store(true, Relaxed);
        drop(order);
        self.orders.arrived.notify_all();
    }

    pub(super) fn begin_batch(&self) {
        self.orders.begun.fetch_add(1, Relaxed);
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        let order = lock(&self.orders.order);
        // Set the flags under the lock, so that the thread cannot begin to wait between its check and this change.
        self.orders.over.store(true, Relaxed);
        self.orders.new_order.store(true, Relaxed);
        drop(order);
        self.orders.arrived.notify_all();
        if let Some(waker) = &*lock(&self.orders.waker) {
            (waker.0)();
        }
        self.thread.end(END_LIMIT);
    }
}

impl StagingOrders {
    fn next(&self) -> Option<Schedule> {
        let mut order = lock(&self.order);
        loop {
            if self.over.load(Relaxed) {
                return None;
            }
            self.new_order.store(false, Relaxed);
            if let Some(schedule) = order.take() {
                return Some(schedule);
            }
            order = self.arrived.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn rest(&self, time: Duration) {
        let order = lock(&self.order);
        let new_order = |_: &mut Option<Schedule>| !self.new_order.load(Relaxed);
        drop(self.arrived.wait_timeout_while(order, time, new_order));
    }

    fn step(&self) -> u64 {
        self.first_step.load(Relaxed) + self.begun.load(Relaxed)
    }
}

struct StagingWorker<'a> {
    cache: &'a Cache,
    orders: &'a StagingOrders,
    slots: SlotPool,
    reader: Box<dyn Reader>,
    /// The gap between pieces of a record that the reader reads.
    gap: u64,
    pace: Pace,
    started: Instant,
    /// The chunks in flight by token, with the versions of their files and the times of their requests.
    pending: HashMap<u64, (StagedChunk, Option<FileVersion>, Instant)>,
    next_token: u64,
    arrived: Vec<Completion>,
    /// The locks on units, held until the staged samples are published, so that no other process stages them again.
    locks: Vec<UnitLock>,
    lane: TraceLane,
}

impl<'a> StagingWorker<'a> {
    fn new(cache: &'a Cache, orders: &'a StagingOrders, open: &OpenSource) -> Result<Self> {
        // Slots need extra pages for alignment. If samples are larger than a staging read, the memory suffices for
        // fewer reads.
        let depth = if cache.index.has_remote() { REMOTE_DEPTH } else { DEPTH };
        let room = |bytes: u64| bytes as usize + 2 * base::slot::PAGE;
        let gap = record_gap(&cache.index);
        let mut largest = STAGED_READ.max(largest_room(&cache.index, gap) as u64);
        if cache.index.has_arrays() {
            // Longer records are not kept.
            largest = largest.min(2 * MAX_RECORD);
        }
        let slots = SlotPool::new((DEPTH * room(largest)).max(depth * room(STAGED_READ)))?;
        let reader = open(&slots, depth, SourceUse::Staging)?;
        *lock(&orders.waker) = Some(reader.waker());
        let pace = Pace::new(cache.stage_bandwidth());
        Ok(Self {
            cache,
            orders,
            slots,
            reader,
            gap,
            pace,
            started: Instant::now(),
            pending: HashMap::new(),
            next_token: 0,
            arrived: Vec::new(),
            locks: Vec::new(),
            lane: cache.trace.lane("stager"),
        })
    }

    fn run(&mut self) -> Result<()> {
        while let Some(schedule) = self.orders.next() {
            self.stage(&schedule)?;
            while self.reader.in_flight() > 0 && !self.over() {
                self.absorb()?;
            }
            if self.over() {
                // When the store is dropped, it publishes its samples, and waits only briefly.
                break;
            }
            self.cache.end();
            if !self.locks.is_empty() {
                self.cache.flush();
                self.locks.clear();
            }
        }
        Ok(())
    }

    /// Stages missing samples, until all are staged, the tiers are full, or there is a new order.
    fn stage(&mut self, schedule: &Schedule) -> Result<()> {
        let index = self.cache.index.clone();
        let step = self.orders.step();
        let plan = units::units(&index, schedule, step, self.cache.steps_ahead(schedule));
        self.cache.counted.staged_units.store(0, Relaxed);
        self.cache.counted.units.store(plan.len() as u64, Relaxed);
        for unit in plan {
            if self.interrupted() {
                return Ok(());
            }
            match &unit {
                StagingUnit::Shard(file) => match self.cache.lock_unit(u64::from(file.0)) {
                    Some(locks) => self.locks.extend(locks),
                    // This process has the lock already, because it keeps blocks of the shard.
                    None if self.cache.keeps_blocks_of(*file) => {}
                    // Another process stages the shard.
                    None => continue,
                },
                // Skip a step whose files the pipeline reads soon, or has read.
                StagingUnit::Step(step) if *step < self.orders.step() + self.cache.steps_ahead(schedule) => {
                    continue;
                }
                StagingUnit::Step(_) => {}
            }
            let samples = units::samples(&unit, &index, schedule);
            let is_missing = |sample| !self.cache.knows(sample) && self.cache.may_keep(sample);
            for chunk in units::chunks(&index, &samples, is_missing) {
                self.read(chunk)?;
                if self.interrupted() {
                    return Ok(());
                }
            }
            count(&self.cache.counted.staged_units, 1);
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.orders.over.load(Relaxed)
    }

    fn interrupted(&self) -> bool {
        self.orders.new_order.load(Relaxed) || self.cache.is_full()
    }

    fn read(&mut self, chunk: StagedChunk) -> Result<()> {
        let room = read_room(&*self.cache.index, chunk.extent, None, self.gap);
        if room > self.slots.largest() {
            // The pipeline reads the sample itself.
            return Ok(());
        }
        while !self.over() {
            if self.reader.room() > 0
                && let Some(slot) = self.slots.try_take(room)
            {
                let token = self.next_token;
                self.next_token += 1;
                let extent = chunk.extent;
                let version = self.version(extent);
                self.pending.insert(token, (chunk, version, Instant::now()));
                self.reader.submit(ReadRequest::new(token, extent, slot));
                break;
            }
            self.absorb()?;
        }
        Ok(())
    }

    fn version(&self, extent: Extent) -> Option<FileVersion> {
        let index = &self.cache.index;
        index.known_version(extent.file).or_else(|| {
            count(&self.cache.counted.looks, 1);
            version_now(index, extent)
        })
    }

    fn absorb(&mut self) -> Result<()> {
        let before = self.reader.stats().requests;
        self.reader.wait(&mut self.arrived)?;
        count(&self.cache.counted.staged_requests, self.reader.stats().requests - before);
        let arrived = std::mem::take(&mut self.arrived);
        for Completion { token, result, .. } in arrived {
            let Some((chunk, version, since)) = self.pending.remove(&token) else { continue };
            let now = Instant::now();
            let took = now - since;
            match result {
                Ok(filled) => {
                    let bytes = filled.arrived() as u64;
                    count(&self.cache.counted.staged_bytes, bytes);
                    let samples = chunk.samples.len() as u64;
                    let work = StageWork { bytes, samples, ..StageWork::default() };
                    self.lane.record(Stage::Ahead, since, now, work);
                    if let (Some(version), Some(bytes)) = (version, filled.whole(chunk.extent.length)) {
                        self.store(&chunk, version, &bytes);
                    }
                }
                // A chunk that cannot be read does not stop training. If training needs a sample of the chunk, it reads
                // that sample alone, and that read returns the error.
                Err(error) => self.cache.note_error(error),
            }
            let bytes = chunk.extent.length.into();
            let rest =
                self.pace.rest(self.started.elapsed(), bytes, took, self.cache.demand_waits.load(Relaxed));
            if !rest.is_zero() {
                self.orders.rest(rest);
            }
        }
        Ok(())
    }

    fn store(&self, chunk: &StagedChunk, version: FileVersion, bytes: &[u8]) {
        for &sample in &chunk.samples {
            let range = chunk.range(self.cache.index.extent(sample));
            // The writer is busy. Try again later: it writes as fast as it can, and nothing waits for this thread.
            while self.cache.keep_staged(sample, version, &bytes[range.clone()]) == Offer::Busy {
                if self.interrupted() {
                    return;
                }
                self.orders.rest(Duration::from_millis(1));
            }
        }
    }
}
