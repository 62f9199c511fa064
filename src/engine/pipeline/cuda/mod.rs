//! The way to a GPU. Workers prepare samples ([`prepare`]), which gather into batches ([`assembly`]); lanes ([`lane`])
//! queue the work that makes images of them on the GPU. The threads know all this as one maker of batches ([`maker`]).

mod assembly;
mod backoff;
mod balance;
mod check;
mod image;
mod image_view;
mod lane;
pub(super) mod maker;
mod own;
mod per_image;
mod placed;
mod prepare;
mod rate;
mod refused;
mod shared_gpu;
mod staging;
mod table;
mod timing;
mod work;

use crate::batch::CudaStorage;
use crate::config::{self, AllowedBackends, CpuDecode, DevicePools, GpuDecoder, LANES, LoaderConfig};
use backoff::BackendBackoff;
pub(crate) use backoff::LONGEST_BACKOFF;
use balance::LoadBalancer;
use base::error::{Error, Result};
use base::slot::{PAGE, SlotPool};
use pixels::decode::cuda::OWN_DECODERS;
use pixels::decode::nvjpeg::{NvJpegBackend, by_host};
use pixels::decode::{FileForm, JpegHeader};
use pixels::gpu::{GpuDevice, MemoryPool, Registration, Stream};
use refused::{ImageId, RefusedImages};
use shared_gpu::SharedGpu;
pub use shared_gpu::release_gpus;
use std::sync::{Arc, Mutex, PoisonError};
use timing::TimeOrigin;

/// Why the kernels of our own do nothing.
const FORMS_LEFT: &str =
    "not asked: the CPU decodes packed images, and nvJPEG or the CPU the JPEG in indexed ones";

/// Why nvJPEG's backends can do nothing.
const NOT_ASKED: &str = "not asked, with decoder=\"own\"";

/// What all workers and lanes of a loader share on the way to a GPU.
pub(crate) struct GpuStage {
    device: GpuDevice,
    gpu: Arc<SharedGpu>,
    /// Whether the GPU's decoders have been made.
    prepared: Mutex<bool>,
    decoder: GpuDecoder,
    backends: AllowedBackends,
    /// Whether the CPU may decode at all.
    cpu_may: bool,
    /// Whether the CPU also decodes what the GPU's decoders would have the host half decode.
    cpu_serves: bool,
    /// The number of images of a batch.
    batch: usize,
    refused: RefusedImages,
    backoff: BackendBackoff,
    /// The arena that files are read into, page-locked.
    slots: Registration,
    memory: MemoryPool,
    /// Staging buffers: page-locked memory for the columns of batches.
    staging: Registration,
    balancer: LoadBalancer,
    pools: DevicePools,
    /// The moment from which the GPU's time is measured.
    origin: Arc<TimeOrigin>,
}

/// The error of a GPU that is taken into use.
fn of_device(ordinal: u32, error: Error) -> Error {
    match error {
        Error::Unavailable(why) => config::unavailable_device(&format!("cuda:{ordinal}"), &why),
        other => other,
    }
}

/// Page-locked memory for the columns of the batches that are being filled.
fn columns_staging(device: &GpuDevice, config: &LoaderConfig, pools: &DevicePools) -> Result<Registration> {
    let columns = config.layout.column_bytes(config.batch_size as usize);
    let room = (columns + 2 * PAGE).next_multiple_of(PAGE);
    Registration::new(device, &SlotPool::new((pools.prefetch + LANES + 1) * room)?)
}

/// The GPU `ordinal`, and the memory of batches on it that others have made.
///
/// # Errors
/// Those of [`GpuStage::open`].
pub(super) fn storage_of_made(
    ordinal: u32,
    config: &LoaderConfig,
    pools: &DevicePools,
) -> Result<(GpuDevice, CudaStorage)> {
    let device = GpuDevice::open(ordinal).map_err(|error| of_device(ordinal, error))?;
    let (pool, stream) = (MemoryPool::new(&device, pools.cap)?, Stream::new(&device)?);
    let staging = columns_staging(&device, config, pools)?;
    Ok((device, CudaStorage { pool, stream, staging }))
}

impl GpuStage {
    /// Takes the GPU `ordinal` into use and page-locks the arena of `slots`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Gpu`] when the GPU cannot serve; [`Error::Config`] for memory that it does
    /// not have.
    pub(crate) fn open(
        ordinal: u32,
        config: &LoaderConfig,
        pools: &DevicePools,
        slots: &SlotPool,
    ) -> Result<Self> {
        let gpu = SharedGpu::open(ordinal, config.decoder.takes_files());
        let gpu = gpu.map_err(|error| of_device(ordinal, error))?;
        let device = gpu.device.clone();
        let staging = columns_staging(&device, config, pools)?;
        let origin = TimeOrigin::new(&device, &Stream::new(&device)?, None)?;
        Ok(Self {
            decoder: config.decoder,
            backends: config.backends,
            cpu_may: config.cpu_decode != CpuDecode::Never,
            cpu_serves: config.cpu_decode != CpuDecode::Never && config.backends == AllowedBackends::All,
            batch: config.batch_size as usize * config.images.list().len(),
            refused: RefusedImages::default(),
            backoff: BackendBackoff::default(),
            prepared: Mutex::default(),
            slots: Registration::new(&device, slots)?,
            memory: MemoryPool::new(&device, pools.cap)?,
            staging,
            balancer: LoadBalancer::new(),
            pools: *pools,
            origin: Arc::new(origin),
            gpu,
            device,
        })
    }

