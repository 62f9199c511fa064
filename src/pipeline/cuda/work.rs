//! The samples of a piece on their way through a lane: who decodes the images of each, and what becomes of those that
//! fail.

use super::Stage;
use super::assembly::{Item, Pixels};
use super::check::Finding;
use super::per_image::PerImage;
use super::prepare::{copy, nobody};
use super::refused::ImageId;
use crate::augment::DrawnViews;
use crate::augment::cuda::LaneMemory;
use crate::batch::Ticket;
use crate::config::{CpuDecode, DevicePools, OnError};
use crate::dataset::Stamp;
use crate::decode::nvjpeg::{NvJpegBackend, PlanesLayout};
use crate::decode::{ColorModel, JpegHeader, Planes};
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{InFlight, PinnedBuffer, PinnedSlice, Registration};
use crate::pipeline::cpu::CpuDecoder;
use crate::pipeline::fields::SeenImage;
use crate::pipeline::one_version::OneVersion;
use crate::pipeline::watch::Watch;
use crate::pipeline::{Run, Shared, refill};
use crate::schedule::Draw;
use crate::slot::{PAGE, Slot, SlotPool};
use crate::trace::TraceLane;
use std::collections::VecDeque;

/// One sample of a piece. Its images go through the lane together: where one is decoded anew all are, and where one
/// fails the sample does.
pub(crate) struct Work {
    pub ticket: Ticket,
    position: u64,
    /// Which sample it is, and which of its draws: another one when it is a substitute.
    pub draw: Draw,
    /// Whether it counts.
    pub valid: bool,
    pub images: PerImage<Image>,
}

impl Work {
    /// What an image of it is known by.
    fn id(&self, image: usize) -> ImageId {
        ImageId { sample: self.draw.sample, image: image as u32 }
    }

    /// Whether nvJPEG decodes an image of it, or did.
    pub(crate) fn is_encoded(&self) -> bool {
        self.images.iter().any(Image::is_encoded)
    }
}

