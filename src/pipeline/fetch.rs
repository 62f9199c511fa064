//! The reading thread: walks the schedule, takes a buffer for each batch and a slot for each sample, keeps the reader
//! full, and passes what arrives to the workers.

use super::cuda::assembly::{Assembly, Lanes, UnderWay};
use super::watch::Watch;
use super::work::Job;
use super::{Run, Shared};
use crate::batch::{BatchPool, Seal, Sink, Ticket};
use crate::error::{Error, Result};
use crate::io::{Completion, ReadRequest, ReadStats, Reader, Tier, Waker};
use crate::schedule::BatchEntry;
use crate::slot::SlotPool;
use crate::trace::{Gauge, Stage};
use crossbeam_channel::{Receiver, Sender};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long slots may stay taken before incomplete batches go to the GPU in pieces.
const PATIENCE: Duration = Duration::from_millis(50);

/// Rouses the reading thread when something it waits for may have come free. Silent while it waits for nothing.
#[derive(Default)]
pub(super) struct Bell {
    starving: AtomicBool,
    thread: OnceLock<Thread>,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn ring(&self) {
        if self.starving.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whatever it waits for.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            (waker.0)();
        }
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

pub(super) struct Fetcher {
    shared: Arc<Shared>,
    slots: SlotPool,
    batches: BatchPool,
    jobs: Sender<Job>,
    reader: Option<Box<dyn Reader>>,
    /// Reads in flight by token. Those of a stopped run are gone from here; their completions are ignored.
    pending: HashMap<u64, Pending>,
    /// The way to a GPU, where there is one.
    lanes: Option<Lanes>,
    /// Batches on the way there.
    gathering: Vec<Weak<Assembly>>,
    /// Pieces that lanes have or will have: what they hold comes free by itself.
    under_way: UnderWay,
    /// Since when no slot came free.
    starved_since: Option<Instant>,
    next_token: u64,
    counted: ReadStats,
    arrived: Vec<Completion>,
    watch: Watch,
}

/// A read in flight.
struct Pending {
    place: BatchEntry,
    step: u64,
    ticket: Ticket,
    assembly: Option<Arc<Assembly>>,
    /// When it was asked for, to the lap.
    since: Instant,
}

/// Where in the schedule the next read is.
struct Cursor {
    step: u64,
    /// Places of the current batch not yet asked for, the next one last.
    open: Vec<(u32, Ticket)>,
    /// Where they gather on the way to a GPU.
    assembly: Option<Arc<Assembly>>,
}

/// Why no read was submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The schedule is through or the reader is full.
    Nothing,
    /// A buffer for a batch.
    Batch,
    /// A slot.
    Slot,
}

