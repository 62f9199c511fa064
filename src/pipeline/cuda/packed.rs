//! A lane's part in decoding packed images: the table that the kernel reads, and its launch.

use super::GpuStage;
use super::image::{LaneImage, planes_bytes};
use super::placed::PlacedSample;
use super::staging::LaneStaging;
use crate::decode::cuda::{PackedLauncher, PackedTable};
use crate::error::Result;
use crate::gpu::{DeviceBuffer, InFlight};

/// Decodes the packed images of one lane.
pub(super) struct PackedDecoder {
    kernel: PackedLauncher,
    table: PackedTable,
    /// The table in device memory; made for the first packed image.
    device: Option<DeviceBuffer>,
}

impl PackedDecoder {
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the driver fails.
    pub(super) fn new(stage: &GpuStage) -> Result<Self> {
        let kernel = PackedLauncher::new(&stage.gpu.kernels.module)?;
        Ok(Self { kernel, table: PackedTable::default(), device: None })
    }

    /// Makes the table of the packed images of the `placed` samples, whose planes and bytes are in the arena at this
    /// address. Their damaged rows will be counted by the numbers from `first` on, the first images of all samples
    /// before the next ones.
    pub(super) fn gather(&mut self, placed: &[PlacedSample], arena: u64, first: usize) {
        self.table.clear();
        for (index, sample) in placed.iter().enumerate() {
            for (number, image) in sample.images().enumerate() {
                if let (LaneImage::Packed { plan, .. }, Some((offset, layout))) = image {
                    let (planes, damage) = (arena + offset, first + number * placed.len() + index);
                    self.table.add(plan, planes, planes + planes_bytes(layout), damage as u32);
                }
            }
        }
    }

    /// Queues the copy of the table, and returns what a launch needs: the kernel, the table and its address on the
    /// device; `None` where there are no packed images.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the driver fails.
    pub(super) fn copy(
        &mut self,
        stage: &GpuStage,
        staging: &mut LaneStaging,
        flight: &mut InFlight,
    ) -> Result<Option<(&PackedLauncher, &PackedTable, u64)>> {
        if self.table.rows() == 0 {
            return Ok(None);
        }
        let bytes = self.table.bytes();
        let mut slot = staging.table(bytes, flight)?;
        self.table.write(&mut slot.bytes_mut()[..bytes]);
        let from = staging.pin(slot)?.part(0..bytes)?;
        let device = match self.device.take().filter(|device| device.bytes() >= bytes) {
            Some(device) => device,
            // The old one is freed in the stream's order.
            None => stage.memory.allocate(flight.stream(), bytes + bytes / 4)?,
        };
        let device = self.device.insert(device);
        flight.copy_to_device(device.range(0, bytes)?, &from)?;
        Ok(Some((&self.kernel, &self.table, device.ptr())))
    }
}
