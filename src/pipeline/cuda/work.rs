//! The images of a piece on their way through a lane: who decodes each, and what becomes of those that fail.

use super::Stage;
use super::assembly::{Item, Pixels};
use super::check::Finding;
use super::prepare::{copy, nobody};
use crate::augment::DrawnViews;
use crate::augment::cuda::LaneMemory;
use crate::batch::Ticket;
use crate::config::{CpuDecode, DevicePools, OnError};
use crate::decode::nvjpeg::{NvJpegBackend, PlanesLayout};
use crate::decode::{ColorModel, JpegHeader, Planes};
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{InFlight, PinnedBuffer, PinnedSlice, Registration};
use crate::pipeline::cpu::CpuDecoder;
use crate::pipeline::fields::SeenImage;
use crate::pipeline::watch::Watch;
use crate::pipeline::{Run, Shared, refill};
use crate::schedule::Draw;
use crate::slot::{PAGE, Slot, SlotPool};
use crate::trace::TraceLane;
use std::collections::VecDeque;

/// One image of a piece.
pub(crate) struct Work {
    pub ticket: Ticket,
    position: u64,
    /// Which sample it is of, and which of its draws: another one when it is a substitute.
    pub draw: Draw,
    /// Whether it counts.
    pub valid: bool,
    /// It was decoded again by the same decoder, for want of another or of certainty.
    tried_again: bool,
    pub image: Image,
}

/// What there is of an image.
pub(crate) enum Image {
    /// A file for nvJPEG.
    Encoded { bytes: PinnedSlice, header: JpegHeader, drawn: DrawnViews, backend: NvJpegBackend },
    /// Planes in page-locked memory.
    Planes { bytes: PinnedSlice, layout: PlanesLayout, drawn: DrawnViews },
    /// A file for the CPU.
    ForCpu(PinnedSlice),
    /// Planes that the CPU has decoded, before there is page-locked memory for them.
    Decoded { planes: Box<Planes>, drawn: DrawnViews },
    /// One that failed: another sample's is to take its place.
    Replaced,
    /// Zeros.
    Blank,
    /// Nothing: its batch will not be delivered.
    Nothing,
}

impl Image {
    /// Whether it is for nvJPEG, or was.
    pub(crate) fn is_encoded(&self) -> bool {
        matches!(self, Self::Encoded { .. })
    }

    /// What its views show of it, where that is known.
    pub(crate) fn drawn(&self) -> Option<&DrawnViews> {
        match self {
            Self::Encoded { drawn, .. } | Self::Planes { drawn, .. } | Self::Decoded { drawn, .. } => {
                Some(drawn)
            }
            Self::ForCpu(_) | Self::Replaced | Self::Blank | Self::Nothing => None,
        }
    }
}

/// Takes prepared samples in and finds a way for each.
pub(crate) struct Intake<'a> {
    shared: &'a Shared,
    stage: &'a Stage,
    cpu: CpuDecoder,
    /// Page-locked memory for tables: this lane's alone, so that no other lane's chunks can use it up.
    desk: Registration,
    /// The same for planes that find no slot, from when the slots were used up first.
    reserve: Option<Registration>,
}

/// Least bytes of a lane's [reserve](Intake::reserve): a dozen usual images, so that few chunks are cut short for it.
const RESERVE: usize = 4 << 20;

impl<'a> Intake<'a> {
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn new(shared: &'a Shared, stage: &'a Stage) -> Result<Self> {
        let table = LaneMemory::new(&shared.config.recipe, shared.config.batch_size as usize).table;
        // Two of the largest: one is written while the other is copied.
        let counts = 4 * shared.config.batch_size as usize;
        let room = 2 * (table + 2 * PAGE) + counts + 2 * PAGE;
        let desk = Registration::new(&stage.device, &SlotPool::new(room)?)?;
        Ok(Self { shared, stage, cpu: CpuDecoder::new(shared), desk, reserve: None })
    }

