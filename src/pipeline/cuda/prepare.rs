//! A worker's part on the way to a GPU: all fields but the images; of these headers, views, and what the CPU shall
//! decode.

use super::Stage;
use super::assembly::Pixels;
use super::per_image::PerImage;
use super::refused::ImageId;
use super::shares::KernelCall;
use crate::batch::Ticket;
use crate::config::CpuDecode;
use crate::decode::nvjpeg::{NvJpegBackend, PlanesLayout};
use crate::decode::{ColorModel, Format, JpegHeader, Planes, image_size, parse_header};
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{PinnedBuffer, PinnedSlice};
use crate::io::Filled;
use crate::pipeline::cpu::CpuDecoder;
use crate::pipeline::fields::SeenImage;
use crate::pipeline::one_version::OneVersion;
use crate::pipeline::watch::Watch;
use crate::pipeline::{Run, Shared};
use crate::schedule::Draw;
use crate::trace;
use std::borrow::Cow;
use std::ops::Range;

/// Prepares one sample after another. One per worker.
pub(crate) struct Preparer<'a> {
    shared: &'a Shared,
    stage: &'a Stage,
    cpu: CpuDecoder,
    /// What was drawn of the sample at work.
    seen: Vec<Option<SeenImage>>,
}

/// Where the bytes of an image are.
enum Found {
    /// In what was read of its sample.
    Within(Range<usize>),
    /// Elsewhere in the shard, from where they were read.
    Apart(Vec<u8>),
}

impl<'a> Preparer<'a> {
    pub(crate) fn new(shared: &'a Shared, stage: &'a Stage) -> Self {
        Self { shared, stage, cpu: CpuDecoder::new(shared), seen: Vec::new() }
    }

    /// Fills all fields of a place but its images, of which `record` was read for a batch of `batch` samples. Decides
    /// who decodes each image, and decodes it when that is the CPU.
    ///
    /// # Errors
    /// What is wrong with the sample.
    pub(crate) fn prepare(
        &mut self,
        run: &Run,
        draw: Draw,
        batch: usize,
        mut record: Filled,
        ticket: &mut Ticket,
        watch: &mut Watch,
    ) -> Result<PerImage<Pixels>> {
        let shared = self.shared;
        if shared.config.fields.is_image_alone() {
            let bytes = self.stage.slots.pin(record)?;
            return self.prepare_image(run, 0, draw, batch, bytes, watch).map(PerImage::one);
        }
        let mut version = OneVersion::default();
        let (found, stamp) = loop {
            let stamp = shared.index.shard_stamp(shared.index.extent(draw.sample).file);
            let found = self.part(run, draw, &record, ticket);
            match version.read_anew(&shared.index, draw.sample)? {
                Some(bytes) => record = record.replaced(&bytes),
                None => break (found?, stamp),
            }
        };
        let only = found.len() == 1;
        let record = match found.get(0) {
            // It is no larger than the largest member, which is what was read.
            Some(Found::Apart(bytes)) if only => record.replaced(bytes),
            Some(Found::Within(range)) if only => record.narrowed(range.clone()),
            _ => record,
        };
        let record = self.stage.slots.pin(record)?;
        found.try_map(|image, found| {
            let bytes = match found {
                None => return Ok(Pixels::Absent),
                Some(_) if only => record.clone(),
                Some(Found::Within(range)) => record.part(range)?,
                Some(Found::Apart(bytes)) => match self.pinned(&bytes)? {
                    Some(bytes) => bytes,
                    None => return Ok(Pixels::Unread(stamp)),
                },
            };
            let made =
                self.prepare_image(run, image, draw, batch * shared.config.images.list().len(), bytes, watch);
            made.map_err(|error| shared.of_image(image, error))
        })
    }

    /// Fills all fields of a place but its images, and says where these are in what was read; `None`: the sample is
    /// without. What other fields follow is drawn from an image's header.
    fn part(
        &mut self,
        run: &Run,
        draw: Draw,
        record: &[u8],
        ticket: &mut Ticket,
    ) -> Result<PerImage<Option<Found>>> {
        let (shared, sample) = (self.shared, draw.sample);
        let images = shared.config.images.list();
        self.seen.clear();
        let found = PerImage::try_new(images.len(), |image| {
            let field = &shared.config.fields.list[images[image].field];
            let Some(bytes) = shared.field_bytes(run, field, sample, record)? else {
                self.seen.push(None);
                return Ok(None);
            };
            let seen = self.look(run, image, draw, &bytes).map_err(|error| shared.of_image(image, error))?;
            self.seen.push(Some(seen));
            Ok(Some(match (shared.member_range(field, sample), bytes) {
                (Some(range), _) => Found::Within(range),
                (None, Cow::Owned(bytes)) => Found::Apart(bytes),
                (None, Cow::Borrowed(_)) => {
                    return Err(Error::Internal("a member that is nowhere was read".into()));
                }
            }))
        })?;
        shared.fill_fields(run, sample, record, &self.seen, ticket)?;
        Ok(found)
    }

    /// What fields that follow an image must know of it.
    fn look(&self, run: &Run, image: usize, draw: Draw, bytes: &[u8]) -> Result<SeenImage> {
        let (shared, config) = (self.shared, &self.shared.config);
        let follows = config.fields.follow(image);
        if !follows && config.images.recipes().len() == config.images.list().len() {
            return Ok(SeenImage { size: (0, 0), drawn: None });
        }
        let size = image_size(bytes)?;
        shared.check_size(image, size, &self.seen)?;
        let drawn = follows.then(|| shared.draw_views(&run.keys, image, draw, size)).transpose()?;
        Ok(SeenImage { size, drawn })
    }

