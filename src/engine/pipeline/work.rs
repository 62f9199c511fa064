//! A worker makes of a sample's bytes what the batch holds of it, which is the bytes themselves where the consumer
//! decodes.

use super::cpu_share::CpuMeter;
use super::cuda::GpuStage;
use super::cuda::assembly::{Assembly, PreparedSample};
use super::cuda::prepare::Preparer;
use super::making::{ImageDecoders, SampleMaker, Tools};
use super::mixing::RingBoard;
use super::recipes::RecipeRun;
use super::stopwatch::Stopwatch;
use super::{EpochRun, PipelineShared};
use crate::batch::{Encoded, Ticket};
use base::error::{Error, Result};
use base::trace::TraceLane;
use crossbeam_channel::Receiver;
use data::schedule::BatchEntry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use store::io::Filled;

/// While at least this many jobs per worker wait, the reading thread is not woken for each slot that comes free: a
/// wake-up costs as much as a read.
const ENOUGH_JOBS: usize = 8;

/// After this many jobs of one worker the reading thread is woken all the same.
const ROUSE_EVERY: usize = 16;

/// A place of a batch that is to be filled from its sample's bytes.
pub(super) struct OpenPlace {
    pub entry: BatchEntry,
    /// The step of its batch.
    pub step: u64,
    /// The place in the batch of the run's own recipe.
    pub own: PlaceOfRecipe,
    /// The places in the batches of the recipes beside it; `None` where nobody wants that batch any more.
    pub beside: Vec<Option<PlaceOfRecipe>>,
}

/// A place of the batch of one recipe.
pub(super) struct PlaceOfRecipe {
    pub ticket: Ticket,
    pub then: ThenGoes,
}

/// Where a place goes when it is filled.
#[derive(Clone)]
pub(super) enum ThenGoes {
    /// Nowhere else: the batch in host memory is all there is.
    Nowhere,
    /// To the places that it is mixed with, in host memory.
    ToRing(Arc<RingBoard>),
    /// To where its batch gathers on the way to a GPU.
    ToAssembly(Arc<Assembly>),
}

/// A place whose sample's bytes arrived, or did not.
pub(super) struct DecodeJob {
    pub run: Arc<EpochRun>,
    pub place: OpenPlace,
    pub bytes: Result<Filled>,
}

/// Works until no more jobs can come; with the `stage` of the GPU where batches end on one.
pub(super) fn run(
    shared: &Arc<PipelineShared>,
    stage: Option<&GpuStage>,
    jobs: &Receiver<DecodeJob>,
    lane: TraceLane,
) {
    let new = || match stage {
        None => Worker::Host(Box::new(HostWorker::new(shared))),
        Some(stage) => Worker::Cuda(Box::new(Preparer::new(shared, stage))),
    };
    let mut worker = new();
    let mut stopwatch = Stopwatch::new(lane);
    let mut meter = shared.budget.get().cloned().map(CpuMeter::new);
    for (count, job) in jobs.iter().enumerate() {
        let run = job.run.clone();
        // The time before the epoch does not count as waiting for it.
        stopwatch.skip_to(run.counters.started);
        stopwatch.lap(&run.counters.idle);
        stopwatch.turn_to(run.epoch, job.place.step);
        if run.stopped() {
            drop(job);
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.work(job, &mut stopwatch))) {
            run.fail(Error::panicked("decoding", &*panic));
            // The scratch memory of the old one may be half-written.
            worker = new();
        }
        if jobs.len() < ENOUGH_JOBS * shared.config.threads || count % ROUSE_EVERY == 0 {
            shared.fetch_waker.wake_if_starved();
        }
        if let Some(meter) = &mut meter {
            meter.pay();
        }
    }
}

/// The work that a worker does on samples.
enum Worker<'a> {
    /// The worker fills batches in host memory.
    Host(Box<HostWorker>),
    /// The worker prepares samples for the lanes of a GPU.
    Cuda(Box<Preparer<'a>>),
}

impl Worker<'_> {
    fn work(&mut self, job: DecodeJob, stopwatch: &mut Stopwatch) {
        match self {
            Self::Host(worker) => worker.work(job, stopwatch),
            Self::Cuda(preparer) => {
                let DecodeJob { run, place, bytes } = job;
                let OpenPlace { entry: place, step, own: PlaceOfRecipe { mut ticket, then }, .. } = place;
                let batch = run.course.batch_len(step) as usize;
                let pixels = bytes.and_then(|bytes| {
                    preparer.prepare(&run, place.draw, batch, bytes, &mut ticket, stopwatch)
                });
                if let ThenGoes::ToAssembly(assembly) = then {
                    assembly.add(PreparedSample { place, ticket, pixels });
                }
            }
        }
    }
}

/// Fills places of batches in host memory, by each recipe of a run.
struct HostWorker {
    decoders: ImageDecoders,
    /// Who makes samples by the recipe of the run itself, and then by those beside it.
    makers: Vec<SampleMaker>,
}

impl HostWorker {
    fn new(shared: &Arc<PipelineShared>) -> Self {
        Self { decoders: ImageDecoders::default(), makers: vec![SampleMaker::new(shared)] }
    }

    fn work(&mut self, job: DecodeJob, stopwatch: &mut Stopwatch) {
        let DecodeJob { run, place: OpenPlace { entry, own, beside, .. }, bytes } = job;
        self.provide(&run.beside);
        self.decoders.forget();
        // The error of a read is that of one recipe; for the others the sample is read once more.
        let copy = |_: &PlaceOfRecipe| match &bytes {
            Ok(bytes) => Ok(Encoded::Slot(bytes.clone())),
            Err(_) => self.makers[0].read_again(entry.draw.sample),
        };
        let copies: Vec<_> = beside.iter().map(|place| place.as_ref().map(copy)).collect();
        let Self { decoders, makers } = self;
        let mut tools = Tools { decoders, others: &run.beside, stopwatch };
        makers[0].work(&run, entry, own, bytes.map(Encoded::Slot), &mut tools);
        for (maker, (of, (place, bytes))) in
            makers[1..].iter_mut().zip(run.beside.iter().zip(beside.into_iter().zip(copies)))
        {
            tools.others = &tools.others[1..];
            // What nobody wants any more is dropped unfinished, and its batch with it.
            if let (Some(place), Some(bytes), false) = (place, bytes, of.run.stopped()) {
                maker.work(&of.run, entry, place, bytes, &mut tools);
            }
        }
    }

    /// Has a maker for each recipe beside the run's own.
    fn provide(&mut self, beside: &[RecipeRun]) {
        let there =
            self.makers[1..].iter().zip(beside).take_while(|(maker, of)| maker.is_of(&of.shared)).count();
        self.makers.truncate(1 + there);
        self.makers.extend(beside[there..].iter().map(|of| SampleMaker::new(&of.shared)));
    }
}
