//! A lane: a thread with a CUDA stream, a second stream for the decoding engine, an arena in device memory, and a
//! decoder that it borrows while it needs one. The lane takes one sub-batch at a time, and queues all the work that
//! makes the images of the sub-batch. It sleeps until this work is done and checked, and then sends the batch on. Lanes
//! overlap copying, decoding and augmenting of consecutive batches.

use super::GpuStage;
use super::assembly::{PreparedSample, SubBatch};
use super::check::WriteCheck;
use super::image::{LaneImage, LaneSample};
use super::own::OwnDecoder;
use super::per_image::PerImage;
use super::placed::{PlacedSample, requests};
use super::shared_gpu::BorrowedDecoder;
use super::table::{ImageView, LaneTable};
use super::timing::Timing;
use super::work::LaneReceiver;
use crate::batch::BatchCloser;
use crate::pipeline::{
    context::SampleContext, engine::ThreadContext, mixing::FilledPlaces, notify, run::EpochRun,
};
use base::error::{Error, Result};
use base::slot::Slot;
use base::threads::caught;
use crossbeam_channel::{Receiver, select};
use pixels::augment::cuda::{LaneMemory, LevelsAt, MixLauncher, ViewLauncher};
use pixels::decode::nvjpeg::{CallOutcomes, NvJpegBackend};
use pixels::gpu::{DeviceBuffer, InFlight, Stream};
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs the lane with the index `number` until its two queues are closed: its own queue and the common one.
pub(crate) fn run(of: &ThreadContext, stage: &GpuStage, number: usize, queues: [&Receiver<SubBatch>; 2]) {
    stage.attach_thread();
    let mut lane = None;
    while let Some(SubBatch { run, items, closer, filled, last, in_flight }) = next(queues) {
        if run.stopped() {
            drop((items, closer, in_flight));
            of.waker.wake_if_waiting();
            continue;
        }
        stage.balancer.record_batch(queues.iter().any(|queue| !queue.is_empty()));
        // Keep the closer outside of the closure: on an error, it must outlive the device's work, which may still write
        // to the batch.
        let mut closer = Some(closer);
        let outcome = caught("decoding on the GPU", || {
            let lane = match &mut lane {
                Some(lane) => lane,
                // Make the lane on this thread, because it borrows decoders. An error ends only this run.
                empty => empty.insert(GpuLane::new(of, stage, number)?),
            };
            lane.process(&run, items, filled.as_deref(), &mut closer, last)
        });
        if let Err(error) = outcome {
            run.inbox.fail(error);
            // Dropping the lane waits for its queued work.
            lane = None;
        }
        drop((closer, in_flight));
        of.waker.wake_if_waiting();
    }
}

/// Waits for the next sub-batch. The lane's own queue comes first, then the queue of whole batches. Returns `None` when
/// the queues are closed.
fn next([own, common]: [&Receiver<SubBatch>; 2]) -> Option<SubBatch> {
    if let Ok(sub_batch) = own.try_recv() {
        return Some(sub_batch);
    }
    select! {
        recv(own) -> sub_batch => sub_batch.ok().or_else(|| common.recv().ok()),
        recv(common) -> sub_batch => sub_batch.ok().or_else(|| own.recv().ok()),
    }
}

struct GpuLane<'a> {
    stage: &'a GpuStage,
    context: &'a SampleContext,
    intake: LaneReceiver<'a>,
    /// The decoder, while a sub-batch needs one. This field must be dropped first: its drop waits for all streams that
    /// used the decoder, and `flight` holds the memory that these streams read.
    decoder: Option<BorrowedDecoder>,
    flight: InFlight,
    /// The stream of the decoding engine, which works in parallel with the kernels on the stream of `flight`.
    engine: Stream,
    views: Vec<ImageView>,
    arena: Option<DeviceBuffer>,
    table: LaneTable,
    /// Buffer for grey levels that one kernel of a view writes and the next kernel reads; needed only if the view
    /// changes pixel values.
    levels: Option<DeviceBuffer>,
    own: OwnDecoder,
    check: WriteCheck,
    timing: Timing,
}

/// A sample whose decoding is queued and must be checked. `first + step * i` is the index of the finding for its image
/// with the index `i`.
struct QueuedSample {
    work: LaneSample,
    first: usize,
    step: usize,
}

