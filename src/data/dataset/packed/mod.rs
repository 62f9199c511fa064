//! Packed datasets: shards in Foreload's own format (`*.packed`) and a manifest. `foreload pack` makes them from
//! another dataset.
//!
//! A packed dataset has the samples of its source in the same order, and the same fingerprint. So orders, labels,
//! members, names and batches are the same (→ `tests/load/pack/`). The index is made from the shards' footers alone.
//! [docs/packed.md](../../../docs/packed.md) describes the format byte by byte.

mod facts;
mod footer;
mod listing;
mod manifest;
mod sample_names;
mod sources;
mod table;

pub use facts::{PackingFacts, PackingMember, SourceStamps};
pub use footer::{
    FIRST_MEMBER, LARGEST_FOOTER, PACKED_FORMAT, PackedFooter, PackedMember, PackedSample, ShardIdentity,
    head, next_image, next_member,
};
pub(super) use listing::index;
pub use listing::shard_contents;
pub use manifest::{PackedManifest, PackedShard, RawName, ShardTally};
pub use sources::TarMemberIndex;
pub use table::PackedColumns;

/// The manifest file of a packed dataset. The manifest is written last, so a dataset without a manifest is not
/// finished.
pub const MANIFEST_FILE: &str = "foreload-packed.json";
/// The file that describes the source while a dataset is being packed. The process that packs it holds a lock on this
/// file.
pub const PACKING_STATE_FILE: &str = "foreload-packing.json";
/// The file next to tar shards that `foreload pack` made. It describes the dataset that was packed, and is written
/// last.
pub const TARS_MARKER_FILE: &str = "foreload-tars.json";
/// The subdirectory in which files are written while a packed dataset is unpacked into a directory. Each file is moved
/// to its final location when it is complete.
pub const UNPACKING_DIRECTORY: &str = "foreload-unpacking";
/// File names that show that a directory is a packed dataset, or that a dataset is being packed or unpacked in the
/// directory.
pub(super) const NAMES: [&str; 3] = [MANIFEST_FILE, PACKING_STATE_FILE, UNPACKING_DIRECTORY];
/// The maximum number of shards. Shard names have six digits, so that names sort like the indices of shards.
pub const MAX_SHARDS: usize = 1_000_000;

/// The file name of the shard at index `number`.
pub fn shard_name(number: usize) -> String {
    format!("{number:06}.packed")
}

/// Whether a file has the name of a packed shard.
pub fn is_shard_name(name: &[u8]) -> bool {
    name.ends_with(b".packed")
}
