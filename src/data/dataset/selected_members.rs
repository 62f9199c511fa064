//! The members of a sample that a loader reads: the place of each, and the extent that is read at once.

use super::format::{Section, u64_at};
use super::kind::image_rank;
use super::member::{MEMBER_ROW, MemberPlace, MemberRow};
use super::part::{DatasetPart, order, search};
use super::summary::SampleBytes;
use super::{Extent, FileId};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// The name of a sample's own image among the fields, whatever its extension.
pub const IMAGE: &str = "image";

/// The keys that a field's name has, of which the first that a sample has counts: one, or several with `;` between them
/// as in WebDataset, such as `jpg;png`.
pub fn choices(name: &str) -> impl Iterator<Item = &str> + Clone {
    name.split(';')
}

/// Members with at most so many bytes between them are read at once: a request costs about what it takes to read these.
const TOGETHER: u64 = 64 << 10;

/// The place of the bytes of one member of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberBytes {
    /// The bytes are all that is read of the sample: its [`Extent`], or a copy of that in any form.
    Whole,
    /// The bytes are in the sample's [`Extent`], at these places from its first byte on.
    Within(Range<usize>),
    /// The bytes are elsewhere in the shard, or are a file of their own, and need a read of their own.
    Apart(Extent),
    /// The sample has no such member.
    Absent,
    /// The sample has two members of this name, and nothing says which one is meant.
    Twice,
}

/// The members that are read of each sample of a part.
pub(super) struct MemberSelection {
    /// The keys of the members.
    keys: Vec<String>,
    /// The places of these members, sample by sample.
    places: Vec<MemberPlace>,
    /// The bytes of the largest extent.
    pub(super) largest: u32,
    /// The bytes of all extents.
    pub(super) total: u64,
    /// The number of members of all samples that are not read at once with the others.
    pub(super) apart: u64,
    /// The samples of a shard, by their numbers there, in the order of their extents. Only shards whose images lie in
    /// another order have an entry.
    sorted: HashMap<u32, Vec<u32>>,
}

/// The bytes of a member in its shard, and its number among those that are read.
#[derive(Clone, Copy)]
struct MemberPiece {
    offset: u64,
    length: u32,
    member: usize,
}

impl DatasetPart {
    /// The keys of the members that the samples have.
    pub(super) fn keys(&self) -> Vec<String> {
        serde_json::from_slice(self.file.section(Section::Keys)).unwrap_or_default()
    }

    /// Selects the members with these keys, which are read of each sample; without a selection it is [`IMAGE`] alone.
    /// The index file must have been read with its members. The places of all others are forgotten. No keys at all
    /// select nothing.
    pub(super) fn select(&mut self, selected: &[String]) -> Result<()> {
        let all_have_images = !self.notes.every_stem && !self.notes.images_missing;
        if selected.is_empty() || selected.iter().all(|key| key == IMAGE) && all_have_images {
            return Ok(());
        }
        if !self.file.has_members() {
            return Err(Error::Internal("an index was read without its members".to_owned()));
        }
        let keys = self.keys();
        let number = |key: &str| keys.binary_search_by(|known| known.as_str().cmp(key)).ok();
        let key_numbers: Vec<Vec<u32>> = selected
            .iter()
            .map(|name| match number(name) {
                // A column of a table may be called as several would be.
                Some(number) => vec![number as u32],
                None => choices(name).filter_map(number).map(|number| number as u32).collect(),
            })
            .collect();
        let is_image = |key: &String| match &self.notes.image {
            Some(image) => key == image,
            None => image_rank(key.as_bytes()).is_some(),
        };
        let is_image: Vec<bool> = keys.iter().map(is_image).collect();
        let mut places = vec![MemberPlace::ABSENT; selected.len() * self.len() as usize];
        for (sample, places) in (0..self.len()).zip(places.chunks_exact_mut(selected.len())) {
            // The member that stands for a missing image is no image by its key.
            let own = |row: &MemberRow| {
                row.place.apart == 0 && is_image.get(row.key as usize).is_some_and(|&is_image| is_image)
            };
            // A file that is a sample is its image, also where a manifest gives it columns.
            let is_row = self.is_table() && self.has_shards_of_samples();
            let needs_none = self.notes.every_stem || is_row;
            let has_image = !needs_none || self.members_in_file(sample).any(|row| own(&row));
            for (member, place) in places.iter_mut().enumerate() {
                if selected[member] == IMAGE {
                    if has_image {
                        let (length, packed) = (self.image(sample).length, self.has_packed_image(sample));
                        *place = MemberPlace { apart: 0, length, packed };
                    }
                } else {
                    let of = |key: &u32| self.members_in_file(sample).find(|row| row.key == *key);
                    let found = key_numbers[member].iter().find_map(of);
                    *place = found.map_or(MemberPlace::ABSENT, |row| row.place);
                }
            }
        }
        self.file.forget_members();
        let (largest, total, apart) = (0, 0, 0);
        let keys = selected.to_vec();
        let mut members = MemberSelection { keys, places, largest, total, apart, sorted: HashMap::new() };
        for group in 0..self.groups() {
            let samples = self.samples_of_group(group);
            let mut offsets = Vec::with_capacity((samples.end - samples.start) as usize);
            for sample in samples {
                let pieces = self.pieces(&members, sample, self.image(sample));
                let extent = self.read_extent(&members, sample);
                members.largest = members.largest.max(extent.length);
                members.total += u64::from(extent.length);
                members.apart += pieces.iter().filter(|piece| !piece.is_within(&range(extent))).count()
                    as u64
                    + self.named_of(sample);
                offsets.push(extent.offset);
            }
            members.sorted.extend(order(&offsets).map(|order| (group as u32, order)));
        }
        self.members = Some(members);
        Ok(())
    }

