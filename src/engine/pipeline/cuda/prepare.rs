//! The workers' part in making batches on a GPU. A worker fills all fields of a sample except images. It parses the
//! headers of images, draws their views, and decodes the images that the CPU must decode. For a packed or indexed
//! image, it reads only the header, and makes a plan for the kernels from it: which rows of MCUs the views touch, and
//! the layout of their planes.

use super::GpuStage;
use super::assembly::{GpuPlace, PreparedImage, PreparedSample};
use super::balance::KernelCall;
use super::image::LaneImage;
use super::per_image::PerImage;
use super::refused::ImageId;
use crate::batch::Ticket;
use crate::config::CpuDecode;
use crate::pipeline::{
    arrays::ArrayScratch, boxes::boxes_of_image, consistent_read::read_consistently, context::SampleContext,
    cpu::CpuDecoder, cpu::SampleImage, cpu::ViewsFrom, fields::check_size, fields::fill_fields,
    make::OpenPlace, make::PlaceFiller, make::PlaceJob, members::ImageGeometry, members::RecordView,
    members::field_bytes, members::member_range, notify, originals::OriginalFiles, run::EpochRun,
    stopwatch::Stopwatch,
};
use base::error::{DecodeError, Error, Result};
use base::parts::WantedBytes;
use base::trace;
use data::schedule::Draw;
use pixels::augment::{DrawnViews, ImageToDraw};
use pixels::decode::cuda::CudaImage;
use pixels::decode::nvjpeg::NvJpegBackend;
use pixels::decode::{
    ColorModel, Format, JpegHeader, Planes, PlanesLayout, StorageFormat, Turn, image_size, original_range,
    parse_header, storage_format_of,
};
use pixels::gpu::{PinnedBuffer, PinnedSlice};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use store::io::Filled;

pub(crate) struct Preparer {
    context: Arc<SampleContext>,
    stage: Arc<GpuStage>,
    cpu: CpuDecoder,
    originals: OriginalFiles,
    arrays: ArrayScratch,
    /// The sizes of the current sample's images, and their views if these are drawn from the header.
    geometries: Vec<Option<ImageGeometry>>,
}

struct ReadImage {
    bytes: PinnedSlice,
    /// The byte ranges of the file that were read; `None` if the whole file was read. All other bytes are undefined.
    parts: Option<WantedBytes>,
}

/// All bytes of a record. If only parts were read, the bytes outside of these parts are undefined.
struct AllBytes(Filled);

impl AsRef<[u8]> for AllBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.in_parts().0
    }
}

struct Drawn<'a> {
    run: &'a EpochRun,
    draw: Draw,
    batch: usize,
    stopwatch: &'a mut Stopwatch,
}

enum ImageBytes {
    /// In this range of the record that was read for the sample.
    InRecord(Range<usize>),
    /// The bytes of an image that is stored apart from the record, after a separate read.
    ReadSeparately(Vec<u8>),
}

impl PlaceFiller<GpuPlace> for Preparer {
    fn fill(&mut self, job: PlaceJob<GpuPlace>, stopwatch: &mut Stopwatch) {
        let PlaceJob { run, open: OpenPlace { entry, step, place }, bytes } = job;
        let GpuPlace { mut ticket, assembly } = place;
        let batch = run.run_plan.batch_len(step) as usize * run.context.config.images.list().len();
        let mut of = Drawn { run: &run, draw: entry.draw, batch, stopwatch };
        let pixels = bytes.and_then(|bytes| self.prepare(bytes, &mut ticket, &mut of));
        assembly.add(PreparedSample { place: entry, ticket, pixels });
    }
}

impl Preparer {
    pub(crate) fn new(context: &Arc<SampleContext>, stage: &Arc<GpuStage>) -> Self {
        stage.attach_thread();
        Self {
            context: context.clone(),
            stage: stage.clone(),
            cpu: CpuDecoder::new(context).for_kernels(),
            originals: OriginalFiles::default(),
            arrays: ArrayScratch::default(),
            geometries: Vec::new(),
        }
    }

