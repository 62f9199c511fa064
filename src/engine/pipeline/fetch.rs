//! The reading thread. It walks the schedule, takes a buffer for each batch and a slot for each sample, keeps the
//! reader's queue full, and passes what arrives to the workers.

use super::cpu_share::ShareKeeper;
use super::cuda::assembly::{Assembly, LaneQueues, PiecesInFlight};
use super::mixing::RingBoard;
use super::peers_log::PeersLog;
use super::stopwatch::Stopwatch;
use super::work::{DecodeJob, OpenPlace, PlaceOfRecipe, ThenGoes};
use super::{EpochRun, PipelineShared};
use crate::batch::{BatchCloser, BatchPool, Sink, Ticket};
use base::error::{Error, Result};
use base::slot::SlotPool;
use base::trace::{Gauge, Stage};
use crossbeam_channel::{Receiver, Sender};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};
use store::io::{Completion, Filled, ReadRequest, ReadStats, Reader, Waker};
use stream::NextBatch;

/// How long the reading thread waits for a slot before it sends incomplete batches to the GPU in pieces.
const PATIENCE: Duration = Duration::from_millis(50);

/// Wakes the reading thread when something that it waits for may have come free, and leaves it alone while it waits for
/// nothing.
#[derive(Default)]
pub(super) struct FetchWaker {
    /// Whether the reading thread waits for a slot or a batch buffer.
    starving: AtomicBool,
    /// The latest: where other settings lead for a while, their threads come and go.
    thread: Mutex<Option<Thread>>,
    waker: Mutex<Option<Waker>>,
}

