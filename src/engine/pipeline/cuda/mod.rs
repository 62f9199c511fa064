//! Makes batches on a GPU (`device="cuda"`).
//!
//! The reading thread and the slots are the same as in the CPU's pipeline, but the slots' arena is page-locked, so that
//! the device can copy from it. Workers ([`prepare`]) parse headers, draw views, and decode the images that the CPU
//! must decode. The samples of a batch are collected in an [`assembly`], which goes to the first free [`lane`]. A lane
//! queues the copies, the decoding, one table of parameters, and for each view the launches that make its images. Then
//! it sleeps until the work is done and checked. Images of one sample go through a lane together, so that they fail
//! together. To the rest of the pipeline, all this is one maker of batches ([`maker`]).
//!
//! Batches without images take another, shorter way ([`upload`]).
//!
//! Which decoder gets an image:
//!
//! - Foreload's own kernels decode packed and indexed images ([`own`]). They give exactly the CPU's pixel values or no
//!   image, so with `decoder="own"` batches equal the CPU's batches.
//! - nvJPEG decodes files. The decoding engine gets every image that it can decode, in calls of 64. nvJPEG's CUDA
//!   kernels get the others, in calls of 51 images and more (`docs/gpu.md`).
//! - The CPU decodes all other images, and takes some images over from the GPU by measured rates ([`balance`]).
//! - An image that a backend refuses goes to the next backend and finally to the CPU, whose result is final: an image
//!   or a clear error. The choice of the backend affects only rounding, and never which sample is at which index of the
//!   batch.
//! - A backend's success is not trusted: [`check`] finds images that were not written.
//!
//! Rules for changes:
//!
//! - If slots or device memory run short, a batch is made in sub-batches, so that no batch waits for memory that it
//!   holds itself.
//! - Queued work is owned by a `gpu::InFlight` until the device is done with it. A buffer is written again only after
//!   an event on every stream that has read it.
//! - In steady state no call allocates, page-locks or waits for a whole stream, and a batch of any size needs about
//!   sixty calls of the driver. The host never spins. (→ tests/gpu/steady.rs, tests/gpu/views.rs, tests/gpu/starts.rs)
//! - Foreload's threads keep the device's context. A call from any other thread restores the context that was current.
//!   No thread takes part in a CUDA graph that other code captures.
//! - Tests run all this against stand-ins for NVIDIA's libraries (`tests/stand-in/`), which check the order of every
//!   access.

mod assembly;
mod backoff;
mod balance;
mod check;
mod image;
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
pub(super) mod upload;
mod work;

use crate::batch::CudaStorage;
use crate::config::{self, AllowedBackends, CpuDecode, DevicePools, GpuDecoder, LANES, LoaderConfig};
use backoff::BackendBackoff;
pub(crate) use backoff::LONGEST_BACKOFF;
use balance::LoadBalancer;
use base::error::{Error, Result};
use base::slot::{PAGE, SlotPool};
use pixels::decode::cuda::CUDA_DECODERS;
use pixels::decode::nvjpeg::{NvJpegBackend, host_decodes_huffman};
use pixels::decode::{JpegHeader, StorageFormat};
use pixels::gpu::{GpuDevice, MemoryPool, Registration, Stream};
use refused::{ImageId, RefusedImages};
use shared_gpu::SharedGpu;
pub use shared_gpu::release_gpus;
use std::sync::{Arc, Mutex, PoisonError};
use timing::TimeOrigin;

const OWN_KERNELS_UNUSED: &str =
    "not used: the CPU decodes packed images, and nvJPEG or the CPU decodes the JPEG in indexed images";

const NVJPEG_UNUSED: &str = "not used, because decoder=\"own\"";