impl<'a> GpuLane<'a> {
    fn new(of: &'a ThreadContext, stage: &'a GpuStage, number: usize) -> Result<Self> {
        let context = &*of.context;
        // Make the decoders of all lanes before the first batch: see `shared_gpu`.
        match stage.prepare() {
            Err(error @ (Error::Unavailable(_) | Error::Gpu { .. })) => {
                notify::decoders_not_prepared(context, &error)
            }
            outcome => outcome?,
        }
        let stream = Stream::new(&stage.device)?;
        let log = of.engine.trace.lane(&format!("lane {number}"));
        let intake = LaneReceiver::new(context, stage)?;
        let images = &context.config.images;
        let own = LaneMemory::new(images.views(), context.config.batch_size as usize);
        let allocate = |bytes| stage.memory.allocate(&stream, bytes);
        let mut views = Vec::new();
        for image in 0..images.list().len() {
            for (number, view) in images.recipe(image).views().iter().enumerate() {
                let kernels = &stage.gpu.kernels;
                let mix = context.config.mix.as_ref().map(|_| MixLauncher::new(kernels, view.fixed_output()));
                let launcher = ViewLauncher::new(kernels, view)?;
                views.push(ImageView { image, number, launcher, mix: mix.transpose()? });
            }
        }
        let mut flight = InFlight::new(&stream)?;
        Ok(Self {
            stage,
            context,
            own: OwnDecoder::new(stage)?,
            check: WriteCheck::new(stage, &mut flight, stage.batch, intake.staging.counts(stage.batch)?)?,
            intake,
            engine: Stream::new(&stage.device)?,
            decoder: None,
            views,
            arena: None,
            table: LaneTable::new(allocate(own.table)?),
            levels: (own.levels > 0).then(|| allocate(own.levels)).transpose()?,
            timing: Timing::new(&stage.device, stage.origin.clone(), log),
            flight,
        })
    }

    /// Queues the work of a sub-batch, closes the batch if this is its `last` sub-batch, and waits for the work.
    fn process(
        &mut self,
        run: &EpochRun,
        items: Vec<PreparedSample>,
        filled: Option<&FilledPlaces>,
        closer: &mut Option<Arc<BatchCloser>>,
        last: bool,
    ) -> Result<()> {
        let mut todo: VecDeque<LaneSample> =
            items.into_iter().map(|item| self.intake.receive(item)).collect();
        self.intake.fill_calls(&mut todo);
        self.stage.backoff.sub_batch_started();
        let mut finished = Vec::with_capacity(todo.len());
        let mut decoded = Vec::with_capacity(todo.len());
        while !todo.is_empty() && !run.stopped() {
            while !todo.is_empty() && !run.stopped() {
                let closer = closer.as_ref().ok_or_else(closed_too_early)?;
                self.chunk(run, closer, &mut todo, &mut finished, &mut decoded)?;
            }
            if decoded.is_empty() {
                continue;
            }
            let findings = self.check.wait(&mut self.flight)?;
            for QueuedSample { mut work, first, step } in decoded.drain(..) {
                match self.intake.accept(run, &mut work, |image| findings[first + step * image]) {
                    true => finished.push(work),
                    false => todo.push_back(work),
                }
            }
        }
        let complete = last && todo.is_empty();
        match filled {
            None => finished.into_iter().for_each(|work| work.place.finish(&self.context.index)),
            Some(filled) => {
                finished.into_iter().for_each(|work| filled.keep(work.place));
                if complete {
                    self.mix(run, closer.as_ref().ok_or_else(closed_too_early)?, filled)?;
                }
            }
        }
        // If the run was stopped, some samples are not processed. Their tickets are dropped, so the batch is not
        // delivered.
        if complete {
            closer
                .take()
                .and_then(Arc::into_inner)
                .ok_or_else(closed_too_early)?
                .close_on(&mut self.flight)?;
        }
        self.flight.submit()?;
        self.flight.wait()?;
        self.decoder.take().map_or(Ok(()), BorrowedDecoder::give_back)?;
        self.timing.collect(run, &self.stage.balancer, self.flight.stream())
    }

