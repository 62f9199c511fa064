//! A lane: a stream, another one for the decoding engine, an arena, and a decoder while it needs one. It takes a piece
//! of a batch at a time, queues everything that makes it images on the GPU, sleeps until they are there and checked,
//! and sends the batch on. While one lane's images are decoded, those of another are copied, those of a third
//! augmented.

use super::Stage;
use super::assembly::{Item, Piece};
use super::check::Check;
use super::kept::Lent;
use super::per_image::PerImage;
use super::timing::Timing;
use super::work::{Image, Intake, Work, arena_bytes};
use crate::augment::cuda::{ImageParams, LaneMemory, ViewLauncher};
use crate::batch::Seal;
use crate::decode::nvjpeg::{NvJpegBackend, PlaneLayout, PlaneTarget, PlanesLayout, Request, Verdict};
use crate::error::{Error, Result};
use crate::gpu::{DeviceBuffer, InFlight, Stream};
use crate::pipeline::{Run, Shared};
use crossbeam_channel::{Receiver, select};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Works until no more pieces can come, as the lane of this `number`: from its own queue and the common one.
pub(crate) fn run(shared: &Shared, stage: &Stage, number: usize, queues: [&Receiver<Piece>; 2]) {
    let mut lane = None;
    while let Some(Piece { run, items, seal, last, under_way }) = next(queues) {
        if run.stopped() {
            drop((items, seal, under_way));
            shared.bell.ring();
            continue;
        }
        stage.shares.batch_came(queues.iter().any(|queue| !queue.is_empty()));
        // Out here, so that it outlives what the device may still be writing to the batch when something goes wrong.
        let mut seal = Some(seal);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let lane = match &mut lane {
                Some(lane) => lane,
                // On this thread, which then borrows decoders; errors belong to the run that meets them.
                empty => empty.insert(Lane::new(shared, stage, number)?),
            };
            lane.process(&run, items, &mut seal, last)
        }));
        let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("decoding on the GPU", &*panic)));
        if let Err(error) = outcome {
            run.inbox.fail(error);
            // Waits for what is queued.
            lane = None;
        }
        drop((seal, under_way));
        shared.bell.ring();
    }
}

/// The next piece: one that only this lane may have, else a whole batch; `None` when there will be no more.
fn next([own, common]: [&Receiver<Piece>; 2]) -> Option<Piece> {
    if let Ok(piece) = own.try_recv() {
        return Some(piece);
    }
    select! {
        recv(own) -> piece => piece.ok().or_else(|| common.recv().ok()),
        recv(common) -> piece => piece.ok().or_else(|| own.recv().ok()),
    }
}

struct Lane<'a> {
    stage: &'a Stage,
    shared: &'a Shared,
    intake: Intake<'a>,
    /// While a piece needs one. Dropped first: it waits for all streams it used, and what these read is the flight's.
    decoder: Option<Lent>,
    flight: InFlight,
    /// The decoding engine works beside the CUDA kernels.
    engine: Stream,
    /// One for each view of each image, those of an image together.
    views: Vec<ImageView>,
    arena: Option<DeviceBuffer>,
    /// An entry for each image of a batch, those of a view together.
    table: DeviceBuffer,
    /// What is between the two kernels of a view that changes colours.
    levels: Option<DeviceBuffer>,
    check: Check,
    timing: Timing,
}

/// A view of an image of each sample, which a launch makes.
struct ImageView {
    image: usize,
    /// Which of its views.
    number: usize,
    launcher: ViewLauncher,
}

/// A sample whose images have places in the arena.
struct Placed {
    work: Work,
    /// The planes of each image; `None` for a blank one.
    at: PerImage<Option<(u64, PlanesLayout)>>,
}

/// A sample that is queued and to be checked, and where the findings of its images are: that of the first, and so many
/// further on that of the next.
struct Queued {
    work: Work,
    first: usize,
    step: usize,
}

