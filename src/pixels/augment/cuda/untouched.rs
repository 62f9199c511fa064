//! Launches the check that a decoder has written the planes; see `cuda/untouched.cuh`.

use super::launcher::Kernels;
use crate::decode::PlanesLayout;
use crate::gpu::{Arg, Function, Stream};
use base::error::Result;

/// The words that memory is filled with before images are decoded into it, one in one round and the other in the next.
/// If an image happens to hold one of them, it does not hold the other. No byte is a level that images have much of,
/// such as black, white, or no colour.
pub const POISON: [u32; 2] = [0x5b_d3_25_e7, 0xc9_2f_b5_4d];

/// The lines of a plane that are checked, and the points on each, as in the kernel.
const LINES: u32 = 8;
const POINTS: u32 = 32;

/// The threads of a block, and the bytes that they share: a flag for each line of 3 planes.
const THREADS: u32 = LINES * POINTS;
const SHARED_BYTES: u32 = 4 * LINES * 3;

/// Counts for each image the lines of its planes that nobody wrote. Clones share the loaded kernel.
#[derive(Clone)]
pub struct Untouched {
    function: Function,
}

impl Untouched {
    /// Finds the kernel. The error is [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Kernels) -> Result<Self> {
        Ok(Self { function: kernels.module.function("foreload_untouched", &[8, 8, 4])? })
    }

    /// How many lines of an image may look untouched because of what it shows; more cannot be chance.
    ///
    /// The last column of a plane whose border has one level may look so: since rows begin at multiples of four, all
    /// its points need the same byte of the poison. A row's points need different bytes, which no image has in a row.
    /// But if the plane is a single sample wide, or its points are a multiple of four samples apart, one level may be
    /// all of them, in every row. Two and three samples are too few to be sure.
    pub fn by_chance(layout: &PlanesLayout) -> u32 {
        let blind = |width: u32| width < 4 || (width - 1).is_multiple_of(4 * (POINTS - 1));
        layout.used().iter().map(|plane| if blind(plane.width) { LINES } else { 1 }).sum()
    }

    /// Queues the check of `n` images on `stream`. For each of the [`ImageParams`](super::ImageParams) at the device
    /// address `table`, the number of lines that are all `poison` goes to the 32-bit number of its place behind
    /// `counts`.
    ///
    /// # Safety
    ///
    /// The table, the planes that its entries name and the counts must be device memory that stays allocated until the
    /// stream has passed the launch, and whose other users are ordered with `stream` by events.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        table: u64,
        n: usize,
        counts: u64,
        poison: u32,
    ) -> Result<()> {
        let arguments = [Arg::Pointer(table), Arg::Pointer(counts), Arg::U32(poison)];
        // SAFETY: the arguments are the kernel's; what they point to is the caller's promise.
        unsafe { self.function.launch(stream, [n as u32, 1, 1], [THREADS, 1, 1], SHARED_BYTES, &arguments) }
    }
}
