//! Launches the kernels that make the images of one view: the pass, and after it `cuda/colour.cuh` if a list changes
//! colours.

use super::super::{Output, RecipeView};
use super::launcher::{Kernels, Launcher, MOST_THREADS, parts};
use super::params::{ImageParams, OutputParams};
use crate::error::Result;
use crate::gpu::{Arg, Function, Stream};

/// The name of the kernel that changes colours, and the number of pixels that one of its threads makes at a time.
pub(super) const COLOUR: &str = "foreload_colour";
const PIXELS: u32 = 4;

/// Makes the images of one view on one device.
pub(crate) struct ViewLauncher {
    /// The launcher of the pass, which writes the output, or the grey levels that colours are made of.
    pass: Launcher,
    colours: Option<Colours>,
}

/// The launcher of the second kernel of a view.
struct Colours {
    function: Function,
    params: OutputParams,
    /// The codes of the steps, the first one in the lowest byte.
    steps: u64,
}

impl ViewLauncher {
    /// Finds the kernels for `view`, whose size all images have. The error is [`Error::Gpu`](crate::Error::Gpu) if the
    /// driver fails.
    pub(crate) fn new(kernels: &Kernels, view: &RecipeView) -> Result<Self> {
        let Some(levels) = view.levels() else {
            return Ok(Self { pass: Launcher::new(kernels, view.fixed_output().clone())?, colours: None });
        };
        let steps = (0..view.pixel_steps()).fold(0, |steps, _| steps << 8 | 1);
        let function = kernels.module.function(COLOUR, &[8, 8, 8, size_of::<OutputParams>(), 8])?;
        let colours = Colours { function, params: OutputParams::new(view.fixed_output()), steps };
        Ok(Self { pass: Launcher::new(kernels, levels)?, colours: Some(colours) })
    }

    /// The output of the pass, for which an image's [`ImageParams`] are made.
    pub(crate) fn pass_output(&self) -> &Output {
        self.pass.output()
    }

    /// Queues the launches that make `n` images, like [`Launcher::launch`], with the device address of memory for their
    /// [levels](LaneMemory::levels), which are not needed afterwards.
    ///
    /// # Safety
    ///
    /// The rules of [`Launcher::launch`] apply, also to the levels.
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream,
        table: u64,
        n: usize,
        levels: u64,
        images: u64,
    ) -> Result<()> {
        let Some(Colours { function, params, steps }) = &self.colours else {
            // SAFETY: the caller's promise.
            return unsafe { self.pass.launch(stream, table, n, images) };
        };
        // SAFETY: the caller's promise, of the levels.
        unsafe { self.pass.launch(stream, table, n, levels) }?;
        let tiles = (params.width * params.height).div_ceil(PIXELS * MOST_THREADS);
        for (first, images_of_part) in parts(n) {
            let table = table + (first * ImageParams::BYTES) as u64;
            let steps = steps.to_ne_bytes();
            let arguments = [
                Arg::Pointer(table),
                Arg::Pointer(levels),
                Arg::Pointer(images),
                Arg::Bytes(params.as_bytes()),
                Arg::Bytes(&steps),
            ];
            // SAFETY: the arguments are the kernel's; what they point to is the caller's promise.
            unsafe {
                function.launch(stream, [tiles, images_of_part, 1], [MOST_THREADS, 1, 1], 0, &arguments)
            }?;
        }
        Ok(())
    }
}

/// The device memory that the making of a batch takes, without the images and what they are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneMemory {
    /// The bytes of a table: an entry for each image, with those of a view together.
    pub(crate) table: usize,
    /// The bytes of the levels between the two kernels of a view, which serve one view after another.
    pub(crate) levels: usize,
}

impl LaneMemory {
    /// The memory for batches of `capacity` samples, each of whose images has its part of `views`. Saturates instead of
    /// overflowing, so that it can be compared with the memory there is.
    pub(crate) fn new<'a>(views: impl Iterator<Item = &'a RecipeView>, capacity: usize) -> Self {
        let (mut entries, mut levels) = (0, 0);
        for view in views {
            entries += 1;
            levels = levels.max(view.levels().map_or(0, |levels| levels.bytes()));
        }
        Self {
            table: capacity.saturating_mul(entries * ImageParams::BYTES),
            levels: capacity.saturating_mul(levels),
        }
    }

    /// The bytes of all of it.
    pub(crate) fn bytes(self) -> usize {
        self.table.saturating_add(self.levels)
    }
}