    /// Bytes that lie apart, in page-locked memory; `None` where there is no slot and the CPU may decode them: a lane
    /// reads them when it is their turn, so that they wait for no slot and take no memory.
    fn pinned(&self, bytes: &[u8]) -> Result<Option<PinnedSlice>> {
        if let Some(slot) = self.stage.slots.slots().try_take(bytes.len()) {
            return self.stage.slots.pin(Filled::new(slot, 0..0).replaced(bytes)).map(Some);
        } else if self.stage.cpu_may {
            return Ok(None);
        }
        let mut buffer = PinnedBuffer::new(&self.stage.device, bytes.len())?;
        buffer.copy_from_slice(bytes);
        buffer.into_slice().map(Some)
    }

    /// Decides who decodes `bytes`, an image of a batch of `batch` images; decodes it when that is the CPU.
    fn prepare_image(
        &mut self,
        run: &Run,
        image: usize,
        draw: Draw,
        batch: usize,
        bytes: PinnedSlice,
        watch: &mut Watch,
    ) -> Result<Pixels> {
        let config = &self.shared.config;
        let id = ImageId { sample: draw.sample, image: image as u32 };
        let for_gpu = self.for_gpu(&bytes, id, batch);
        if for_gpu.is_none() && config.cpu_decode == CpuDecode::Never {
            return Err(nobody(self.stage, &bytes, id));
        }
        if let Some(header) = for_gpu {
            let (width, height) = (header.width, header.height);
            if u64::from(width) * u64::from(height) > config.max_pixels {
                return Err(DecodeError::TooLarge { width, height, limit: config.max_pixels }.into());
            }
            let drawn = self.shared.draw_views(&run.keys, image, draw, (width, height))?;
            watch.lap_as(&run.clock.decode, trace::Stage::Decode, bytes.len());
            return Ok(Pixels::Encoded { bytes, header, drawn });
        }
        let start = watch.now();
        let drawn = self.cpu.decode(self.shared, run, image, draw, &bytes, watch)?;
        let layout = PlanesLayout::staged(&self.cpu.planes);
        let Some(mut slot) = self.stage.slots.slots().try_take(layout.bytes as usize) else {
            return Ok(Pixels::Waiting(bytes));
        };
        copy(&self.cpu.planes, &layout, slot.bytes_mut());
        watch.lap_as(&run.clock.decode, trace::Stage::Decode, 0);
        self.stage.shares.cpu_took(config.threads, (watch.now() - start).as_secs_f64());
        Ok(Pixels::Decoded { bytes: self.stage.slots.pin(slot)?, layout, drawn })
    }

    /// The header of a file that the GPU shall decode: what it cannot, or not for sure, the CPU decodes or explains.
    fn for_gpu(&self, bytes: &[u8], id: ImageId, batch: usize) -> Option<JpegHeader> {
        let stage = self.stage;
        // A GPU's decoder may fill in what a file that was cut short lacks; the CPU says so.
        let header = parse_header(bytes).ok().filter(|_| is_ended(bytes));
        let first = header.and_then(|header| stage.backends(&header, id).next());
        if !stage.cpu_serves {
            return header.filter(|_| first.is_some());
        }
        let gray = header.is_some_and(|header| header.color() == Some(ColorModel::Gray));
        let call = (first == Some(NvJpegBackend::CudaBatched)).then_some(KernelCall { gray, batch });
        let is_auto = self.shared.config.cpu_decode == CpuDecode::Auto;
        let turn = is_auto && first.is_some() && stage.shares.cpu_turn(call);
        stage.shares.count(call.filter(|_| !turn));
        let header = header.filter(|_| !turn)?;
        match (first, call) {
            // On a lane it would turn out too late, for a lane's thread has better to do than decode.
            (_, Some(call)) => {
                let serves = stage.shares.is_large(call)
                    || stage.backend_after(NvJpegBackend::CudaBatched, &header, id).is_some();
                // Of an epoch's short last batch there is nothing to say.
                if !serves && batch == stage.batch && stage.shares.is_wanted(call) {
                    self.shared.tell_small_batches();
                }
                serves.then_some(header)
            }
            (Some(_), None) => Some(header),
            (None, None) => {
                if stage.has_small_batches(&header) {
                    self.shared.tell_small_batches();
                }
                None
            }
        }
    }
}

fn is_ended(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0xFF, 0xD9])
}

/// What is wrong with an image's file that the GPU does not serve, where the CPU may not help.
pub(crate) fn nobody(stage: &Stage, bytes: &[u8], id: ImageId) -> Error {
    if let Err(error) = Format::of(bytes) {
        return error.into();
    }
    // An image of another format than JPEG has no such header, and nothing is wrong with it.
    if let Err(error) = parse_header(bytes)
        && !matches!(error, DecodeError::NotAnImage(_))
    {
        return error.into();
    }
    let refused = stage.refused.why(id).filter(|_| is_ended(bytes));
    let unknown = || {
        DecodeError::Unsupported(
            "the GPU's decoders do not know its kind, or it does not end with an end marker; \
             cpu_decode=\"fallback\" lets the CPU look at it"
                .into(),
        )
    };
    refused.unwrap_or_else(unknown).into()
}

/// Copies the planes to where `layout` says, which is [`PlanesLayout::staged`].
pub(crate) fn copy(planes: &Planes, layout: &PlanesLayout, to: &mut [u8]) {
    for (place, plane) in layout.used().iter().zip(&planes.planes) {
        let bytes = &plane.data[..plane.stride * plane.height as usize];
        to[place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