    /// Queues the work of one chunk: as many samples of `todo` as fit into the arena. Samples with an image that a
    /// decoder refuses go back into `todo`. If decoders of the GPU decoded any image, all samples of the chunk go to
    /// `decoded`, to be checked; otherwise they go to `finished`.
    fn chunk(
        &mut self,
        run: &EpochRun,
        closer: &BatchCloser,
        todo: &mut VecDeque<LaneSample>,
        finished: &mut Vec<LaneSample>,
        decoded: &mut Vec<QueuedSample>,
    ) -> Result<()> {
        let (mut placed, bytes) = self.place(run, todo, finished)?;
        let arena = self.arena(bytes)?;
        let stream = self.flight.stream().clone();
        let by_nvjpeg = |placed: &[PlacedSample]| placed.iter().any(|placed| placed.work.is_encoded());
        if let (true, Some(arena)) = (by_nvjpeg(&placed), &self.arena) {
            self.check.poison(&mut self.flight, arena.range(0, bytes as usize)?)?;
        }
        self.timing.next()?.begin(&stream, &self.engine)?;
        self.copy(run, &placed)?;
        self.timing.current().copied.record(&stream)?;
        let tables = OwnDecoder::reserve(&placed, &mut self.intake.staging, &mut self.flight)?;
        let refused = self.decode(run, arena, &placed)?;
        let mut refused = refused.into_iter().rev().peekable();
        while let Some(Refusal { index, image, error }) = refused.next() {
            self.intake.demote(&mut placed[index].work, image, error);
            // Remove samples from the back, so that the indices before them stay valid.
            if refused.peek().is_none_or(|next| next.index != index) {
                todo.push_back(placed.remove(index).work);
            }
        }
        let first = self.check.add(&placed)?;
        if let Some(first) = first {
            self.decode_own(&placed, arena, first, tables)?;
        }
        self.timing.current().decoded(&stream)?;
        self.augment(closer, arena, &placed, first.filter(|_| by_nvjpeg(&placed)))?;
        self.timing.current().done.record(&stream)?;
        let step = placed.len();
        for (number, PlacedSample { mut work, .. }) in placed.into_iter().enumerate() {
            // Release images as soon as possible. Queued work keeps the memory that it reads. But a file that may be
            // decoded again must stay, with all images of its sample.
            if !work.is_for_gpu() {
                work.images.set_all(|| LaneImage::Done);
            }
            match first {
                Some(first) => decoded.push(QueuedSample { work, first: first + number, step }),
                None => finished.push(work),
            }
        }
        Ok(())
    }

    /// Takes samples of `todo` until the arena or the page-locked memory is full. Returns the samples and the used
    /// bytes of the arena.
    fn place(
        &mut self,
        run: &EpochRun,
        todo: &mut VecDeque<LaneSample>,
        finished: &mut Vec<LaneSample>,
    ) -> Result<(Vec<PlacedSample>, u64)> {
        let limit = self.stage.pools.arena as u64;
        let (mut placed, mut used) = (Vec::with_capacity(todo.len()), 0);
        let most = self.context.config.batch_size as usize;
        while let Some(mut work) = todo.pop_front() {
            self.intake.decode_on_cpu(run, &mut work);
            if let LaneImage::Done = work.images.get(0) {
                finished.push(work);
                continue;
            }
            let layouts = PerImage::try_new(work.images.len(), |image| {
                work.images.get(image).layout(&self.stage.gpu.abilities)
            })?;
            let bytes_of = |(image, layout): (&LaneImage, &Option<_>)| {
                layout.as_ref().map_or(0, |layout| image.arena_bytes(layout))
            };
            let bytes = work.images.iter().zip(layouts.iter()).map(bytes_of).sum();
            if bytes > limit {
                self.intake.too_large(&mut work, bytes)?;
                todo.push_front(work);
                continue;
            }
            if used + bytes > limit || placed.len() == most {
                todo.push_front(work);
                break;
            }
            if !self.intake.stage(&mut work)? {
                // Waiting for other lanes' memory could be a deadlock, so a lane waits only for its own work and the
                // memory that this frees.
                if !placed.is_empty() {
                    todo.push_front(work);
                    break;
                }
                self.flight.submit()?;
                self.flight.wait()?;
                self.intake.staging.reserve(work.images.len(), bytes)?;
                if !self.intake.stage(&mut work)? {
                    return Err(Error::Internal(format!(
                        "no {bytes} bytes of page-locked memory for planes"
                    )));
                }
            }
            let (mut end, mut number) = (used, 0);
            let at = layouts.map(|layout| {
                let start = end;
                end += bytes_of((work.images.get(number), layout));
                number += 1;
                layout.map(|layout| (start, layout))
            });
            placed.push(PlacedSample { work, at });
            used = end;
        }
        Ok((placed, used))
    }