impl<'a> Lane<'a> {
    fn new(shared: &'a Shared, stage: &'a Stage, number: usize) -> Result<Self> {
        // Before the first batch of all, for the other lanes too: see `kept`.
        match stage.prepare() {
            Err(error @ (Error::Unavailable(_) | Error::Gpu { .. })) => shared.tell_unprepared(&error),
            outcome => outcome?,
        }
        let stream = Stream::new(&stage.device)?;
        let log = shared.trace.lane(&format!("lane {number}"));
        let intake = Intake::new(shared, stage)?;
        let images = &shared.config.images;
        let own = LaneMemory::new(images.views(), shared.config.batch_size as usize);
        let allocate = |bytes| stage.memory.allocate(&stream, bytes);
        let mut views = Vec::new();
        for image in 0..images.list().len() {
            for (number, view) in images.recipe(image).views().iter().enumerate() {
                let launcher = ViewLauncher::new(&stage.kept.kernels, view)?;
                views.push(ImageView { image, number, launcher });
            }
        }
        let mut flight = InFlight::new(&stream)?;
        Ok(Self {
            stage,
            shared,
            check: Check::new(stage, &mut flight, stage.batch, intake.counts(stage.batch)?)?,
            intake,
            engine: Stream::new(&stage.device)?,
            decoder: None,
            views,
            arena: None,
            table: allocate(own.table)?,
            levels: (own.levels > 0).then(|| allocate(own.levels)).transpose()?,
            timing: Timing::new(&stage.device, stage.origin.clone(), log),
            flight,
        })
    }

    /// Queues a piece, sends its batch on if it is the last, and waits.
    fn process(
        &mut self,
        run: &Run,
        items: Vec<Item>,
        seal: &mut Option<Arc<Seal>>,
        last: bool,
    ) -> Result<()> {
        let mut todo: VecDeque<Work> = items.into_iter().map(|item| self.intake.receive(item)).collect();
        self.intake.share_out(&mut todo);
        self.stage.pauses.piece_went();
        let mut finished = Vec::with_capacity(todo.len());
        let mut decoded = Vec::with_capacity(todo.len());
        while !todo.is_empty() && !run.stopped() {
            while !todo.is_empty() && !run.stopped() {
                let seal = seal.as_ref().ok_or_else(unsealed)?;
                self.chunk(run, seal, &mut todo, &mut finished, &mut decoded)?;
            }
            if decoded.is_empty() {
                continue;
            }
            // What was not really decoded comes again.
            let findings = self.check.wait(&mut self.flight)?;
            for Queued { mut work, first, step } in decoded.drain(..) {
                match self.intake.accept(run, &mut work, |image| findings[first + step * image]) {
                    true => finished.push(work),
                    false => todo.push_back(work),
                }
            }
        }
        for work in finished {
            let sample = work.draw.sample;
            work.ticket.finish(sample, self.shared.index.label(sample), work.valid);
        }
        // What is left over when the run was stopped spoils the batch.
        if last && todo.is_empty() {
            seal.take().and_then(Arc::into_inner).ok_or_else(unsealed)?.close_on(&mut self.flight)?;
        }
        self.flight.submit()?;
        self.flight.wait()?;
        self.decoder.take().map_or(Ok(()), Lent::give_back)?;
        self.timing.collect(run, &self.stage.shares, self.flight.stream())
    }