    /// Fills all fields of a sample except images, from the sample's `record`. Chooses the decoder of each image, and
    /// decodes the images for the CPU's decoder.
    ///
    /// # Errors
    /// Any error of the sample.
    fn prepare(
        &mut self,
        record: Filled,
        ticket: &mut Ticket,
        of: &mut Drawn<'_>,
    ) -> Result<PerImage<PreparedImage>> {
        let (context, draw) = (&*of.run.context, of.draw);
        if context.config.fields.is_image_alone() && !context.index.is_stream() {
            let parts = record.in_parts().1;
            let read = ReadImage { bytes: self.stage.slots.pin(AllBytes(record))?, parts };
            self.geometries.clear();
            return self.prepare_image(0, read, of).map(PerImage::one);
        }
        let replace = |record: Filled, bytes: Vec<u8>| record.replaced(&bytes);
        let locate = |record: &Filled| {
            let stamp = context.index.shard_stamp(context.index.extent(draw.sample).file);
            Ok((self.locate_images(of, record, ticket)?, stamp))
        };
        let ((found, stamp), record) =
            read_consistently(&context.index, draw.sample, record, replace, locate)?;
        // An image that was read separately may be larger than the record.
        let has_room = |bytes: &Vec<u8>| bytes.len() <= record.room();
        let only = found.len() == 1
            && !matches!(found.get(0), Some(ImageBytes::ReadSeparately(bytes)) if !has_room(bytes));
        let record = match found.get(0) {
            Some(ImageBytes::ReadSeparately(bytes)) if only => record.replaced(bytes),
            Some(ImageBytes::InRecord(range)) if only => record.narrowed(range.clone()),
            _ => record,
        };
        let record = self.stage.slots.pin(record)?;
        found.try_map(|image, found| {
            let bytes = match found {
                None => return Ok(PreparedImage::Ready(LaneImage::Blank)),
                Some(_) if only => record.clone(),
                Some(ImageBytes::InRecord(range)) => record.part(range)?,
                Some(ImageBytes::ReadSeparately(bytes)) => match pinned(&self.stage, &bytes)? {
                    Some(bytes) => bytes,
                    None => {
                        let drawn = self.drawn_of(image);
                        return Ok(PreparedImage::Ready(LaneImage::Unread { stamp, drawn }));
                    }
                },
            };
            let made = self.prepare_image(image, ReadImage { bytes, parts: None }, of);
            made.map_err(|error| context.of_image(image, error))
        })
    }

    /// Fills all fields of a sample except images, and returns where the bytes of each image are; `None` for an image
    /// that the sample does not have. If other fields follow an image, its views are drawn from its header.
    fn locate_images(
        &mut self,
        of: &Drawn<'_>,
        record: &[u8],
        ticket: &mut Ticket,
    ) -> Result<PerImage<Option<ImageBytes>>> {
        let (run, context, sample) = (of.run, &*of.run.context, of.draw.sample);
        let images = context.config.images.list();
        self.geometries.clear();
        let found = PerImage::try_new(images.len(), |image| {
            let field = &context.config.fields.list[images[image].field];
            let Some(bytes) = field_bytes(run, field, sample, record)? else {
                self.geometries.push(None);
                return Ok(None);
            };
            let geometry = boxes_of_image(context, Some(run), image, sample, record)
                .and_then(|boxes| self.measure_image(image, &bytes, &boxes, of));
            self.geometries.push(Some(geometry.map_err(|error| context.of_image(image, error))?));
            Ok(Some(match (member_range(context, field, sample, record), bytes) {
                (Some(range), _) => ImageBytes::InRecord(range),
                (None, Cow::Owned(bytes)) => ImageBytes::ReadSeparately(bytes),
                (None, Cow::Borrowed(_)) => {
                    return Err(Error::Internal(
                        "a member was read, but its place in the record is unknown".into(),
                    ));
                }
            }))
        })?;
        let Self { geometries, originals, arrays, .. } = self;
        fill_fields(run, of.draw, RecordView::Whole(record), geometries, originals, arrays, ticket)?;
        Ok(found)
    }