impl FetchWaker {
    /// Wakes the reading thread if it waits for a slot or a batch buffer.
    pub(super) fn wake_if_starved(&self) {
        if self.starving.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Notes that the thread waits for what may come free.
    pub(super) fn starve(&self) {
        self.starving.store(true, Ordering::SeqCst);
    }

    /// Says how the thread is woken while it waits for something else than room.
    pub(super) fn wake_by(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Wakes the reading thread, whatever it waits for.
    pub(super) fn wake(&self) {
        self.starving.store(false, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            (waker.0)();
        }
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}

pub(super) struct Fetcher {
    shared: Arc<PipelineShared>,
    slots: SlotPool,
    batches: BatchPool,
    jobs: Sender<DecodeJob>,
    reader: Option<Box<dyn Reader>>,
    /// The reads in flight by token. Those of a stopped run are removed from here, and their completions are ignored.
    pending: HashMap<u64, PendingRead>,
    /// The queues of the lanes, on the way to a GPU.
    lanes: Option<LaneQueues>,
    /// The batches that are on the way to a GPU and incomplete.
    gathering: Vec<Weak<Assembly>>,
    /// The pieces that lanes have or will have. What these hold comes free by itself.
    pieces_in_flight: PiecesInFlight,
    /// The moment since which no slot came free.
    starved_since: Option<Instant>,
    next_token: u64,
    counted: ReadStats,
    arrived: Vec<Completion>,
    stopwatch: Stopwatch,
    peers_log: PeersLog,
    /// What keeps the pipeline within its share of the processors, where it has one.
    share: Option<ShareKeeper>,
}

/// A read in flight.
struct PendingRead {
    place: OpenPlace,
    /// The further places of the batch that show the same sample.
    others: Vec<OpenPlace>,
    /// When it was submitted, as the stopwatch's last lap tells.
    since: Instant,
}

/// The place in the schedule that the next read is for.
struct ScheduleCursor {
    /// The step of the next batch.
    step: u64,
    /// The places of the current batch whose reads are not submitted yet, the next one last.
    open: Vec<OpenPlace>,
    /// The batches of the next step that have buffers already, of the run's recipe and then of those beside it; `None`
    /// where nobody wants that batch.
    begun: Vec<Option<(BatchCloser, Vec<Ticket>)>>,
}

/// What keeps the reading thread from submitting a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockedOn {
    /// Nothing has to come free: the schedule has ended, or the reader is full.
    Nothing,
    /// No buffer is free for the next batch.
    BatchBuffer,
    /// No slot is free for the next sample.
    Slot,
    /// Too few samples of a stream have arrived for the next batch; at this instant, if there is one, fewer will do.
    Arrivals(Option<Instant>),
}

/// Where the places of a batch of `len` in host memory go when they are filled.
fn then_goes(shared: &PipelineShared, len: u32) -> ThenGoes {
    match shared.config.mix {
        Some(_) => ThenGoes::ToRing(Arc::new(RingBoard::new(len))),
        None => ThenGoes::Nowhere,
    }
}

/// What became of the attempt to begin a batch.
enum Begun {
    /// Its places are open.
    Opened,
    /// The course has ended.
    Over,
    /// Something must come free, or arrive, first.
    Blocked(BlockedOn),
}

impl Fetcher {
    pub(super) fn new(
        shared: Arc<PipelineShared>,
        slots: SlotPool,
        batches: BatchPool,
        jobs: Sender<DecodeJob>,
        lanes: Option<LaneQueues>,
        share: Option<ShareKeeper>,
    ) -> Self {
        Self {
            stopwatch: Stopwatch::new(shared.trace.lane("reader")),
            shared,
            slots,
            batches,
            jobs,
            reader: None,
            pending: HashMap::new(),
            lanes,
            gathering: Vec::new(),
            pieces_in_flight: PiecesInFlight::default(),
            starved_since: None,
            next_token: 0,
            counted: ReadStats::default(),
            arrived: Vec::new(),
            peers_log: PeersLog::new(),
            share,
        }
    }

    /// Fetches one epoch after another until no more can come.
    pub(super) fn run(mut self, runs: &Receiver<Arc<EpochRun>>) {
        let mut known = self.shared.fetch_waker.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(std::thread::current());
        drop(known);
        for run in runs {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.fetch(&run)));
            let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("reading", &*panic)));
            if let Err(error) = outcome {
                run.fail(error);
            }
            self.pending.clear();
            // Also after an error.
            self.share.iter_mut().for_each(ShareKeeper::leave);
        }
    }

    fn fetch(&mut self, run: &Arc<EpochRun>) -> Result<()> {
        self.open_reader()?;
        let mut cursor = ScheduleCursor { step: run.first_step, open: Vec::new(), begun: Vec::new() };
        self.starved_since = None;
        self.counted = self.reader.as_ref().map_or_else(ReadStats::default, |reader| reader.stats());
        self.stopwatch.skip_to(run.counters.started);
        while !run.stopped() {
            if let Some(share) = &mut self.share {
                share.keep(self.stopwatch.now());
            }
            // Set before the pools are asked, so that what comes free in between wakes this thread.
            self.shared.fetch_waker.starve();
            let blocked_on = self.submit(run, &mut cursor)?;
            run.counters.in_flight.store(self.pending.len() as u64, Ordering::Relaxed);
            let starved = blocked_on != BlockedOn::Nothing;
            self.shared.fetch_waker.starving.fetch_and(starved, Ordering::SeqCst);
            if self.pending.is_empty() && cursor.open.is_empty() && cursor.step >= run.course.steps() {
                break;
            }
            let submitted = self.stopwatch.lap(&run.counters.read_busy);
            let reader = self.reader.as_mut().expect("opened above");
            let is_reading = reader.in_flight() > 0;
            if is_reading {
                reader.wait(&mut self.arrived)?;
            } else if starved {
                let stuck = !matches!(blocked_on, BlockedOn::Arrivals(_));
                self.shared.stuck.store(stuck, Ordering::SeqCst);
                // Where nothing has arrived there is time for what later batches would wait for.
                if stuck || !self.batches.prepare_one()? {
                    self.park(blocked_on);
                }
                self.shared.stuck.store(false, Ordering::SeqCst);
            }
            let wants_arrivals = matches!(blocked_on, BlockedOn::Arrivals(_));
            let blocked = starved && !wants_arrivals;
            let waited = if blocked { &run.counters.read_blocked } else { &run.counters.read_waiting };
            let passed = self.stopwatch.lap(waited);
            if is_reading {
                run.counters.reading.fetch_add((submitted + passed).as_nanos() as u64, Ordering::Relaxed);
            } else if wants_arrivals {
                run.counters.arrivals.fetch_add(passed.as_nanos() as u64, Ordering::Relaxed);
            }
            self.pass_on(run, &mut cursor)?;
        }
        self.shared.fetch_waker.starving.store(false, Ordering::SeqCst);
        if let Some(cache) = self.shared.cache.get() {
            cache.end();
            self.peers_log.record(self.stopwatch.lane(), Instant::now(), Some(cache));
        }
        Ok(())
    }

    /// Sleeps until something may have come free. On the way to a GPU, files stay in their slots until their batch is
    /// complete. So when no slot comes free and no lane has any to give back, incomplete batches go ahead in pieces.
    fn park(&mut self, blocked_on: BlockedOn) {
        // Whoever woke this thread since it asked has reset the flag. That alone tells: a channel that a source answers
        // by takes the thread's own token, because it parks the thread, too.
        if !self.shared.fetch_waker.starving.load(Ordering::SeqCst) {
            return;
        }
        if let BlockedOn::Arrivals(Some(until)) = blocked_on {
            return std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        if self.lanes.is_none() || blocked_on != BlockedOn::Slot {
            return std::thread::park();
        }
        // The time decides and not the wake-ups: consumers that wait cause many of these and free nothing.
        let since = *self.starved_since.get_or_insert_with(Instant::now);
        std::thread::park_timeout(PATIENCE);
        if since.elapsed() >= PATIENCE && self.pieces_in_flight.is_empty() {
            for assembly in self.gathering.iter().filter_map(Weak::upgrade) {
                assembly.flush();
            }
        }
    }

    /// Opens the reader on this thread, which then owns its io_uring. The reader and its open shards are kept from
    /// epoch to epoch.
    fn open_reader(&mut self) -> Result<()> {
        if self.reader.is_none() {
            let reader = self.shared.open_reader(&self.slots)?;
            *self.shared.io.lock().unwrap_or_else(PoisonError::into_inner) = reader.describe();
            self.shared.fetch_waker.wake_by(reader.waker());
            self.reader = Some(reader);
        }
        Ok(())
    }

    fn reader(&mut self) -> &mut dyn Reader {
        &mut **self.reader.as_mut().expect("opened by fetch")
    }

    /// Submits reads until the schedule ends, the reader is full, or a pool is empty.
    fn submit(&mut self, run: &Arc<EpochRun>, cursor: &mut ScheduleCursor) -> Result<BlockedOn> {
        while self.reader().room() > 0 {
            let Some(next) = cursor.open.last() else {
                match self.begin_batch(run, cursor)? {
                    Begun::Opened => continue,
                    Begun::Over => return Ok(BlockedOn::Nothing),
                    Begun::Blocked(blocked_on) => return Ok(blocked_on),
                }
            };
            let sample = next.entry.draw.sample;
            let extent = self.shared.index.extent(sample);
            if extent.length as usize > self.slots.largest() {
                let message = format!("leaves room for files of at most {} bytes", self.slots.largest());
                let place = cursor.open.pop().expect("not empty");
                self.pass(run, place, Err(Error::config("memory", message)))?;
                continue;
            }
            let wanted = (self.shared.config.most_bytes(extent.length) as usize).min(self.slots.largest());
            let Some(slot) = self.slots.try_take(wanted) else { return Ok(BlockedOn::Slot) };
            self.starved_since = None;
            let place = cursor.open.pop().expect("not empty");
            let mut others = Vec::new();
            if self.is_read_once(run, sample) {
                let same = |other: &mut OpenPlace| other.entry.draw.sample == sample;
                others.extend(std::iter::from_fn(|| cursor.open.pop_if(same)));
            }
            let token = self.next_token;
            self.next_token += 1;
            let wanted = self.shared.wanted_parts(run, extent, std::iter::once(&place).chain(&others));
            let (parts, chosen_by) = wanted.unzip();
            self.pending.insert(token, PendingRead { place, others, since: self.stopwatch.now() });
            self.reader().submit(ReadRequest { parts, chosen_by, ..ReadRequest::new(token, extent, slot) });
        }
        Ok(BlockedOn::Nothing)
    }

    /// Opens the places of the next batch.
    fn begin_batch(&mut self, run: &Arc<EpochRun>, cursor: &mut ScheduleCursor) -> Result<Begun> {
        let step = cursor.step;
        let places = match run.course.next(step)? {
            NextBatch::Places(places) => places,
            NextBatch::NotYet(until) => return Ok(Begun::Blocked(BlockedOn::Arrivals(until))),
            NextBatch::End => {
                // The consumer may wait for a batch that does not come.
                run.inbox.rouse();
                return Ok(Begun::Over);
            }
        };
        let len = places.len() as u32;
        if !self.take_buffers(run, cursor, len)? {
            return Ok(Begun::Blocked(BlockedOn::BatchBuffer));
        }
        if let Some(cache) = self.shared.cache.get() {
            cache.begin_batch();
        }
        let mut batches = std::mem::take(&mut cursor.begun).into_iter();
        let Some((closer, tickets)) = batches.next().flatten() else {
            // It was stopped just now.
            return Ok(Begun::Over);
        };
        let own = match self.gather(run, step, len, closer) {
            Some(assembly) => ThenGoes::ToAssembly(assembly),
            None => then_goes(&self.shared, len),
        };
        let beside = batches.zip(&run.beside).map(|(begun, of)| {
            begun.map(|(closer, tickets)| {
                closer.close();
                (tickets.into_iter(), then_goes(&of.shared, len))
            })
        });
        let mut beside: Vec<_> = beside.collect();
        let open = |(entry, ticket)| OpenPlace {
            entry,
            step,
            own: PlaceOfRecipe { ticket, then: own.clone() },
            beside: beside
                .iter_mut()
                .map(|batch| {
                    let (tickets, then) = batch.as_mut()?;
                    Some(PlaceOfRecipe { ticket: tickets.next()?, then: then.clone() })
                })
                .collect(),
        };
        cursor.open.extend(places.into_iter().zip(tickets).map(open));
        run.course.sort_for_reading(&mut cursor.open, |place| &place.entry);
        cursor.open.reverse();
        cursor.step += 1;
        Ok(Begun::Opened)
    }

    /// Takes a buffer for the next batch of each recipe of the run. Returns whether all are there; else those that are
    /// stay taken.
    fn take_buffers(&self, run: &EpochRun, cursor: &mut ScheduleCursor, len: u32) -> Result<bool> {
        let beside = run.beside.iter().map(|of| (&of.batches, &*of.run));
        let pools = std::iter::once((&self.batches, run)).chain(beside);
        for (batches, of) in pools.skip(cursor.begun.len()) {
            let sink: Arc<dyn Sink> = of.inbox.clone();
            if of.stopped() {
                cursor.begun.push(None);
                continue;
            }
            match batches.begin(cursor.step, len, &sink)? {
                Some(begun) => cursor.begun.push(Some(begun)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether a sample is read once for all places of a batch that show it. Not where the bytes themselves are handed
    /// over, because each consumer may write to its own; nor where members lie apart, because these are read by each
    /// place and must be of one version with the rest.
    fn is_read_once(&self, run: &EpochRun, sample: u64) -> bool {
        run.course.repeats() && self.shared.config.decoded && !self.shared.index.is_apart(sample)
    }

    /// Passes a place and its sample's bytes to the workers.
    fn pass(&self, run: &Arc<EpochRun>, place: OpenPlace, bytes: Result<Filled>) -> Result<()> {
        let workers_gone = |_| Error::Internal("the decoding threads have ended".into());
        self.jobs.send(DecodeJob { run: run.clone(), place, bytes }).map_err(workers_gone)
    }

    /// Makes the assembly in which the samples of a batch gather on the way to a GPU. A batch in host memory needs none
    /// and is closed at once: filling its places is all there is to do.
    fn gather(
        &mut self,
        run: &Arc<EpochRun>,
        step: u64,
        len: u32,
        closer: BatchCloser,
    ) -> Option<Arc<Assembly>> {
        let Some(lanes) = self.lanes.as_ref().filter(|_| len > 0) else {
            closer.close();
            return None;
        };
        let assembly = Assembly::new(run.clone(), lanes, self.pieces_in_flight.clone(), step, len, closer);
        let assembly = Arc::new(assembly);
        self.gathering.retain(|assembly| assembly.strong_count() > 0);
        self.gathering.push(Arc::downgrade(&assembly));
        Some(assembly)
    }

    fn pass_on(&mut self, run: &Arc<EpochRun>, cursor: &mut ScheduleCursor) -> Result<()> {
        self.stopwatch.gauge(Gauge::InFlight, self.pending.len());
        let (now, cache) = (self.stopwatch.now(), self.shared.cache.get());
        self.peers_log.tick(self.stopwatch.lane(), now, cache.map(|cache| &**cache));
        // Before they are passed on: who has the last batch finds all of its reads counted.
        self.count_reads(run);
        let mut arrived = std::mem::take(&mut self.arrived);
        for Completion { token, result, tier, .. } in arrived.drain(..) {
            // A read that is not there was submitted for an epoch that was stopped.
            let Some(PendingRead { place, others, since }) = self.pending.remove(&token) else { continue };
            run.counters.latency(tier).record(self.stopwatch.now() - since);
            self.stopwatch.turn_to(run.epoch, place.step);
            let length = result.as_ref().map_or(0, Filled::arrived);
            self.stopwatch.log(Stage::Read(tier), since, length, 1);
            match &result {
                Ok(bytes) => {
                    others.into_iter().try_for_each(|place| self.pass(run, place, Ok(bytes.clone())))?
                }
                // What failed for one place is tried again for each of the others.
                Err(_) => cursor.open.extend(others),
            }
            self.pass(run, place, result)?;
        }
        self.arrived = arrived;
        Ok(())
    }

    /// Counts what the reader has read since it was last asked.
    fn count_reads(&mut self, run: &EpochRun) {
        let stats = self.reader().stats();
        run.counters.add_reads(stats.since(self.counted));
        self.counted = stats;
    }
}
