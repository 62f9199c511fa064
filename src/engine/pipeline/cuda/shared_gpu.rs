//! The resources of a GPU that a process keeps for all its loaders and epochs. Probing nvJPEG, making its decoders and
//! loading kernels takes seconds, and a second loader or the next epoch must not pay for that again.
//!
//! A lane borrows a decoder for one sub-batch at a time. A GPU has as many decoders as a loader has lanes, even if
//! several loaders run: more decoders would only queue work that the GPU could not do sooner. All decoders are made
//! before the loader's first batch, with every backend that the loader may need. Later, other code may be capturing a
//! CUDA graph, and what nvJPEG does then is unknown. Idle decoders are kept until [`release_gpus`]. (→
//! tests/gpu/starts.rs)

use crate::config::LANES;
use base::error::{Error, Result};
use base::locks::lock;
use pixels::augment::cuda::Kernels;
use pixels::decode::nvjpeg::{Abilities, Library, NvJpegBackend, NvJpegDecoder};
use pixels::gpu::GpuDevice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

static SHARED_GPUS: Mutex<Vec<Arc<SharedGpu>>> = Mutex::new(Vec::new());

pub(crate) struct SharedGpu {
    pub device: GpuDevice,
    /// What nvJPEG can decode on this GPU; empty if no loader uses nvJPEG.
    pub abilities: Abilities,
    pub kernels: Kernels,
    nvjpeg: Option<Library>,
    // Valid after every statement, so a panic elsewhere cannot break it.
    decoders: Mutex<DecoderPool>,
    /// Signalled when a decoder was given back or dropped.
    returned: Condvar,
    /// Locked while a thread borrows all decoders at once: two such threads would wait for each other.
    gathering: Mutex<()>,
}

#[derive(Default)]
struct DecoderPool {
    /// The unused decoders, the most recently used one last.
    idle: Vec<NvJpegDecoder>,
    borrowed: usize,
    /// For each backend, whether all decoders of the GPU exist and include this backend.
    complete: [bool; NvJpegBackend::ALL.len()],
}

/// A borrowed decoder. A decoder that is dropped without [`BorrowedDecoder::give_back`] is destroyed, and another one
/// can be made.
pub(crate) struct BorrowedDecoder {
    decoder: Option<NvJpegDecoder>,
    gpu: Arc<SharedGpu>,
}

/// Frees what this process keeps on GPUs for its next loader: nvJPEG's decoders with their memory, and kernels. Memory
/// that running loaders use is freed when these loaders end.
pub fn release_gpus() {
    // A forked child has nothing to free, and a thread of its parent may have held the lock.
    if pixels::gpu::is_usable() {
        let gpus = std::mem::take(&mut *lock(&SHARED_GPUS));
        for gpu in gpus {
            lock(&gpu.decoders).idle.clear();
        }
    }
}

impl SharedGpu {
    /// Returns the GPU with the index `ordinal`, and opens it if it is not open yet. With `with_nvjpeg`, also finds out
    /// what nvJPEG can decode, if this is not known yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Gpu`] if the GPU cannot be used.
    pub(crate) fn open(ordinal: u32, with_nvjpeg: bool) -> Result<Arc<Self>> {
        // Open the device before taking the lock: in a forked child, opening it is an error.
        let device = GpuDevice::open(ordinal)?;
        // Hold the lock while nvJPEG is probed, so that other threads wait for the result.
        let mut all = lock(&SHARED_GPUS);
        let serves =
            |known: &Arc<Self>| known.device.ordinal() == ordinal && (known.nvjpeg.is_some() || !with_nvjpeg);
        if let Some(at) = all.iter().position(serves) {
            if all[at].abilities.failed().is_none() || !with_nvjpeg {
                return Ok(all[at].clone());
            }
            // A decoder that failed when it was probed may work now. So this loader probes again. Loaders that already
            // use the GPU keep the old result.
            let known = all.swap_remove(at);
            lock(&known.decoders).idle.clear();
        }
        let nvjpeg = with_nvjpeg.then(Library::load).transpose()?;
        let probe = |library: &Library| Abilities::probe(library, &device);
        let gpu = Arc::new(Self {
            abilities: nvjpeg.as_ref().map_or_else(|| Ok(Abilities::default()), probe)?,
            kernels: Kernels::load(&device)?,
            nvjpeg,
            device,
            decoders: Mutex::default(),
            returned: Condvar::new(),
            gathering: Mutex::default(),
        });
        all.push(gpu.clone());
        Ok(gpu)
    }