    /// Queues as many samples of `todo` as the arena holds; those of which a decoder refuses an image go back into it.
    /// Where decoders of the GPU decoded some, `decoded` has all of the chunk, to be checked.
    fn chunk(
        &mut self,
        run: &Run,
        seal: &Seal,
        todo: &mut VecDeque<Work>,
        finished: &mut Vec<Work>,
        decoded: &mut Vec<Queued>,
    ) -> Result<()> {
        let (mut placed, bytes) = self.place(run, todo, finished)?;
        let arena = self.arena(bytes)?;
        let stream = self.flight.stream().clone();
        let by_gpu = |placed: &[Placed]| placed.iter().any(|placed| placed.work.is_encoded());
        if let (true, Some(arena)) = (by_gpu(&placed), &self.arena) {
            self.check.poison(&mut self.flight, arena.range(0, bytes as usize)?)?;
        }
        self.timing.next()?.begin(&stream, &self.engine)?;
        self.copy(run, &placed)?;
        self.timing.current().copied(&stream)?;
        let refused = self.decode(run, arena, &placed)?;
        self.timing.current().decoded(&stream)?;
        let mut refused = refused.into_iter().rev().peekable();
        while let Some(Refusal { index, image, error }) = refused.next() {
            self.intake.demote(&mut placed[index].work, image, error);
            // From the back, so that the places before stay what they are.
            if refused.peek().is_none_or(|next| next.index != index) {
                todo.push_back(placed.remove(index).work);
            }
        }
        let checked = by_gpu(&placed);
        let first = self.augment(seal, arena, &placed, checked)?;
        self.timing.current().done(&stream)?;
        let step = placed.len();
        for (number, Placed { mut work, .. }) in placed.into_iter().enumerate() {
            // What is queued holds what it reads; it comes free when the flight lands, maybe long before the piece is
            // through. A file may be needed again, and what goes with it.
            if !work.is_encoded() {
                work.images.set_all(|| Image::Nothing);
            }
            match first {
                Some(first) => decoded.push(Queued { work, first: first + number, step }),
                None => finished.push(work),
            }
        }
        Ok(())
    }

