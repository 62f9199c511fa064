//! Launches the kernel that decodes packed images.

use super::table::PackedTable;
use crate::error::Result;
use crate::gpu::{Arg, Function, Module, Stream};

/// The name of the kernel.
pub(crate) const PACKED: &str = "foreload_packed";

/// The threads of a block, each of which decodes a block of 8×8 samples at a time, and the bytes that they share.
const THREADS: u32 = 128;
const SHARED_BYTES: u32 = 20_036;

/// Decodes packed images on one device.
pub struct PackedLauncher {
    function: Function,
}

impl PackedLauncher {
    /// The threads of a block, and the bytes of shared memory that it needs.
    pub const BLOCK: (u32, u32) = (THREADS, SHARED_BYTES);

    /// Finds the kernel. The error is [`Error::Gpu`](crate::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Module) -> Result<Self> {
        Ok(Self { function: kernels.function(PACKED, &[8, 8, 8])? })
    }

    /// Queues the decoding of all images of `table`, which was copied to the device address `at`, on `stream`. All
    /// samples of their planes are written. The number of damaged rows of each image is added to the 32-bit number of
    /// its own behind `damage`; the planes of an image with damage hold nothing of use.
    ///
    /// # Safety
    ///
    /// The table, and the planes, bytes and numbers that it names must be device memory that stays allocated until the
    /// stream has passed the launch, and whose other users are ordered with `stream` by events.
    pub unsafe fn launch(&self, stream: &Stream, table: &PackedTable, at: u64, damage: u64) -> Result<()> {
        let rows = at + table.rows_at() as u64;
        let arguments = [at, rows, damage].map(Arg::Pointer);
        let (grid, block) = ([table.rows() as u32, 1, 1], [THREADS, 1, 1]);
        // SAFETY: the arguments are the kernel's; what they point to is the caller's promise.
        unsafe { self.function.launch(stream, grid, block, SHARED_BYTES, &arguments) }
    }
}
