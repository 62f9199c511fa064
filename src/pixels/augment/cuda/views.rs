//! Launches the kernels that make the images of one view: the pass, and then the kernel that runs the images' programs.

use super::super::{Output, RecipeView};
use super::launcher::{Kernels, Launcher, parts};
use super::params::{ImageParams, OutputParams};
use super::program::{SPAN_BYTES, max_sets};
use crate::gpu::{Arg, Function, Stream};
use base::error::Result;

/// The names of the kernels that run programs: `OPS` turns grey levels into images, `ERASE` changes finished images.
pub(super) const OPS: &str = "foreload_ops";
pub(super) const ERASE: &str = "foreload_erase";

/// For both kernels: the maximum number of threads of a block, the number of pixels that a thread makes at a time, and
/// the bytes of shared memory.
const MAX_THREADS: u32 = 512;
const PIXELS: u32 = 4;
pub(super) const SHARED_BYTES: u32 = 3 * (256 + 4 * 256) + 2 * 3 * 4 + 8;

/// The bytes that are reserved for each image's program in a lane's table. The table grows for longer programs.
const USUAL_PROGRAM: usize = 2048;

/// Makes the images of one view on one device.
pub struct ViewLauncher {
    /// Launches the pass, which writes the finished images, or grey levels if programs change these levels.
    pass: Launcher,
    /// The kernel that runs the programs: `OPS`, or `ERASE` if programs change only finished images.
    programs: Function,
    /// The number of level sets that images use; 0 if programs change only finished images.
    max_sets: usize,
    params: OutputParams,
}

/// The addresses in device memory of the programs of a view's images; see [`Programs`](super::Programs).
#[derive(Debug, Clone, Copy)]
pub struct ProgramsAt {
    /// The address of the view's spans.
    pub spans: u64,
    /// The address of the first word of all programs. Spans contain indices of words from this address on.
    pub words: u64,
}

/// The grey levels of a batch in device memory.
#[derive(Debug, Clone, Copy)]
pub struct LevelsAt {
    /// The address of the first level set of the first image.
    pub address: u64,
    /// The number of images for which each level set has space.
    pub capacity: usize,
}

impl ViewLauncher {
    /// Finds the kernels for `view`. All images of the view must have the same size. The error is
    /// [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Kernels, view: &RecipeView) -> Result<Self> {
        let (levels, output) = (view.levels(), size_of::<OutputParams>());
        let programs = match levels.is_some() {
            true => kernels.module.function(OPS, &[8, 8, 8, 8, 8, 8, output]),
            false => kernels.module.function(ERASE, &[8, 8, 8, 8, output]),
        }?;
        let max_sets = levels.as_ref().map_or(0, |_| max_sets(view));
        let params = OutputParams::new(view.fixed_output());
        let pass = Launcher::new(kernels, levels.unwrap_or_else(|| view.fixed_output().clone()))?;
        Ok(Self { pass, programs, max_sets, params })
    }

    /// Returns the format that the pass writes. An image's [`ImageParams`] must be made for this format.
    pub fn pass_output(&self) -> &Output {
        self.pass.output()
    }

    /// Returns the maximum number of level sets that an image uses; 0 if programs change only finished images.
    pub fn max_sets(&self) -> usize {
        self.max_sets
    }

    /// Queues the launches that make `n` images, like [`Launcher::launch`]. `programs` is `None` if no image has a
    /// program. The levels are not needed after the launches.
    ///
    /// # Safety
    ///
    /// The rules of [`Launcher::launch`] apply, also to programs and levels. The levels must have at least
    /// [`LaneMemory::levels`] bytes.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        table: u64,
        n: usize,
        programs: Option<ProgramsAt>,
        levels: LevelsAt,
        images: u64,
    ) -> Result<()> {
        let has_levels = self.max_sets > 0;
        let written = if has_levels { levels.address } else { images };
        // SAFETY: the caller guarantees the memory of the images or the levels.
        unsafe { self.pass.launch(stream, table, n, written) }?;
        let Some(ProgramsAt { spans, words }) = programs else { return Ok(()) };
        let threads = threads(self.params.width * self.params.height);
        for (first, images_of_part) in parts(n) {
            let table = Arg::Pointer(table + (first * ImageParams::BYTES) as u64);
            let spans = Arg::Pointer(spans + (first * SPAN_BYTES) as u64);
            let (words, images) = (Arg::Pointer(words), Arg::Pointer(images));
            let set_bytes = ((levels.capacity * self.pass.output().bytes()) as u64).to_ne_bytes();
            let (address, set_bytes) = (Arg::Pointer(levels.address), Arg::Bytes(&set_bytes));
            let output = Arg::Bytes(self.params.as_bytes());
            let on_levels = [table, spans, words, address, set_bytes, images, output];
            let on_finished = [table, spans, words, images, output];
            let arguments = if has_levels { &on_levels[..] } else { &on_finished };
            let (grid, block) = ([images_of_part, 1, 1], [threads, 1, 1]);
            // SAFETY: the arguments match the kernel's; the caller guarantees the memory that they point to.
            unsafe { self.programs.launch(stream, grid, block, SHARED_BYTES, arguments) }?;
        }
        Ok(())
    }
}

pub(super) fn threads(pixels: u32) -> u32 {
    pixels.div_ceil(PIXELS).next_multiple_of(32).min(MAX_THREADS)
}

/// The device memory that making a batch takes, without the images and the decoded planes.
#[derive(Debug, Clone, Copy)]
pub struct LaneMemory {
    /// The size of a table in bytes. A table has an entry for each image, grouped by view, and the usual space for
    /// programs.
    pub table: usize,
    /// The size in bytes of the grey levels that one kernel of a view passes to the next. All views use the same
    /// memory, one after another.
    pub levels: usize,
}

impl LaneMemory {
    /// Computes the memory for batches of `capacity` samples, each with one image for each of `views`. The sums
    /// saturate instead of overflowing, so that the result can be compared with the available memory.
    pub fn new<'a>(views: impl Iterator<Item = &'a RecipeView>, capacity: usize) -> Self {
        let (mut entry, mut levels) = (0, 0);
        for view in views {
            entry += ImageParams::BYTES;
            if let Some(output) = view.levels() {
                entry += SPAN_BYTES + USUAL_PROGRAM;
                levels = levels.max(output.bytes().saturating_mul(max_sets(view)));
            }
        }
        Self { table: capacity.saturating_mul(entry), levels: capacity.saturating_mul(levels) }
    }

    /// Returns the total size in bytes.
    pub fn bytes(self) -> usize {
        self.table.saturating_add(self.levels)
    }
}
