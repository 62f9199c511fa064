//! A worker's part on the way to a GPU: headers, views, and what the CPU shall decode.

use super::Stage;
use super::assembly::Pixels;
use super::shares::KernelCall;
use crate::config::CpuDecode;
use crate::decode::nvjpeg::{NvJpegBackend, PlanesLayout};
use crate::decode::{ColorModel, Format, JpegHeader, Planes, parse_header};
use crate::error::{DecodeError, Error, Result};
use crate::io::Filled;
use crate::pipeline::cpu::CpuDecoder;
use crate::pipeline::watch::Watch;
use crate::pipeline::{Run, Shared};
use crate::schedule::Draw;
use crate::trace;

/// Prepares one sample after another. One per worker.
pub(crate) struct Preparer<'a> {
    pub shared: &'a Shared,
    stage: &'a Stage,
    cpu: CpuDecoder,
}

impl<'a> Preparer<'a> {
    pub(crate) fn new(shared: &'a Shared, stage: &'a Stage) -> Self {
        Self { shared, stage, cpu: CpuDecoder::new(shared) }
    }

    /// Decides who decodes `bytes`, the file of a draw's sample for a batch of `batch` images; decodes it when that is
    /// the CPU.
    pub(crate) fn prepare(
        &mut self,
        run: &Run,
        draw: Draw,
        batch: usize,
        bytes: Filled,
        watch: &mut Watch,
    ) -> Result<Pixels> {
        let config = &self.shared.config;
        let for_gpu = self.for_gpu(&bytes, draw.sample, batch);
        if for_gpu.is_none() && config.cpu_decode == CpuDecode::Never {
            return Err(nobody(self.stage, &bytes, draw.sample));
        }
        let bytes = self.stage.slots.pin(bytes)?;
        if let Some(header) = for_gpu {
            let (width, height) = (header.width, header.height);
            if u64::from(width) * u64::from(height) > config.max_pixels {
                return Err(DecodeError::TooLarge { width, height, limit: config.max_pixels }.into());
            }
            let drawn = self.shared.draw_views(run, draw, (width, height))?;
            watch.lap_as(&run.clock.decode, trace::Stage::Decode, bytes.len());
            return Ok(Pixels::Encoded { bytes, header, drawn });
        }
        let start = watch.now();
        let drawn = self.cpu.decode(self.shared, run, draw, &bytes, watch)?;
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
    fn for_gpu(&self, bytes: &[u8], sample: u64, batch: usize) -> Option<JpegHeader> {
        let stage = self.stage;
        // A GPU's decoder may fill in what a file that was cut short lacks; the CPU says so.
        let header = parse_header(bytes).ok().filter(|_| is_ended(bytes));
        let first = header.and_then(|header| stage.backends(&header, sample).next());
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
                    || stage.backend_after(NvJpegBackend::CudaBatched, &header, sample).is_some();
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

/// What is wrong with a sample's file that the GPU does not serve, where the CPU may not help.
pub(crate) fn nobody(stage: &Stage, bytes: &[u8], sample: u64) -> Error {
    if let Err(error) = Format::of(bytes) {
        return error.into();
    }
    // An image of another format than JPEG has no such header, and nothing is wrong with it.
    if let Err(error) = parse_header(bytes)
        && !matches!(error, DecodeError::NotAnImage(_))
    {
        return error.into();
    }
    let refused = stage.refused.why(sample).filter(|_| is_ended(bytes));
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
