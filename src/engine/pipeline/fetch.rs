//! The reading thread. It walks the run plan (`RunPlan`), takes a buffer for each batch and a slot for each sample,
//! keeps the reader's queue full, and passes the bytes that arrive to the workers.
//!
//! Places of a batch that repeat a sample share one read. If a pool is empty or too few samples of a stream have
//! arrived, the thread waits until `FetchWaker` wakes it.

use super::{
    cpu_share::CpuShareLimiter, engine::ThreadContext, make::BatchOpener, make::OpenPlace, make::PlaceJob,
    peers_log::PeersLog, run::EpochRun, stopwatch::Stopwatch, wanted::wanted_parts, windows::wanted_ranges,
};
use base::error::{Error, Result};
use base::slot::SlotPool;
use base::threads::caught;
use base::trace::{Gauge, Stage};
use crossbeam_channel::{Receiver, Sender};
use data::dataset::Extent;
use data::dataset::arrays::record::RecordRanges;
use data::schedule::{Draw, RepeatSpread};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use store::io::{Completion, Filled, ReadRequest, ReadStats, Reader, read_room, record_gap};
use store::tier::Cache;
use stream::NextBatch;

pub(crate) struct Fetcher<O: BatchOpener> {
    of: ThreadContext,
    slots: SlotPool,
    opener: O,
    jobs: Sender<PlaceJob<O::Place>>,
    reader: Option<Box<dyn Reader>>,
    /// The reads in flight by token. The reads of a stopped run are removed from this map, and their completions are
    /// ignored.
    pending: HashMap<u64, PendingRead<O::Place>>,
    slot_wait_began: Option<Instant>,
    next_token: u64,
    counted: ReadStats,
    arrived: Vec<Completion>,
    stopwatch: Stopwatch,
    peers_log: PeersLog,
    share: Option<CpuShareLimiter>,
    /// The gap between pieces of a record that the reader reads.
    record_gap: u64,
}

struct PendingRead<P> {
    place: OpenPlace<P>,
    others: Vec<OpenPlace<P>>,
    since: Instant,
}

struct ReadPosition<P> {
    step: u64,
    /// The places of the current batch (one for each of its samples) whose reads are not submitted yet, the next one
    /// last.
    open: Vec<OpenPlace<P>>,
    spread: Option<RepeatSpread>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockedOn {
    /// Nothing to wait for: the run plan has ended, or the reader is full.
    Nothing,
    BatchBuffer,
    Slot,
    /// Too few samples of a stream have arrived for the next batch. At the given instant, if there is one, a smaller
    /// batch is made of the samples that have arrived.
    Arrivals(Option<Instant>),
}

impl<O: BatchOpener> Fetcher<O> {
    pub(crate) fn new(
        of: ThreadContext,
        slots: SlotPool,
        opener: O,
        jobs: Sender<PlaceJob<O::Place>>,
        share: Option<CpuShareLimiter>,
    ) -> Self {
        Self {
            stopwatch: Stopwatch::new(of.engine.trace.lane("reader")),
            of,
            slots,
            opener,
            jobs,
            reader: None,
            pending: HashMap::new(),
            slot_wait_began: None,
            next_token: 0,
            counted: ReadStats::default(),
            arrived: Vec::new(),
            peers_log: PeersLog::new(),
            share,
            record_gap: 0,
        }
    }

    pub(crate) fn run(mut self, runs: &Receiver<Arc<EpochRun>>) {
        self.opener.attach_thread();
        self.of.waker.wakes_this_thread();
        for run in runs {
            if let Err(error) = caught("reading", || self.fetch(&run)) {
                run.inbox.fail(error);
            }
            self.pending.clear();
            // The loader must also leave its share of the processors after an error.
            self.share.iter_mut().for_each(CpuShareLimiter::leave);
        }
    }

