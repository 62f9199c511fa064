//! Packed images decoded on a GPU by a kernel of our own, `cuda/packed/`: the same samples as those of the CPU's decoder.

mod launcher;
mod table;

#[cfg(test)]
pub(crate) use launcher::PACKED;
pub use launcher::PackedLauncher;
pub use table::PackedTable;
