//! Location of a sample's member, as stored in the index.

use super::format::{u32_at, u64_at};

/// The size of a [`MemberRow`] in the index, in bytes. The row consists of the number of the key with the packed flag
/// in the highest bit (u32), the length (u32), and the distance from the sample's image (i64).
pub(super) const MEMBER_ROW: usize = 16;

/// Flag in the number of a key that marks a packed member.
const PACKED: u32 = 1 << 31;

/// Location of a sample's member in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPlace {
    /// The distance in bytes from the start of the sample's image to the start of the member; negative if the member is
    /// before the image.
    pub offset_from_image: i64,
    /// The length of the member in bytes. Values of [`MemberPlace::DUPLICATE`] and above are markers.
    pub length: u32,
    /// Whether a packed image is stored in place of the member's original bytes. Only packed datasets have packed
    /// members.
    pub packed: bool,
}

impl MemberPlace {
    /// Exclusive limit of the distance in bytes between a member and the image of its sample.
    const MAX_DISTANCE: i64 = 1 << 40;
    /// Value of `length` for a sample that has two members of the same name.
    pub const DUPLICATE: u32 = u32::MAX - 1;
    /// Marks a member that the sample does not have.
    pub const ABSENT: Self = Self { offset_from_image: 0, length: u32::MAX, packed: false };

    /// Whether the sample has exactly one member of this name.
    pub(super) fn is_single(self) -> bool {
        self.length < Self::DUPLICATE
    }

    /// The location of a member at `offset`, given the offset `image` of the sample's image; `None` if the member is
    /// too far from the image.
    pub fn new(image: u64, offset: u64, length: u32) -> Option<Self> {
        let offset_from_image = offset.cast_signed().checked_sub(image.cast_signed())?;
        (-Self::MAX_DISTANCE..Self::MAX_DISTANCE).contains(&offset_from_image).then_some(Self {
            offset_from_image,
            length,
            packed: false,
        })
    }
}

/// A member of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRow {
    /// The index of the member's key in the sorted list of keys.
    pub key: u32,
    /// The location of the member in the shard.
    pub place: MemberPlace,
}

impl MemberRow {
    pub(super) fn to_bytes(self) -> [u8; MEMBER_ROW] {
        let mut bytes = [0; MEMBER_ROW];
        let packed = if self.place.packed { PACKED } else { 0 };
        bytes[..4].copy_from_slice(&(self.key | packed).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.place.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.place.offset_from_image.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let (key, length, offset_from_image) =
            (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8).cast_signed());
        Self {
            key: key & !PACKED,
            place: MemberPlace { offset_from_image, length, packed: key & PACKED != 0 },
        }
    }
}
