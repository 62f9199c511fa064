//! The samples of a sub-batch on their way through a lane: which decoder decodes their images, and how failures are
//! handled.

use super::GpuStage;
use super::assembly::{PreparedImage, PreparedSample};
use super::check::Finding;
use super::image::{LaneImage, LaneSample};
use super::per_image::PerImage;
use super::prepare::{copy, undecodable};
use super::refused::ImageId;
use super::staging::LaneStaging;
use crate::batch::Ticket;
use crate::config::{CpuDecode, DevicePools, OnError};
use crate::pipeline::{
    arrays::ArrayScratch, boxes::boxes_of_image, consistent_read::read_consistently, context::SampleContext,
    cpu::CpuDecoder, cpu::SampleImage, cpu::ViewsFrom, fields::check_size, fields::fill_fields,
    members::ImageGeometry, members::RecordView, members::field_bytes, mixing::FilledPlace, notify,
    originals::OriginalFiles, run::EpochRun, stopwatch::Stopwatch, substitute::note_failure,
    substitute::substitute,
};
use base::error::{DecodeError, Error, Result};
use base::trace::TraceLane;
use data::dataset::Stamp;
use data::schedule::{BatchEntry, Draw};
use pixels::augment::DrawnViews;
use pixels::decode::nvjpeg::NvJpegBackend;
use pixels::decode::{Backend, ColorModel, PlanesLayout};
use pixels::gpu::Registration;
use std::collections::VecDeque;

/// Receives prepared samples on a lane (a thread with its own CUDA stream), and chooses a decoder for each image.
pub(crate) struct LaneReceiver<'a> {
    context: &'a SampleContext,
    stage: &'a GpuStage,
    cpu: CpuDecoder,
    originals: OriginalFiles,
    arrays: ArrayScratch,
    pub staging: LaneStaging,
}

impl<'a> LaneReceiver<'a> {
    pub(crate) fn new(context: &'a SampleContext, stage: &'a GpuStage) -> Result<Self> {
        let staging = LaneStaging::new(context, stage)?;
        let (originals, arrays) = (OriginalFiles::default(), ArrayScratch::default());
        Ok(Self { context, stage, cpu: CpuDecoder::new(context).for_kernels(), originals, arrays, staging })
    }

    pub(crate) fn receive(&self, item: PreparedSample) -> LaneSample {
        let PreparedSample { place, ticket, pixels } = item;
        let BatchEntry { position, draw, valid } = place;
        let place = FilledPlace { ticket, position, draw, valid };
        let mut work = LaneSample { place, images: PerImage::one(LaneImage::Done) };
        let sample = draw.sample;
        let received = pixels.and_then(|pixels| {
            pixels.try_map(|image, pixels| match pixels {
                PreparedImage::Ready(image) => Ok(image),
                PreparedImage::Encoded { bytes, header, drawn } => {
                    let id = ImageId { sample, image: image as u32 };
                    match self.stage.backends(&header, id).next() {
                        Some(backend) => {
                            Ok(LaneImage::Encoded { bytes, header, drawn, backend, tried_again: false })
                        }
                        None if self.stage.cpu_may_decode => {
                            Ok(LaneImage::ForCpu { bytes, drawn, is_reported_damaged: false })
                        }
                        // The GPU's decoders refused the image after the worker had prepared it.
                        None => Err(self.context.of_image(image, undecodable(self.stage, &bytes, id))),
                    }
                }
            })
        });
        match received {
            Ok(images) => work.images = images,
            Err(error) => {
                // `fail_sample` sets every image of the sample, so the sample must keep its number of images.
                let count = self.context.config.images.list().len();
                work.images = PerImage::new(count, |_| LaneImage::Done);
                self.fail_sample(&mut work, error);
            }
        }
        work
    }

