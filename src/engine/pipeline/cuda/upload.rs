//! Batches without images on a GPU. Workers make the values as on the CPU, but in page-locked memory. One thread copies
//! each complete batch to the GPU with one asynchronous copy, on a stream of its own, while workers fill the next ones.
//! Consumers wait for the event that follows the copy.
//!
//! The CPU does not touch large parts of arrays that need no conversion. As soon as their sample is made, the GPU
//! copies them from the page-locked slot that they were read into, straight to their place in the batch. The copy of
//! the complete batch leaves them out. (→ tests/gpu/arrays.rs)

use super::storage_for_complete_batches;
use crate::batch::{BatchCloser, BatchStorage, Sink};
use crate::config::DevicePools;
use crate::pipeline::{
    engine::ThreadContext, make::BatchOpener, make::OpenPlace, make::PlaceFiller, make::PlaceJob,
    make::sample::HostPlace, make::sample::SampleMaker, run::EpochRun, stopwatch::Stopwatch,
    threads::Spawner, threads::Threads,
};
use base::error::Result;
use base::slot::SlotPool;
use base::threads::caught;
use crossbeam_channel::{Receiver, Sender, unbounded};
use pixels::gpu::{GpuDevice, InFlight, PinnedSlice, Registration, Stream};
use std::sync::Arc;

/// A batch whose places are being filled. When the last of them is dropped, the batch goes to the uploading thread.
struct FillingBatch {
    run: Arc<EpochRun>,
    closer: Option<BatchCloser>,
    queue: Sender<UploadJob>,
}

enum UploadJob {
    /// Bytes for a row, a column, and an offset in them.
    Raw { batch: Arc<FillingBatch>, at: (u32, usize, usize), bytes: PinnedSlice },
    /// A batch whose places are filled, and whose raw bytes are queued.
    Complete { run: Arc<EpochRun>, closer: BatchCloser },
}

impl Drop for FillingBatch {
    fn drop(&mut self) {
        if let Some(closer) = self.closer.take() {
            // Sending fails only if the thread was never started, and then the batch is not delivered.
            let _ = self.queue.send(UploadJob::Complete { run: self.run.clone(), closer });
        }
    }
}

/// The right to fill one row. The ticket is dropped before the batch.
struct UploadPlace {
    host: HostPlace,
    batch: Arc<FillingBatch>,
}

struct UploadOpener {
    device: GpuDevice,
    queue: Sender<UploadJob>,
}

impl BatchOpener for UploadOpener {
    type Place = UploadPlace;

    fn attach_thread(&self) {
        // If this fails, the thread's first call of the driver also fails, and reports the error.
        let _ = self.device.attach_thread();
    }

    fn begin(&mut self, run: &Arc<EpochRun>, step: u64, len: u32) -> Result<Option<Vec<UploadPlace>>> {
        let sink: Arc<dyn Sink> = run.inbox.clone();
        let Some((closer, tickets)) = run.batches.begin(step, len, &sink)? else { return Ok(None) };
        let batch =
            Arc::new(FillingBatch { run: run.clone(), closer: Some(closer), queue: self.queue.clone() });
        let place =
            |ticket| UploadPlace { host: HostPlace { ticket, mix_groups: None }, batch: batch.clone() };
        Ok(Some(tickets.into_iter().map(place).collect()))
    }
}

struct UploadFiller {
    maker: SampleMaker,
    slots: Registration,
}

impl PlaceFiller<UploadPlace> for UploadFiller {
    fn fill(&mut self, job: PlaceJob<UploadPlace>, stopwatch: &mut Stopwatch) {
        let PlaceJob { run, open: OpenPlace { entry, step, place: UploadPlace { host, batch } }, bytes } =
            job;
        let row = host.ticket.index();
        self.maker.fill(PlaceJob { run, open: OpenPlace { entry, step, place: host }, bytes }, stopwatch);
        for raw in self.maker.raw() {
            let at = (row, raw.column, raw.at);
            match self.slots.pin(raw) {
                Ok(bytes) => {
                    let _ = batch.queue.send(UploadJob::Raw { batch: batch.clone(), at, bytes });
                }
                Err(error) => batch.run.inbox.fail(error),
            }
        }
    }
}

/// Starts the threads that make batches without images and copy them to the GPU with the index `ordinal`.
///
/// # Errors
/// [`base::error::Error::Unavailable`] or [`base::error::Error::Gpu`] if the GPU cannot be used, or no thread can be
/// started.
pub(crate) fn start(
    of: ThreadContext,
    slots: SlotPool,
    ordinal: u32,
    pools: &DevicePools,
) -> Result<Threads> {
    let context = of.context.clone();
    // One batch more than the pipeline may hold, because a batch may be delivered while it is still being copied.
    let staged = context.config.pools.prefetch + 1;
    let (device, storage) = storage_for_complete_batches(ordinal, &context.config, pools, staged)?;
    let pinned = Registration::new(&device, &slots)?;
    let mut spawner = Spawner::new();
    let (queue, jobs) = unbounded();
    let (uploaded, on) = (of.clone(), device.clone());
    spawner.spawn("foreload-upload".into(), move || upload(&uploaded, &on, &jobs))?;
    let filler =
        move || UploadFiller { maker: SampleMaker::new(&context).leaving_raw_bytes(), slots: pinned.clone() };
    spawner.start(of, slots, BatchStorage::Cuda(storage), UploadOpener { device, queue }, filler)
}

/// Copies batches until the last sender of `jobs` is dropped.
fn upload(of: &ThreadContext, device: &GpuDevice, jobs: &Receiver<UploadJob>) {
    let _ = device.attach_thread();
    let mut flight = None;
    for job in jobs {
        let mut run = job.run().clone();
        let outcome = caught("copying to the GPU", || {
            let flight = match &mut flight {
                Some(flight) => flight,
                empty => empty.insert(InFlight::new(&Stream::new(device)?)?),
            };
            job.queue_on(flight)?;
            // While one copy is under way, others become ready, and all of them are queued together.
            for job in jobs.try_iter() {
                run = job.run().clone();
                job.queue_on(flight)?;
            }
            flight.submit()?;
            flight.wait()
        });
        if let Err(error) = outcome {
            run.inbox.fail(error);
            // Dropping it waits for its queued work.
            flight = None;
        }
        of.waker.wake_if_waiting();
    }
}

impl UploadJob {
    fn run(&self) -> &Arc<EpochRun> {
        match self {
            Self::Raw { batch, .. } => &batch.run,
            Self::Complete { run, .. } => run,
        }
    }

    fn queue_on(self, flight: &mut InFlight) -> Result<()> {
        match self {
            Self::Raw { batch, at, bytes } => match &batch.closer {
                Some(closer) => closer.copy_to_row(at, &bytes, flight),
                None => Ok(()),
            },
            Self::Complete { run, closer } => {
                run.counters.add_uploaded(run.batches.limits().1);
                closer.close_on(flight)
            }
        }
    }
}