    /// Takes samples of `todo` until the arena is full, or page-locked memory; returns them and the bytes they have
    /// there.
    fn place(
        &mut self,
        run: &Run,
        todo: &mut VecDeque<Work>,
        finished: &mut Vec<Work>,
    ) -> Result<(Vec<Placed>, u64)> {
        let limit = self.stage.pools.arena as u64;
        let (mut placed, mut used) = (Vec::with_capacity(todo.len()), 0);
        let most = self.table.bytes() / (self.views.len() * ImageParams::BYTES);
        while let Some(mut work) = todo.pop_front() {
            self.intake.settle_cpu(run, &mut work);
            if let Image::Nothing = work.images.get(0) {
                finished.push(work);
                continue;
            }
            let layouts = PerImage::try_new(work.images.len(), |image| self.layout(work.images.get(image)))?;
            let bytes = layouts.iter().flatten().map(arena_bytes).sum();
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
                // What comes free when this lane's work has landed is all that it may wait for.
                if !placed.is_empty() {
                    todo.push_front(work);
                    break;
                }
                self.flight.submit()?;
                self.flight.wait()?;
                self.intake.reserve(work.images.len(), bytes)?;
                if !self.intake.stage(&mut work)? {
                    return Err(Error::Internal(format!("no page-locked {bytes} bytes for planes")));
                }
            }
            let mut end = used;
            let at = layouts.map(|layout| {
                layout.map(|layout| {
                    let start = end;
                    end += arena_bytes(&layout);
                    (start, layout)
                })
            });
            placed.push(Placed { work, at });
            used = end;
        }
        Ok((placed, used))
    }

    /// How the planes of an image lie in the arena; `None` for a blank one.
    fn layout(&self, image: &Image) -> Result<Option<PlanesLayout>> {
        Ok(match image {
            Image::Encoded { header, drawn, backend, .. } => {
                let layout = self.stage.kept.abilities.layout(header, drawn.region(), *backend);
                Some(layout.ok_or_else(|| Error::Internal(format!("{} has no layout", backend.name())))?)
            }
            Image::Planes { layout, .. } => Some(*layout),
            Image::Decoded { planes, .. } => Some(PlanesLayout::staged(planes)),
            Image::Blank => None,
            Image::ForCpu(_) | Image::Unread(_) | Image::Replaced | Image::Nothing => {
                return Err(Error::Internal("the CPU left an image".into()));
            }
        })
    }

    /// The address of at least `bytes` of device memory that this lane's stream may write.
    fn arena(&mut self, bytes: u64) -> Result<u64> {
        if self.arena.as_ref().is_none_or(|arena| (arena.bytes() as u64) < bytes) {
            // Room for batches of somewhat larger images: growing must end soon.
            let room = (bytes + bytes / 4).max(1 << 20).min(self.stage.pools.arena as u64).max(bytes);
            // The old one goes first, in the stream's order.
            self.arena = None;
            self.arena = Some(self.stage.memory.allocate(self.flight.stream(), room as usize)?);
        }
        Ok(self.arena.as_ref().map_or(0, DeviceBuffer::ptr))
    }

    /// Queues the copies of planes that the CPU decoded.
    fn copy(&mut self, run: &Run, placed: &[Placed]) -> Result<()> {
        for (image, at) in placed.iter().flat_map(Placed::images) {
            if let (Image::Planes { bytes, layout, .. }, Some((offset, _))) = (image, at) {
                let from = bytes.part(0..layout.bytes as usize)?;
                let to = self.arena.as_ref().map(|arena| arena.range(*offset as usize, from.len()));
                let to = to.ok_or_else(|| Error::Internal("planes without an arena".into()))??;
                run.clock.add_uploaded(from.len());
                self.flight.copy_to_device(to, &from)?;
            }
        }
        Ok(())
    }

    /// Queues the decoding of the rest, and returns which were refused, in order, and why.
    fn decode(&mut self, run: &Run, arena: u64, placed: &[Placed]) -> Result<Vec<Refusal>> {
        let mut refused = Vec::new();
        let mut engine_queued = false;
        for backend in NvJpegBackend::ALL {
            let (indices, requests) = requests(backend, arena, placed);
            for &(index, image) in &indices {
                // Also where a call fails: the device may have begun to read.
                if let Image::Encoded { bytes, .. } = placed[index].work.images.get(image) {
                    self.flight.keep(bytes.clone());
                    run.clock.add_uploaded(bytes.len());
                }
            }
            if backend > NvJpegBackend::Hardware && !engine_queued {
                engine_queued = true;
                self.timing.current().engine_queued(&self.engine)?;
            }
            if requests.is_empty() {
                continue;
            }
            let stream = if backend == NvJpegBackend::Hardware { &self.engine } else { self.flight.stream() };
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                empty => empty.insert(self.stage.kept.borrow(self.stage.batch)?),
            };
            let marks = self.timing.current();
            let begins = match backend {
                NvJpegBackend::Hardware => Some(&marks.engine[0]),
                NvJpegBackend::CudaBatched => Some(&marks.batched[0]),
                NvJpegBackend::Cuda => None,
            };
            let Verdict { outcomes, in_parts } = decoder.get()?.decode(stream, backend, begins, &requests)?;
            if let Some(why) = self.stage.pauses.learn(backend, &outcomes) {
                self.shared.tell_paused(backend, &why);
            }
            if backend == NvJpegBackend::CudaBatched {
                marks.batched[1].record(stream)?;
            }
            let mut decoded = 0;
            for ((index, image), outcome) in indices.into_iter().zip(outcomes) {
                match outcome {
                    Ok(()) => decoded += 1,
                    Err(error) => refused.push(Refusal { index, image, error }),
                }
            }
            match backend {
                // Its time says nothing of how fast images are decoded.
                _ if in_parts => {}
                NvJpegBackend::Hardware => marks.on_engine += decoded,
                NvJpegBackend::CudaBatched => marks.on_batched += decoded,
                NvJpegBackend::Cuda => {}
            }
        }
        refused.sort_by_key(|refusal| (refusal.index, refusal.image));
        Ok(refused)
    }

    /// Queues the table, the check of the planes if there is to be one, and the launches that make images of them: one
    /// for each view, of which most batches have one. Returns the place of the first of the check's findings: those of
    /// the first image of all samples come before those of the next.
    fn augment(&mut self, seal: &Seal, arena: u64, placed: &[Placed], check: bool) -> Result<Option<usize>> {
        if placed.is_empty() {
            return Ok(None);
        }
        let view_bytes = placed.len() * ImageParams::BYTES;
        let bytes = self.views.len() * view_bytes;
        let mut slot = self.intake.desk(bytes, &mut self.flight)?;
        let parts = slot.bytes_mut().chunks_exact_mut(view_bytes);
        for (part, ImageView { image, number, launcher }) in parts.zip(&self.views) {
            let entries = part.chunks_exact_mut(ImageParams::BYTES);
            for (entry, Placed { work, at }) in entries.zip(placed) {
                let params = match (at.get(*image), work.images.get(*image).drawn()) {
                    (Some((offset, layout)), Some(drawn)) => {
                        let view = &drawn.views()[*number].view;
                        ImageParams::new(layout, arena + offset, view, launcher.pass_output())
                    }
                    _ => ImageParams::blank(),
                };
                entry.copy_from_slice(params.at(work.ticket.index()).as_bytes());
            }
        }
        let from = self.intake.pin(slot)?.part(0..bytes)?;
        let table = self.table.range(0, bytes)?;
        self.flight.copy_to_device(table, &from)?;
        let findings = check.then(|| self.check.queued());
        let first_views = self.views.iter().enumerate().filter(|(_, view)| check && view.number == 0);
        for (number, ImageView { image, .. }) in first_views {
            let layouts =
                placed.iter().map(|placed| placed.at.get(*image).as_ref().map(|(_, layout)| layout));
            let (kernel, counts, poison) = self.check.next(layouts)?;
            let entries = table.ptr() + (number * view_bytes) as u64;
            // All views are of the same planes, which the first one's entries name.
            // SAFETY: as below; the counts are this lane's.
            unsafe { kernel.launch(self.flight.stream(), entries, placed.len(), counts, poison) }?;
        }
        // Only now must whoever read the batch's buffer before have passed.
        let tensors = seal.images(self.flight.stream())?;
        let levels = self.levels.as_ref().map_or(0, DeviceBuffer::ptr);
        for (number, (ImageView { launcher, .. }, images)) in self.views.iter().zip(tensors).enumerate() {
            let entries = table.ptr() + (number * view_bytes) as u64;
            // SAFETY: the table and what it points to, the arena, the levels and the batch's images, stay allocated
            // until the flight has landed; all was written on this stream or waited for by it.
            unsafe { launcher.launch(self.flight.stream(), entries, placed.len(), levels, images) }?;
        }
        Ok(findings)
    }
}

