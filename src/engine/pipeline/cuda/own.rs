//! A lane's part in decoding by the kernels of our own: the tables that they read, and their launches.

use super::GpuStage;
use super::image::{LaneImage, planes_bytes};
use super::placed::PlacedSample;
use super::staging::LaneStaging;
use base::error::Result;
use base::slot::Slot;
use pixels::decode::cuda::{OwnLauncher, OwnPlaces, OwnTables};
use pixels::gpu::{DeviceBuffer, InFlight};

/// Decodes the packed and the indexed images of one lane.
pub(super) struct OwnDecoder {
    kernels: OwnLauncher,
    tables: OwnTables,
    /// The tables in device memory; made for the first image.
    device: Option<DeviceBuffer>,
}

impl OwnDecoder {
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub(super) fn new(stage: &GpuStage) -> Result<Self> {
        let kernels = OwnLauncher::new(&stage.gpu.kernels.module)?;
        Ok(Self { kernels, tables: OwnTables::default(), device: None })
    }

    /// Fills the tables with the images of the `placed` samples that are the kernels', whose planes and bytes go to the
    /// arena at this address. What is damaged of them will be counted by the numbers from `first` on, the first images
    /// of all samples before the next ones.
    ///
    /// # Errors
    /// [`Error::Internal`](base::error::Error::Internal).
    pub(super) fn fill_tables(&mut self, placed: &[PlacedSample], arena: u64, first: usize) -> Result<()> {
        self.tables.clear();
        for (index, sample) in placed.iter().enumerate() {
            for (number, image) in sample.images().enumerate() {
                if let (LaneImage::Own { plan, bytes, .. }, Some((offset, layout))) = image {
                    let planes = arena + offset;
                    let from = bytes.part(plan.bytes.clone())?.seen_at();
                    let places = OwnPlaces { from, bytes: planes + planes_bytes(layout), planes };
                    self.tables.add(plan, places, (first + number * placed.len() + index) as u32);
                }
            }
        }
        Ok(())
    }

    /// Takes a staging buffer for the tables of the images of the `placed` samples, or of some of them. Where none is
    /// free, that waits for what is queued; so it must be done before the decoding engine gets anything, which has a
    /// stream of its own.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) or [`Error::Config`](base::error::Error::Config) when there is no
    /// page-locked memory.
    pub(super) fn reserve(
        placed: &[PlacedSample],
        staging: &mut LaneStaging,
        flight: &mut InFlight,
    ) -> Result<Option<Slot>> {
        let bytes_of = |(image, _): (&LaneImage, &Option<_>)| match image {
            LaneImage::Own { plan, .. } => OwnTables::most_bytes(plan),
            _ => 0,
        };
        let bytes = placed.iter().flat_map(PlacedSample::images).map(bytes_of).sum();
        if bytes == 0 { Ok(None) } else { staging.table(bytes, flight).map(Some) }
    }

    /// Queues the copy of the tables by way of the buffer `slot`, which was reserved for them, and returns what a
    /// launch needs: the kernels, the tables and their address on the device; `None` where there are no such images.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub(super) fn copy(
        &mut self,
        stage: &GpuStage,
        slot: Option<Slot>,
        staging: &LaneStaging,
        flight: &mut InFlight,
    ) -> Result<Option<(&OwnLauncher, &OwnTables, u64)>> {
        let bytes = self.tables.bytes();
        let Some(mut slot) = slot.filter(|_| bytes > 0) else { return Ok(None) };
        self.tables.write(&mut slot.bytes_mut()[..bytes]);
        let from = staging.pin(slot)?.part(0..bytes)?;
        let device = match self.device.take().filter(|device| device.bytes() >= bytes) {
            Some(device) => device,
            // The old one is freed in the stream's order.
            None => stage.memory.allocate(flight.stream(), bytes.max(OwnTables::usual_bytes(stage.batch)))?,
        };
        let device = self.device.insert(device);
        flight.copy_to_device(device.range(0, bytes)?, &from)?;
        Ok(Some((&self.kernels, &self.tables, device.ptr())))
    }
}
