//! The way to a GPU: workers prepare samples ([`prepare`]), which gather to batches ([`assembly`]); lanes ([`lane`])
//! queue what makes them images there.

pub(super) mod assembly;
mod check;
mod kept;
pub(super) mod lane;
mod pause;
pub(super) mod prepare;
mod refused;
mod shares;
mod split;
mod timing;
mod work;

use crate::batch::CudaStorage;
use crate::config::{self, CpuDecode, DevicePools, LANES, LoaderConfig, Rungs};
use crate::decode::JpegHeader;
use crate::decode::nvjpeg::{Rung, by_host};
use crate::error::{Error, Result};
use crate::gpu::{GpuDevice, MemoryPool, Registration, Stream};
use crate::slot::{PAGE, SlotPool};
use kept::Kept;
pub use kept::release_gpus;
pub(crate) use pause::LONGEST_PAUSE;
use pause::Pauses;
use refused::Refused;
use shares::Shares;
use std::sync::{Arc, Mutex, PoisonError};
use timing::Origin;

/// What all workers and lanes share.
pub(crate) struct Stage {
    device: GpuDevice,
    kept: Arc<Kept>,
    /// The GPU's decoders have been made.
    prepared: Mutex<bool>,
    rungs: Rungs,
    /// The CPU may decode, and decodes what decoders of the GPU would have it half decode.
    cpu_may: bool,
    cpu_serves: bool,
    /// Images of a batch.
    batch: usize,
    refused: Refused,
    pauses: Pauses,
    /// The readers' arena, page-locked.
    slots: Registration,
    memory: MemoryPool,
    /// Page-locked memory for columns.
    desk: Registration,
    shares: Shares,
    pools: DevicePools,
    /// From here the GPU's time is measured.
    origin: Arc<Origin>,
}

impl Stage {
    /// Takes GPU `ordinal` into use and page-locks the arena of `slots`.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Gpu`] when the GPU cannot serve; [`Error::Config`] for memory it has not.
    pub(crate) fn open(
        ordinal: u32,
        config: &LoaderConfig,
        pools: &DevicePools,
        slots: &SlotPool,
    ) -> Result<Self> {
        let kept = Kept::open(ordinal).map_err(|error| match error {
            Error::Unavailable(why) => config::unavailable_device(&format!("cuda:{ordinal}"), &why),
            other => other,
        })?;
        let device = kept.device.clone();
        let columns = config.layout.column_bytes(config.batch_size as usize);
        let room = (columns + 2 * PAGE).next_multiple_of(PAGE);
        let desk = SlotPool::new((pools.prefetch + LANES + 1) * room)?;
        let origin = Origin::new(&device, &Stream::new(&device)?, None)?;
        let cores = kept.abilities.engines().map_or(1, |(engines, cores)| (engines * cores) as usize);
        Ok(Self {
            rungs: config.rungs,
            cpu_may: config.cpu_decode != CpuDecode::Never,
            cpu_serves: config.cpu_decode != CpuDecode::Never && config.rungs == Rungs::All,
            batch: config.batch_size as usize,
            refused: Refused::default(),
            pauses: Pauses::default(),
            prepared: Mutex::default(),
            slots: Registration::new(&device, slots)?,
            memory: MemoryPool::new(&device, pools.cap)?,
            desk: Registration::new(&device, &desk)?,
            shares: Shares::new(cores),
            pools: *pools,
            origin: Arc::new(origin),
            kept,
            device,
        })
    }

    /// What the GPU's decoders can do, and why not more, each by its name.
    pub(crate) fn decoders(&self) -> Vec<(&'static str, String)> {
        Rung::ALL.map(|rung| (rung.name(), self.kept.abilities.describe(rung))).into()
    }

    /// A decoder that failed when it was tried, and why.
    pub(crate) fn failed(&self) -> Option<&(Rung, String)> {
        self.kept.abilities.failed()
    }

    /// Makes the calling thread one that works for the GPU. Should that fail, so will its first call, and say so.
    pub(crate) fn settle(&self) {
        let _ = self.device.settle();
    }

    /// Makes all that nvJPEG needs for whatever images may come, the first time.
    ///
    /// # Errors
    /// As [`Kept::prepare`].
    fn prepare(&self) -> Result<()> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *prepared, true) {
            return Ok(());
        }
        let is_needed = |rung: &Rung| self.allows(*rung) && self.kept.abilities.serves(*rung);
        let rungs: Vec<Rung> = Rung::ALL.into_iter().filter(is_needed).collect();
        self.kept.prepare(&rungs, self.batch)
    }

    /// Where batches are made.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn storage(&self) -> Result<CudaStorage> {
        let stream = Stream::new(&self.device)?;
        Ok(CudaStorage { pool: self.memory.clone(), stream, desk: self.desk.clone() })
    }

    /// The rungs that serve a sample's image, in the order of the ladder; none: it is the CPU's.
    ///
    /// nvJPEG's way of decoding Huffman codes on the host takes a core some 2.5 ms an image, on a lane's thread, while
    /// the batch waits; the CPU's decoder, on the workers' threads, needs a fifth of that for all that is wanted of the
    /// image. So progressive images and such, and those that are too few for a large call of the kernels, are the
    /// CPU's, unless that may not decode.
    fn rungs(&self, header: &JpegHeader, sample: u64) -> impl Iterator<Item = Rung> + use<> {
        let allowed = Rung::ALL.map(|rung| self.allows(rung));
        let refuses = self.refused.of(sample);
        let left_to_cpu = self.cpu_serves && by_host(header);
        let mut serving = [false; Rung::ALL.len()];
        for rung in self.kept.abilities.rungs(header) {
            serving[rung as usize] =
                allowed[rung as usize] && !(rung == Rung::Cuda && left_to_cpu) && !refuses(rung);
        }
        // From the last one up: a rung that fails is left alone where another one comes after it.
        let mut others = self.cpu_may;
        for (serves, rests) in serving.iter_mut().zip(self.pauses.resting()).rev() {
            *serves &= !(rests && others);
            others |= *serves;
        }
        Rung::ALL.into_iter().filter(move |&rung| serving[rung as usize])
    }

    /// Whether some image may be a rung's.
    fn allows(&self, rung: Rung) -> bool {
        let asked = match self.rungs {
            Rungs::All => true,
            Rungs::Hardware => rung == Rung::Hardware,
            Rungs::CudaBatched => rung == Rung::CudaBatched,
            Rungs::Cuda => rung == Rung::Cuda,
            Rungs::Cpu => false,
        };
        asked && rung.takes_call_of(self.batch)
    }

    /// Whether only the size of the batches keeps the GPU from decoding an image.
    fn has_small_batches(&self, header: &JpegHeader) -> bool {
        let first = self.kept.abilities.rungs(header).next();
        let small = first == Some(Rung::CudaBatched) && !Rung::CudaBatched.takes_call_of(self.batch);
        self.cpu_serves && small && self.failed().is_none()
    }

    /// The rung after one that does not take a sample's image. One image is no call for the batched kernels.
    fn rung_after(&self, rung: Rung, header: &JpegHeader, sample: u64) -> Option<Rung> {
        self.rungs(header, sample).find(|&next| next > rung && next.takes_call_of(1))
    }
}
