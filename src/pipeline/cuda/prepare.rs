//! A worker's part on the way to a GPU: headers, views, and what the CPU shall decode.

use super::Stage;
use super::assembly::Pixels;
use crate::config::CpuDecode;
use crate::decode::nvjpeg::{PlanesLayout, Rung};
use crate::decode::{ColorModel, Header, Planes, parse_header};
use crate::error::{DecodeError, Error, Result};
use crate::io::Filled;
use crate::pipeline::cpu::CpuDecoder;
use crate::pipeline::watch::Watch;
use crate::pipeline::{Run, Shared};
use crate::schedule::Draw;
use crate::trace;

/// Prepares one sample after another. One per worker.
pub struct Preparer<'a> {
    shared: &'a Shared,
    stage: &'a Stage,
    cpu: CpuDecoder,
}

impl<'a> Preparer<'a> {
    pub fn new(shared: &'a Shared, stage: &'a Stage) -> Self {
        Self { shared, stage, cpu: CpuDecoder::new(shared) }
    }

    /// Decides who decodes `bytes`, the file of a draw's sample; decodes it when that is the CPU.
    pub fn prepare(&mut self, run: &Run, draw: Draw, bytes: Filled, watch: &mut Watch) -> Result<Pixels> {
        let config = &self.shared.config;
        // What the GPU cannot decode, or not for sure, the CPU decodes or explains.
        let header = parse_header(&bytes).ok().filter(|header| self.gpu_serves(header, &bytes, draw.sample));
        let for_gpu = match config.cpu_decode {
            CpuDecode::Never if header.is_none() => return Err(nobody(&bytes)),
            CpuDecode::Auto if self.stage.shares.cpu_turn() => None,
            _ => header,
        };
        let bytes = self.stage.slots.pin(bytes)?;
        if let Some(header) = for_gpu {
            let (width, height) = (header.width, header.height);
            if u64::from(width) * u64::from(height) > config.max_pixels {
                return Err(DecodeError::TooLarge { width, height, limit: config.max_pixels }.into());
            }
            let mut stream = run.augment.stream_of(draw.sample, draw.occurrence);
            let view = config.policy.draw(&mut stream, width, height, &config.output);
            watch.lap_as(&run.clock.decode, trace::Stage::Decode, bytes.len());
            return Ok(Pixels::Encoded { bytes, header, view });
        }
        let start = watch.now();
        let view = self.cpu.decode(self.shared, run, draw, &bytes, watch)?;
        let layout = PlanesLayout::staged(&self.cpu.planes);
        let Some(mut slot) = self.stage.slots.slots().try_take(layout.bytes as usize) else {
            return Ok(Pixels::Waiting(bytes));
        };
        copy(&self.cpu.planes, &layout, slot.bytes_mut());
        watch.lap_as(&run.clock.decode, trace::Stage::Decode, 0);
        self.stage.shares.cpu_took(config.threads, (watch.now() - start).as_secs_f64());
        Ok(Pixels::Decoded { bytes: self.stage.slots.pin(slot)?, layout, view })
    }

    fn gpu_serves(&self, header: &Header, bytes: &[u8], sample: u64) -> bool {
        let stage = self.stage;
        // A GPU's decoder may fill in what a file that was cut short lacks; the CPU says so.
        if !bytes.ends_with(&[0xFF, 0xD9]) {
            return false;
        }
        match stage.rungs(header, sample).next() {
            // On a lane it would turn out too late, for a lane's thread has better to do than decode.
            Some(Rung::CudaBatched) if stage.cpu_serves => {
                let gray = header.color() == Some(ColorModel::Gray);
                stage.shares.makes_large_calls(gray, stage.batch)
                    || stage.rung_after(Rung::CudaBatched, header, sample).is_some()
            }
            Some(_) => true,
            None => {
                if stage.has_small_batches(header) {
                    self.shared.tell_small_batches();
                }
                false
            }
        }
    }
}

/// What is wrong with a file that the GPU does not serve, where the CPU may not help.
fn nobody(bytes: &[u8]) -> Error {
    let unknown = || {
        DecodeError::Unsupported(
            "the GPU's decoders do not know its kind, or it does not end with an end marker; cpu_decode=\"fallback\" lets \
             the CPU look at it"
                .into(),
        )
    };
    parse_header(bytes).err().filter(|_| !bytes.starts_with(b"\x89PNG")).unwrap_or_else(unknown).into()
}

/// Copies the planes to where `layout` says, which is [`PlanesLayout::staged`].
pub fn copy(planes: &Planes, layout: &PlanesLayout, to: &mut [u8]) {
    for (place, plane) in layout.used().iter().zip(&planes.planes) {
        let bytes = &plane.data[..plane.stride * plane.height as usize];
        to[place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
