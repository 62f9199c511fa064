//! Runs Foreload's own decoding kernels for a lane.
//!
//! For a chunk of a lane, one launch reads the wanted rows of all images from their slots into the arena, over the bus,
//! and one launch for each storage format decodes them. All launches read one copy of the tables. The kernels bound
//! every access and count damaged rows; an image with damaged rows goes to the CPU.

use super::GpuStage;
use super::image::{LaneImage, planes_bytes};
use super::placed::PlacedSample;
use super::staging::LaneStaging;
use base::error::Result;
use base::slot::Slot;
use pixels::decode::cuda::{CudaLauncher, ImageAddresses, LaunchTables};
use pixels::gpu::{DeviceBuffer, InFlight};

pub(super) struct OwnDecoder {
    kernels: CudaLauncher,
    tables: LaunchTables,
    device: Option<DeviceBuffer>,
}

impl OwnDecoder {
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub(super) fn new(stage: &GpuStage) -> Result<Self> {
        let kernels = CudaLauncher::new(&stage.gpu.kernels.module)?;
        Ok(Self { kernels, tables: LaunchTables::default(), device: None })
    }

    /// Fills the tables with those images of the `placed` samples that Foreload's own kernels decode. The kernels write
    /// the planes and the input of these images to the arena, which is at address `arena`. The counts of damaged rows
    /// begin at the index `first`: first those of the first image of all samples, then those of their second image, and
    /// so on.
    ///
    /// # Errors
    /// [`Error::Internal`](base::error::Error::Internal).
    pub(super) fn fill_tables(&mut self, placed: &[PlacedSample], arena: u64, first: usize) -> Result<()> {
        self.tables.clear();
        for (index, sample) in placed.iter().enumerate() {
            for (number, image) in sample.images().enumerate() {
                if let (LaneImage::Own { plan, bytes, .. }, Some((offset, layout))) = image {
                    let planes = arena + offset;
                    let from = bytes.part(plan.bytes.clone())?.device_address();
                    let places = ImageAddresses { from, bytes: planes + planes_bytes(layout), planes };
                    self.tables.add(plan, places, (first + number * placed.len() + index) as u32);
                }
            }
        }
        Ok(())
    }

    /// Takes a staging buffer that is large enough for the tables of all `placed` samples. If no buffer is free, waits
    /// for queued work. So call this before anything is queued on the stream of the decoding engine.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) or [`Error::Config`](base::error::Error::Config) if there is no
    /// page-locked memory.
    pub(super) fn reserve(
        placed: &[PlacedSample],
        staging: &mut LaneStaging,
        flight: &mut InFlight,
    ) -> Result<Option<Slot>> {
        let bytes_of = |(image, _): (&LaneImage, &Option<_>)| match image {
            LaneImage::Own { plan, .. } => LaunchTables::most_bytes(plan),
            _ => 0,
        };
        let bytes = placed.iter().flat_map(PlacedSample::images).map(bytes_of).sum();
        if bytes == 0 { Ok(None) } else { staging.table(bytes, flight).map(Some) }
    }

    /// Queues the copy of the tables through the buffer `slot`, which [`OwnDecoder::reserve`] returned. Returns the
    /// arguments of a launch: the kernels, the tables and their address on the device. `None` if no image needs a
    /// launch.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub(super) fn copy(
        &mut self,
        stage: &GpuStage,
        slot: Option<Slot>,
        staging: &LaneStaging,
        flight: &mut InFlight,
    ) -> Result<Option<(&CudaLauncher, &LaunchTables, u64)>> {
        let bytes = self.tables.bytes();
        let Some(mut slot) = slot.filter(|_| bytes > 0) else { return Ok(None) };
        self.tables.write(&mut slot.bytes_mut()[..bytes]);
        let from = staging.tables.pin(slot)?.part(0..bytes)?;
        let device = match self.device.take().filter(|device| device.bytes() >= bytes) {
            Some(device) => device,
            // A buffer that is too small was dropped by `filter`; it is freed in the stream's order.
            None => {
                stage.memory.allocate(flight.stream(), bytes.max(LaunchTables::usual_bytes(stage.batch)))?
            }
        };
        let device = self.device.insert(device);
        flight.copy_to_device(device.range(0, bytes)?, &from)?;
        Ok(Some((&self.kernels, &self.tables, device.ptr())))
    }
}
