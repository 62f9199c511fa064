//! What a process keeps of a GPU for its next loader: to find out what nvJPEG can do, to make its decoders and to load
//! kernels takes seconds, of which a second loader, or the same one's next epoch, shall pay none.
//!
//! Decoders are lent for a piece of a batch at a time. For a GPU there is one for each of a loader's lanes, whatever
//! number of loaders runs: what more of them would queue, the GPU could not do sooner. All are made, with every backend
//! that the loader may need, before its first batch is: later, other code may be capturing a CUDA graph, and nobody
//! knows what nvJPEG does then. What is idle stays until [`release_gpus`].

use crate::augment::cuda::Kernels;
use crate::config::LANES;
use crate::decode::nvjpeg::{Abilities, Library, NvJpegBackend, NvJpegDecoder};
use crate::error::{Error, Result};
use crate::gpu::GpuDevice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

static KEPT: Mutex<Vec<Arc<Kept>>> = Mutex::new(Vec::new());

/// One GPU as this process has it in use.
pub(crate) struct Kept {
    pub device: GpuDevice,
    pub abilities: Abilities,
    pub kernels: Kernels,
    library: Library,
    decoders: Mutex<Decoders>,
    /// One came back, or is gone.
    returned: Condvar,
    /// Held by the one who gathers them all.
    gathering: Mutex<()>,
}

#[derive(Default)]
struct Decoders {
    /// With nothing under way, the latest used last.
    idle: Vec<NvJpegDecoder>,
    /// How many are lent.
    lent: usize,
    /// The backends that all of them have, as many as there will be.
    complete: [bool; NvJpegBackend::ALL.len()],
}

/// A decoder that is lent. Dropped instead of given back, it is gone, and another one may be made.
pub(crate) struct Lent {
    decoder: Option<NvJpegDecoder>,
    kept: Arc<Kept>,
}

/// Gives back what this process keeps on GPUs for the next loader: nvJPEG's decoders with their memory, and kernels.
/// What loaders have in use stays with them until they end.
pub fn release_gpus() {
    // A forked child has nothing to give back, and the lock may be its parent's threads'.
    if crate::gpu::is_usable() {
        let kept = std::mem::take(&mut *lock(&KEPT));
        for kept in kept {
            lock(&kept.decoders).idle.clear();
        }
    }
}

impl Kept {
    /// GPU `ordinal`, taken into use and tried unless it was before.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Gpu`] when it cannot serve.
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>> {
        // Before the lock: in a forked child this is an error.
        let device = GpuDevice::open(ordinal)?;
        // Held through the trial: who comes meanwhile wants its result.
        let mut all = lock(&KEPT);
        if let Some(at) = all.iter().position(|known| known.device.ordinal() == ordinal) {
            if all[at].abilities.failed().is_none() {
                return Ok(all[at].clone());
            }
            // It failed for a moment, maybe: this loader tries again, others go on with what they have.
            let known = all.swap_remove(at);
            lock(&known.decoders).idle.clear();
        }
        let library = Library::load()?;
        let kept = Arc::new(Self {
            abilities: Abilities::probe(&library, &device)?,
            kernels: Kernels::load(&device)?,
            library,
            device,
            decoders: Mutex::default(),
            returned: Condvar::new(),
            gathering: Mutex::default(),
        });
        all.push(kept.clone());
        Ok(kept)
    }

    /// Makes all decoders that there will be, for batches of about `batch` images, and of each the backends that it has
    /// not yet.
    ///
    /// # Errors
    /// What the first one met that could not be made: that is tried again when it is needed.
    pub(crate) fn prepare(self: &Arc<Self>, backends: &[NvJpegBackend], batch: usize) -> Result<()> {
        // Two that each hold some would wait for each other. Lanes hold one and wait for none.
        let _alone = lock(&self.gathering);
        let is_complete =
            |decoders: &Decoders| backends.iter().all(|&backend| decoders.complete[backend as usize]);
        if is_complete(&lock(&self.decoders)) {
            return Ok(());
        }
        let (mut all, mut outcome) = (Vec::with_capacity(LANES), Ok(()));
        while all.len() < LANES && outcome.is_ok() {
            outcome = self.borrow(batch).map(|lent| all.push(lent));
        }
        for mut lent in all {
            for &backend in backends {
                outcome = outcome.and(lent.get()?.make(backend));
            }
            lent.give_back()?;
        }
        if outcome.is_ok() {
            backends.iter().for_each(|&backend| lock(&self.decoders).complete[backend as usize] = true);
        }
        outcome
    }

    /// A decoder, for batches of about `batch` images. Where other lanes have all it waits for a piece's time, which is
    /// that of the GPU's work and of the wait for whoever read the batch's memory before.
    ///
    /// # Errors
    /// As [`NvJpegDecoder::new`].
    pub(crate) fn borrow(self: &Arc<Self>, batch: usize) -> Result<Lent> {
        let mut decoders = lock(&self.decoders);
        while decoders.idle.is_empty() && decoders.lent >= LANES {
            decoders = self.returned.wait(decoders).unwrap_or_else(PoisonError::into_inner);
        }
        decoders.lent += 1;
        let idle = decoders.idle.pop();
        drop(decoders);
        // Counted off by its drop, also where there is no decoder to be had.
        let mut lent = Lent { decoder: idle, kept: self.clone() };
        if lent.decoder.is_none() {
            lent.decoder = Some(NvJpegDecoder::new(&self.library, &self.device, batch)?);
        }
        Ok(lent)
    }
}

impl Lent {
    /// The decoder.
    ///
    /// # Errors
    /// [`Error::Internal`] when it was given back.
    pub(crate) fn get(&mut self) -> Result<&mut NvJpegDecoder> {
        self.decoder.as_mut().ok_or_else(|| Error::Internal("a decoder that was given back".into()))
    }

    /// Gives it back; its work must be done.
    ///
    /// # Errors
    /// [`Error::Gpu`] when the GPU has failed; the decoder is gone then.
    pub(crate) fn give_back(mut self) -> Result<()> {
        self.get()?.recycle()?;
        lock(&self.kept.decoders).idle.extend(self.decoder.take());
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Where it was not given back it ends before another one is made in its place.
        let is_lost = self.decoder.take().is_some();
        let mut decoders = lock(&self.kept.decoders);
        decoders.lent -= 1;
        if is_lost {
            decoders.complete = Default::default();
        }
        drop(decoders);
        self.kept.returned.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Valid after every statement: a panic elsewhere cannot have broken it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
