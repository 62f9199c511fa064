//! The way to a GPU: workers prepare samples ([`prepare`]), which gather to batches ([`assembly`]); lanes ([`lane`]) queue
//! what makes them images there.

pub(super) mod assembly;
mod check;
mod kept;
pub(super) mod lane;
pub(super) mod prepare;
mod share;
mod timing;
mod work;

use crate::batch::{self, CudaStorage};
use crate::config::{DevicePools, LANES, LoaderConfig, Rungs};
use crate::decode::Header;
use crate::decode::nvjpeg::Rung;
use crate::error::Result;
use crate::gpu::{Device, Event, MemoryPool, Registration, Stream};
use crate::slot::{PAGE, SlotPool};
use kept::Kept;
pub use kept::release_gpus;
use share::Shares;
use std::sync::Arc;

/// What all workers and lanes share.
pub struct Stage {
    device: Device,
    kept: Arc<Kept>,
    rungs: Rungs,
    /// The readers' arena, page-locked.
    slots: Registration,
    memory: MemoryPool,
    /// Page-locked memory for columns.
    desk: Registration,
    shares: Shares,
    /// Most bytes that the images of a lane have at a time.
    arena_bytes: usize,
    /// From here the GPU's time is measured.
    origin: Arc<Event>,
}

impl Stage {
    /// Takes GPU `ordinal` into use and page-locks the arena of `slots`.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Gpu`] when the GPU cannot serve; [`Error::Config`] for memory it has not.
    pub fn open(ordinal: u32, config: &LoaderConfig, pools: &DevicePools, slots: &SlotPool) -> Result<Self> {
        let kept = Kept::open(ordinal)?;
        let device = kept.device.clone();
        let columns = batch::column_bytes(config.batch_size as usize);
        let room = (columns + 2 * PAGE).next_multiple_of(PAGE);
        let desk = SlotPool::new((pools.prefetch + LANES + 1) * room)?;
        let origin = Event::timed(&device)?;
        origin.record(&Stream::new(&device)?)?;
        Ok(Self {
            rungs: config.rungs,
            slots: Registration::new(&device, slots)?,
            memory: MemoryPool::new(&device, pools.cap)?,
            desk: Registration::new(&device, &desk)?,
            shares: Shares::default(),
            arena_bytes: pools.arena,
            origin: Arc::new(origin),
            kept,
            device,
        })
    }

    /// Makes the calling thread one that works for the GPU. Should that fail, so will its first call, and say so.
    pub fn settle(&self) {
        let _ = self.device.settle();
    }

    /// Where batches are made.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn storage(&self) -> Result<CudaStorage> {
        let stream = Stream::new(&self.device)?;
        Ok(CudaStorage { pool: self.memory.clone(), stream, desk: self.desk.clone() })
    }

    /// The rungs that serve an image, in the order of the ladder; none: it is the CPU's.
    fn rungs(&self, header: &Header) -> impl Iterator<Item = Rung> + use<> {
        let allowed = self.rungs;
        self.kept.abilities.rungs(header).filter(move |rung| match allowed {
            Rungs::All => true,
            Rungs::Hardware => *rung == Rung::Hardware,
            Rungs::Cuda => *rung != Rung::Hardware,
            Rungs::Cpu => false,
        })
    }
}