    /// Checks the size of an image. Draws its views if fields (masks, boxes) are transformed like the image, or if the
    /// views depend on the `boxes` of the sample.
    fn measure_image(
        &self,
        image: usize,
        bytes: &[u8],
        boxes: &[[f32; 4]],
        &Drawn { run, draw, .. }: &Drawn<'_>,
    ) -> Result<ImageGeometry> {
        let config = &run.context.config;
        let follows = config.fields.follow(image) || config.images.boxes(image).is_some();
        if !follows && config.images.recipes().len() == config.images.list().len() {
            return Ok(ImageGeometry { size: (0, 0), drawn: None });
        }
        let (stored, turn) = (image_size(bytes)?, run.context.turn_of(bytes));
        let size = turn.shown(stored);
        check_size(&run.context, image, size, &self.geometries)?;
        let of = ImageToDraw { stored, turn, boxes };
        let drawn = follows.then(|| run.context.draw_views(&run.keys, image, draw, &of)).transpose()?;
        Ok(ImageGeometry { size, drawn })
    }

    fn drawn_of(&mut self, image: usize) -> Option<DrawnViews> {
        self.geometries.get_mut(image)?.as_mut()?.drawn.take()
    }

    /// Chooses the decoder of an image, and decodes the image if this is the CPU's decoder.
    fn prepare_image(&mut self, image: usize, read: ReadImage, of: &mut Drawn<'_>) -> Result<PreparedImage> {
        let (run, draw) = (of.run, of.draw);
        let (context, config) = (&run.context, &run.context.config);
        let ReadImage { bytes, parts } = read;
        let arrived = parts.map_or(bytes.len(), |parts| parts.bytes() as usize);
        let id = ImageId { sample: draw.sample, image: image as u32 };
        if parts.is_none() {
            notify::rotated_image(context, image, draw.sample, &bytes);
        }
        let turn = if parts.is_none() { context.turn_of(&bytes) } else { Turn::UPRIGHT };
        let draw_views =
            |stored| context.draw_views(&run.keys, image, draw, &ImageToDraw { stored, turn, boxes: &[] });
        let mut drawn = match self.drawn_of(image) {
            None if turn != Turn::UPRIGHT || config.images.recipe(image).may_pad_before_resize() => {
                Some(draw_views(image_size(&bytes)?)?)
            }
            drawn => drawn,
        };
        // Only the CPU makes images on a canvas (an image with padding), and images whose planes are turned: kernels
        // resize the contents of planes, and no backend writes padding into planes or turns them.
        let on_canvas = drawn.as_ref().is_some_and(DrawnViews::is_painted);
        if !on_canvas
            && self.stage.decodes_form(storage_format_of(&bytes))
            && let Some(own) = CudaImage::read(&bytes)?
        {
            let size = self.checked_size(own.size())?;
            let views = drawn.take().map_or_else(|| draw_views(size), Ok)?;
            if let Some(plan) = own.plan(views.region())? {
                self.stage.balancer.count(None);
                of.stopwatch.lap_as(&run.counters.decode, trace::Stage::Decode, arrived);
                let own = LaneImage::Own { bytes, plan: Box::new(plan), drawn: views };
                return Ok(PreparedImage::Ready(own));
            }
            drawn = Some(views);
        }
        if parts.is_some() {
            // Only packed images are read in parts, so the image is packed.
            return self.decode_here(image, drawn, ReadImage { bytes, parts }, of).map(PreparedImage::Ready);
        }
        let bytes = match storage_format_of(&bytes) {
            StorageFormat::Packed if !self.stage.cpu_may_decode && !on_canvas => self.rebuilt(run, &bytes)?,
            _ => bytes,
        };
        // nvJPEG decodes only original files. The CPU's decoders read all storage formats.
        let file = original_range(&bytes)?.unwrap_or(0..bytes.len());
        let for_gpu = if on_canvas { None } else { self.for_gpu(&bytes[file.clone()], id, of.batch) };
        if for_gpu.is_none() && config.cpu_decode == CpuDecode::Never {
            return Err(match on_canvas {
                true if turn != Turn::UPRIGHT => DecodeError::Unsupported(TURNED.into()).into(),
                true => DecodeError::Unsupported(RESIZED_PADDING.into()).into(),
                false => undecodable(&self.stage, &bytes[file], id),
            });
        }
        if let Some(header) = for_gpu {
            let size = self.checked_size((header.width, header.height))?;
            let drawn = drawn.map_or_else(|| draw_views(size), Ok)?;
            of.stopwatch.lap_as(&run.counters.decode, trace::Stage::Decode, bytes.len());
            return Ok(PreparedImage::Encoded { bytes: bytes.part(file)?, header, drawn });
        }
        self.decode_here(image, drawn, ReadImage { bytes, parts: None }, of).map(PreparedImage::Ready)
    }