    /// Makes all decoders of the GPU, for batches of about `batch` images. Adds those of the `backends` that existing
    /// decoders lack.
    ///
    /// # Errors
    /// The error of the first decoder that could not be made. It is made later, when a lane needs it.
    pub(crate) fn prepare(self: &Arc<Self>, backends: &[NvJpegBackend], batch: usize) -> Result<()> {
        // Two threads that each held some decoders would wait for each other. A lane holds at most one decoder, and
        // never waits for a second.
        let _alone = lock(&self.gathering);
        let is_complete =
            |decoders: &DecoderPool| backends.iter().all(|&backend| decoders.complete[backend as usize]);
        if is_complete(&lock(&self.decoders)) {
            return Ok(());
        }
        let (mut all, mut outcome) = (Vec::with_capacity(LANES), Ok(()));
        while all.len() < LANES && outcome.is_ok() {
            outcome = self.borrow(batch).map(|borrowed| all.push(borrowed));
        }
        for mut borrowed in all {
            for &backend in backends {
                outcome = outcome.and(borrowed.get()?.make(backend));
            }
            borrowed.give_back()?;
        }
        if outcome.is_ok() {
            backends.iter().for_each(|&backend| lock(&self.decoders).complete[backend as usize] = true);
        }
        outcome
    }

    /// Borrows a decoder, for batches of about `batch` images. If other lanes hold all decoders, waits until a lane has
    /// finished its sub-batch, including the GPU's work and the wait for the former readers of the batch's memory.
    ///
    /// # Errors
    /// The errors of [`NvJpegDecoder::new`].
    pub(crate) fn borrow(self: &Arc<Self>, batch: usize) -> Result<BorrowedDecoder> {
        let mut decoders = lock(&self.decoders);
        while decoders.idle.is_empty() && decoders.borrowed >= LANES {
            decoders = self.returned.wait(decoders).unwrap_or_else(PoisonError::into_inner);
        }
        decoders.borrowed += 1;
        let idle = decoders.idle.pop();
        drop(decoders);
        // The drop of `borrowed` corrects the count, even if no decoder could be made.
        let mut borrowed = BorrowedDecoder { decoder: idle, gpu: self.clone() };
        if borrowed.decoder.is_none() {
            let library = self.nvjpeg.as_ref();
            let library =
                library.ok_or_else(|| Error::Internal("nvJPEG is needed, but was not loaded".into()))?;
            borrowed.decoder = Some(NvJpegDecoder::new(library, &self.device, batch)?);
        }
        Ok(borrowed)
    }
}

impl BorrowedDecoder {
    /// # Errors
    /// [`Error::Internal`] if the decoder was given back.
    pub(crate) fn get(&mut self) -> Result<&mut NvJpegDecoder> {
        self.decoder
            .as_mut()
            .ok_or_else(|| Error::Internal("a decoder was used after it was given back".into()))
    }

    /// Gives the decoder back. Its queued work must be done.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU has failed; the decoder is then destroyed.
    pub(crate) fn give_back(mut self) -> Result<()> {
        self.get()?.recycle()?;
        lock(&self.gpu.decoders).idle.extend(self.decoder.take());
        Ok(())
    }
}

impl Drop for BorrowedDecoder {
    fn drop(&mut self) {
        // Destroy a lost decoder before another decoder is made in its place.
        let is_lost = self.decoder.take().is_some();
        let mut decoders = lock(&self.gpu.decoders);
        decoders.borrowed -= 1;
        if is_lost {
            decoders.complete = Default::default();
        }
        drop(decoders);
        self.gpu.returned.notify_one();
    }
}
