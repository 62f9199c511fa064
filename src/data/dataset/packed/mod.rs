//! Packed datasets: shards in Foreload's own format (`*.packed`) and a manifest. `foreload pack` makes them from
//! another dataset.
//!
//! Sample i of a packed dataset is sample i of its source, and the fingerprint is the source's. So orders, labels,
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

/// The manifest file of a packed dataset. It is written last, so a dataset without it is not finished.
pub const MANIFEST_FILE: &str = "foreload-packed.json";
/// The file that describes the source while a dataset is being packed. The process that packs it holds a lock on this
/// file.
pub const UNFINISHED: &str = "foreload-packing.json";
/// The file next to tar shards that `foreload pack` made. It is written last and describes their source.
pub const TARS_MARKER_FILE: &str = "foreload-tars.json";
/// The subdirectory in which files are written while a packed dataset is unpacked into a directory. Each file is moved
/// to its place when it is complete.
pub const UNPACKING_DIRECTORY: &str = "foreload-unpacking";
/// Names that show that a directory is a packed dataset, or that a dataset is being packed or unpacked in it.
pub(super) const NAMES: [&str; 3] = [MANIFEST_FILE, UNFINISHED, UNPACKING_DIRECTORY];
/// The largest number of shards. Shard names have six digits, so that they sort like their numbers.
pub const MAX_SHARDS: usize = 1_000_000;

/// The file name of a shard.
pub fn shard_name(number: usize) -> String {
    format!("{number:06}.packed")
}

/// Whether a file has the name of a packed shard.
pub fn is_shard_name(name: &[u8]) -> bool {
    name.ends_with(b".packed")
}
