//! Packed and indexed images decoded on a GPU by kernels of our own, `cuda/packed/` and `cuda/indexed/`: the samples
//! are those of the CPU's decoder. What they decode from is gathered by another one, `cuda/decode/gather.cuh`.

mod gather;
mod image;
mod indexed;
mod launcher;
mod packed;
mod tables;

use super::jpeg::plan::PlannedRows;
pub use super::jpeg::plan::{OwnImage, OwnPlan};
pub(crate) use launcher::OwnLauncher;
pub use tables::{OwnKernel, OwnLaunch, OwnPlaces, OwnTables};

impl OwnKernel {
    /// Its name in metrics and messages.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Gather => "cuda_gather",
            Self::Packed => "cuda_packed",
            Self::Indexed => "cuda_indexed",
        }
    }

    /// What it can do.
    pub(crate) const fn can(self) -> &'static str {
        match self {
            Self::Gather => "the bytes of packed and indexed images, read from page-locked memory",
            Self::Packed => "regions of packed images, with the CPU's samples",
            Self::Indexed => "regions of indexed images, with the CPU's samples",
        }
    }
}

impl OwnPlan {
    /// The kernel that decodes by this plan.
    pub(crate) fn kernel(&self) -> OwnKernel {
        match &self.rows {
            PlannedRows::Packed(_) => OwnKernel::Packed,
            PlannedRows::Indexed(..) => OwnKernel::Indexed,
        }
    }
}
