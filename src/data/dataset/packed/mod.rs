//! A packed dataset: shards of our own (`*.packed`) and a manifest, which `foreload pack` makes of another dataset.
//!
//! Sample i of a packed dataset is sample i of its source, and its fingerprint is the source's. Both are listed from
//! the shards' footers alone. [docs/packed.md](../../../docs/packed.md) has the format byte by byte.

mod facts;
mod footer;
mod listing;
mod manifest;
mod sample_names;
mod sources;
mod table;

pub use facts::{PackingFacts, PackingMember, SourceStamps};
pub use footer::{
    FIRST_MEMBER, LARGEST_FOOTER, PACKED_FORM, PackedFooter, PackedMember, PackedSample, ShardSeal, head,
    next_image, next_member,
};
pub(super) use listing::index;
pub use listing::shard_contents;
pub use manifest::{PackedManifest, PackedShard, RawName, ShardTally};
pub use sources::TarListing;
pub use table::PackedColumns;

/// The file that a packed dataset has beside its shards. It is written last, so that without it the dataset is not
/// finished.
pub const MANIFEST: &str = "foreload-packed.json";
/// The file that says what a dataset is made of while it is not finished. Whoever works on it has it locked.
pub const UNFINISHED: &str = "foreload-packing.json";
/// The file that tar shards have beside them that `foreload pack` made. It is written last, and says of what they are.
pub const TARS: &str = "foreload-tars.json";
/// The directory that a directory has while a packed dataset is unpacked into it. Files are written in it, and moved to
/// their places when they are whole.
pub const UNPACKING: &str = "foreload-unpacking";
/// The names in a directory by which it is a packed dataset, or is to become one or its source again.
pub(super) const NAMES: [&str; 3] = [MANIFEST, UNFINISHED, UNPACKING];
/// The largest number of shards, whose names have six digits so that they are sorted as they are numbered.
pub const MOST_SHARDS: usize = 1_000_000;

/// The file name of a shard.
pub fn shard_name(number: usize) -> String {
    format!("{number:06}.packed")
}

/// Whether a file's name says that it is a shard of a packed dataset.
pub fn is_shard_name(name: &[u8]) -> bool {
    name.ends_with(b".packed")
}