    /// Page-locked memory for a number of each of `images` images.
    pub(crate) fn counts(&self, images: usize) -> Result<PinnedBuffer> {
        self.desk.buffer(4 * images).ok_or_else(|| Error::Internal("no page-locked memory for counts".into()))
    }

    /// What a worker left, as work; a sample that failed is dealt with.
    pub(crate) fn receive(&self, item: Item) -> Work {
        let Item { place, ticket, pixels } = item;
        let mut work = Work {
            ticket,
            position: place.position,
            draw: place.draw,
            valid: place.valid,
            tried_again: false,
            image: Image::Nothing,
        };
        match pixels {
            Ok(Pixels::Decoded { bytes, layout, drawn }) => {
                work.image = Image::Planes { bytes, layout, drawn };
            }
            Ok(Pixels::Waiting(bytes)) => work.image = Image::ForCpu(bytes),
            Ok(Pixels::Absent) => work.image = Image::Blank,
            Ok(Pixels::Encoded { bytes, header, drawn }) => {
                match self.stage.backends(&header, place.draw.sample).next() {
                    Some(backend) => work.image = Image::Encoded { bytes, header, drawn, backend },
                    None if self.stage.cpu_may => work.image = Image::ForCpu(bytes),
                    // A lane's decoder has refused it since the worker looked.
                    None => {
                        let error = nobody(self.stage, &bytes, place.draw.sample);
                        self.settle(&mut work, error);
                    }
                }
            }
            Err(error) => self.settle(&mut work, error),
        }
        work
    }

    /// Gives the decoding engine and the CUDA kernels each their share of what both can decode, and leaves the batched
    /// kernels only what is enough for a call of theirs.
    pub(crate) fn share_out(&self, todo: &mut VecDeque<Work>) {
        let stage = self.stage;
        let mut both: Vec<&mut NvJpegBackend> = Vec::with_capacity(todo.len());
        for Work { image, draw, .. } in todo.iter_mut() {
            // Gray images are few, and would be a call of their own.
            if let Image::Encoded { header, backend, .. } = image
                && *backend == NvJpegBackend::Hardware
                && header.color() == Some(ColorModel::YCbCr)
                && stage.backends(header, draw.sample).any(|backend| backend == NvJpegBackend::CudaBatched)
            {
                both.push(backend);
            }
        }
        let for_cuda = stage.shares.for_cuda(both.len());
        both.into_iter().rev().take(for_cuda).for_each(|backend| *backend = NvJpegBackend::CudaBatched);
        for color in [ColorModel::YCbCr, ColorModel::Gray] {
            let is_of_call = |work: &Work| match &work.image {
                Image::Encoded { header, backend, .. } => {
                    *backend == NvJpegBackend::CudaBatched && header.color() == Some(color)
                }
                _ => false,
            };
            if NvJpegBackend::CudaBatched.takes_call_of(todo.iter().filter(|work| is_of_call(work)).count()) {
                continue;
            }
            for work in todo.iter_mut().filter(|work| is_of_call(work)) {
                let Image::Encoded { bytes, header, backend, .. } = &mut work.image else { continue };
                match stage.backend_after(NvJpegBackend::CudaBatched, header, work.draw.sample) {
                    Some(next) => *backend = next,
                    None if stage.cpu_may => work.image = Image::ForCpu(bytes.clone()),
                    // Nobody else may.
                    None => {}
                }
            }
        }
    }

    /// Decodes on the CPU what only that can, and what takes the place of an image that failed: when it is an image's
    /// turn, so that planes of one at a time are in memory that nothing bounds.
    pub(crate) fn settle_cpu(&mut self, run: &Run, work: &mut Work) {
        if let Image::ForCpu(bytes) = &work.image {
            let bytes = bytes.clone();
            match self.decode(run, work.draw, &bytes) {
                Ok(drawn) => work.image = self.decoded(drawn),
                Err(error) => self.settle(work, error),
            }
        }
        if let Image::Replaced = work.image {
            work.image = match self.substitute(run, work.position, &mut work.ticket) {
                Ok((sample, image)) => {
                    work.draw = Draw::first(sample);
                    image
                }
                Err(error) => {
                    work.ticket.fail(work.draw.sample, error, true);
                    Image::Nothing
                }
            };
        }
    }