    /// Passes the images that nvJPEG's batched kernels would decode to their next decoders, if they are too few for one
    /// call of these kernels.
    pub(crate) fn fill_calls(&self, todo: &mut VecDeque<LaneSample>) {
        let stage = self.stage;
        for color in [ColorModel::YCbCr, ColorModel::Gray] {
            let is_of_call = |image: &LaneImage| match image {
                LaneImage::Encoded { header, backend, .. } => {
                    *backend == NvJpegBackend::CudaBatched && header.color() == Some(color)
                }
                _ => false,
            };
            let images = todo.iter().flat_map(|work| work.images.iter());
            if NvJpegBackend::CudaBatched.accepts_call_of(images.filter(|image| is_of_call(image)).count()) {
                continue;
            }
            for LaneSample { images, place } in todo.iter_mut() {
                for (number, image) in images.iter_mut().enumerate().filter(|(_, image)| is_of_call(image)) {
                    let LaneImage::Encoded { header, backend, .. } = image else { continue };
                    let id = ImageId { sample: place.draw.sample, image: number as u32 };
                    match stage.backend_after(NvJpegBackend::CudaBatched, header, id) {
                        Some(next) => *backend = next,
                        None if stage.cpu_may_decode => image.pass_to_cpu(),
                        // No other decoder may decode the image, so it stays with the batched kernels.
                        None => {}
                    }
                }
            }
        }
    }

    /// Decodes on the CPU the images that only the CPU can decode, and the substitute of a failed sample. The decoded
    /// planes do not count against a memory limit, so call this for one sample at a time, when it is next in order.
    pub(crate) fn decode_on_cpu(&mut self, run: &EpochRun, work: &mut LaneSample) {
        for image in 0..work.images.len() {
            let draw = work.place.draw;
            let decoded = match work.images.get(image) {
                LaneImage::ForCpu { bytes, drawn, is_reported_damaged } => {
                    let views = ViewsFrom::Header(drawn.clone());
                    let decoded = self.decode(run, SampleImage { image, draw, bytes, parts: None, views });
                    // The CPU's decoder of packed and indexed images read the same rows by the same rules as the GPU's
                    // kernel, and found no damage.
                    let of_rows = matches!(self.cpu.decoded_by, Some(Backend::Packed | Backend::Indexed));
                    if *is_reported_damaged && decoded.is_ok() && of_rows {
                        notify::damage_unconfirmed(self.context, draw.sample);
                    }
                    decoded
                }
                LaneImage::Unread { stamp, drawn } => self.read(run, image, draw, *stamp, drawn.clone()),
                _ => continue,
            };
            match decoded {
                Ok(drawn) => *work.images.get_mut(image) = self.decoded(drawn),
                Err(error) => self.fail_sample(work, error),
            }
        }
        if let LaneImage::Replaced = work.images.get(0) {
            match self.substitute(run, work.place.position, &mut work.place.ticket) {
                Ok((sample, images)) => {
                    work.place.draw = Draw::first(sample);
                    work.images = images;
                }
                Err(error) => {
                    work.place.ticket.fail(work.place.draw.sample, error, true);
                    work.images.set_all(|| LaneImage::Done);
                }
            }
        }
    }

    fn read(
        &mut self,
        run: &EpochRun,
        image: usize,
        draw: Draw,
        stamp: Option<Stamp>,
        drawn: Option<DrawnViews>,
    ) -> Result<DrawnViews> {
        let field = &self.context.config.fields.list[self.context.config.images.list()[image].field];
        // Pass no record: the bytes that were read for the sample do not contain this image.
        let bytes = field_bytes(run, field, draw.sample, &[])?;
        let bytes = bytes.ok_or_else(|| {
            Error::Internal(format!("the member {:?} existed and is missing now", field.name))
        })?;
        let (index, file) = (&self.context.index, self.context.index.extent(draw.sample).file);
        if index.shard_stamp(file) != stamp {
            let message = "changed while a sample was read".to_owned();
            return Err(Error::DatasetChanged { path: index.path(file), message });
        }
        let views = drawn.map_or(ViewsFrom::Boxes(&[]), ViewsFrom::Header);
        self.decode(run, SampleImage { image, draw, bytes: &bytes, parts: None, views })
    }