    fn decode_here(
        &mut self,
        image: usize,
        drawn: Option<DrawnViews>,
        ReadImage { bytes, parts }: ReadImage,
        Drawn { run, draw, stopwatch, .. }: &mut Drawn<'_>,
    ) -> Result<LaneImage> {
        let start = stopwatch.now();
        let views = drawn.map_or(ViewsFrom::Boxes(&[]), ViewsFrom::Header);
        let of = SampleImage { image, draw: *draw, bytes: &bytes, parts, views };
        let drawn = self.cpu.decode(run, of, stopwatch)?;
        let layout = PlanesLayout::staged(&self.cpu.planes);
        let Some(mut slot) = self.stage.slots.slots().try_take(layout.bytes as usize) else {
            // The lane decodes the image later. It needs no bytes that were not read, because the same views need the
            // same rows.
            // There is no page-locked memory to decode into.
            return Ok(LaneImage::ForCpu { bytes, drawn, is_reported_damaged: false });
        };
        copy(&self.cpu.planes, &layout, slot.bytes_mut());
        stopwatch.lap_as(&run.counters.decode, trace::Stage::Decode, 0);
        self.stage
            .balancer
            .record_cpu_image(run.context.config.threads, (stopwatch.now() - start).as_secs_f64());
        Ok(LaneImage::Planes { bytes: self.stage.slots.pin(slot)?, layout, drawn })
    }

    /// Rebuilds the original file of a packed image, for nvJPEG. This happens if another job has filled the cache with
    /// packed images: a job in which the CPU decodes nothing does not pack images, and fails at its start if the
    /// dataset is packed.
    fn rebuilt(&mut self, run: &EpochRun, bytes: &[u8]) -> Result<PinnedSlice> {
        let file = self.originals.restore(run, StorageFormat::Packed, bytes)?;
        pinned(&self.stage, file)?
            .ok_or_else(|| Error::Internal("no page-locked memory for a rebuilt file".into()))
    }

    fn checked_size(&self, (width, height): (u32, u32)) -> Result<(u32, u32), DecodeError> {
        let limit = self.context.config.max_pixels;
        match u64::from(width) * u64::from(height) > limit {
            true => Err(DecodeError::TooLarge { width, height, limit }),
            false => Ok((width, height)),
        }
    }