    /// Finds the one of `samples`, those of one shard, that may have `extent`. They are sorted by their extents, or the
    /// selection has their order.
    pub(super) fn sample_with(
        &self,
        members: &MemberSelection,
        samples: Range<u64>,
        extent: Extent,
    ) -> Option<u64> {
        let offset = |sample| self.read_extent(members, sample).offset;
        let Some(order) = members.sorted.get(&extent.file.0) else {
            // Most samples are found beside the place of their extent.
            let near = search(samples.start, samples.end, |sample| self.image(sample).offset < extent.offset);
            let beside = [near, near.wrapping_sub(1)].into_iter().filter(|near| samples.contains(near));
            let found = beside.into_iter().find(|&sample| self.read_extent(members, sample) == extent);
            return found
                .or_else(|| Some(search(samples.start, samples.end, |of| offset(of) < extent.offset)));
        };
        let at = order.partition_point(|&number| offset(samples.start + u64::from(number)) < extent.offset);
        order.get(at).map(|&number| samples.start + u64::from(number))
    }

    /// Whether some member of a sample needs a read of its own.
    pub(super) fn is_apart(&self, sample: u64) -> bool {
        self.members.as_ref().filter(|members| members.apart > 0).is_some_and(|members| {
            let extent = range(self.read_extent(members, sample));
            let pieces = self.pieces(members, sample, self.image(sample));
            self.named_of(sample) > 0 || pieces.iter().any(|piece| !piece.is_within(&extent))
        })
    }

    /// The extent that is read of a sample at once: its largest member, and what lies beside it.
    pub(super) fn read_extent(&self, members: &MemberSelection, sample: u64) -> Extent {
        let image = self.image(sample);
        let pieces = self.pieces(members, sample, image);
        match together(&pieces) {
            Some(Range { start, end }) => Extent { offset: start, length: (end - start) as u32, ..image },
            // Of a file that is a sample, no part is read.
            None if !self.layout().is_sharded() => image,
            None => Extent { length: 0, ..image },
        }
    }

    /// The place of a member of a sample, by its number among those that are read. Without a selection that is the
    /// image alone.
    pub(super) fn member(&self, sample: u64, member: usize) -> MemberBytes {
        let image = self.image(sample);
        let Some(members) = &self.members else {
            return MemberBytes::Whole;
        };
        if let Some(named) = self.named_member(sample, member) {
            return named;
        }
        if members.places_of(sample)[member].length == MemberPlace::TWICE {
            return MemberBytes::Twice;
        }
        let pieces = self.pieces(members, sample, image);
        let Some(piece) = pieces.iter().find(|piece| piece.member == member) else {
            return MemberBytes::Absent;
        };
        let (extent, MemberPiece { offset, length, .. }) = (together(&pieces).unwrap_or_default(), *piece);
        if extent == (offset..offset + u64::from(length)) {
            return MemberBytes::Whole;
        }
        if piece.is_within(&extent) {
            let start = (offset - extent.start) as usize;
            return MemberBytes::Within(start..start + length as usize);
        }
        MemberBytes::Apart(Extent { offset, length, ..image })
    }

    /// The places of a sample's members that need reads of their own.
    pub(super) fn extents_apart(&self, sample: u64) -> Vec<Extent> {
        let members = self.members.as_ref().filter(|members| members.apart > 0);
        let members = members.map_or(0, |members| members.keys.len());
        let apart = |member| match self.member(sample, member) {
            MemberBytes::Apart(extent) => Some(extent),
            _ => None,
        };
        (0..members).filter_map(apart).collect()
    }

    /// Whether the member of a sample with this number among those that are read is packed in its shard.
    pub(super) fn is_packed_member(&self, sample: u64, member: usize) -> bool {
        let places = self.members.as_ref().map(|members| members.places_of(sample));
        places.map_or_else(|| self.has_packed_image(sample), |places| places[member].packed)
    }

