//! The members of a sample that a loader reads: where each lies, and what is read at once.

use super::Extent;
use super::build::MemberPlace;
use super::format::{MEMBER_ROW, Section, u32_at};
use super::part::DatasetPart;
use crate::error::{Error, Result};
use std::ops::Range;

/// The name of a sample's own image among the fields, whatever its extension.
pub(crate) const IMAGE: &str = "image";

/// Members with at most so many bytes between them are read at once: a request costs about what it takes to read these.
const TOGETHER: u64 = 64 << 10;

/// Where the bytes of one member of a sample are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberBytes {
    /// In the sample's [`Extent`], counted from its first byte.
    Within(Range<usize>),
    /// Elsewhere in the shard: a read of its own.
    Apart(Extent),
    /// The sample has no such member.
    Absent,
    /// It has two of this name, of which nobody knows which is meant.
    Twice,
}

/// The members that are read of each sample of a part.
pub(super) struct MemberSelection {
    fields: Vec<MemberColumn>,
    /// Bytes of the largest extent, and of all.
    pub(super) largest: u32,
    pub(super) total: u64,
}

/// Where a field is found.
#[derive(Clone, Copy)]
enum MemberColumn {
    /// The image that makes the sample one.
    Image,
    /// A column of the section of members.
    Member(usize),
    /// No sample of this part has it.
    Nowhere,
}

/// A member at work: its first byte, its length, and the number of its field.
#[derive(Clone, Copy)]
struct MemberPiece {
    offset: u64,
    length: u32,
    field: usize,
}

impl DatasetPart {
    /// Keys of the members that its samples have.
    pub(super) fn keys(&self) -> Vec<String> {
        serde_json::from_slice(self.file.section(Section::Keys)).unwrap_or_default()
    }

    /// Reads these members of each sample from now on; [`IMAGE`] alone is what is read without. The index file must
    /// have been read with its members.
    pub(super) fn select(&mut self, fields: &[String]) -> Result<()> {
        if fields.iter().all(|field| field == IMAGE) && !self.notes.imageless {
            return Ok(());
        }
        if !self.file.has_members() {
            return Err(Error::Internal("an index was read without its members".to_owned()));
        }
        let keys = self.keys();
        let column = |field: &String| match keys.iter().position(|key| key == field) {
            _ if field == IMAGE && !self.notes.imageless => MemberColumn::Image,
            Some(column) => MemberColumn::Member(column),
            None => MemberColumn::Nowhere,
        };
        let fields = fields.iter().map(column).collect();
        self.members = Some(MemberSelection { fields, largest: 0, total: 0 });
        let (mut largest, mut total) = (0, 0);
        for sample in 0..self.len() {
            let length = self.extent(sample).length;
            largest = largest.max(length);
            total += u64::from(length);
        }
        self.members = self.members.take().map(|members| MemberSelection { largest, total, ..members });
        Ok(())
    }

    /// What is read of a sample at once: its largest member, and what lies beside it.
    pub(super) fn record(&self, members: &MemberSelection, sample: u64) -> Extent {
        let image = self.image(sample);
        let pieces = self.pieces(members, sample, image);
        match together(&pieces) {
            Some(Range { start, end }) => Extent { offset: start, length: (end - start) as u32, ..image },
            None => Extent { length: 0, ..image },
        }
    }

    /// Where a field of a sample is. Without a selection there is one, the image.
    pub(super) fn member(&self, sample: u64, field: usize) -> MemberBytes {
        let image = self.image(sample);
        let Some(members) = &self.members else {
            return MemberBytes::Within(0..image.length as usize);
        };
        if let MemberColumn::Member(column) = members.fields[field]
            && self.member_place(sample, column).length == MemberPlace::TWICE
        {
            return MemberBytes::Twice;
        }
        let pieces = self.pieces(members, sample, image);
        let Some(MemberPiece { offset, length, .. }) = pieces.iter().find(|piece| piece.field == field)
        else {
            return MemberBytes::Absent;
        };
        let extent = together(&pieces).unwrap_or_default();
        if extent.start <= *offset && offset + u64::from(*length) <= extent.end {
            let start = (offset - extent.start) as usize;
            return MemberBytes::Within(start..start + *length as usize);
        }
        MemberBytes::Apart(Extent { offset: *offset, length: *length, ..image })
    }