/// State that all workers and lanes of a loader share for its GPU.
pub(crate) struct GpuStage {
    device: GpuDevice,
    gpu: Arc<SharedGpu>,
    prepared: Mutex<bool>,
    decoder: GpuDecoder,
    backends: AllowedBackends,
    cpu_may_decode: bool,
    /// Whether the CPU also decodes images whose Huffman codes the GPU's decoders would decode on the host.
    cpu_replaces_host_decoding: bool,
    batch: usize,
    refused: RefusedImages,
    backoff: BackendBackoff,
    slots: Registration,
    memory: MemoryPool,
    /// Page-locked staging buffers for the columns of batches (labels, ids and other tensors except images).
    staging: Registration,
    balancer: LoadBalancer,
    pools: DevicePools,
    origin: Arc<TimeOrigin>,
}

fn of_device(ordinal: u32, error: Error) -> Error {
    match error {
        Error::Unavailable(why) => config::unavailable_device(&format!("cuda:{ordinal}"), &why),
        other => other,
    }
}

/// Page-locks staging buffers for the columns of `batches` batches.
fn columns_staging(device: &GpuDevice, config: &LoaderConfig, batches: usize) -> Result<Registration> {
    let columns = config.layout.column_bytes(config.batch_size as usize);
    let room = (columns + 2 * PAGE).next_multiple_of(PAGE);
    Registration::new(device, &SlotPool::new(batches.saturating_mul(room))?)
}

/// Opens the GPU with the index `ordinal`, and makes the storage on this GPU for batches that are complete when they
/// are copied to it, at most `staged` of them at a time.
///
/// # Errors
/// The errors of [`GpuStage::open`].
pub(super) fn storage_for_complete_batches(
    ordinal: u32,
    config: &LoaderConfig,
    pools: &DevicePools,
    staged: usize,
) -> Result<(GpuDevice, CudaStorage)> {
    let device = GpuDevice::open(ordinal).map_err(|error| of_device(ordinal, error))?;
    let (pool, stream) = (MemoryPool::new(&device, pools.cap)?, Stream::new(&device)?);
    let staging = columns_staging(&device, config, staged)?;
    Ok((device, CudaStorage { pool, stream, staging }))
}

