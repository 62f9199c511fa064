//! Launches the pass, and divides a batch among the blocks of a GPU.

use super::super::{Fidelity, Output};
use super::kernels::KERNELS;
use super::params::OutputParams;
use crate::gpu::{Arg, Function, GpuDevice, Module, Stream};
use base::error::Result;

/// The maximum number of threads of a block, and of columns of a tile (the part of an image that a block makes).
pub(super) const MAX_THREADS: u32 = 256;
/// The maximum number of rows of a tile.
const MAX_ROWS: u32 = 64;
/// The maximum number of rows that a block finishes at a time.
const MAX_STEP_ROWS: u32 = 16;
/// The size of a block's dynamic shared memory, in bytes. Every device grants more by default, and the largest tile
/// needs 28 KB.
const SHARED_BYTES: u32 = 40 << 10;
/// The approximate number of blocks that a multiprocessor runs at a time.
const RESIDENT: u32 = 3;
/// The maximum number of blocks along the grid's y axis. Each image takes one, so it is also the maximum number of
/// images of a launch.
const MAX_IMAGES: u32 = 65_535;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    /// The number of blocks of the grid: in x the tiles of an image, in y the images.
    pub grid: [u32; 3],
    /// The number of threads of a block, in x, y and z.
    pub block: [u32; 3],
    /// The kernel's last argument.
    pub params: OutputParams,
}

impl Launch {
    /// Divides `n` images (at most 65 535) of `output` among the blocks of a GPU with this many multiprocessors.
    pub fn new(output: &Output, n: u32, multiprocessors: u32) -> Self {
        let (width, height) = (output.width, output.height);
        let tiles_across = width.div_ceil(MAX_THREADS);
        let tile_columns = width.div_ceil(tiles_across).next_multiple_of(4);
        let threads_across = tile_columns.next_multiple_of(32);
        let threads = threads_across * (MAX_THREADS / threads_across);
        let step_rows = (threads / (tile_columns / 4)).min(MAX_STEP_ROWS).min(height);
        // Small tiles keep all multiprocessors busy; large tiles share the work on the columns' weights. So there are
        // as many tiles as blocks fit on the multiprocessors at a time.
        let desired_tiles = RESIDENT * multiprocessors / (n.max(1) * tiles_across);
        let most = MAX_ROWS / step_rows * step_rows;
        let tiles_down = desired_tiles.clamp(height.div_ceil(most), height.div_ceil(step_rows));
        let tile_rows = height.div_ceil(tiles_down).next_multiple_of(step_rows);
        let params = OutputParams {
            tile_columns,
            tile_rows,
            tiles_across,
            threads_across,
            step_rows,
            shared_bytes: SHARED_BYTES,
            ..OutputParams::new(output)
        };
        Self { grid: [tiles_across * height.div_ceil(tile_rows), n, 1], block: [threads, 1, 1], params }
    }

    /// Returns the name of the kernel that makes `output`.
    pub fn kernel(output: &Output) -> &'static str {
        match output.fidelity {
            Fidelity::Fast => "foreload_augment_fast",
            Fidelity::Exact => "foreload_augment_exact",
        }
    }
}

/// Returns the launches that make `n` images, as (index of the first image, number of images).
pub(super) fn parts(n: usize) -> impl Iterator<Item = (usize, u32)> {
    let most = MAX_IMAGES as usize;
    (0..n).step_by(most).map(move |first| (first, (n - first).min(most) as u32))
}

/// The kernels, loaded on one device. Clones share the loaded kernels.
#[derive(Clone)]
pub struct Kernels {
    /// The module that contains the kernels.
    pub module: Module,
    multiprocessors: u32,
}

impl Kernels {
    /// Loads the kernels. The error is [`Error::Unavailable`](base::error::Error::Unavailable) if no kernel fits the
    /// device.
    pub fn load(device: &GpuDevice) -> Result<Self> {
        let module = Module::load(device, &KERNELS)?;
        Ok(Self { module, multiprocessors: device.info().multiprocessors })
    }
}

