//! Launches the kernels that decode images, and the kernel that gathers their bytes.

use super::tables::{CudaKernel, LaunchTables};
use crate::gpu::{Arg, Function, Module, Stream};
use base::error::Result;

/// Launcher for the kernels that decode packed and indexed images, on one device.
pub struct CudaLauncher {
    kernels: [Function; CudaKernel::ALL.len()],
}

impl CudaLauncher {
    /// Finds the kernels.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(module: &Module) -> Result<Self> {
        let find = |kernel: CudaKernel| module.function(kernel.name(), &vec![8; kernel.parameters()]);
        let [packed, indexed, gather] = CudaKernel::ALL.map(find);
        Ok(Self { kernels: [packed?, indexed?, gather?] })
    }

    /// Queues the gathering and decoding of all images of `tables` on `stream`. The tables were copied to the device
    /// address `at`. The kernels write every value of the images' planes. `damage` is the device address of the 32-bit
    /// damage counters: the kernels add the number of an image's damaged rows to the counter of the image. The planes
    /// of an image with damage have no useful content.
    ///
    /// # Safety
    ///
    /// The tables, and the planes, bytes and counters that they refer to, must be device memory that stays allocated
    /// until the launches on the stream are complete. Other users of that memory must be ordered with `stream` by
    /// events. The sources of the gathered bytes must stay page-locked and unchanged for the same time.
    pub unsafe fn launch(&self, stream: &Stream, tables: &LaunchTables, at: u64, damage: u64) -> Result<()> {
        for launch in tables.launches(at, damage) {
            let arguments: Vec<Arg> = launch.arguments.into_iter().map(Arg::Pointer).collect();
            let (threads, shared) = launch.kernel.block();
            let function = &self.kernels[launch.kernel as usize];
            let (grid, block) = ([launch.blocks, 1, 1], [threads, 1, 1]);
            // SAFETY: the arguments match the kernel; the caller guarantees the memory that they point to.
            unsafe { function.launch(stream, grid, block, shared, &arguments) }?;
        }
        Ok(())
    }
}
