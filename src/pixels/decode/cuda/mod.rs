//! Decoding of packed and indexed images with Foreload's own GPU kernels, `cuda/packed/` and `cuda/indexed/`. The
//! decoded pixel values equal those of the CPU's decoder.
//!
//! The CPU reads only the headers and plans the decoding (`decode/jpeg/plan.rs`). For a launch, one kernel
//! (`cuda/decode/gather.cuh`) copies the needed rows of MCUs of all images from page-locked slots into device memory.
//! Then one kernel per storage format decodes the images. Each row of a packed image has its own thread block. Each row
//! of an indexed image is read by one thread, because Huffman codes are sequential; a thread block has a group of rows.
//! Both kernels share the code that turns coefficients into pixel values (`cuda/decode/`).
//!
//! The kernels keep every memory access inside the bounds of the plan, and count damaged rows. An image with damaged
//! rows is decoded by the CPU. So with `decoder="own"`, which never loads nvJPEG, batches equal the batches that the
//! CPU decodes.

mod gather;
mod image;
mod indexed;
mod launcher;
mod packed;
mod tables;

use super::ConvertedFormat;
use super::jpeg::plan::PlannedRows;
pub use super::jpeg::plan::{CudaImage, CudaPlan};
pub use launcher::CudaLauncher;
pub use tables::{CudaKernel, CudaLaunch, ImageAddresses, LaunchTables};

/// The kernels that decode images: their names in metrics and messages, and their abilities.
pub const CUDA_DECODERS: [(&str, &str); 2] = [
    ("cuda_packed", "regions of packed images, with the same samples as the CPU"),
    ("cuda_indexed", "regions of indexed images, with the same samples as the CPU"),
];

impl CudaPlan {
    /// The image's storage format, which selects the kernel.
    pub fn form(&self) -> ConvertedFormat {
        match &self.rows {
            PlannedRows::Packed(_) => ConvertedFormat::Packed,
            PlannedRows::Indexed(..) => ConvertedFormat::Indexed,
        }
    }
}