    /// The members of a sample that are there, in the order in which they lie in the shard.
    fn pieces(&self, members: &MemberSelection, sample: u64, image: Extent) -> Vec<MemberPiece> {
        let mut pieces: Vec<MemberPiece> = Vec::with_capacity(members.fields.len());
        for (field, column) in members.fields.iter().enumerate() {
            match column {
                MemberColumn::Image => {
                    pieces.push(MemberPiece { offset: image.offset, length: image.length, field })
                }
                MemberColumn::Member(column) => {
                    let MemberPlace { blocks, length } = self.member_place(sample, *column);
                    if length < MemberPlace::TWICE {
                        let apart = i64::from(blocks) * MemberPlace::BLOCK;
                        let offset = image.offset.saturating_add_signed(apart).min(super::part::MAX_OFFSET);
                        pieces.push(MemberPiece { offset, length, field });
                    }
                }
                MemberColumn::Nowhere => {}
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        pieces
    }

    fn member_place(&self, sample: u64, column: usize) -> MemberPlace {
        let section = self.file.section(Section::Members);
        let at = section.len() / self.len() as usize * sample as usize + MEMBER_ROW * column;
        MemberPlace { blocks: u32_at(section, at).cast_signed(), length: u32_at(section, at + 4) }
    }

    /// The members of a sample by their keys, as they were when the shard was indexed.
    pub(super) fn members_of(&self, sample: u64, keys: &[String]) -> Vec<(String, MemberPlace)> {
        let place = |(column, key): (usize, &String)| (key.clone(), self.member_place(sample, column));
        let there = |(_, place): &(String, MemberPlace)| *place != MemberPlace::ABSENT;
        keys.iter().enumerate().map(place).filter(there).collect()
    }
}

/// The bytes that are read at once of what lies so, sorted by offset: the largest piece and its neighbours.
fn together(pieces: &[MemberPiece]) -> Option<Range<u64>> {
    let end = |piece: &MemberPiece| piece.offset + u64::from(piece.length);
    // The first of those of the same length, for the answer must always be the same.
    let largest = (0..pieces.len()).rev().max_by_key(|&at| pieces[at].length)?;
    let mut found = pieces[largest].offset..end(&pieces[largest]);
    let fits = |range: &Range<u64>| range.end - range.start <= u64::from(u32::MAX);
    for piece in pieces[..largest].iter().rev() {
        let wider = piece.offset..found.end;
        if found.start.saturating_sub(end(piece)) > TOGETHER || !fits(&wider) {
            break;
        }
        found = wider;
    }
    for piece in &pieces[largest + 1..] {
        let wider = found.start..end(piece).max(found.end);
        if piece.offset.saturating_sub(found.end) > TOGETHER || !fits(&wider) {
            break;
        }
        found = wider;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(pieces: &[(u64, u32)]) -> Option<Range<u64>> {
        let piece = |(field, &(offset, length)): (usize, &(u64, u32))| MemberPiece { offset, length, field };
        together(&pieces.iter().enumerate().map(piece).collect::<Vec<_>>())
    }

    #[test]
    fn what_lies_together_is_read_at_once() {
        assert_eq!(extent(&[]), None);
        assert_eq!(extent(&[(512, 10), (1536, 100_000), (102_400, 7)]), Some(512..102_407));
        // A caption a megabyte away is a read of its own, and so is one that lies before.
        assert_eq!(extent(&[(512, 10), (1 << 20, 100_000)]), Some(1 << 20..(1 << 20) + 100_000));
        assert_eq!(extent(&[(512, 100_000), (1 << 20, 10)]), Some(512..100_512));
        // Of two that are as large the first counts.
        assert_eq!(extent(&[(512, 5), (1 << 20, 5)]), Some(512..517));
        // No extent is longer than a read can be.
        let most = u32::MAX - 10;
        assert_eq!(
            extent(&[(512, most), (512 + u64::from(most) + 100, 50)]),
            Some(512..512 + u64::from(most))
        );
    }
}
