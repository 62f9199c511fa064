//! The page-locked staging buffers of a lane, for tables, and for planes if no slot is free.

use super::GpuStage;
use super::check::WriteCheck;
use crate::pipeline::context::SampleContext;
use base::error::{Error, Result};
use base::slot::{PAGE, Slot, SlotPool};
use pixels::augment::cuda::LaneMemory;
use pixels::decode::cuda::LaunchTables;
use pixels::gpu::{GpuDevice, InFlight, PinnedBuffer, Registration};

/// Minimum size in bytes of the buffer for planes. It has space for a dozen images of usual size, so that few chunks
/// are cut short.
const MIN_PLANES: usize = 4 << 20;

pub(crate) struct LaneStaging {
    device: GpuDevice,
    /// Staging buffers for tables. Each lane has its own, so that other lanes cannot use them up.
    pub tables: Registration,
    /// Staging buffers for planes, made when slots run out for the first time.
    pub planes: Option<Registration>,
}

impl LaneStaging {
    /// Page-locks the staging buffers for tables.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn new(context: &SampleContext, stage: &GpuStage) -> Result<Self> {
        let views = LaneMemory::new(context.config.images.views(), context.config.batch_size as usize).table;
        let own = if stage.decodes_forms() { LaunchTables::usual_bytes(stage.batch) } else { 0 };
        let table = views + own;
        // Reserve space for two of the largest tables: one is written while the other is copied.
        let counts = WriteCheck::bytes(stage.batch);
        let room = 2 * (table + 4 * PAGE) + counts + 2 * PAGE;
        let tables = Registration::new(&stage.device, &SlotPool::new(room)?)?;
        Ok(Self { device: stage.device.clone(), tables, planes: None })
    }

    pub(crate) fn counts(&self, images: usize) -> Result<PinnedBuffer> {
        self.tables
            .buffer(WriteCheck::bytes(images))
            .ok_or_else(|| Error::Internal("no page-locked memory for counts".into()))
    }

    /// Takes a staging buffer for a table. If no buffer is free, waits for this lane's queued work, which holds its
    /// buffers until it is done.
    pub(crate) fn table(&mut self, bytes: usize, flight: &mut InFlight) -> Result<Slot> {
        if let Some(slot) = self.tables.slots().try_take(bytes) {
            return Ok(slot);
        }
        flight.submit()?;
        flight.wait()?;
        if let Some(slot) = self.tables.slots().try_take(bytes) {
            return Ok(slot);
        }
        // Tables are too large only if their programs are longer than usual. The old memory is freed when its last user
        // is done.
        let room = 2 * (bytes.next_power_of_two() + 2 * PAGE);
        self.tables = Registration::new(&self.device, &SlotPool::new(room)?)?;
        let slot = self.tables.slots().try_take(bytes);
        slot.ok_or_else(|| Error::Internal(format!("no {bytes} bytes of page-locked memory for a table")))
    }

    /// Makes sure that the lane's staging buffers for planes have space for a sample of `images` images with `bytes`
    /// bytes in total. Do not wait for slots instead: other batches may hold the slots, and waiting for these batches
    /// can be a deadlock.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn reserve(&mut self, images: usize, bytes: u64) -> Result<()> {
        let room = bytes as usize + 2 * images * PAGE;
        // Do not reuse buffers that are in use: their images still wait to be checked.
        let serves = |planes: &Registration| {
            let slots = planes.slots();
            slots.usage().in_use == 0 && slots.largest() >= room
        };
        if !self.planes.as_ref().is_some_and(serves) {
            // Round up to a power of two, so that ever larger images make the buffers grow only a few times.
            let room = room.next_power_of_two().max(MIN_PLANES);
            self.planes = None;
            self.planes = Some(Registration::new(&self.device, &SlotPool::new(room)?)?);
        }
        Ok(())
    }
}
