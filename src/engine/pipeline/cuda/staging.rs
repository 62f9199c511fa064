//! The staging buffers of a lane: page-locked memory of its own for tables, and for planes that find no slot.

use super::GpuStage;
use super::check::WriteCheck;
use crate::pipeline::context::SampleContext;
use base::error::{Error, Result};
use base::slot::{PAGE, Slot, SlotPool};
use pixels::augment::cuda::LaneMemory;
use pixels::decode::cuda::OwnTables;
use pixels::gpu::{GpuDevice, InFlight, PinnedBuffer, PinnedSlice, Registration};

/// The least number of bytes for planes that find no slot: a dozen usual images, so that few chunks are cut short for
/// it.
const LEAST_PLANES: usize = 4 << 20;

/// The staging buffers of one lane.
pub(crate) struct LaneStaging {
    device: GpuDevice,
    /// Staging buffers for tables, which are this lane's alone, so that no other lane's chunks can use them up.
    tables: Registration,
    /// Staging buffers for planes that find no slot; made when the slots are used up for the first time.
    planes: Option<Registration>,
}

impl LaneStaging {
    /// Page-locks the staging buffers for tables.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn new(context: &SampleContext, stage: &GpuStage) -> Result<Self> {
        let views = LaneMemory::new(context.config.images.views(), context.config.batch_size as usize).table;
        let own = if stage.decodes_forms() { OwnTables::usual_bytes(stage.batch) } else { 0 };
        let table = views + own;
        // There is room for two of the largest tables: one is written while the other is copied.
        let counts = WriteCheck::bytes(stage.batch);
        let room = 2 * (table + 4 * PAGE) + counts + 2 * PAGE;
        let tables = Registration::new(&stage.device, &SlotPool::new(room)?)?;
        Ok(Self { device: stage.device.clone(), tables, planes: None })
    }

    /// Page-locked memory for the counts of `images` images.
    pub(crate) fn counts(&self, images: usize) -> Result<PinnedBuffer> {
        self.tables
            .buffer(WriteCheck::bytes(images))
            .ok_or_else(|| Error::Internal("no page-locked memory for counts".into()))
    }

    /// A staging buffer for a table. What this lane has queued holds some of them until it is done.
    pub(crate) fn table(&mut self, bytes: usize, flight: &mut InFlight) -> Result<Slot> {
        if let Some(slot) = self.tables.slots().try_take(bytes) {
            return Ok(slot);
        }
        flight.submit()?;
        flight.wait()?;
        if let Some(slot) = self.tables.slots().try_take(bytes) {
            return Ok(slot);
        }
        // Programs may be longer than usual. What is in use of the old memory lives on until it is done.
        let room = 2 * (bytes.next_power_of_two() + 2 * PAGE);
        self.tables = Registration::new(&self.device, &SlotPool::new(room)?)?;
        let slot = self.tables.slots().try_take(bytes);
        slot.ok_or_else(|| Error::Internal(format!("no page-locked {bytes} bytes for a table")))
    }

    /// Makes a table's staging buffer memory to copy from.
    pub(crate) fn pin(&self, table: Slot) -> Result<PinnedSlice> {
        self.tables.pin(table)
    }

    /// The staging buffers for planes that find no slot, if there are any yet.
    pub(crate) fn planes(&self) -> Option<&Registration> {
        self.planes.as_ref()
    }

    /// Makes sure that the lane's own page-locked memory has room for the planes of a sample of `images` images,
    /// `bytes` in all. Slots would come free too, but other batches may hold them, and waiting for those could be a
    /// deadlock.
    ///
    /// # Errors
    /// [`Error::Gpu`] or [`Error::Config`] when there is no page-locked memory.
    pub(crate) fn reserve(&mut self, images: usize, bytes: u64) -> Result<()> {
        let room = bytes as usize + 2 * images * PAGE;
        // Staging buffers in use stay what they are, because their images still wait to be checked.
        let serves = |planes: &Registration| {
            let slots = planes.slots();
            slots.usage().in_use == 0 && slots.largest() >= room
        };
        if !self.planes.as_ref().is_some_and(serves) {
            // A power of two, so that larger and larger images make them grow only a few times.
            let room = room.next_power_of_two().max(LEAST_PLANES);
            self.planes = None;
            self.planes = Some(Registration::new(&self.device, &SlotPool::new(room)?)?);
        }
        Ok(())
    }
}