    fn arena(&mut self, bytes: u64) -> Result<u64> {
        if self.arena.as_ref().is_none_or(|arena| (arena.bytes() as u64) < bytes) {
            // Allocate more than needed, so that the arena need not grow again soon.
            let room = (bytes + bytes / 4).max(1 << 20).min(self.stage.pools.arena as u64).max(bytes);
            // Free the old arena first, in the stream's order.
            self.arena = None;
            self.arena = Some(self.stage.memory.allocate(self.flight.stream(), room as usize)?);
        }
        Ok(self.arena.as_ref().map_or(0, DeviceBuffer::ptr))
    }

    /// Queues the copies of planes that the CPU decoded. Packed and indexed images are only kept alive, because kernels
    /// read the parts that they need from host memory.
    fn copy(&mut self, run: &EpochRun, placed: &[PlacedSample]) -> Result<()> {
        for (image, at) in placed.iter().flat_map(PlacedSample::images) {
            let Some((offset, _)) = at else { continue };
            let from = match image {
                LaneImage::Planes { bytes, layout, .. } => bytes.part(0..layout.bytes as usize)?,
                LaneImage::Own { bytes, plan, .. } => {
                    run.counters.add_uploaded(plan.bytes.len());
                    self.flight.keep(bytes.clone());
                    continue;
                }
                _ => continue,
            };
            let to = self.arena.as_ref().map(|arena| arena.range(*offset as usize, from.len()));
            let to = to.ok_or_else(|| Error::Internal("an image without an arena".into()))??;
            run.counters.add_uploaded(from.len());
            self.flight.copy_to_device(to, &from)?;
        }
        Ok(())
    }

