//! Launches the kernel that mixes the images of each mixing group (ring) of a batch; see `cuda/mix.cuh`.

use super::super::{DrawnMix, MIX_GROUP_SIZE, MixRegion, MixWeights, Output};
use super::launcher::{Kernels, MAX_THREADS, parts};
use super::params::OutputParams;
use crate::gpu::{Arg, Function, Stream};
use base::error::Result;

/// The name of the kernel.
pub(super) const MIX: &str = "foreload_mix";
/// The approximate number of elements that each thread mixes.
const ELEMENTS: u32 = 8;

/// The entry of one mixing group in the table that a launch reads from device memory: `RingParams` in `cuda/mix.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MixGroupParams {
    count: u32,
    places: [u32; MIX_GROUP_SIZE as usize],
    own: f32,
    other: f32,
    pastes: u32,
    rectangle: [u32; 4],
}

impl MixGroupParams {
    /// The size of an entry in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// Makes the entry of a group. `images` has the indices of the group's images in their batch.
    ///
    /// # Panics
    /// Panics for more than [`MIX_GROUP_SIZE`] images.
    pub fn new(images: impl Iterator<Item = u32>, drawn: &DrawnMix) -> Self {
        let (mut places, mut count) = ([0; MIX_GROUP_SIZE as usize], 0);
        for place in images {
            places[count as usize] = place;
            count += 1;
        }
        let MixWeights { own, other } = MixWeights::new(drawn.share);
        let (pastes, rectangle) = match drawn.region {
            MixRegion::Everywhere => (0, [0; 4]),
            MixRegion::Rectangle { left, top, right, bottom } => (1, [left, top, right, bottom]),
        };
        Self { count, places, own, other, pastes, rectangle }
    }

    /// Returns the bytes of the entry as the kernel reads them.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` structure of numbers of four bytes, without padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), Self::BYTES) }
    }
}

/// Mixes the images of one view on one device.
pub struct MixLauncher {
    function: Function,
    params: OutputParams,
}

impl MixLauncher {
    /// Finds the kernel for images of `output`, which must be floats. The error is
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Kernels, output: &Output) -> Result<Self> {
        let function = kernels.module.function(MIX, &[8, 8, size_of::<OutputParams>()])?;
        Ok(Self { function, params: OutputParams::new(output) })
    }

    /// Queues launches on `stream` that mix `n` groups in place. The table of their [`MixGroupParams`] is at the device
    /// address `table`, and the images begin at `images`.
    ///
    /// # Safety
    ///
    /// The table and the images must be device memory that stays allocated until the stream has passed the launch, and
    /// whose other users are ordered with `stream` by events.
    pub unsafe fn launch(&self, stream: &Stream, table: u64, n: usize, images: u64) -> Result<()> {
        let elements = 3 * self.params.width * self.params.height;
        let tiles = elements.div_ceil(ELEMENTS * MAX_THREADS);
        for (first, groups) in parts(n) {
            let table = table + (first * MixGroupParams::BYTES) as u64;
            let arguments = [Arg::Pointer(table), Arg::Pointer(images), Arg::Bytes(self.params.as_bytes())];
            // SAFETY: the arguments match the kernel's; the caller guarantees the memory that they point to.
            unsafe { self.function.launch(stream, [tiles, groups, 1], [MAX_THREADS, 1, 1], 0, &arguments) }?;
        }
        Ok(())
    }
}
