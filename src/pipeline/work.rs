//! A worker makes of a sample's bytes what the batch holds of it, which is the bytes themselves where the consumer
//! decodes.

use super::cpu::{CpuDecoder, SampleImage, ViewsFrom};
use super::cuda::GpuStage;
use super::cuda::assembly::{Assembly, PreparedSample};
use super::cuda::prepare::Preparer;
use super::fields::SeenImage;
use super::mixing::{FilledPlace, RingBoard};
use super::one_version::of_one_version;
use super::originals::OriginalFiles;
use super::stopwatch::Stopwatch;
use super::tuning::{CpuMeter, WorkerBounds};
use super::{EpochRun, PipelineShared, substitute};
use crate::augment::Renderer;
use crate::batch::{Array, Encoded, Ticket, Value};
use crate::config::{FieldContent, ImageField, OnError, ViewKind};
use crate::dataset::Contents;
use crate::decode::{Format, RestoredFile};
use crate::error::{Error, Result};
use crate::io::Filled;
use crate::schedule::{BatchEntry, Draw};
use crate::simd::Level;
use crate::tier::form_of_record;
use crate::trace::{Stage as Traced, TraceLane};
use crossbeam_channel::Receiver;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

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

/// Works as the worker with this `number` until no more jobs can come; with the `stage` of the GPU where batches end on
/// one.
pub(super) fn run(
    shared: &PipelineShared,
    stage: Option<&GpuStage>,
    jobs: &Receiver<DecodeJob>,
    (number, bounds): (usize, &WorkerBounds),
    lane: TraceLane,
) {
    let new = || match stage {
        None => Worker::Host(Box::new(HostWorker::new(shared))),
        Some(stage) => Worker::Cuda(Box::new(Preparer::new(shared, stage))),
    };
    let WorkerBounds { gate, budget, origin } = bounds;
    // Who sleeps all the time needs no memory for work. On a GPU all is made before the first batch.
    let mut worker = stage.is_some().then(new);
    let mut stopwatch = Stopwatch::new(lane);
    let mut meter = CpuMeter::new(budget.clone(), *origin);
    for count in 0.. {
        meter.pay();
        if gate.pass(number) {
            // That was no waiting for bytes.
            stopwatch.skip_to(Instant::now());
        }
        let Ok(job) = jobs.recv() else { break };
        let run = job.run.clone();
        // The time before the epoch does not count as waiting for it.
        stopwatch.skip_to(run.counters.started);
        stopwatch.lap(&run.counters.idle);
        stopwatch.turn_to(run.epoch, job.place.step);
        if run.stopped() {
            drop(job);
        } else {
            let work = || worker.get_or_insert_with(new).work(job, &mut stopwatch);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                run.inbox.fail(Error::panicked("decoding", &*panic));
                // The scratch memory of the old one may be half-written.
                worker = None;
            }
            run.counters.finished.fetch_add(1, Ordering::Relaxed);
        }
        if jobs.len() < ENOUGH_JOBS.saturating_mul(gate.width()) || count % ROUSE_EVERY == 0 {
            shared.fetch_waker.wake_if_starved();
        }
    }
}

