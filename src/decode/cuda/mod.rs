//! Packed images decoded on a GPU by a kernel of our own, `cuda/packed/`: the samples are those of the CPU's decoder.

mod launcher;
mod table;

#[cfg(test)]
pub(crate) use launcher::PACKED;
pub use launcher::PackedLauncher;
pub use table::PackedTable;

/// The name in metrics and messages of the kernel that decodes packed images, and what it can do.
pub(crate) const CUDA_PACKED: &str = "cuda_packed";
pub(crate) const PACKED_REGIONS: &str = "regions of packed images, with the CPU's samples";
