//! What a process keeps of a GPU for its next loader. To find out what nvJPEG can do, to make its decoders and to load
//! kernels takes seconds; a second loader, or the next epoch, must not pay them again.
//!
//! Decoders are borrowed for a piece of a batch at a time. A GPU has as many decoders as a loader has lanes, however
//! many loaders run: what more decoders would queue, the GPU could not do sooner. All of them are made, with every
//! backend that the loader may need, before the loader's first batch. Later, other code may be capturing a CUDA graph,
//! and nobody knows what nvJPEG does then. Idle decoders stay until [`release_gpus`].

use crate::config::LANES;
use base::error::{Error, Result};
use pixels::augment::cuda::Kernels;
use pixels::decode::nvjpeg::{Abilities, Library, NvJpegBackend, NvJpegDecoder};
use pixels::gpu::GpuDevice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

static SHARED_GPUS: Mutex<Vec<Arc<SharedGpu>>> = Mutex::new(Vec::new());

/// One GPU, which all loaders of this process share.
pub(crate) struct SharedGpu {
    pub device: GpuDevice,
    /// What nvJPEG can do; nothing where no loader has asked for it.
    pub abilities: Abilities,
    pub kernels: Kernels,
    nvjpeg: Option<Library>,
    decoders: Mutex<DecoderPool>,
    /// Signalled when a decoder came back or was dropped.
    returned: Condvar,
    /// Locked by whoever borrows all of them at once.
    gathering: Mutex<()>,
}

#[derive(Default)]
struct DecoderPool {
    /// The decoders that nobody uses, the latest used last.
    idle: Vec<NvJpegDecoder>,
    /// The number of decoders that are borrowed.
    borrowed: usize,
    /// Whether all decoders that there will be have been made with each backend.
    complete: [bool; NvJpegBackend::ALL.len()],
}

/// A decoder that is borrowed. If it is dropped instead of given back, it is destroyed, and another one may be made.
pub(crate) struct BorrowedDecoder {
    decoder: Option<NvJpegDecoder>,
    gpu: Arc<SharedGpu>,
}

/// Frees what this process keeps on GPUs for the next loader: nvJPEG's decoders with their memory, and kernels. What
/// loaders use stays with them until they end.
pub fn release_gpus() {
    // A forked child has nothing to give back, and the lock may be its parent's threads'.
    if pixels::gpu::is_usable() {
        let gpus = std::mem::take(&mut *lock(&SHARED_GPUS));
        for gpu in gpus {
            lock(&gpu.decoders).idle.clear();
        }
    }
}

impl SharedGpu {
    /// Takes the GPU `ordinal` into use, and if it is to be used `with_nvjpeg`, finds out what that can do unless it is
    /// known.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Gpu`] when it cannot serve.
    pub(crate) fn open(ordinal: u32, with_nvjpeg: bool) -> Result<Arc<Self>> {
        // This comes before the lock, because it is an error in a forked child.
        let device = GpuDevice::open(ordinal)?;
        // Held while the GPU is tried, because whoever comes meanwhile needs the result.
        let mut all = lock(&SHARED_GPUS);
        let serves =
            |known: &Arc<Self>| known.device.ordinal() == ordinal && (known.nvjpeg.is_some() || !with_nvjpeg);
        if let Some(at) = all.iter().position(serves) {
            if all[at].abilities.failed().is_none() || !with_nvjpeg {
                return Ok(all[at].clone());
            }
            // It may have failed for a moment only: this loader tries again, and others go on with what they have.
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

    /// Makes all decoders that there will be, for batches of about `batch` images, and the backends that any of them
    /// lacks.
    ///
    /// # Errors
    /// The error of the first one that could not be made. It is tried again when it is needed.
    pub(crate) fn prepare(self: &Arc<Self>, backends: &[NvJpegBackend], batch: usize) -> Result<()> {
        // Two threads that each hold some would wait for each other. Lanes hold one and wait for none.
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

    /// Borrows a decoder, for batches of about `batch` images. Where other lanes have all of them, this waits for as
    /// long as a piece takes: the GPU's work, and the wait for whoever read the batch's memory before.
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
        // Its drop counts it off, even where no decoder could be made.
        let mut borrowed = BorrowedDecoder { decoder: idle, gpu: self.clone() };
        if borrowed.decoder.is_none() {
            let library = self.nvjpeg.as_ref();
            let library = library.ok_or_else(|| Error::Internal("nvJPEG, which nobody asked for".into()))?;
            borrowed.decoder = Some(NvJpegDecoder::new(library, &self.device, batch)?);
        }
        Ok(borrowed)
    }
}

impl BorrowedDecoder {
    /// The decoder itself.
    ///
    /// # Errors
    /// [`Error::Internal`] when it was given back.
    pub(crate) fn get(&mut self) -> Result<&mut NvJpegDecoder> {
        self.decoder.as_mut().ok_or_else(|| Error::Internal("a decoder that was given back".into()))
    }

    /// Gives the decoder back; its work must be done.
    ///
    /// # Errors
    /// [`Error::Gpu`] when the GPU has failed; the decoder is destroyed then.
    pub(crate) fn give_back(mut self) -> Result<()> {
        self.get()?.recycle()?;
        lock(&self.gpu.decoders).idle.extend(self.decoder.take());
        Ok(())
    }
}

impl Drop for BorrowedDecoder {
    fn drop(&mut self) {
        // A decoder that was not given back is destroyed before another one is made in its place.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The value is valid after every statement, so a panic elsewhere cannot have broken it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