impl Placed {
    /// Each image with its place.
    fn images(&self) -> impl Iterator<Item = (&Image, &Option<(u64, PlanesLayout)>)> {
        self.work.images.iter().zip(self.at.iter())
    }
}

/// An image that its decoder does not take: which of the samples placed, which of its images, and why.
struct Refusal {
    index: usize,
    image: usize,
    error: Error,
}

/// What `backend` is asked to decode into the arena, and where it stands: which of `placed`, and which of its images.
fn requests(
    backend: NvJpegBackend,
    arena: u64,
    placed: &[Placed],
) -> (Vec<(usize, usize)>, Vec<Request<'_>>) {
    let (mut indices, mut requests) = (Vec::new(), Vec::new());
    for (index, sample) in placed.iter().enumerate() {
        for (number, (image, at)) in sample.images().enumerate() {
            if let (Image::Encoded { bytes, header, backend: own, .. }, Some((offset, layout))) = (image, at)
                && *own == backend
            {
                let target = |plane: PlaneLayout| PlaneTarget {
                    ptr: arena + offset + plane.offset,
                    stride: plane.stride,
                };
                requests.push(Request { bytes, header, layout, planes: layout.planes.map(target) });
                indices.push((index, number));
            }
        }
    }
    (indices, requests)
}

fn unsealed() -> Error {
    Error::Internal("a batch was closed too early".into())
}