/// What there is of an image.
pub(crate) enum Image {
    /// A file for nvJPEG.
    Encoded {
        bytes: PinnedSlice,
        header: JpegHeader,
        drawn: DrawnViews,
        backend: NvJpegBackend,
        /// It was decoded again by the same decoder, for want of another or of certainty.
        tried_again: bool,
    },
    /// Planes in page-locked memory.
    Planes { bytes: PinnedSlice, layout: PlanesLayout, drawn: DrawnViews },
    /// A file for the CPU.
    ForCpu(PinnedSlice),
    /// A file for the CPU that is still to be read.
    Unread(Option<Stamp>),
    /// Planes that the CPU has decoded, before there is page-locked memory for them.
    Decoded { planes: Box<Planes>, drawn: DrawnViews },
    /// One of a sample that failed: another sample's is to take its place.
    Replaced,
    /// Zeros.
    Blank,
    /// Nothing more: it is in the batch, or its batch will not be delivered.
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
            Self::ForCpu(_) | Self::Unread(_) | Self::Replaced | Self::Blank | Self::Nothing => None,
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
        let table = LaneMemory::new(shared.config.images.views(), shared.config.batch_size as usize).table;
        // Two of the largest: one is written while the other is copied.
        let counts = 4 * stage.batch;
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
        let images = PerImage::one(Image::Nothing);
        let mut work =
            Work { ticket, position: place.position, draw: place.draw, valid: place.valid, images };
        let sample = place.draw.sample;
        let received = pixels.and_then(|pixels| {
            pixels.try_map(|image, pixels| match pixels {
                Pixels::Decoded { bytes, layout, drawn } => Ok(Image::Planes { bytes, layout, drawn }),
                Pixels::Waiting(bytes) => Ok(Image::ForCpu(bytes)),
                Pixels::Unread(stamp) => Ok(Image::Unread(stamp)),
                Pixels::Absent => Ok(Image::Blank),
                Pixels::Encoded { bytes, header, drawn } => {
                    let id = ImageId { sample, image: image as u32 };
                    match self.stage.backends(&header, id).next() {
                        Some(backend) => {
                            Ok(Image::Encoded { bytes, header, drawn, backend, tried_again: false })
                        }
                        None if self.stage.cpu_may => Ok(Image::ForCpu(bytes)),
                        // A lane's decoder has refused it since the worker looked.
                        None => Err(self.shared.of_image(image, nobody(self.stage, &bytes, id))),
                    }
                }
            })
        });
        match received {
            Ok(images) => work.images = images,
            Err(error) => {
                // As many as there would be.
                let count = self.shared.config.images.list().len();
                work.images = PerImage::new(count, |_| Image::Nothing);
                self.settle(&mut work, error);
            }
        }
        work
    }

    /// Gives the decoding engine and the CUDA kernels each their share of what both can decode, and leaves the batched
    /// kernels only what is enough for a call of theirs.
    pub(crate) fn share_out(&self, todo: &mut VecDeque<Work>) {
        let stage = self.stage;
        let mut both: Vec<&mut NvJpegBackend> = Vec::with_capacity(todo.len());
        for Work { images, draw, .. } in todo.iter_mut() {
            for (number, image) in images.iter_mut().enumerate() {
                let id = ImageId { sample: draw.sample, image: number as u32 };
                // Gray images are few, and would be a call of their own.
                if let Image::Encoded { header, backend, .. } = image
                    && *backend == NvJpegBackend::Hardware
                    && header.color() == Some(ColorModel::YCbCr)
                    && stage.backends(header, id).any(|backend| backend == NvJpegBackend::CudaBatched)
                {
                    both.push(backend);
                }
            }
        }
        let for_cuda = stage.shares.for_cuda(both.len());
        both.into_iter().rev().take(for_cuda).for_each(|backend| *backend = NvJpegBackend::CudaBatched);
        for color in [ColorModel::YCbCr, ColorModel::Gray] {
            let is_of_call = |image: &Image| match image {
                Image::Encoded { header, backend, .. } => {
                    *backend == NvJpegBackend::CudaBatched && header.color() == Some(color)
                }
                _ => false,
            };
            let images = todo.iter().flat_map(|work| work.images.iter());
            if NvJpegBackend::CudaBatched.takes_call_of(images.filter(|image| is_of_call(image)).count()) {
                continue;
            }
            for Work { images, draw, .. } in todo.iter_mut() {
                for (number, image) in images.iter_mut().enumerate().filter(|(_, image)| is_of_call(image)) {
                    let Image::Encoded { bytes, header, backend, .. } = image else { continue };
                    let id = ImageId { sample: draw.sample, image: number as u32 };
                    match stage.backend_after(NvJpegBackend::CudaBatched, header, id) {
                        Some(next) => *backend = next,
                        None if stage.cpu_may => *image = Image::ForCpu(bytes.clone()),
                        // Nobody else may.
                        None => {}
                    }
                }
            }
        }
    }

    /// Decodes on the CPU what only that can, and what takes the place of a sample that failed: when it is a sample's
    /// turn, so that planes of one at a time are in memory that nothing bounds.
    pub(crate) fn settle_cpu(&mut self, run: &Run, work: &mut Work) {
        for image in 0..work.images.len() {
            let decoded = match work.images.get(image) {
                Image::ForCpu(bytes) => {
                    let bytes = bytes.clone();
                    self.decode(run, image, work.draw, &bytes)
                }
                &Image::Unread(stamp) => self.read(run, image, work.draw, stamp),
                _ => continue,
            };
            match decoded {
                Ok(drawn) => *work.images.get_mut(image) = self.decoded(drawn),
                Err(error) => self.settle(work, error),
            }
        }
        if let Image::Replaced = work.images.get(0) {
            match self.substitute(run, work.position, &mut work.ticket) {
                Ok((sample, images)) => {
                    work.draw = Draw::first(sample);
                    work.images = images;
                }
                Err(error) => {
                    work.ticket.fail(work.draw.sample, error, true);
                    work.images.set_all(|| Image::Nothing);
                }
            }
        }
    }

    /// Reads and decodes an image that lies apart from the rest of its sample, which was read when the shard had this
    /// `stamp`.
    fn read(&mut self, run: &Run, image: usize, draw: Draw, stamp: Option<Stamp>) -> Result<DrawnViews> {
        let field = &self.shared.config.fields.list[self.shared.config.images.list()[image].field];
        // Nothing of it is in what was read at once.
        let bytes = self.shared.field_bytes(run, field, draw.sample, &[])?;
        let bytes =
            bytes.ok_or_else(|| Error::Internal(format!("no {:?} where there was one", field.name)))?;
        let (index, file) = (&self.shared.index, self.shared.index.extent(draw.sample).file);
        if index.shard_stamp(file) != stamp {
            let message = "was written to while a sample was read".to_owned();
            return Err(Error::DatasetChanged { path: index.path(file), message });
        }
        self.decode(run, image, draw, &bytes)
    }

    /// Takes the planes of a sample's images that the CPU decoded to page-locked memory, all of them or none; false:
    /// there is none until what this lane has queued has landed.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn stage(&mut self, work: &mut Work) -> Result<bool> {
        let images = work.images.iter().filter_map(|image| match image {
            Image::Decoded { planes, .. } => Some(PlanesLayout::staged(planes)),
            _ => None,
        });
        let places = [Some(&self.stage.slots), self.reserve.as_ref()];
        let take = |layout: PlanesLayout| {
            let room = layout.bytes as usize;
            let slot = |from: &Registration| Some((from.clone(), from.slots().try_take(room)?));
            Some((layout, places.into_iter().flatten().find_map(slot)?))
        };
        let Some(taken) = images.map(take).collect::<Option<Vec<_>>>() else { return Ok(false) };
        let decoded = work.images.iter_mut().filter(|image| matches!(image, Image::Decoded { .. }));
        for (image, (layout, (from, mut slot))) in decoded.zip(taken) {
            let Image::Decoded { planes, drawn } = image else { continue };
            copy(planes, &layout, slot.bytes_mut());
            // The next image's samples find their memory made.
            self.cpu.planes = std::mem::take(&mut **planes);
            *image = Image::Planes { bytes: from.pin(slot)?, layout, drawn: drawn.clone() };
        }
        Ok(true)
    }

    /// Makes sure that the lane's own page-locked memory has room for the planes of a sample of `images` images, `bytes`
    /// in all. Slots would come free too, but they may be other batches', and waiting for them waiting for each other.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn reserve(&mut self, images: usize, bytes: u64) -> Result<()> {
        let room = bytes as usize + 2 * images * PAGE;
        // What images of it still wait to be checked stays where it is.
        let serves = |reserve: &Registration| {
            let slots = reserve.slots();
            slots.usage().in_use == 0 && slots.largest() >= room
        };
        if !self.reserve.as_ref().is_some_and(serves) {
            // Doubled, so that larger and larger images make it grow a few times and no more.
            let room = room.next_power_of_two().max(RESERVE);
            self.reserve = None;
            self.reserve = Some(Registration::new(&self.stage.device, &SlotPool::new(room)?)?);
        }
        Ok(())
    }

    /// The next decoder's turn, after `error` was this one's answer to the image of this number.
    pub(crate) fn demote(&self, work: &mut Work, number: usize, error: Error) {
        let id = work.id(number);
        let image = work.images.get_mut(number);
        let Image::Encoded { bytes, header, backend, tried_again, .. } = image else { return };
        *tried_again = false;
        match &error {
            Error::Decode(why) if self.stage.refused.note(id, *backend, why) => {
                self.shared.tell_refused(*backend, id.sample, why);
            }
            Error::Decode(_) => {}
            // It is no fault of the file's: the next time it may be decoded.
            error => self.shared.tell_failing(*backend, id.sample, error),
        }
        match self.stage.backend_after(*backend, header, id) {
            Some(next) => *backend = next,
            None if self.shared.config.cpu_decode == CpuDecode::Never => {
                self.settle(work, self.shared.of_image(number, error));
            }
            None => *image = Image::ForCpu(bytes.clone()),
        }
    }

    /// Whether all images of a sample that decoders decoded are really there, by the `finding` of each.
    pub(crate) fn accept(&self, run: &Run, work: &mut Work, finding: impl Fn(usize) -> Finding) -> bool {
        let mut is_there = true;
        for image in 0..work.images.len() {
            is_there &= self.accept_image(run, work, image, finding(image));
        }
        if is_there {
            for image in work.images.iter_mut() {
                if let Image::Encoded { backend, .. } = image {
                    run.clock.count_nvjpeg(*backend, 1);
                }
                *image = Image::Nothing;
            }
        }
        is_there
    }

    /// Whether an image that its decoder decoded is really there. If not it is the next decoder's; or, where that is
    /// doubtful or there is none, the same one's once more.
    fn accept_image(&self, run: &Run, work: &mut Work, number: usize, finding: Finding) -> bool {
        let id = work.id(number);
        let Image::Encoded { header, backend, tried_again, .. } = work.images.get_mut(number) else {
            return true;
        };
        let backend = *backend;
        if finding == Finding::Written {
            return true;
        }
        run.clock.count_decoded_again();
        // No image looks like one poison and then like the other.
        let doubtful = finding == Finding::Doubtful && !*tried_again;
        if !doubtful {
            self.shared.tell_skipped(backend, id.sample);
        }
        let is_last = self.stage.backend_after(backend, header, id).is_none();
        if doubtful || is_last && self.shared.config.cpu_decode == CpuDecode::Never && !*tried_again {
            *tried_again = true;
            return false;
        }
        let message = format!("JPEG: nvJPEG's {} reports success and does not write it", backend.name());
        self.demote(work, number, DecodeError::Unsupported(message).into());
        false
    }

    /// A sample whose images have no room on the device with all their pixels: the CPU decodes only what is needed of
    /// them.
    ///
    /// # Errors
    /// Where that has no room either, or the CPU may not: it is the setting that is at fault, not the sample, which is
    /// neither replaced nor left out.
    pub(crate) fn too_large(&self, work: &mut Work, needed: u64) -> Result<()> {
        let is_encoded = work.is_encoded();
        for image in work.images.iter_mut() {
            if let (Image::Encoded { bytes, .. }, true) = (&image, self.stage.cpu_may) {
                *image = Image::ForCpu(bytes.clone());
            }
        }
        if is_encoded && self.stage.cpu_may {
            return Ok(());
        }
        Err(self.shared.sample_error(work.draw.sample, no_room(&self.stage.pools, needed)))
    }

    /// Page-locked memory for a table. What this lane has under way holds some of it until it has landed.
    pub(crate) fn desk(&self, bytes: usize, flight: &mut InFlight) -> Result<Slot> {
        let slots = self.desk.slots();
        if let Some(slot) = slots.try_take(bytes) {
            return Ok(slot);
        }
        flight.submit()?;
        flight.wait()?;
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
        match self.shared.config.on_error {
            OnError::Raise => work.images.set_all(|| Image::Nothing),
            OnError::Zero => {
                work.valid = false;
                self.shared.blank_fields(sample, &mut work.ticket);
                work.images.set_all(|| Image::Blank);
            }
            OnError::Skip => work.images.set_all(|| Image::Replaced),
        }
    }

    /// The images of another sample in place of one that failed, whose other fields are filled.
    fn substitute(
        &mut self,
        run: &Run,
        position: u64,
        ticket: &mut Ticket,
    ) -> Result<(u64, PerImage<Image>)> {
        let shared = self.shared;
        let images = shared.config.images.list();
        let mut make = |sample, record: &[u8]| {
            let mut seen = Vec::with_capacity(images.len());
            let made = PerImage::try_new(images.len(), |image| {
                let field = &shared.config.fields.list[images[image].field];
                let Some(bytes) = shared.field_bytes(run, field, sample, record)? else {
                    seen.push(None);
                    return Ok(Image::Blank);
                };
                let drawn = self.decode(run, image, Draw::first(sample), &bytes)?;
                let size = (self.cpu.planes.image_width, self.cpu.planes.image_height);
                shared.check_size(image, size, &seen).map_err(|error| shared.of_image(image, error))?;
                seen.push(Some(SeenImage { size, drawn: Some(drawn.clone()) }));
                Ok(self.decoded(drawn))
            })?;
            shared.fill_fields(run, sample, record, &seen, ticket)?;
            Ok(made)
        };
        refill::substitute(shared, run, position, |sample, mut record| {
            let mut version = OneVersion::default();
            loop {
                let made = make(sample, &record);
                match version.read_anew(&shared.index, sample)? {
                    Some(bytes) => record = bytes,
                    None => return made,
                }
            }
        })
    }

    fn decode(&mut self, run: &Run, image: usize, draw: Draw, bytes: &[u8]) -> Result<DrawnViews> {
        let mut watch = Watch::new(TraceLane::off());
        let drawn = self.cpu.decode(self.shared, run, image, draw, bytes, &mut watch);
        drawn.map_err(|error| self.shared.of_image(image, error))
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