    /// Takes planes that the CPU decoded to page-locked memory; false: there is none until what this lane has queued
    /// has landed.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn stage(&mut self, work: &mut Work) -> Result<bool> {
        let Image::Decoded { planes, drawn } = &mut work.image else { return Ok(true) };
        let layout = PlanesLayout::staged(planes);
        let places = [Some(&self.stage.slots), self.reserve.as_ref()];
        let room = layout.bytes as usize;
        let found = places.into_iter().flatten().find_map(|from| Some((from, from.slots().try_take(room)?)));
        let Some((from, mut slot)) = found else { return Ok(false) };
        copy(planes, &layout, slot.bytes_mut());
        // The next image's samples find their memory made.
        self.cpu.planes = std::mem::take(&mut **planes);
        work.image = Image::Planes { bytes: from.pin(slot)?, layout, drawn: drawn.clone() };
        Ok(true)
    }

    /// Makes sure that the lane's own page-locked memory has room for planes of `bytes`, once nothing of it is in use.
    /// Slots would come free too, but they may be other batches', and waiting for them waiting for each other.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<()> {
        let bytes = bytes as usize;
        if self.reserve.as_ref().is_none_or(|reserve| reserve.slots().largest() < bytes) {
            // Doubled, so that larger and larger images make it grow a few times and no more.
            let room = (bytes + 2 * PAGE).next_power_of_two().max(RESERVE);
            self.reserve = None;
            self.reserve = Some(Registration::new(&self.stage.device, &SlotPool::new(room)?)?);
        }
        Ok(())
    }

    /// The next decoder's turn, after `error` was this one's answer.
    pub(crate) fn demote(&self, work: &mut Work, error: Error) {
        let Image::Encoded { bytes, header, backend, .. } = &mut work.image else { return };
        let sample = work.draw.sample;
        match &error {
            Error::Decode(why) if self.stage.refused.note(sample, *backend, why) => {
                self.shared.tell_refused(*backend, sample, why);
            }
            Error::Decode(_) => {}
            // It is no fault of the file's: the next time it may be decoded.
            error => self.shared.tell_failing(*backend, sample, error),
        }
        match self.stage.backend_after(*backend, header, sample) {
            Some(next) => *backend = next,
            None if self.shared.config.cpu_decode == CpuDecode::Never => self.settle(work, error),
            None => work.image = Image::ForCpu(bytes.clone()),
        }
    }

    /// Whether an image that its decoder decoded is really there. If not it is the next decoder's; or, where that is
    /// doubtful or there is none, the same one's once more.
    pub(crate) fn accept(&self, run: &Run, work: &mut Work, finding: Finding) -> bool {
        let Image::Encoded { header, backend, .. } = &work.image else { return true };
        let backend = *backend;
        if finding == Finding::Written {
            run.clock.count_nvjpeg(backend, 1);
            work.image = Image::Nothing;
            return true;
        }
        run.clock.count_decoded_again();
        // No image looks like one poison and then like the other.
        let doubtful = finding == Finding::Doubtful && !work.tried_again;
        if !doubtful {
            self.shared.tell_skipped(backend, work.draw.sample);
        }
        let is_last = self.stage.backend_after(backend, header, work.draw.sample).is_none();
        if doubtful || is_last && self.shared.config.cpu_decode == CpuDecode::Never && !work.tried_again {
            work.tried_again = true;
            return false;
        }
        work.tried_again = false;
        let message = format!("JPEG: nvJPEG's {} reports success and does not write it", backend.name());
        self.demote(work, DecodeError::Unsupported(message).into());
        false
    }

    /// An image that has no room on the device with all its pixels: the CPU decodes only what is needed of it.
    ///
    /// # Errors
    /// Where that has no room either, or the CPU may not: it is the setting that is at fault, not the sample, which is
    /// neither replaced nor left out.
    pub(crate) fn too_large(&self, work: &mut Work, needed: u64) -> Result<()> {
        match &work.image {
            Image::Encoded { bytes, .. } if self.stage.cpu_may => work.image = Image::ForCpu(bytes.clone()),
            _ => {
                let error = no_room(&self.stage.pools, needed);
                return Err(self.shared.sample_error(work.draw.sample, error));
            }
        }
        Ok(())
    }

    /// Page-locked memory for a table. What this lane has under way holds some of it until it has landed.
    pub(crate) fn desk(&self, bytes: usize, flight: &mut InFlight) -> Result<Slot> {
        let slots = self.desk.slots();
        if let Some(slot) = slots.try_take(bytes) {
            return Ok(slot);
        }
        flight.depart()?;
        flight.land()?;
        slots
            .try_take(bytes)
            .ok_or_else(|| Error::Internal(format!("no page-locked {bytes} bytes for a table")))
    }

    /// A table from the desk as memory to copy from.
    pub(crate) fn pin(&self, table: Slot) -> Result<PinnedSlice> {
        self.desk.pin(table)
    }

    /// What becomes of a sample that failed: see [`OnError`].
    fn settle(&self, work: &mut Work, error: Error) {
        let sample = work.draw.sample;
        work.ticket.fail(sample, self.shared.sample_error(sample, error), false);
        work.image = match self.shared.config.on_error {
            OnError::Raise => Image::Nothing,
            OnError::Zero => {
                work.valid = false;
                self.shared.blank_fields(&mut work.ticket);
                Image::Blank
            }
            OnError::Skip => Image::Replaced,
        };
    }

    fn substitute(&mut self, run: &Run, position: u64, ticket: &mut Ticket) -> Result<(u64, Image)> {
        let shared = self.shared;
        refill::substitute(shared, run, position, |sample, record| {
            let field = shared.config.fields.image();
            let bytes = match field {
                Some(field) => shared.field_bytes(run, field, sample, &record)?,
                None => None,
            };
            let Some(bytes) = bytes else {
                shared.fill_fields(run, sample, &record, None, ticket)?;
                return Ok(Image::Blank);
            };
            let drawn = self.decode(run, Draw::first(sample), &bytes)?;
            let size = (self.cpu.planes.image_width, self.cpu.planes.image_height);
            shared.fill_fields(
                run,
                sample,
                &record,
                Some(SeenImage { size, views: drawn.views() }),
                ticket,
            )?;
            Ok(self.decoded(drawn))
        })
    }

    fn decode(&mut self, run: &Run, draw: Draw, bytes: &[u8]) -> Result<DrawnViews> {
        self.cpu.decode(self.shared, run, draw, bytes, &mut Watch::new(TraceLane::off()))
    }

    /// The planes just decoded.
    fn decoded(&mut self, drawn: DrawnViews) -> Image {
        Image::Decoded { planes: Box::new(std::mem::take(&mut self.cpu.planes)), drawn }
    }
}

/// Bytes that an image's planes take of the arena: they begin where nvJPEG and wide loads like.
pub(crate) fn arena_bytes(layout: &PlanesLayout) -> u64 {
    layout.bytes.next_multiple_of(256)
}

fn no_room(pools: &DevicePools, needed: u64) -> Error {
    let remedy = match pools.cap_for(needed) {
        Some(cap) => format!("raise it to {cap}, or decode with device=\"cpu\""),
        None => "decode with device=\"cpu\"".to_owned(),
    };
    let room = pools.arena;
    let message =
        format!("leaves {room} bytes for the images being decoded, this one needs {needed}; {remedy}");
    Error::config("device_memory", message)
}
