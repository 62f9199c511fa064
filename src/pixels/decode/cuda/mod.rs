//! Packed and indexed images decoded on a GPU by kernels of our own, `cuda/packed/` and `cuda/indexed/`: the samples
//! are those of the CPU's decoder. What they decode from is gathered by another one, `cuda/decode/gather.cuh`.

mod gather;
mod image;
mod indexed;
mod launcher;
mod packed;
mod tables;

use super::MadeForm;
use super::jpeg::plan::PlannedRows;
pub use super::jpeg::plan::{OwnImage, OwnPlan};
pub use launcher::OwnLauncher;
pub use tables::{OwnKernel, OwnLaunch, OwnPlaces, OwnTables};

/// The kernels that decode images, by their names in metrics and messages, and what each can do.
pub const OWN_DECODERS: [(&str, &str); 2] = [
    ("cuda_packed", "regions of packed images, with the CPU's samples"),
    ("cuda_indexed", "regions of indexed images, with the CPU's samples"),
];

impl OwnPlan {
    /// The form of the image, which has a kernel of its own.
    pub fn form(&self) -> MadeForm {
        match &self.rows {
            PlannedRows::Packed(_) => MadeForm::Packed,
            PlannedRows::Indexed(..) => MadeForm::Indexed,
        }
    }
}