    /// Copies the planes that the CPU decoded for a sample to staging buffers. Returns false, and copies nothing, if
    /// too few buffers are free. Buffers become free when the queued work of this lane is done.
    pub(crate) fn stage(&mut self, work: &mut LaneSample) -> Result<bool> {
        let images = work.images.iter().filter_map(|image| match image {
            LaneImage::Decoded { planes, .. } => Some(PlanesLayout::staged(planes)),
            _ => None,
        });
        let places = [Some(&self.stage.slots), self.staging.planes.as_ref()];
        let take = |layout: PlanesLayout| {
            let room = layout.bytes as usize;
            let slot = |from: &Registration| Some((from.clone(), from.slots().try_take(room)?));
            Some((layout, places.into_iter().flatten().find_map(slot)?))
        };
        let Some(taken) = images.map(take).collect::<Option<Vec<_>>>() else { return Ok(false) };
        let decoded = work.images.iter_mut().filter(|image| matches!(image, LaneImage::Decoded { .. }));
        for (image, (layout, (from, mut slot))) in decoded.zip(taken) {
            let LaneImage::Decoded { planes, drawn } = image else { continue };
            copy(planes, &layout, slot.bytes_mut());
            // Reuse the memory of these planes for the next image.
            self.cpu.planes = std::mem::take(&mut **planes);
            *image = LaneImage::Planes { bytes: from.pin(slot)?, layout, drawn: drawn.clone() };
        }
        Ok(true)
    }

    /// Passes an image to its next decoder, after its current decoder failed with `error`.
    pub(crate) fn demote(&self, work: &mut LaneSample, number: usize, error: Error) {
        let id = work.id(number);
        let image = work.images.get_mut(number);
        let LaneImage::Encoded { header, backend, tried_again, .. } = image else { return };
        *tried_again = false;
        match &error {
            Error::Decode(why) if self.stage.refused.note(id, *backend, why) => {
                notify::refused(self.context, *backend, id.sample, why);
            }
            Error::Decode(_) => {}
            // The error does not come from the file, so this decoder may succeed the next time.
            error => notify::failing(self.context, *backend, id.sample, error),
        }
        match self.stage.backend_after(*backend, header, id) {
            Some(next) => *backend = next,
            None if self.context.config.cpu_decode == CpuDecode::Never => {
                self.fail_sample(work, self.context.of_image(number, error));
            }
            None => image.pass_to_cpu(),
        }
    }

    /// Returns whether the GPU's decoders have written all images of a sample. `finding` returns the result of the
    /// check of one image.
    pub(crate) fn accept(
        &self,
        run: &EpochRun,
        work: &mut LaneSample,
        finding: impl Fn(usize) -> Finding,
    ) -> bool {
        let mut is_there = true;
        for image in 0..work.images.len() {
            is_there &= self.accept_image(run, work, image, finding(image));
        }
        if is_there {
            for image in work.images.iter_mut() {
                match image {
                    LaneImage::Encoded { backend, .. } => run.counters.count_nvjpeg(*backend),
                    LaneImage::Own { plan, .. } => run.counters.count_own(plan.form()),
                    _ => {}
                }
                *image = LaneImage::Done;
            }
        }
        is_there
    }

    /// Returns whether the GPU's decoder has written an image. If not, the next decoder gets the image. If the check is
    /// inconclusive, or there is no other decoder, the same decoder gets the image once more.
    fn accept_image(&self, run: &EpochRun, work: &mut LaneSample, number: usize, finding: Finding) -> bool {
        let id = work.id(number);
        let LaneImage::Encoded { header, backend, tried_again, .. } = work.images.get_mut(number) else {
            // Foreload's own kernels decode the image, or another image has already made the sample fail.
            let is_own = matches!(work.images.get_mut(number), LaneImage::Own { .. });
            return finding != Finding::Damaged || is_own && self.leave_damaged(run, work, number);
        };
        let backend = *backend;
        if finding == Finding::Written {
            return true;
        }
        run.counters.count_decoded_again();
        // The output is filled with another poison pattern before the second attempt. No image looks like both
        // patterns, so a second unverified finding means that the image was not written.
        let unverified = finding == Finding::Unverified && !*tried_again;
        if !unverified {
            notify::unwritten_image(self.context, backend, id.sample);
        }
        let is_last = self.stage.backend_after(backend, header, id).is_none();
        if unverified || is_last && self.context.config.cpu_decode == CpuDecode::Never && !*tried_again {
            *tried_again = true;
            return false;
        }
        let message =
            format!("JPEG: nvJPEG's {} reports success but does not write the image", backend.name());
        self.demote(work, number, DecodeError::Unsupported(message).into());
        false
    }

    /// Passes an image with damaged rows to the CPU's decoder, which reports the damage, or fails the sample if the CPU
    /// may not decode. Always returns false, because there is no usable image yet.
    fn leave_damaged(&self, run: &EpochRun, work: &mut LaneSample, number: usize) -> bool {
        run.counters.count_decoded_again();
        match self.stage.cpu_may_decode {
            true => work.images.get_mut(number).mark_damaged(),
            false => {
                let error = DecodeError::Corrupt(DAMAGED_ROWS.into()).into();
                self.fail_sample(work, self.context.of_image(number, error));
            }
        }
        false
    }

