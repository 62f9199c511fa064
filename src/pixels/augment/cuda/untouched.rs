//! Checks that a decoder has written all planes; see `cuda/untouched.cuh`.
//!
//! A decoder's report of success is not trusted. The memory that a decoder writes to is first filled with a poison
//! pattern. After decoding, a kernel counts the lines of the planes that still hold the poison. An image with such
//! lines is decoded again, even if its pixels only look like the poison by chance.

use super::launcher::Kernels;
use crate::decode::PlanesLayout;
use crate::gpu::{Arg, Function, Stream};
use base::error::Result;

/// The words with which memory is filled before images are decoded into it. Decoding rounds alternate between the two
/// words, because an image that happens to contain one word does not contain the other. No byte of a word is a level
/// that is common in images, such as black, white, or chroma without colour.
pub const POISON: [u32; 2] = [0x5b_d3_25_e7, 0xc9_2f_b5_4d];

/// The number of lines of a plane that are checked, and the number of points on each line, as in the kernel.
const LINES: u32 = 8;
const POINTS: u32 = 32;

/// The number of threads of a block, and the size of its shared memory in bytes: a flag for each line of 3 planes.
const THREADS: u32 = LINES * POINTS;
const SHARED_BYTES: u32 = 4 * LINES * 3;

/// Counts the lines of each image's planes that no decoder has written. Clones share the loaded kernel.
#[derive(Clone)]
pub struct PoisonCheck {
    function: Function,
}

impl PoisonCheck {
    /// Finds the kernel. The error is [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Kernels) -> Result<Self> {
        Ok(Self { function: kernels.module.function("foreload_untouched", &[8, 8, 4])? })
    }

    /// Returns the maximum number of lines of an image that may look untouched because of the image's own pixels.
    ///
    /// The check compares the points of a line with the bytes of the poison at the same addresses. Rows begin at
    /// multiples of four, so all points of a column are compared with the same byte, and a last column of one grey
    /// level may look untouched. The points of a row are usually compared with different bytes, which no image has next
    /// to each other. But if the plane is one sample wide, or the points of a row are a multiple of four samples apart,
    /// all points of a row are compared with the same byte. Then any row of one grey level may look untouched. Planes
    /// of two or three samples are too narrow to be sure.
    pub fn max_false_lines(layout: &PlanesLayout) -> u32 {
        let blind = |width: u32| width < 4 || (width - 1).is_multiple_of(4 * (POINTS - 1));
        layout.used().iter().map(|plane| if blind(plane.width) { LINES } else { 1 }).sum()
    }

    /// Queues the check of `n` images on `stream`. The table of their [`ImageParams`](super::ImageParams) is at the
    /// device address `table`. For each image, the number of lines that are all `poison` is written to an array of
    /// 32-bit numbers at `counts`, at the index of the image's place in the batch.
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
        // SAFETY: the arguments match the kernel's; the caller guarantees the memory that they point to.
        unsafe { self.function.launch(stream, [n as u32, 1, 1], [THREADS, 1, 1], SHARED_BYTES, &arguments) }
    }
}
