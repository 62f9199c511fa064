//! Where a member of a sample is, as the index keeps it.

use super::format::u32_at;

/// The bytes of a [`MemberRow`] in the index: the number of its key, whose highest bit says whether it is packed (u32),
/// its blocks (i32) and its length (u32).
pub(super) const MEMBER_ROW: usize = 12;

/// The bit of a key's number in the index that says that the member is packed.
const PACKED: u32 = 1 << 31;

/// The place of a sample's member in its shard. Members begin at multiples of [`MemberPlace::BLOCK`], as tar has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPlace {
    /// The blocks from the first byte of the sample's image to that of the member; negative if the member comes first.
    pub blocks: i32,
    /// The length of the member in bytes; [`MemberPlace::TWICE`] and more mean something else.
    pub length: u32,
    /// Whether what lies there is a packed image that stands for the member, as only packed datasets have it.
    pub packed: bool,
}

impl MemberPlace {
    /// The bytes of a block of a tar archive.
    pub const BLOCK: i64 = 512;
    /// The length that stands for two members of one name.
    pub const TWICE: u32 = u32::MAX - 1;
    /// The place of a member that the sample does not have.
    pub const ABSENT: Self = Self { blocks: 0, length: u32::MAX, packed: false };

    /// Whether there is such a member, and no other of its name.
    pub(super) fn is_single(self) -> bool {
        self.length < Self::TWICE
    }

    /// The place of a member that begins at `offset`, if its sample's image begins at `image`; `None` where they are
    /// too far apart.
    pub fn new(image: u64, offset: u64, length: u32) -> Option<Self> {
        let apart = offset.cast_signed().checked_sub(image.cast_signed())?;
        Some(Self { blocks: i32::try_from(apart / Self::BLOCK).ok()?, length, packed: false })
    }
}

/// A member of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRow {
    /// The number of its key in the sorted list of keys.
    pub key: u32,
    /// Its place in the shard.
    pub place: MemberPlace,
}

impl MemberRow {
    pub(super) fn to_bytes(self) -> [u8; MEMBER_ROW] {
        let mut bytes = [0; MEMBER_ROW];
        let packed = if self.place.packed { PACKED } else { 0 };
        bytes[..4].copy_from_slice(&(self.key | packed).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.place.blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.place.length.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let (key, blocks, length) = (u32_at(bytes, 0), u32_at(bytes, 4).cast_signed(), u32_at(bytes, 8));
        Self { key: key & !PACKED, place: MemberPlace { blocks, length, packed: key & PACKED != 0 } }
    }
}
