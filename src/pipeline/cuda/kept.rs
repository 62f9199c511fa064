//! What a process keeps of a GPU for its next loader: to find out what nvJPEG can do, to make its decoders and to load
//! kernels takes seconds, of which a second loader, or the same one's next epoch, shall pay none.
//!
//! Nothing of it is done before it is needed, and decoders are lent for a piece of a batch at a time, so that a training's
//! loader and its evaluation's, which take turns, share them. What is idle stays until [`release_gpus`].

use crate::augment::cuda::Kernels;
use crate::decode::nvjpeg::{Abilities, Decoder, Library, Rung};
use crate::error::Result;
use crate::gpu::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static KEPT: Mutex<Vec<Arc<Kept>>> = Mutex::new(Vec::new());

/// One GPU as this process has it in use.
pub struct Kept {
    pub device: Device,
    pub abilities: Abilities,
    pub kernels: Kernels,
    library: Library,
    /// Decoders with nothing under way, the latest used last.
    idle: Mutex<Vec<Decoder>>,
}

/// Gives back what this process keeps on GPUs for the next loader: nvJPEG's decoders with their memory, and kernels. What
/// loaders have in use stays with them until they end.
pub fn release_gpus() {
    // A forked child has nothing to give back, and the lock may be its parent's threads'.
    if crate::gpu::is_usable() {
        let kept = std::mem::take(&mut *lock(&KEPT));
        for kept in kept {
            lock(&kept.idle).clear();
        }
    }
}

/// What nvJPEG's decoders can do on GPU `ordinal`, and why not more, each by its name. Empty before a loader's first epoch.
pub fn gpu_decoders(ordinal: u32) -> Vec<(&'static str, String)> {
    // As above: the lock may be held for good in a forked child.
    if !crate::gpu::is_usable() {
        return Vec::new();
    }
    let all = lock(&KEPT);
    let known = all.iter().find(|known| known.device.ordinal() == ordinal);
    known.map_or_else(Vec::new, |known| {
        Rung::ALL.map(|rung| (rung.name(), known.abilities.describe(rung))).into()
    })
}

impl Kept {
    /// GPU `ordinal`, taken into use and tried unless it was before.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Gpu`](crate::Error::Gpu) when it cannot serve.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        // Before the lock: in a forked child this is an error.
        let device = Device::open(ordinal)?;
        // Held through the trial: who comes meanwhile wants its result.
        let mut all = lock(&KEPT);
        if let Some(known) = all.iter().find(|known| known.device.ordinal() == ordinal) {
            return Ok(known.clone());
        }
        let library = Library::load()?;
        let kept = Arc::new(Self {
            abilities: Abilities::probe(&library, &device)?,
            kernels: Kernels::load(&device)?,
            library,
            device,
            idle: Mutex::default(),
        });
        all.push(kept.clone());
        Ok(kept)
    }

    /// A decoder, for batches of about `batch` images.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub fn borrow(&self, batch: usize) -> Result<Decoder> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| Decoder::new(&self.library, &self.device, batch), Ok)
    }

    /// Takes a decoder back, whose work must be done.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when the GPU has failed; the decoder is gone then.
    pub fn give_back(&self, mut decoder: Decoder) -> Result<()> {
        decoder.settle()?;
        lock(&self.idle).push(decoder);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Valid after every statement: a panic elsewhere cannot have broken it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