impl GpuStage {
    /// Opens the GPU with the index `ordinal` and page-locks the arena of `slots`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Gpu`] if the GPU cannot be used; [`Error::Config`] if the pools need more
    /// memory than the GPU has.
    pub(crate) fn open(
        ordinal: u32,
        config: &LoaderConfig,
        pools: &DevicePools,
        slots: &SlotPool,
    ) -> Result<Self> {
        let gpu = SharedGpu::open(ordinal, config.decoder.decodes_jpegs());
        let gpu = gpu.map_err(|error| of_device(ordinal, error))?;
        let device = gpu.device.clone();
        let staging = columns_staging(&device, config, pools.prefetch + LANES + 1)?;
        let origin = TimeOrigin::new(&device, &Stream::new(&device)?, None)?;
        Ok(Self {
            decoder: config.decoder,
            backends: config.backends,
            cpu_may_decode: config.cpu_decode != CpuDecode::Never,
            cpu_replaces_host_decoding: config.cpu_decode != CpuDecode::Never
                && config.backends == AllowedBackends::All,
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

    pub(crate) fn decoders(&self) -> Vec<(&'static str, String)> {
        let own = |(name, can): (&'static str, &str)| {
            (name, if self.decodes_forms() { can } else { OWN_KERNELS_UNUSED }.to_owned())
        };
        let of_nvjpeg = |backend: NvJpegBackend| {
            let described = || self.gpu.abilities.describe(backend);
            (backend.name(), if self.may_use_nvjpeg() { described() } else { NVJPEG_UNUSED.to_owned() })
        };
        CUDA_DECODERS.map(own).into_iter().chain(NvJpegBackend::ALL.map(of_nvjpeg)).collect()
    }

    /// Returns a decoder that did not work when it was tested at the start, and why.
    pub(crate) fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.gpu.abilities.failed().filter(|_| self.may_use_nvjpeg())
    }

    fn decodes_forms(&self) -> bool {
        self.decoder.decodes_packed(self.backends)
    }

    /// Returns whether Foreload's own kernels decode images of this storage format. If nvJPEG decodes files, it also
    /// decodes the file in an indexed image, so that the pixels do not depend on whether the image is indexed yet.
    /// nvJPEG may also decode a file whose index is damaged.
    fn decodes_form(&self, form: StorageFormat) -> bool {
        let are_files_left = self.may_use_nvjpeg() && !self.cpu_replaces_host_decoding;
        self.decodes_forms() && !(form == StorageFormat::Indexed && are_files_left)
    }

    fn may_use_nvjpeg(&self) -> bool {
        self.decoder.decodes_jpegs()
    }

    /// Attaches the calling thread to the GPU. If this fails, the thread's first call of the driver also fails, and
    /// reports the error.
    pub(crate) fn attach_thread(&self) {
        let _ = self.device.attach_thread();
    }

    /// Makes everything that nvJPEG needs for any image. Only the first call has an effect.
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

    pub(crate) fn storage(&self) -> Result<CudaStorage> {
        let stream = Stream::new(&self.device)?;
        Ok(CudaStorage { pool: self.memory.clone(), stream, staging: self.staging.clone() })
    }

    /// Returns the backends that can decode an image, in the order in which they are tried. If there are none, the CPU
    /// decodes the image.
    ///
    /// If nvJPEG decodes Huffman codes on the host, it takes about 2.5 ms of a core per image, on a lane's thread,
    /// while the batch waits. The CPU's decoder, on the workers' threads, needs a fifth of that time for the wanted
    /// part of the image. So the CPU decodes images such as progressive ones, and images that are too few for a large
    /// call of the kernels, unless it may not decode.
    fn backends(&self, header: &JpegHeader, id: ImageId) -> impl Iterator<Item = NvJpegBackend> + use<> {
        let allowed = NvJpegBackend::ALL.map(|backend| self.allows(backend));
        let refuses = self.refused.of(id);
        let left_to_cpu = self.cpu_replaces_host_decoding && host_decodes_huffman(header);
        let mut serving = [false; NvJpegBackend::ALL.len()];
        for backend in self.gpu.abilities.backends(header) {
            serving[backend as usize] = allowed[backend as usize]
                && !(backend == NvJpegBackend::Cuda && left_to_cpu)
                && !refuses(backend);
        }
        // Go from the last backend to the first: a failing backend is skipped for its backoff period only if another
        // decoder comes after it.
        let mut others = self.cpu_may_decode;
        for (serves, rests) in serving.iter_mut().zip(self.backoff.skipped()).rev() {
            *serves &= !(rests && others);
            others |= *serves;
        }
        NvJpegBackend::ALL.into_iter().filter(move |&backend| serving[backend as usize])
    }

    fn allows(&self, backend: NvJpegBackend) -> bool {
        let asked = match self.backends {
            AllowedBackends::All => true,
            AllowedBackends::Hardware => backend == NvJpegBackend::Hardware,
            AllowedBackends::CudaBatched => backend == NvJpegBackend::CudaBatched,
            AllowedBackends::Cuda => backend == NvJpegBackend::Cuda,
            AllowedBackends::Cpu => false,
        };
        asked && self.may_use_nvjpeg() && backend.accepts_call_of(self.batch)
    }

    /// Returns whether the GPU could decode an image if batches were larger.
    fn has_small_batches(&self, header: &JpegHeader) -> bool {
        let first = self.gpu.abilities.backends(header).next();
        let small = first == Some(NvJpegBackend::CudaBatched)
            && !NvJpegBackend::CudaBatched.accepts_call_of(self.batch);
        self.may_use_nvjpeg() && self.cpu_replaces_host_decoding && small && self.failed().is_none()
    }

    /// Returns the backend to try after `backend` has refused an image. A single image is too few for a call of the
    /// batched kernels, so they are left out.
    fn backend_after(
        &self,
        backend: NvJpegBackend,
        header: &JpegHeader,
        id: ImageId,
    ) -> Option<NvJpegBackend> {
        self.backends(header, id).find(|&next| next > backend && next.accepts_call_of(1))
    }
}
