//! Where a member of a sample is, as the index keeps it.

use super::format::{u32_at, u64_at};

/// The bytes of a [`MemberRow`] in the index: the number of its key, whose highest bit says whether it is packed (u32),
/// its length (u32), and its distance from the sample's image (i64).
pub(super) const MEMBER_ROW: usize = 16;

/// The bit of a key's number in the index that says that the member is packed.
const PACKED: u32 = 1 << 31;

/// The place of a sample's member in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPlace {
    /// The bytes from the first byte of the sample's image to that of the member; negative if the member comes first.
    pub apart: i64,
    /// The length of the member in bytes; [`MemberPlace::TWICE`] and more mean something else.
    pub length: u32,
    /// Whether what lies there is a packed image that stands for the member, as only packed datasets have it.
    pub packed: bool,
}

impl MemberPlace {
    /// No member is so many bytes from its image.
    const FARTHEST: i64 = 1 << 40;
    /// The length that stands for two members of one name.
    pub const TWICE: u32 = u32::MAX - 1;
    /// The place of a member that the sample does not have.
    pub const ABSENT: Self = Self { apart: 0, length: u32::MAX, packed: false };

    /// Whether there is such a member, and no other of its name.
    pub(super) fn is_single(self) -> bool {
        self.length < Self::TWICE
    }

    /// The place of a member that begins at `offset`, if its sample's image begins at `image`; `None` where they are
    /// too far apart.
    pub fn new(image: u64, offset: u64, length: u32) -> Option<Self> {
        let apart = offset.cast_signed().checked_sub(image.cast_signed())?;
        (-Self::FARTHEST..Self::FARTHEST).contains(&apart).then_some(Self { apart, length, packed: false })
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
        bytes[4..8].copy_from_slice(&self.place.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.place.apart.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let (key, length, apart) = (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8).cast_signed());
        Self { key: key & !PACKED, place: MemberPlace { apart, length, packed: key & PACKED != 0 } }
    }
}