    /// Returns the header of a file that nvJPEG must decode. Returns `None` if the CPU takes the file over, or if
    /// nvJPEG may be unable to decode it. The CPU then decodes the file, or reports what is wrong with it.
    fn for_gpu(&self, bytes: &[u8], id: ImageId, batch: usize) -> Option<JpegHeader> {
        let stage = &self.stage;
        // A GPU's decoder may invent the missing end of a truncated file; the CPU reports the damage.
        let header = parse_header(bytes).ok().filter(|_| is_ended(bytes));
        let first = header.and_then(|header| stage.backends(&header, id).next());
        if !stage.cpu_replaces_host_decoding {
            return header.filter(|_| first.is_some());
        }
        let gray = header.is_some_and(|header| header.color() == Some(ColorModel::Gray));
        let call = (first == Some(NvJpegBackend::CudaBatched)).then_some(KernelCall { gray, batch });
        let is_auto = self.context.config.cpu_decode == CpuDecode::Auto;
        let turn = is_auto && first.is_some() && stage.balancer.take_for_cpu(call);
        stage.balancer.count(call.filter(|_| !turn));
        let header = header.filter(|_| !turn)?;
        match (first, call) {
            // Decide now whether the kernels' call gets enough images. A lane would find out too late: its thread must
            // not spend time on decoding.
            (_, Some(call)) => {
                let serves = stage.balancer.is_large(call)
                    || stage.backend_after(NvJpegBackend::CudaBatched, &header, id).is_some();
                // Do not warn about the last batch of an epoch, which may be short.
                if !serves && batch == stage.batch && stage.balancer.is_wanted(call) {
                    notify::small_batches(&self.context);
                }
                serves.then_some(header)
            }
            (Some(_), None) => Some(header),
            (None, None) => {
                if stage.has_small_batches(&header) {
                    notify::small_batches(&self.context);
                }
                None
            }
        }
    }
}

const RESIZED_PADDING: &str = "the transforms pad this image before they resize it, and only the CPU can do that: set \
                               cpu_decode=\"fallback\"";

const TURNED: &str = "orientation=\"apply\" must turn this image upright, and only the CPU can do that: set \
                      cpu_decode=\"fallback\"";

const NOT_PACKED: &str = "the image is neither packed nor indexed, and decoder=\"own\" decodes no others on the GPU: \
                          set cpu_decode=\"fallback\" to decode it on the CPU";

/// Copies bytes that are stored apart from their sample to page-locked memory. Returns `None` if no slot is free and
/// the CPU may decode. A lane then reads the bytes again when it decodes the sample, so they take no memory until then.
fn pinned(stage: &GpuStage, bytes: &[u8]) -> Result<Option<PinnedSlice>> {
    if let Some(slot) = stage.slots.slots().try_take(bytes.len()) {
        return stage.slots.pin(Filled::new(slot, 0..0).replaced(bytes)).map(Some);
    } else if stage.cpu_may_decode {
        return Ok(None);
    }
    let mut buffer = PinnedBuffer::new(&stage.device, bytes.len())?;
    buffer.copy_from_slice(bytes);
    buffer.into_slice().map(Some)
}

fn is_ended(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0xFF, 0xD9])
}

/// Returns the error for an image that the GPU's decoders refuse, if the CPU may not decode it either.
pub(crate) fn undecodable(stage: &GpuStage, bytes: &[u8], id: ImageId) -> Error {
    if let Err(error) = Format::of(bytes) {
        return error.into();
    }
    if !stage.may_use_nvjpeg() {
        return DecodeError::Unsupported(NOT_PACKED.into()).into();
    }
    // A file of another format than JPEG has no JPEG header, but need not be damaged.
    if let Err(error) = parse_header(bytes)
        && !matches!(error, DecodeError::NotAnImage(_))
    {
        return error.into();
    }
    let refused = stage.refused.why(id).filter(|_| is_ended(bytes));
    let unknown = || {
        DecodeError::Unsupported(
            "the GPU's decoders do not support this kind of image, or the file has no end marker: set \
             cpu_decode=\"fallback\" to decode it on the CPU"
                .into(),
        )
    };
    refused.unwrap_or_else(unknown).into()
}

/// Copies the planes into the staging buffer `to`, at the offsets of `layout`, which is [`PlanesLayout::staged`].
pub(crate) fn copy(planes: &Planes, layout: &PlanesLayout, to: &mut [u8]) {
    for (place, plane) in layout.used().iter().zip(&planes.planes) {
        let bytes = &plane.data[..plane.stride * plane.height as usize];
        to[place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
