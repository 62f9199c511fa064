//! The way to a GPU: workers prepare samples ([`prepare`]), which gather to batches ([`assembly`]); lanes ([`lane`])
//! queue what makes them images there.

pub(super) mod assembly;
mod check;
mod kept;
pub(super) mod lane;
mod pause;
pub(super) mod per_image;
pub(super) mod prepare;
mod refused;
mod shares;
mod split;
mod timing;
mod work;

use crate::batch::CudaStorage;
use crate::config::{self, AllowedBackends, CpuDecode, DevicePools, LANES, LoaderConfig};
use crate::decode::JpegHeader;
use crate::decode::nvjpeg::{NvJpegBackend, by_host};
use crate::error::{Error, Result};
use crate::gpu::{GpuDevice, MemoryPool, Registration, Stream};
use crate::slot::{PAGE, SlotPool};
use kept::Kept;
pub use kept::release_gpus;
pub(crate) use pause::LONGEST_PAUSE;
use pause::Pauses;
use refused::{ImageId, Refused};
use shares::Shares;
use std::sync::{Arc, Mutex, PoisonError};
use timing::Origin;

/// What all workers and lanes share.
pub(crate) struct Stage {
    device: GpuDevice,
    kept: Arc<Kept>,
    /// The GPU's decoders have been made.
    prepared: Mutex<bool>,
    backends: AllowedBackends,
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
            backends: config.backends,
            cpu_may: config.cpu_decode != CpuDecode::Never,
            cpu_serves: config.cpu_decode != CpuDecode::Never && config.backends == AllowedBackends::All,
            batch: config.batch_size as usize * config.images.list().len(),
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
        NvJpegBackend::ALL.map(|backend| (backend.name(), self.kept.abilities.describe(backend))).into()
    }

    /// A decoder that failed when it was tried, and why.
    pub(crate) fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.kept.abilities.failed()
    }

    /// Makes the calling thread one that works for the GPU. Should that fail, so will its first call, and say so.
    pub(crate) fn attach_thread(&self) {
        let _ = self.device.attach_thread();
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
        let is_needed =
            |backend: &NvJpegBackend| self.allows(*backend) && self.kept.abilities.serves(*backend);
        let backends: Vec<NvJpegBackend> = NvJpegBackend::ALL.into_iter().filter(is_needed).collect();
        self.kept.prepare(&backends, self.batch)
    }

    /// Where batches are made.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn storage(&self) -> Result<CudaStorage> {
        let stream = Stream::new(&self.device)?;
        Ok(CudaStorage { pool: self.memory.clone(), stream, desk: self.desk.clone() })
    }

    /// The backends that serve an image, in the order in which they are tried; none: the CPU decodes it.
    ///
    /// nvJPEG's way of decoding Huffman codes on the host takes a core some 2.5 ms an image, on a lane's thread, while
    /// the batch waits; the CPU's decoder, on the workers' threads, needs a fifth of that for all that is wanted of the
    /// image. So progressive images and such, and those that are too few for a large call of the kernels, are the
    /// CPU's, unless that may not decode.
    fn backends(&self, header: &JpegHeader, id: ImageId) -> impl Iterator<Item = NvJpegBackend> + use<> {
        let allowed = NvJpegBackend::ALL.map(|backend| self.allows(backend));
        let refuses = self.refused.of(id);
        let left_to_cpu = self.cpu_serves && by_host(header);
        let mut serving = [false; NvJpegBackend::ALL.len()];
        for backend in self.kept.abilities.backends(header) {
            serving[backend as usize] = allowed[backend as usize]
                && !(backend == NvJpegBackend::Cuda && left_to_cpu)
                && !refuses(backend);
        }
        // From the last one up: a backend that fails is left alone where another one comes after it.
        let mut others = self.cpu_may;
        for (serves, rests) in serving.iter_mut().zip(self.pauses.resting()).rev() {
            *serves &= !(rests && others);
            others |= *serves;
        }
        NvJpegBackend::ALL.into_iter().filter(move |&backend| serving[backend as usize])
    }

    /// Whether some image may be a backend's.
    fn allows(&self, backend: NvJpegBackend) -> bool {
        let asked = match self.backends {
            AllowedBackends::All => true,
            AllowedBackends::Hardware => backend == NvJpegBackend::Hardware,
            AllowedBackends::CudaBatched => backend == NvJpegBackend::CudaBatched,
            AllowedBackends::Cuda => backend == NvJpegBackend::Cuda,
            AllowedBackends::Cpu => false,
        };
        asked && backend.takes_call_of(self.batch)
    }

    /// Whether only the size of the batches keeps the GPU from decoding an image.
    fn has_small_batches(&self, header: &JpegHeader) -> bool {
        let first = self.kept.abilities.backends(header).next();
        let small = first == Some(NvJpegBackend::CudaBatched)
            && !NvJpegBackend::CudaBatched.takes_call_of(self.batch);
        self.cpu_serves && small && self.failed().is_none()
    }

    /// The backend after one that does not take an image. One image is no call for the batched kernels.
    fn backend_after(
        &self,
        backend: NvJpegBackend,
        header: &JpegHeader,
        id: ImageId,
    ) -> Option<NvJpegBackend> {
        self.backends(header, id).find(|&next| next > backend && next.takes_call_of(1))
    }
}