    fn fetch(&mut self, run: &Arc<EpochRun>) -> Result<()> {
        self.open_reader()?;
        let mut cursor =
            ReadPosition { step: run.first_step, open: Vec::new(), spread: run.run_plan.repeats() };
        self.slot_wait_began = None;
        self.counted = self.reader.as_ref().map_or_else(ReadStats::default, |reader| reader.stats());
        self.stopwatch.skip_to(run.started);
        while !run.stopped() {
            if let Some(share) = &mut self.share {
                share.keep(self.stopwatch.now());
            }
            // Set the flag before asking the pools. If a slot or buffer is freed after that, the thread that frees it
            // sees the flag and wakes this thread.
            self.of.waker.prepare_to_wait();
            let blocked_on = self.submit(run, &mut cursor)?;
            run.counters.in_flight.store(self.pending.len() as u64, Ordering::Relaxed);
            let waits = blocked_on != BlockedOn::Nothing;
            self.of.waker.keep_waiting(waits);
            if self.pending.is_empty() && cursor.open.is_empty() && cursor.step >= run.run_plan.steps() {
                break;
            }
            let submitted = self.stopwatch.lap(&run.counters.read_busy);
            let reader = self.reader.as_mut().expect("opened above");
            let is_reading = reader.in_flight() > 0;
            if is_reading {
                reader.wait(&mut self.arrived)?;
            } else if waits {
                let idle_and_blocked = !matches!(blocked_on, BlockedOn::Arrivals(_));
                self.of.waker.idle_and_blocked.store(idle_and_blocked, Ordering::SeqCst);
                // While no samples arrive, allocate a buffer that a later batch would have to wait for.
                if idle_and_blocked || !run.batches.prepare_one()? {
                    self.park(blocked_on);
                }
                self.of.waker.idle_and_blocked.store(false, Ordering::SeqCst);
            }
            let wants_arrivals = matches!(blocked_on, BlockedOn::Arrivals(_));
            let blocked = waits && !wants_arrivals;
            let waited = if blocked { &run.counters.read_blocked } else { &run.counters.read_waiting };
            let passed = self.stopwatch.lap(waited);
            if is_reading {
                run.counters.reading.fetch_add((submitted + passed).as_nanos() as u64, Ordering::Relaxed);
            } else if wants_arrivals {
                run.counters.arrivals.fetch_add(passed.as_nanos() as u64, Ordering::Relaxed);
            }
            self.pass_on(run, &mut cursor)?;
        }
        self.of.waker.keep_waiting(false);
        if let Some(cache) = self.of.context.source.cache.get() {
            cache.end();
            self.peers_log.record(self.stopwatch.lane(), Instant::now(), Some(cache));
        }
        Ok(())
    }