impl Fetcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        slots: SlotPool,
        batches: BatchPool,
        jobs: Sender<Job>,
        lanes: Option<Lanes>,
    ) -> Self {
        Self {
            watch: Watch::new(shared.trace.lane("reader")),
            shared,
            slots,
            batches,
            jobs,
            reader: None,
            pending: HashMap::new(),
            lanes,
            gathering: Vec::new(),
            under_way: UnderWay::default(),
            starved_since: None,
            next_token: 0,
            counted: ReadStats::default(),
            arrived: Vec::new(),
        }
    }

    /// Fetches one run after another until no more can come.
    pub(super) fn run(mut self, runs: &Receiver<Arc<Run>>) {
        let _ = self.shared.bell.thread.set(std::thread::current());
        for run in runs {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.fetch(&run)));
            let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("reading", &*panic)));
            if let Err(error) = outcome {
                run.inbox.fail(error);
            }
            self.pending.clear();
        }
    }

    fn fetch(&mut self, run: &Arc<Run>) -> Result<()> {
        self.open_reader()?;
        let steps = run.schedule.steps();
        let mut cursor = Cursor { step: run.first_step, open: Vec::new(), assembly: None };
        let sink: Arc<dyn Sink> = run.inbox.clone();
        self.starved_since = None;
        self.counted = self.reader.as_ref().map_or_else(ReadStats::default, |reader| reader.stats());
        self.watch.skip_to(run.clock.started);
        while !run.stopped() {
            // Raised before looking, so that what comes free in between rings the bell.
            self.shared.bell.starving.store(true, Ordering::SeqCst);
            let lack = self.submit(run, &mut cursor, &sink)?;
            let starved = lack != Lack::Nothing;
            self.shared.bell.starving.fetch_and(starved, Ordering::SeqCst);
            if self.pending.is_empty() && cursor.step >= steps && cursor.open.is_empty() {
                break;
            }
            self.watch.lap(&run.clock.read_busy);
            let reader = self.reader.as_mut().expect("opened above");
            if reader.in_flight() > 0 {
                reader.wait(&mut self.arrived)?;
            } else if starved {
                self.shared.stuck.store(true, Ordering::SeqCst);
                self.park(lack);
                self.shared.stuck.store(false, Ordering::SeqCst);
            }
            let waited = if starved { &run.clock.read_blocked } else { &run.clock.read_waiting };
            self.watch.lap(waited);
            self.pass_on(run)?;
        }
        self.shared.bell.starving.store(false, Ordering::SeqCst);
        if let Some(cache) = self.shared.cache.get() {
            cache.end();
        }
        Ok(())
    }

    /// Sleeps until something came free. On the way to a GPU files stay in their slots until their batch is complete:
    /// when no slot comes free, and no lane has any to give back, incomplete batches go ahead in pieces.
    fn park(&mut self, lack: Lack) {
        if self.lanes.is_none() || lack != Lack::Slot {
            return std::thread::park();
        }
        // By the clock and not by whether somebody rang: consumers that wait ring often, and free nothing.
        let since = *self.starved_since.get_or_insert_with(Instant::now);
        std::thread::park_timeout(PATIENCE);
        if since.elapsed() >= PATIENCE && self.under_way.is_empty() {
            for assembly in self.gathering.iter().filter_map(Weak::upgrade) {
                assembly.flush();
            }
        }
    }

    /// On this thread, which then owns the ring; kept from epoch to epoch with its open shards.
    fn open_reader(&mut self) -> Result<()> {
        if self.reader.is_none() {
            let reader = self.shared.open_reader(&self.slots)?;
            *self.shared.io.lock().unwrap_or_else(PoisonError::into_inner) = reader.describe();
            *self.shared.bell.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader.waker());
            self.reader = Some(reader);
        }
        Ok(())
    }

    fn reader(&mut self) -> &mut dyn Reader {
        &mut **self.reader.as_mut().expect("opened by fetch")
    }

    /// Submits reads until the schedule ends, the reader is full or a pool is empty.
    fn submit(&mut self, run: &Arc<Run>, cursor: &mut Cursor, sink: &Arc<dyn Sink>) -> Result<Lack> {
        while self.reader().room() > 0 {
            if cursor.open.is_empty() {
                if cursor.step >= run.schedule.steps() {
                    return Ok(Lack::Nothing);
                }
                let len = run.schedule.batch_len(cursor.step);
                let Some((seal, tickets)) = self.batches.begin(cursor.step, len, sink)? else {
                    return Ok(Lack::Batch);
                };
                cursor.assembly = self.gather(run, cursor.step, len, seal);
                cursor.open.extend((0..len).zip(tickets).rev());
                cursor.step += 1;
                continue;
            }
            let (place_in_batch, _) = cursor.open.last().expect("not empty");
            let place = run.schedule.place(cursor.step - 1, *place_in_batch);
            let extent = self.shared.index.extent(place.draw.sample);
            if extent.length as usize > self.slots.largest() {
                let message = format!("leaves room for files of at most {} bytes", self.slots.largest());
                let (_, ticket) = cursor.open.pop().expect("not empty");
                let bytes = Err(Error::config("memory", message));
                let assembly = cursor.assembly.clone();
                let step = cursor.step - 1;
                self.jobs
                    .send(Job { run: run.clone(), place, step, ticket, assembly, bytes })
                    .map_err(|_| workers_gone())?;
                continue;
            }
            let Some(slot) = self.slots.try_take(extent.length as usize) else { return Ok(Lack::Slot) };
            self.starved_since = None;
            let (_, ticket) = cursor.open.pop().expect("not empty");
            let token = self.next_token;
            self.next_token += 1;
            let (step, assembly, since) = (cursor.step - 1, cursor.assembly.clone(), self.watch.now());
            self.pending.insert(token, Pending { place, step, ticket, assembly, since });
            self.reader().submit(ReadRequest { token, extent, slot });
        }
        Ok(Lack::Nothing)
    }

    /// Where the samples of a batch gather on the way to a GPU; in host memory its places are all there is to fill.
    fn gather(&mut self, run: &Arc<Run>, step: u64, len: u32, seal: Seal) -> Option<Arc<Assembly>> {
        let Some(lanes) = self.lanes.as_ref().filter(|_| len > 0) else {
            seal.close();
            return None;
        };
        let assembly = Assembly::new(run.clone(), lanes, self.under_way.clone(), step, len, seal);
        let assembly = Arc::new(assembly);
        self.gathering.retain(|assembly| assembly.strong_count() > 0);
        self.gathering.push(Arc::downgrade(&assembly));
        Some(assembly)
    }

    fn pass_on(&mut self, run: &Arc<Run>) -> Result<()> {
        self.watch.gauge(Gauge::InFlight, self.pending.len());
        for Completion { token, result, tier, .. } in self.arrived.drain(..) {
            // Not there: asked for by a run that was stopped.
            if let Some(Pending { place, step, ticket, assembly, since }) = self.pending.remove(&token) {
                run.clock.latency(tier).record(self.watch.now() - since);
                self.watch.turn_to(run.epoch, step);
                self.watch.log(read_from(tier), since, result.as_ref().map_or(0, |bytes| bytes.len()), 1);
                let job = Job { run: run.clone(), place, step, ticket, assembly, bytes: result };
                self.jobs.send(job).map_err(|_| workers_gone())?;
            }
        }
        let stats = self.reader.as_ref().expect("opened by fetch").stats();
        run.clock.add_reads(ReadStats {
            bytes: stats.bytes - self.counted.bytes,
            reads: stats.reads - self.counted.reads,
            opens: stats.opens - self.counted.opens,
        });
        self.counted = stats;
        Ok(())
    }
}

fn read_from(tier: Tier) -> Stage {
    match tier {
        Tier::Source => Stage::Source,
        Tier::Nvme => Stage::Nvme,
    }
}

fn workers_gone() -> Error {
    Error::Internal("the decoding threads have ended".into())
}