/// The work that a worker does on samples.
enum Worker<'a> {
    /// The worker fills batches in host memory.
    Host(Box<HostWorker<'a>>),
    /// The worker prepares samples for the lanes of a GPU.
    Cuda(Box<Preparer<'a>>),
}

impl Worker<'_> {
    fn work(&mut self, job: DecodeJob, stopwatch: &mut Stopwatch) {
        match self {
            Self::Host(worker) => worker.work(job, stopwatch),
            Self::Cuda(preparer) => {
                let DecodeJob { run, place, bytes } = job;
                let OpenPlace { entry: place, step, mut ticket, then } = place;
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

struct HostWorker<'a> {
    shared: &'a PipelineShared,
    cpu: CpuDecoder,
    /// The renderers, one for each recipe.
    renderers: Vec<Renderer>,
    originals: OriginalFiles,
    /// The views that were drawn of the images of the current sample.
    seen: Vec<Option<SeenImage>>,
}

impl<'a> HostWorker<'a> {
    fn new(shared: &'a PipelineShared) -> Self {
        let recipes = shared.config.images.recipes();
        // Whoever mixes images reads them as soon as both are there.
        let mixed = shared.config.mix.is_some();
        let renderer = |recipe| Renderer::new(recipe, Level::detect()).kept_in_caches(mixed);
        Self {
            shared,
            cpu: CpuDecoder::new(shared),
            renderers: recipes.iter().map(renderer).collect(),
            originals: OriginalFiles::default(),
            seen: Vec::new(),
        }
    }

    fn work(&mut self, job: DecodeJob, stopwatch: &mut Stopwatch) {
        let DecodeJob { run, place: OpenPlace { entry, mut ticket, then, .. }, bytes } = job;
        let BatchEntry { position, draw, valid } = entry;
        let sample = draw.sample;
        let outcome =
            bytes.and_then(|bytes| self.fill(&run, draw, Encoded::Slot(bytes), &mut ticket, stopwatch));
        let (draw, valid) = match outcome {
            Ok(()) => (draw, valid),
            Err(error) => {
                let instead = self.shared.note_failure(sample, error, &mut ticket);
                self.make_do(instead, &run, (position, draw, valid), &mut ticket, stopwatch)
            }
        };
        let Draw { sample, occurrence } = draw;
        let place = FilledPlace { ticket, position, sample, occurrence, valid };
        match (&then, &self.shared.config.mix) {
            (ThenGoes::ToRing(rings), Some(plan)) => {
                rings.finish(self.shared, &run, plan, place);
                stopwatch.lap(&run.counters.augment);
            }
            _ => place.finish(&self.shared.index),
        }
    }

    /// Fills the place of a sample that failed. Returns the draw that is there now, and whether it counts.
    fn make_do(
        &mut self,
        instead: OnError,
        run: &EpochRun,
        (position, draw, valid): (u64, Draw, bool),
        ticket: &mut Ticket,
        stopwatch: &mut Stopwatch,
    ) -> (Draw, bool) {
        match instead {
            // The place may hold anything, because the batch is not delivered.
            OnError::Raise => (draw, false),
            OnError::Zero => {
                for number in 0..self.shared.config.layout.images.len() {
                    ticket.image(number).fill(0);
                }
                (draw, false)
            }
            OnError::Skip => match self.substitute(run, position, ticket, stopwatch) {
                Ok(substitute) => (Draw::first(substitute), valid),
                Err(error) => {
                    ticket.fail(draw.sample, error, true);
                    (draw, false)
                }
            },
        }
    }

    /// Fills the sample's place in the batch from its bytes.
    fn fill(
        &mut self,
        run: &EpochRun,
        draw: Draw,
        bytes: Encoded,
        ticket: &mut Ticket,
        stopwatch: &mut Stopwatch,
    ) -> Result<()> {
        if self.shared.config.decoded {
            let index = &self.shared.index;
            let replace = |_, bytes| Encoded::Owned(bytes);
            let make = |record: &Encoded| self.make(run, draw, record, ticket, stopwatch);
            return of_one_version(index, draw.sample, bytes, replace, make).map(|_| ());
        }
        let length = bytes.len();
        let bytes = match self.originals.find(
            run,
            form_of_record(&self.shared.index, draw.sample, &bytes),
            &bytes,
        )? {
            RestoredFile::Within(range) => bytes.narrowed(range),
            RestoredFile::Apart(file) => {
                let bytes = bytes.replaced(file);
                stopwatch.lap_as(&run.counters.decode, Traced::Decode, length);
                bytes
            }
        };
        if self.shared.index.contents() == Contents::Images {
            // The consumer, which decodes the files, sees all other damage; but what is no image at all is not handed
            // over as one.
            Format::of(&bytes)?;
        }
        ticket.keep(bytes);
        Ok(())
    }

    /// Fills the place with a substitute, and returns its id.
    fn substitute(
        &mut self,
        run: &EpochRun,
        position: u64,
        ticket: &mut Ticket,
        stopwatch: &mut Stopwatch,
    ) -> Result<u64> {
        let shared = self.shared;
        let fill =
            |sample, bytes| self.fill(run, Draw::first(sample), Encoded::Owned(bytes), ticket, stopwatch);
        substitute::substitute(shared, run, position, fill).map(|(sample, ())| sample)
    }

    /// Makes all fields of a sample.
    fn make(
        &mut self,
        run: &EpochRun,
        draw: Draw,
        record: &Encoded,
        ticket: &mut Ticket,
        stopwatch: &mut Stopwatch,
    ) -> Result<()> {
        let shared = self.shared;
        self.seen.clear();
        for image in 0..shared.config.images.list().len() {
            let made = self.make_image(run, image, draw, record, ticket, stopwatch);
            self.seen.push(made.map_err(|error| shared.of_image(image, error))?);
        }
        shared.fill_fields(run, draw.sample, record, &self.seen, &mut self.originals, ticket)
    }

    /// Makes the image with this number and returns what was drawn of it; `None` where the sample does not have it.
    fn make_image(
        &mut self,
        run: &EpochRun,
        image: usize,
        draw: Draw,
        record: &Encoded,
        ticket: &mut Ticket,
        stopwatch: &mut Stopwatch,
    ) -> Result<Option<SeenImage>> {
        let shared = self.shared;
        let ImageField { field, leader, .. } = shared.config.images.list()[image];
        let field = &shared.config.fields.list[field];
        let FieldContent::Images { at, .. } = field.content else {
            return Err(Error::Internal(format!("{:?} is no image", field.name)));
        };
        let (read, parts) = record.in_parts();
        let Some(bytes) = shared.field_bytes(run, field, draw.sample, read)? else {
            at.clear(ticket, Ticket::image);
            return Ok(None);
        };
        // What was read apart was read whole.
        let parts = parts.filter(|_| matches!(bytes, Cow::Borrowed(_)));
        let boxes = shared.boxes_of_image(Some(run), image, draw.sample, record)?;
        let of = SampleImage { image, draw, bytes: &bytes, views: ViewsFrom::Boxes(&boxes) };
        let drawn = self.cpu.decode_read(shared, run, of, parts, stopwatch)?;
        let (planes, renderer, size) = (&self.cpu.planes, &mut self.renderers[leader], drawn.image_size());
        shared.check_size(image, size, &self.seen)?;
        for (number, view) in drawn.views().iter().enumerate() {
            match at.kind {
                ViewKind::Tensors => renderer.render(number, planes, view, ticket.image(at.first + number)),
                ViewKind::Values => {
                    let output = shared.config.images.recipe(image).views()[number].output(view);
                    let mut pixels = vec![0; output.bytes()];
                    renderer.render(number, planes, view, &mut pixels);
                    ticket.put(at.first + number, Some(Value::Array(Array::of_image(&output, pixels))));
                }
            }
        }
        stopwatch.lap_as(&run.counters.augment, Traced::Augment, bytes.len());
        Ok(Some(SeenImage { size, drawn: Some(drawn) }))
    }
}