    /// Sleeps until a slot, a buffer or a sample may be available. If no slot becomes free for a while, incomplete
    /// batches give up the slots that they hold.
    fn park(&mut self, blocked_on: BlockedOn) {
        // Return if a wake-up has cleared the flag since the pools were asked. The thread's park token is not enough to
        // know: the channels of sources also park this thread, and may use up the token.
        if !self.of.waker.is_waiting() {
            return;
        }
        if let BlockedOn::Arrivals(Some(until)) = blocked_on {
            return std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        let Some(patience) = O::SLOT_WAIT.filter(|_| blocked_on == BlockedOn::Slot) else {
            return std::thread::park();
        };
        // Measure the elapsed time instead of counting wake-ups: waiting consumers cause many wake-ups and free
        // nothing.
        let since = *self.slot_wait_began.get_or_insert_with(Instant::now);
        std::thread::park_timeout(patience);
        if since.elapsed() >= patience {
            self.opener.release_slots();
        }
    }

    /// Opens the reader on this thread, which then owns its io_uring. The reader and its open shards are kept for later
    /// epochs.
    fn open_reader(&mut self) -> Result<()> {
        if self.reader.is_none() {
            let context = &self.of.context;
            let reader = context.source.open(&context.config, &self.slots)?;
            *self.of.engine.io.lock().unwrap_or_else(PoisonError::into_inner) = reader.describe();
            self.of.waker.wake_by(reader.waker());
            self.record_gap = record_gap(&context.index);
            self.reader = Some(reader);
        }
        Ok(())
    }

    fn reader(&mut self) -> &mut dyn Reader {
        &mut **self.reader.as_mut().expect("opened by fetch")
    }

    fn submit(&mut self, run: &Arc<EpochRun>, cursor: &mut ReadPosition<O::Place>) -> Result<BlockedOn> {
        let context = &run.context;
        let has_arrays = context.index.has_arrays();
        while self.reader().room() > 0 {
            let Some(next) = cursor.open.last() else {
                match self.begin_batch(run, cursor)? {
                    None => continue,
                    Some(blocked_on) => return Ok(blocked_on),
                }
            };
            let run = run.at(next.step);
            let sample = next.entry.draw.sample;
            let extent = context.index.extent(sample);
            let is_same = |other: &&OpenPlace<_>| other.entry.draw.sample == sample;
            let mut shared_by = match cursor.spread.is_some() && may_be_read_once(run, sample) {
                true => cursor.open.iter().rev().take_while(is_same).count(),
                false => 1,
            };
            let draws = |shared_by| cursor.open.iter().rev().take(shared_by).map(|place| place.entry.draw);
            let room_for = |shared_by| {
                let ranges = Self::record_ranges(run, (sample, extent), draws(shared_by));
                (read_room(&*context.index, extent, ranges.as_deref(), self.record_gap), ranges)
            };
            let (mut least, mut ranges) = room_for(shared_by);
            // The pools have room for one window of a sample, not for many together.
            if least > self.slots.largest() && shared_by > 1 {
                shared_by = 1;
                (least, ranges) = room_for(1);
            }
            if least > self.slots.largest() {
                let place = cursor.open.pop().expect("not empty");
                self.pass(run, place, Err(self.too_large(has_arrays, least)))?;
                continue;
            }
            // Copies of records are never in another storage format.
            let room = match has_arrays {
                true => least,
                false => (context.config.most_bytes(extent.length) as usize).min(self.slots.largest()),
            };
            let Some(slot) = self.slots.try_take(room) else { return Ok(BlockedOn::Slot) };
            self.slot_wait_began = None;
            let (parts, chosen_by) = wanted_parts(run, extent, draws(shared_by)).unzip();
            let place = cursor.open.pop().expect("not empty");
            let others = (1..shared_by).filter_map(|_| cursor.open.pop()).collect();
            let token = self.next_token;
            self.next_token += 1;
            self.pending.insert(token, PendingRead { place, others, since: self.stopwatch.now() });
            let request = ReadRequest::new(token, extent, slot);
            self.reader().submit(ReadRequest { parts, ranges, chosen_by, ..request });
        }
        Ok(BlockedOn::Nothing)
    }

    /// Returns the ranges of a record that `draws` of its sample need together. `None` if the whole record must be
    /// read: because all of it is needed, or because a cache tier has a copy of the sample or will keep one.
    fn record_ranges(
        run: &EpochRun,
        (sample, extent): (u64, Extent),
        draws: impl Iterator<Item = Draw>,
    ) -> Option<Arc<RecordRanges>> {
        let ranges = wanted_ranges(run, extent, draws)?;
        let cache = run.context.source.cache.get();
        (!cache.is_some_and(|cache| cache.needs_whole(sample))).then_some(ranges)
    }

    fn too_large(&self, is_record: bool, needed: usize) -> Error {
        let largest = self.slots.largest();
        let message = match is_record {
            true => format!(
                "leaves room for samples of at most {largest} bytes, and this one needs {needed}: lower batch_size, \
                 read a smaller window, or raise memory"
            ),
            false => {
                format!(
                    "leaves room for files of at most {largest} bytes, and this one is larger: raise memory"
                )
            }
        };
        Error::config("memory", message)
    }

    /// Opens the places of the next batch, one for each of its samples. Returns `None` on success, or else the reason
    /// why no batch can be opened now.
    fn begin_batch(
        &mut self,
        run: &Arc<EpochRun>,
        cursor: &mut ReadPosition<O::Place>,
    ) -> Result<Option<BlockedOn>> {
        let step = cursor.step;
        let entries = match run.run_plan.next(step)? {
            NextBatch::Places(entries) => entries,
            NextBatch::NotYet(until) => return Ok(Some(BlockedOn::Arrivals(until))),
            NextBatch::End => {
                // The consumer may already wait for a batch that will not come.
                run.inbox.recheck();
                return Ok(Some(BlockedOn::Nothing));
            }
        };
        let Some(places) = self.opener.begin(run.at(step), step, entries.len() as u32)? else {
            return Ok(Some(BlockedOn::BatchBuffer));
        };
        if let Some(cache) = run.context.source.cache.get() {
            cache.begin_batch();
        }
        let open = entries.into_iter().zip(places).map(|(entry, place)| OpenPlace { entry, step, place });
        cursor.open.extend(open);
        if let Some(spread) = &cursor.spread {
            cursor.open.sort_by_key(|place| spread.position(place.entry.position));
        }
        cursor.open.reverse();
        cursor.step += 1;
        Ok(None)
    }

    fn pass(&self, run: &Arc<EpochRun>, open: OpenPlace<O::Place>, bytes: Result<Filled>) -> Result<()> {
        let workers_gone = |_| Error::Internal("the decoding threads have ended".into());
        self.jobs.send(PlaceJob { run: run.at(open.step).clone(), open, bytes }).map_err(workers_gone)
    }

    fn pass_on(&mut self, run: &Arc<EpochRun>, cursor: &mut ReadPosition<O::Place>) -> Result<()> {
        self.stopwatch.gauge(Gauge::InFlight, self.pending.len());
        let (now, cache) = (self.stopwatch.now(), run.context.source.cache.get());
        self.peers_log.tick(self.stopwatch.lane(), now, cache.map(|cache: &Arc<Cache>| &**cache));
        // Count before passing on: when the consumer has the last batch of the epoch, all reads of the epoch must be
        // counted.
        self.count_reads(run);
        let mut arrived = std::mem::take(&mut self.arrived);
        for Completion { token, result, tier, .. } in arrived.drain(..) {
            // A read without an entry was submitted for a run that was stopped.
            let Some(PendingRead { place, others, since }) = self.pending.remove(&token) else { continue };
            run.counters.latency(tier).record(self.stopwatch.now() - since);
            self.stopwatch.turn_to(run.epoch, place.step);
            let length = result.as_ref().map_or(0, Filled::arrived);
            self.stopwatch.log(Stage::Read(tier), since, length, 1);
            match &result {
                Ok(bytes) => {
                    others.into_iter().try_for_each(|place| self.pass(run, place, Ok(bytes.clone())))?
                }
                // After a failed read, each of the other places gets its own read.
                Err(_) => cursor.open.extend(others),
            }
            self.pass(run, place, result)?;
        }
        self.arrived = arrived;
        Ok(())
    }

    fn count_reads(&mut self, run: &EpochRun) {
        let stats = self.reader().stats();
        run.counters.add_reads(stats.since(self.counted));
        self.counted = stats;
    }
}

/// Returns whether all places of a batch with the same sample may share one read. They may not with `decoded=False`,
/// because a consumer may write to the bytes of one place. They may not if members are stored apart, because each place
/// reads these members itself, and all members of a sample must come from one version of the shard.
fn may_be_read_once(run: &EpochRun, sample: u64) -> bool {
    run.context.config.decoded && !run.context.index.is_apart(sample)
}
