//! Launches the kernels that decode images, and the one that gathers their bytes.

use super::tables::{OwnKernel, OwnTables};
use crate::gpu::{Arg, Function, Module, Stream};
use base::error::Result;

/// Decodes packed and indexed images on one device.
pub struct OwnLauncher {
    kernels: [Function; OwnKernel::ALL.len()],
}

impl OwnLauncher {
    /// Finds the kernels. The error is [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(module: &Module) -> Result<Self> {
        let find = |kernel: OwnKernel| module.function(kernel.name(), &vec![8; kernel.parameters()]);
        let [packed, indexed, gather] = OwnKernel::ALL.map(find);
        Ok(Self { kernels: [packed?, indexed?, gather?] })
    }

    /// Queues the gathering and decoding of all images of `tables`, which were copied to the device address `at`, on
    /// `stream`. All samples of their planes are written. What is damaged of each image is added to the 32-bit number
    /// of its own behind `damage`; the planes of an image with damage hold nothing of use.
    ///
    /// # Safety
    ///
    /// The tables, and the planes, bytes and numbers that they name must be device memory that stays allocated until
    /// the stream has passed the launches, and whose other users are ordered with `stream` by events. What the bytes
    /// are gathered from must be page-locked that long, and nobody may write it.
    pub unsafe fn launch(&self, stream: &Stream, tables: &OwnTables, at: u64, damage: u64) -> Result<()> {
        for launch in tables.launches(at, damage) {
            let arguments: Vec<Arg> = launch.arguments.into_iter().map(Arg::Pointer).collect();
            let (threads, shared) = launch.kernel.block();
            let function = &self.kernels[launch.kernel as usize];
            let (grid, block) = ([launch.blocks, 1, 1], [threads, 1, 1]);
            // SAFETY: the arguments are the kernel's; what they point to is the caller's promise.
            unsafe { function.launch(stream, grid, block, shared, &arguments) }?;
        }
        Ok(())
    }
}