    /// Queues the decoding of all images for nvJPEG. Returns the refused images in order, with the reasons.
    fn decode(&mut self, run: &EpochRun, arena: u64, placed: &[PlacedSample]) -> Result<Vec<Refusal>> {
        let mut refused = Vec::new();
        let mut engine_queued = false;
        for backend in NvJpegBackend::ALL {
            let (indices, requests) = requests(backend, arena, placed);
            for &(index, image) in &indices {
                // Keep the file even if the call fails, because the device may have begun to read it.
                if let LaneImage::Encoded { bytes, .. } = placed[index].work.images.get(image) {
                    self.flight.keep(bytes.clone());
                    run.counters.add_uploaded(bytes.len());
                }
            }
            if backend > NvJpegBackend::Hardware && !engine_queued {
                engine_queued = true;
                // Record the end of the engine's work at once: after the host has queued the kernels' work, the
                // engine's time would include that work, and an idle engine would look busy.
                self.timing.current().engine[1].record(&self.engine)?;
            }
            if requests.is_empty() {
                continue;
            }
            let stream = if backend == NvJpegBackend::Hardware { &self.engine } else { self.flight.stream() };
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                empty => empty.insert(self.stage.gpu.borrow(self.stage.batch)?),
            };
            let events = self.timing.current();
            let begins = match backend {
                NvJpegBackend::Hardware => Some(&events.engine[0]),
                NvJpegBackend::CudaBatched => Some(&events.batched[0]),
                NvJpegBackend::Cuda => None,
            };
            let CallOutcomes { outcomes, retried_in_parts } =
                decoder.get()?.decode(stream, backend, begins, &requests)?;
            if let Some(why) = self.stage.backoff.record_outcomes(backend, &outcomes) {
                notify::paused(self.context, backend, &why);
            }
            if backend == NvJpegBackend::CudaBatched {
                events.batched[1].record(stream)?;
            }
            let mut decoded = 0;
            for ((index, image), outcome) in indices.into_iter().zip(outcomes) {
                match outcome {
                    Ok(()) => decoded += 1,
                    Err(error) => refused.push(Refusal { index, image, error }),
                }
            }
            match backend {
                // If a call was retried in parts, its time does not show how fast images are decoded.
                _ if retried_in_parts => {}
                NvJpegBackend::Hardware => events.on_engine += decoded,
                NvJpegBackend::CudaBatched => events.on_batched += decoded,
                NvJpegBackend::Cuda => {}
            }
        }
        refused.sort_by_key(|refusal| (refusal.index, refusal.image));
        Ok(refused)
    }

    /// Queues the decoding of all images for Foreload's own kernels. Their tables are copied through the staging buffer
    /// `slot`. The counts of damaged rows begin at the index `first`.
    fn decode_own(
        &mut self,
        placed: &[PlacedSample],
        arena: u64,
        first: usize,
        slot: Option<Slot>,
    ) -> Result<()> {
        self.own.fill_tables(placed, arena, first)?;
        let Self { own, intake, flight, .. } = self;
        let Some((kernels, tables, at)) = own.copy(self.stage, slot, &intake.staging, flight)? else {
            return Ok(());
        };
        let damage = self.check.damaged_rows(flight, first)?;
        // SAFETY: the table, the arena and the counts stay allocated until the flight is done, and were written on this
        // stream. The flight also keeps the bytes that the kernels gather.
        unsafe { kernels.launch(flight.stream(), tables, at, damage) }
    }

    /// Queues the copy of the table, the check of the memory that nvJPEG wrote, and one launch for each view. The first
    /// finding of the check has the index `findings`.
    fn augment(
        &mut self,
        closer: &BatchCloser,
        arena: u64,
        placed: &[PlacedSample],
        findings: Option<usize>,
    ) -> Result<()> {
        if placed.is_empty() {
            return Ok(());
        }
        let LaneReceiver { staging, .. } = &mut self.intake;
        self.table.write(self.stage, staging, &mut self.flight, &self.views, placed, arena)?;
        let first_views = self.views.iter().enumerate().filter(|(_, view)| view.number == 0);
        for (number, view) in first_views.filter(|_| findings.is_some()) {
            let first = findings.unwrap_or_default() + view.image * placed.len();
            let (kernel, counts, poison) = self.check.lines(first);
            let entries = self.table.entries(number);
            // SAFETY: as for the launches below. Also, only this lane uses the buffer of counts. The entries of an
            // image's first view hold the addresses of its planes, which all its views share.
            unsafe { kernel.launch(self.flight.stream(), entries, placed.len(), counts, poison) }?;
        }
        // The launches below write to the batch's buffer. Wait for the buffer's former readers only now, to let the
        // work above start early.
        let tensors = closer.images(self.flight.stream())?;
        let address = self.levels.as_ref().map_or(0, DeviceBuffer::ptr);
        let levels = LevelsAt { address, capacity: self.context.config.batch_size as usize };
        for (number, (ImageView { launcher, .. }, images)) in self.views.iter().zip(tensors).enumerate() {
            let entries = self.table.entries(number);
            let programs = self.table.programs(number, self.views.len());
            let stream = self.flight.stream();
            // SAFETY: the table and the memory that it points to (the arena, the levels and the batch's images) stay
            // allocated until the flight is done. All of it was written on this stream, or the stream waits for it.
            unsafe { launcher.launch(stream, entries, placed.len(), programs, levels, images) }?;
        }
        Ok(())
    }

    /// Finishes the filled rows of a batch, and queues one launch for each view that mixes its images.
    fn mix(&mut self, run: &EpochRun, closer: &BatchCloser, filled: &FilledPlaces) -> Result<()> {
        let Some(plan) = &self.context.config.mix else { return Ok(()) };
        let mix_groups = filled.finish(run, plan);
        if mix_groups.is_empty() {
            return Ok(());
        }
        let entries = self.table.write_mix_groups(&mut self.intake.staging, &mut self.flight, &mix_groups)?;
        let images = closer.images(self.flight.stream())?;
        for (mix, images) in
            self.views.iter().zip(images).filter_map(|(view, to)| Some((view.mix.as_ref()?, to)))
        {
            // SAFETY: the table and the batch's images stay allocated until the flight is done; they were written on
            // this stream.
            unsafe { mix.launch(self.flight.stream(), entries, mix_groups.len(), images) }?;
        }
        Ok(())
    }
}

struct Refusal {
    index: usize,
    image: usize,
    error: Error,
}

fn closed_too_early() -> Error {
    Error::Internal("a batch was closed too early".into())
}
