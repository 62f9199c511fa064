//! The members of a tar shard by sample, with their names. An index does not store these names.

use super::super::archive::{TarMember, TarMembers};
use super::super::member::MemberPlace;
use super::super::samples::split;
use crate::source::{Malformed, ReadAt};
use std::collections::HashMap;

/// A member of a tar shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTarMember {
    /// The full name of the member.
    pub name: Vec<u8>,
    /// The offset of the member's data.
    pub offset: u64,
    /// The size of the member's data in bytes.
    pub length: u32,
    /// The index of the member among all members of the shard.
    pub order: u32,
}

/// The members of a tar shard, grouped by stem.
#[derive(Debug, Default)]
pub struct TarMemberIndex {
    parts: Vec<NamedTarMember>,
    stems: Vec<Vec<u32>>,
    /// Maps the offset of each member to the index of its stem in `stems`.
    by_offset: HashMap<u64, u32>,
    /// The number of members that belong to no stem: links, hidden files, and members that are too large.
    unrelated: u64,
}

impl TarMemberIndex {
    /// Reads all headers of a shard. `start` is the address of the shard's first byte: 0 for an uncompressed shard.
    ///
    /// # Errors
    /// [`Malformed`] for an archive that is damaged or truncated.
    pub fn read<S: ReadAt + ?Sized>(source: &S, start: u64) -> Result<Self, Malformed> {
        let mut listing = Self::default();
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut members = TarMembers::new(source);
        let mut order = 0;
        while let Some(TarMember { name, offset, size, plain }) = members.next_member()? {
            let own = order;
            order += 1;
            if name.ends_with(b"/") {
                continue;
            }
            let stem = split(&name).filter(|_| plain).map(|(stem, _)| stem.to_vec());
            let length = u32::try_from(size).ok().filter(|&length| length < MemberPlace::DUPLICATE);
            let (Some(stem), Some(length)) = (stem, length) else {
                listing.unrelated += 1;
                continue;
            };
            let stem = *numbers.entry(stem).or_insert_with(|| {
                listing.stems.push(Vec::new());
                listing.stems.len() as u32 - 1
            });
            listing.stems[stem as usize].push(listing.parts.len() as u32);
            let offset = start + offset;
            listing.by_offset.insert(offset, stem);
            listing.parts.push(NamedTarMember { name, offset, length, order: own });
        }
        Ok(listing)
    }

    /// The members of the sample whose image, or the member that replaces a missing image, begins at `offset`. This
    /// member comes first; the other members follow in the order of the shard. `None` if no member begins at `offset`.
    pub fn sample(&self, offset: u64) -> Option<Vec<&NamedTarMember>> {
        let stem = *self.by_offset.get(&offset)?;
        let mut members: Vec<&NamedTarMember> =
            self.stems[stem as usize].iter().map(|&part| &self.parts[part as usize]).collect();
        members.sort_by_key(|part| part.offset != offset);
        Some(members)
    }

    /// The number of members that do not belong to the samples whose images begin at these offsets.
    pub fn left_out(&self, samples: impl Iterator<Item = u64>) -> u64 {
        let used: u64 = samples
            .filter_map(|offset| self.by_offset.get(&offset))
            .map(|&stem| self.stems[stem as usize].len() as u64)
            .sum();
        self.unrelated + (self.parts.len() as u64).saturating_sub(used)
    }
}