/// Launches the pass that writes one [`Output`] on one device. Clones share the loaded kernel.
#[derive(Clone)]
pub struct Launcher {
    function: Function,
    output: Output,
    multiprocessors: u32,
}

impl Launcher {
    /// Finds the kernel for `output`. The error is [`Error::Gpu`](base::error::Error::Gpu) if the driver fails.
    pub fn new(kernels: &Kernels, output: Output) -> Result<Self> {
        let function =
            kernels.module.function(Launch::kernel(&output), &[8, 8, size_of::<OutputParams>()])?;
        Ok(Self { function, output, multiprocessors: kernels.multiprocessors })
    }

    /// Returns the output that the launcher writes.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Queues launches on `stream` that make `n` images. The table of their [`ImageParams`](super::ImageParams) is at
    /// the device address `table`. Each image is written at its [place](super::ImageParams::at) in the memory that
    /// begins at `images`, where each image has [`Output::bytes`]. Every byte of the images is written. Both addresses
    /// must be multiples of 16.
    ///
    /// # Safety
    ///
    /// The table, the planes that its entries name and the images must be device memory that stays allocated until the
    /// stream has passed the launch, and whose other users are ordered with `stream` by events.
    pub unsafe fn launch(&self, stream: &Stream, table: u64, n: usize, images: u64) -> Result<()> {
        for (first, part) in parts(n) {
            let launch = Launch::new(&self.output, part, self.multiprocessors);
            let table = table + (first * super::ImageParams::BYTES) as u64;
            let arguments = [Arg::Pointer(table), Arg::Pointer(images), Arg::Bytes(launch.params.as_bytes())];
            let shared = launch.params.shared_bytes;
            // SAFETY: the arguments match the kernel's; the caller guarantees the memory that they point to.
            unsafe { self.function.launch(stream, launch.grid, launch.block, shared, &arguments) }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::{DType, MemoryFormat};

    fn output(width: u32, height: u32) -> Output {
        Output {
            height,
            width,
            dtype: DType::F32,
            format: MemoryFormat::Nchw,
            mean: [0.0; 3],
            std: [1.0; 3],
            fill: [0; 3],
            fidelity: Fidelity::Fast,
        }
    }

    #[test]
    fn every_multiprocessor_has_work_and_no_limit_is_passed() {
        let usual = Launch::new(&output(224, 224), 64, 132);
        assert_eq!((usual.grid, usual.block), ([6, 64, 1], [224, 1, 1]));
        assert_eq!(Launch::new(&output(224, 224), 256, 132).grid, [4, 256, 1]);
        for (width, height) in
            (1..40).chain([64, 96, 224, 255, 256, 257, 299, 1000, 4096]).map(|w| (w, 4200 / w))
        {
            for n in [1, 64, 65_535] {
                let Launch { grid, block, params } = Launch::new(&output(width, height), n, 132);
                let context = format!("{width}×{height}: {grid:?} {block:?} {params:?}");
                assert!(block[0] <= MAX_THREADS && block[0] % 32 == 0, "{context}");
                assert!(params.tile_columns <= params.threads_across, "{context}");
                assert!(params.tiles_across * params.tile_columns >= width, "{context}");
                assert!((params.tiles_across - 1) * params.tile_columns < width, "{context}");
                assert_eq!(params.tile_rows % params.step_rows, 0, "{context}");
                assert!(params.tile_rows <= MAX_ROWS.min(block[0]), "{context}");
                assert!(params.step_rows * params.tile_columns / 4 <= block[0], "{context}");
                assert!(3 * params.step_rows <= block[0], "{context}");
                assert_eq!(grid[0], params.tiles_across * height.div_ceil(params.tile_rows), "{context}");
            }
        }
    }
}
