//! A worker: bytes in, one image of a batch out; or the same bytes, where the consumer decodes.

use super::{Run, Shared, stats};
use crate::augment::Augmenter;
use crate::batch::{Encoded, Ticket};
use crate::config::OnError;
use crate::decode::{Decoder, Format, Planes};
use crate::error::{Error, Result};
use crate::io::{Filled, ReadStats};
use crate::schedule::Place;
use crate::simd::Level;
use crossbeam_channel::Receiver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// Substitutes tried for one place before the failure is final: with half of all samples broken, one place in 2^32 fails.
const REFILL_ATTEMPTS: u32 = 32;

/// While at least this many jobs a worker wait, the reading thread is not roused for each slot that comes free: a wake-up
/// costs as much as a read.
const ENOUGH_JOBS: usize = 8;

/// How often it is roused all the same, in jobs of one worker.
const ROUSE_EVERY: usize = 16;

/// A sample whose bytes arrived, or did not.
pub(super) struct Job {
    pub run: Arc<Run>,
    pub place: Place,
    pub ticket: Ticket,
    pub bytes: Result<Filled>,
}

/// Works until no more jobs can come.
pub(super) fn run(shared: &Shared, jobs: &Receiver<Job>) {
    let mut worker = Worker::new(shared);
    let mut now = Instant::now();
    for (count, job) in jobs.iter().enumerate() {
        let run = job.run.clone();
        // What came before the epoch was no waiting for it.
        now = stats::lap(&run.clock.idle, now.max(run.clock.started));
        if run.stopped() {
            drop(job);
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.work(job, &mut now))) {
            run.inbox.fail(Error::panicked("decoding", &*panic));
            // Its scratch may be half-written.
            worker = Worker::new(shared);
        }
        if jobs.len() < ENOUGH_JOBS * shared.config.threads || count % ROUSE_EVERY == 0 {
            shared.bell.ring();
        }
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    decoder: Decoder,
    augmenter: Augmenter,
    planes: Planes,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            decoder: Decoder::new(shared.config.max_pixels),
            augmenter: Augmenter::new(shared.config.output.clone(), Level::detect()),
            planes: Planes::default(),
        }
    }

    fn work(&mut self, job: Job, now: &mut Instant) {
        let Job { run, place: Place { position, sample, valid }, mut ticket, bytes } = job;
        let outcome = bytes.and_then(|bytes| self.fill(&run, sample, Encoded::Slot(bytes), &mut ticket, now));
        let Err(error) = outcome else {
            ticket.finish(sample, self.shared.index.label(sample), valid);
            return;
        };
        ticket.fail(sample, self.shared.sample_error(sample, error), false);
        match self.shared.config.on_error {
            // The image has no meaning; the batch is not delivered.
            OnError::Raise => ticket.finish(sample, 0, false),
            OnError::Zero => {
                ticket.image().fill(0);
                ticket.finish(sample, self.shared.index.label(sample), false);
            }
            OnError::Skip => match self.refill(&run, position, &mut ticket, now) {
                Ok(substitute) => ticket.finish(substitute, self.shared.index.label(substitute), valid),
                Err(error) => {
                    ticket.fail(sample, error, true);
                    ticket.finish(sample, 0, false);
                }
            },
        }
    }

    /// Makes a sample of its file's bytes what the batch shall hold of it.
    fn fill(
        &mut self,
        run: &Run,
        sample: u64,
        bytes: Encoded,
        ticket: &mut Ticket,
        now: &mut Instant,
    ) -> Result<()> {
        if self.shared.config.decoded {
            return self.render(run, sample, &bytes, ticket.image(), now);
        }
        // Whoever decodes them sees all other damage; what is no image at all is not handed over as one.
        Format::of(&bytes)?;
        ticket.keep(bytes);
        Ok(())
    }

    fn render(
        &mut self,
        run: &Run,
        sample: u64,
        bytes: &[u8],
        image: &mut [u8],
        now: &mut Instant,
    ) -> Result<()> {
        let config = &self.shared.config;
        let mut view = None;
        let choose = |width, height| {
            let drawn = config.policy.draw(&mut run.augment.stream(sample), width, height, &config.output);
            view = Some(drawn);
            drawn.region(&config.output)
        };
        let decoded = self.decoder.decode(bytes, choose, &mut self.planes);
        *now = stats::lap(&run.clock.decode, *now);
        run.clock.count(decoded?.backend);
        let view = view.ok_or_else(|| Error::Internal("a decoder did not ask for its region".into()))?;
        self.augmenter.render(&self.planes, &view, image);
        *now = stats::lap(&run.clock.augment, *now);
        Ok(())
    }

    /// Fills the place at `position` with another sample of the epoch, drawn from (dataset, seed, epoch, position): the
    /// same on every rank, run and machine. Read here, so that nothing flows back to the reading thread; it is rare.
    fn refill(&mut self, run: &Run, position: u64, ticket: &mut Ticket, now: &mut Instant) -> Result<u64> {
        let index = &self.shared.index;
        let mut stream = run.refill.stream(position);
        let mut last = None;
        for _ in 0..REFILL_ATTEMPTS {
            if run.stopped() {
                break;
            }
            let sample = stream.below(index.len());
            let extent = index.extent(sample);
            let outcome = crate::io::read_blocking(index, extent).and_then(|bytes| {
                run.clock.add_reads(ReadStats { bytes: bytes.len() as u64, reads: 1, opens: 1 });
                self.fill(run, sample, Encoded::Owned(bytes), ticket, now)
            });
            match outcome {
                Ok(()) => return Ok(sample),
                Err(error) => last = Some(self.shared.sample_error(sample, error)),
            }
        }
        let last = last.map_or_else(|| "the epoch was stopped".into(), |error| error.to_string());
        let message = format!(
            "none of {REFILL_ATTEMPTS} samples tried in place of a bad one is good either; the last: {last}"
        );
        Err(Error::dataset(index.root(), message))
    }
}