    /// Whether what is read of a sample at once is one packed member.
    pub(super) fn is_packed_record(&self, sample: u64) -> bool {
        let members = self.members.as_ref().map_or(1, |members| members.keys.len());
        (0..members).any(|member| {
            self.is_packed_member(sample, member) && self.member(sample, member) == MemberBytes::Whole
        })
    }

    /// The members of a sample that are there, in the order in which they lie in the shard.
    fn pieces(&self, members: &MemberSelection, sample: u64, image: Extent) -> Vec<MemberPiece> {
        let mut pieces: Vec<MemberPiece> = Vec::with_capacity(members.keys.len());
        for (member, &place @ MemberPlace { apart, length, .. }) in
            members.places_of(sample).iter().enumerate()
        {
            if place.is_single() {
                let offset = image.offset.saturating_add_signed(apart).min(super::part::MAX_OFFSET);
                pieces.push(MemberPiece { offset, length, member });
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        pieces
    }

    /// The bytes of all members of the samples; `None` where samples are single files, or where the index was read
    /// without its members.
    pub(super) fn member_bytes(&self) -> Option<SampleBytes> {
        let known = self.file.has_members() && !self.keys().is_empty();
        known.then(|| SampleBytes::of((0..self.len()).map(|sample| self.bytes_of_sample(sample))))
    }

    /// The bytes of all members of a sample, as far as the index was read with them; of its image where it has none.
    pub(super) fn bytes_of_sample(&self, sample: u64) -> u64 {
        if !self.file.has_members() || self.file.section(Section::MemberEnds).is_empty() {
            return u64::from(self.image(sample).length);
        }
        let there = |row: MemberRow| Some(u64::from(row.place.length)).filter(|_| row.place.is_single());
        self.members_in_file(sample).filter_map(there).sum()
    }

    /// The members of a sample in the index file.
    pub(super) fn members_in_file(&self, sample: u64) -> impl Iterator<Item = MemberRow> {
        let end = |before: u64| match before {
            0 => 0,
            before => u64_at(self.file.section(Section::MemberEnds), 8 * (before as usize - 1)) as usize,
        };
        let rows = self.file.section(Section::Members).as_chunks::<MEMBER_ROW>().0;
        let rows = rows.get(end(sample)..end(sample + 1)).unwrap_or_default();
        rows.iter().map(|row| MemberRow::from_bytes(row))
    }

    /// Whether a sample has other members in the index than in `found`, whose keys are numbers of `names`. The index
    /// has all members, by numbers of `keys`, or those that were selected ([`DatasetPart::select`]), or none: then
    /// nothing differs.
    pub(super) fn has_other_members(
        &self,
        sample: u64,
        keys: &[String],
        found: &[MemberRow],
        names: &[String],
    ) -> bool {
        let there = || found.iter().map(|row| (names[row.key as usize].as_str(), row.place));
        match &self.members {
            Some(members) => {
                let selected = members.keys.iter().zip(members.places_of(sample));
                selected.filter(|(key, _)| *key != IMAGE).any(|(selected, known)| {
                    let now =
                        there().find(|(key, _)| key == selected).map_or(MemberPlace::ABSENT, |found| found.1);
                    now != *known
                })
            }
            None if !self.file.has_members() => false,
            None => {
                let key = |row: &MemberRow| keys.get(row.key as usize).map_or("", String::as_str);
                !there().eq(self.members_in_file(sample).map(|row| (key(&row), row.place)))
            }
        }
    }
}

impl MemberSelection {
    /// The samples of a shard, by their numbers there, in the order of their extents, where that is another one.
    pub(super) fn order_in(&self, file: FileId) -> Option<&[u32]> {
        self.sorted.get(&file.0).map(Vec::as_slice)
    }

    /// The places of a sample's members.
    fn places_of(&self, sample: u64) -> &[MemberPlace] {
        let each = self.keys.len();
        &self.places[each * sample as usize..][..each]
    }
}

impl MemberPiece {
    fn is_within(&self, extent: &Range<u64>) -> bool {
        extent.start <= self.offset && self.offset + u64::from(self.length) <= extent.end
    }
}

fn range(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + u64::from(extent.length)
}

/// The bytes that are read at once of these pieces, which are sorted by offset: the largest and its neighbours.
fn together(pieces: &[MemberPiece]) -> Option<Range<u64>> {
    let end = |piece: &MemberPiece| piece.offset + u64::from(piece.length);
    // Of pieces of the same length the first one counts, because the answer must always be the same.
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
        let piece =
            |(member, &(offset, length)): (usize, &(u64, u32))| MemberPiece { offset, length, member };
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
