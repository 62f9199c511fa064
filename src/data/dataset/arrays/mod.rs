//! Samples whose fields are arrays, stored in one or in many places of files.
//!
//! An indexer returns a [`ShardArray`] for each array of a shard: its type, its shape, and where its elements are. The
//! index stores these facts once for each array, not once for each sample. Where the bytes of a sample are is computed
//! when they are needed.
//!
//! - `rows.rs`: what indexers return, and how the index file stores it. `check.rs` has all checks of bounds.
//! - `cf.rs`: how the attributes of NetCDF's conventions decode elements.
//! - `samples.rs`: which arrays of a dataset become fields, and how many samples they have.
//! - `values.rs`: arrays with one number for each sample, which become columns too.
//! - `filters/`: decoding of a chunk's bytes, whatever container they come from.
//! - `slab.rs`: one array of one sample: the parts of the array that a window touches, and where their bytes are.
//! - `shared.rs`: chunks that several samples share, which readers decode once for all of them.
//! - `selection.rs`: the arrays that a loader reads. The stored bytes of all of them are a sample's record
//!   (`record.rs`). An [`Extent`](super::Extent) of a record has an address in place of an offset, as in compressed
//!   blocks: [`RECORDS`] plus `RECORD_DISTANCE` times the number of the sample in its shard. Only the readers need to
//!   know that.

mod cf;
mod check;
pub mod filters;
pub mod record;
mod rows;
mod samples;
mod selection;
mod shared;
mod slab;
#[cfg(test)]
mod tests;
mod values;

use crate::source::Stamp;
pub use cf::CfFacts;
pub(super) use cf::{CF_ATTRIBUTES, CfAttributes, CfNumber, cf};
pub use check::check;
pub use rows::{ArrayFacts, ArrayStorage, ChunkCell, ShardArray};
pub(super) use rows::{ArrayTable, CELL_ROW, FactsTable, SpilledArray};
pub(super) use samples::{contents, join, largest};
pub use selection::ArrayField;
pub(super) use selection::ArraySelection;
pub(super) use shared::ChunkUse;
pub use shared::SharedChunk;
pub use slab::{ArrayRegion, CellPart, PackedCell, Slab};
pub(super) use values::{column, elements};

/// A file or directory that belongs to an array of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayFile {
    /// The path below the dataset's root.
    pub path: Vec<u8>,
    /// The stamp, taken before the contents were read.
    pub stamp: Stamp,
}

/// The first address of records. No file is so long.
pub const RECORDS: u64 = 1 << 62;
/// The distance between the addresses of two records. It is larger than any record with the longest gap that is still
/// read in one request, so that no request covers two records.
pub(super) const RECORD_DISTANCE: u64 = 1 << 33;
/// The largest number of samples of a shard.
const MAX_SAMPLES: u64 = RECORDS / RECORD_DISTANCE - 1;

/// The first address of decompressed chunks that several samples share. The address of a chunk is this number, plus
/// [`CHUNKS_OF_ARRAY`] times the number of the array in its shard, plus the number of the chunk times the distance of
/// chunks.
pub const CHUNKS: u64 = 1 << 61;
pub(super) const CHUNKS_OF_ARRAY: u64 = 1 << 48;
/// The largest number of arrays of a shard: that of the ranges of addresses below [`RECORDS`].
const MAX_ARRAYS: usize = ((RECORDS - CHUNKS) / CHUNKS_OF_ARRAY) as usize;

/// The number of bytes of the longest record of which the cache can keep a copy.
pub const MAX_RECORD: u64 = 1 << 30;