    /// What the GPU's decoders can do, and why not more, each by its name.
    pub(crate) fn decoders(&self) -> Vec<(&'static str, String)> {
        let own = |(name, can): (&'static str, &str)| {
            (name, if self.decodes_forms() { can } else { FORMS_LEFT }.to_owned())
        };
        let of_nvjpeg = |backend: NvJpegBackend| {
            let described = || self.gpu.abilities.describe(backend);
            (backend.name(), if self.may_use_nvjpeg() { described() } else { NOT_ASKED.to_owned() })
        };
        OWN_DECODERS.map(own).into_iter().chain(NvJpegBackend::ALL.map(of_nvjpeg)).collect()
    }

    /// A decoder that failed when it was tried, and why.
    pub(crate) fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.gpu.abilities.failed().filter(|_| self.may_use_nvjpeg())
    }

    /// Whether kernels of our own decode packed and indexed images.
    fn decodes_forms(&self) -> bool {
        self.decoder.takes_forms(self.backends)
    }

    /// Whether kernels of our own decode images of this form. What a damaged index hides, others may still decode; and
    /// where the decoder of files is fixed, it gets the file behind the index, whether it is indexed yet or not.
    fn decodes_form(&self, form: FileForm) -> bool {
        let are_files_left = self.may_use_nvjpeg() && !self.cpu_serves;
        self.decodes_forms() && !(form == FileForm::Indexed && are_files_left)
    }

    /// Whether nvJPEG may decode anything.
    fn may_use_nvjpeg(&self) -> bool {
        self.decoder.takes_files()
    }

    /// Makes the calling thread one that works for the GPU. If that fails, so does the thread's first call, which
    /// reports it.
    pub(crate) fn attach_thread(&self) {
        let _ = self.device.attach_thread();
    }

    /// Makes all that nvJPEG needs for whatever images may come, when it is called for the first time.
    ///
    /// # Errors
    /// The errors of [`SharedGpu::prepare`].
    fn prepare(&self) -> Result<()> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *prepared, true) {
            return Ok(());
        }
        let is_needed =
            |backend: &NvJpegBackend| self.allows(*backend) && self.gpu.abilities.serves(*backend);
        let backends: Vec<NvJpegBackend> = NvJpegBackend::ALL.into_iter().filter(is_needed).collect();
        self.gpu.prepare(&backends, self.batch)
    }

    /// The memory that batches on the GPU are made from.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn storage(&self) -> Result<CudaStorage> {
        let stream = Stream::new(&self.device)?;
        Ok(CudaStorage { pool: self.memory.clone(), stream, staging: self.staging.clone() })
    }

    /// The backends that can decode an image, in the order in which they are tried. Without any, the CPU decodes it.
    ///
    /// Where nvJPEG decodes Huffman codes on the host, that takes a core some 2.5 ms an image, on a lane's thread,
    /// while the batch waits. The CPU's decoder, on the workers' threads, needs a fifth of that for all that is wanted
    /// of the image. So the CPU decodes progressive images and the like, and those that are too few for a large call of
    /// the kernels, unless it may not decode.
    fn backends(&self, header: &JpegHeader, id: ImageId) -> impl Iterator<Item = NvJpegBackend> + use<> {
        let allowed = NvJpegBackend::ALL.map(|backend| self.allows(backend));
        let refuses = self.refused.of(id);
        let left_to_cpu = self.cpu_serves && by_host(header);
        let mut serving = [false; NvJpegBackend::ALL.len()];
        for backend in self.gpu.abilities.backends(header) {
            serving[backend as usize] = allowed[backend as usize]
                && !(backend == NvJpegBackend::Cuda && left_to_cpu)
                && !refuses(backend);
        }
        // The backends are tried from the last one up, because one that fails is left alone only where another one
        // comes after it.
        let mut others = self.cpu_may;
        for (serves, rests) in serving.iter_mut().zip(self.backoff.resting()).rev() {
            *serves &= !(rests && others);
            others |= *serves;
        }
        NvJpegBackend::ALL.into_iter().filter(move |&backend| serving[backend as usize])
    }

    /// Whether a backend may decode images at all.
    fn allows(&self, backend: NvJpegBackend) -> bool {
        let asked = match self.backends {
            AllowedBackends::All => true,
            AllowedBackends::Hardware => backend == NvJpegBackend::Hardware,
            AllowedBackends::CudaBatched => backend == NvJpegBackend::CudaBatched,
            AllowedBackends::Cuda => backend == NvJpegBackend::Cuda,
            AllowedBackends::Cpu => false,
        };
        asked && self.may_use_nvjpeg() && backend.takes_call_of(self.batch)
    }

    /// Whether only the size of the batches keeps the GPU from decoding an image.
    fn has_small_batches(&self, header: &JpegHeader) -> bool {
        let first = self.gpu.abilities.backends(header).next();
        let small = first == Some(NvJpegBackend::CudaBatched)
            && !NvJpegBackend::CudaBatched.takes_call_of(self.batch);
        self.may_use_nvjpeg() && self.cpu_serves && small && self.failed().is_none()
    }

    /// The backend that comes after one that does not take an image. A single image is too few for a call of the
    /// batched kernels.
    fn backend_after(
        &self,
        backend: NvJpegBackend,
        header: &JpegHeader,
        id: ImageId,
    ) -> Option<NvJpegBackend> {
        self.backends(header, id).find(|&next| next > backend && next.takes_call_of(1))
    }
}