    /// Handles a sample whose images do not fit on the device with all their pixels: the CPU decodes only the parts
    /// that are needed.
    ///
    /// # Errors
    /// [`Error::Sample`] with the `device_memory` that is needed, if even these parts do not fit or the CPU may not
    /// decode. The setting is at fault and not the sample, so the sample is neither replaced nor skipped.
    pub(crate) fn too_large(&self, work: &mut LaneSample, needed: u64) -> Result<()> {
        let is_for_gpu = work.is_for_gpu();
        for image in work.images.iter_mut() {
            if self.stage.cpu_may_decode {
                image.pass_to_cpu();
            }
        }
        if is_for_gpu && self.stage.cpu_may_decode {
            return Ok(());
        }
        Err(self.context.sample_error(work.place.draw.sample, no_room(&self.stage.pools, needed)))
    }

    fn fail_sample(&self, work: &mut LaneSample, error: Error) {
        match note_failure(self.context, work.place.draw.sample, error, &mut work.place.ticket) {
            OnError::Raise => work.images.set_all(|| LaneImage::Done),
            OnError::Zero => {
                work.place.valid = false;
                work.images.set_all(|| LaneImage::Blank);
            }
            OnError::Skip => work.images.set_all(|| LaneImage::Replaced),
        }
    }

    fn substitute(
        &mut self,
        run: &EpochRun,
        position: u64,
        ticket: &mut Ticket,
    ) -> Result<(u64, PerImage<LaneImage>)> {
        let context = self.context;
        let images = context.config.images.list();
        let mut make = |sample, record: &Vec<u8>| {
            let mut geometries = Vec::with_capacity(images.len());
            let made = PerImage::try_new(images.len(), |image| {
                let field = &context.config.fields.list[images[image].field];
                let Some(bytes) = field_bytes(run, field, sample, record)? else {
                    geometries.push(None);
                    return Ok(LaneImage::Blank);
                };
                let boxes = boxes_of_image(context, Some(run), image, sample, record)?;
                let (draw, views) = (Draw::first(sample), ViewsFrom::Boxes(&boxes));
                let drawn =
                    self.decode(run, SampleImage { image, draw, bytes: &bytes, parts: None, views })?;
                let size = drawn.image_size();
                check_size(context, image, size, &geometries)
                    .map_err(|error| context.of_image(image, error))?;
                geometries.push(Some(ImageGeometry { size, drawn: Some(drawn.clone()) }));
                Ok(self.decoded(drawn))
            })?;
            let (draw, record) = (Draw::first(sample), RecordView::Whole(record));
            let Self { originals, arrays, .. } = self;
            fill_fields(run, draw, record, &geometries, originals, arrays, ticket)?;
            Ok(made)
        };
        substitute(run, position, |sample, record| {
            let made = read_consistently(
                &context.index,
                sample,
                record,
                |_, anew| anew,
                |record| make(sample, record),
            );
            made.map(|(images, _)| images)
        })
    }

    fn decode(&mut self, run: &EpochRun, of: SampleImage<'_>) -> Result<DrawnViews> {
        let (image, mut stopwatch) = (of.image, Stopwatch::new(TraceLane::off()));
        let drawn = self.cpu.decode(run, of, &mut stopwatch);
        drawn.map_err(|error| self.context.of_image(image, error))
    }

    fn decoded(&mut self, drawn: DrawnViews) -> LaneImage {
        LaneImage::Decoded { planes: Box::new(std::mem::take(&mut self.cpu.planes)), drawn }
    }
}

const DAMAGED_ROWS: &str = "a row of MCUs is damaged: set cpu_decode=\"fallback\" to see which one";

fn no_room(pools: &DevicePools, needed: u64) -> Error {
    let remedy = match pools.cap_for(needed) {
        Some(cap) => format!("raise it to {cap}, or decode with device=\"cpu\""),
        None => "decode with device=\"cpu\"".to_owned(),
    };
    let room = pools.arena;
    let message = format!(
        "leaves {room} bytes for images that are being decoded, but this one needs {needed}: {remedy}"
    );
    Error::config("device_memory", message)
}
