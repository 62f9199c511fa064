//! The members of a sample that a loader reads: the location of each member, and the extent that the first read
//! fetches.

use super::format::{Section, u64_at};
use super::kind::image_rank;
use super::member::{MEMBER_ROW, MemberPlace, MemberRow};
use super::part::{DatasetPart, order, search};
use super::summary::SampleBytes;
use super::{Extent, Layout};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Field name of a sample's own image, whatever its extension is.
pub const IMAGE: &str = "image";

/// Splits a field's name into alternative keys, such as `jpg;png`, separated by `;` as in WebDataset. The first key
/// that a sample has is used.
pub fn choices(name: &str) -> impl Iterator<Item = &str> + Clone {
    name.split(';')
}

/// Maximum gap between members, in bytes, that is still read in one request. A request costs about as much as reading
/// this many bytes.
const MAX_GAP: u64 = 64 << 10;

/// The location of the bytes of one member of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberBytes {
    /// The member is everything that is read of the sample: the sample's [`Extent`], or a cached copy in any storage
    /// format.
    WholeExtent,
    /// The member is this range of the sample's [`Extent`].
    InExtent(Range<usize>),
    /// The member is in another part of the shard, or is a separate file, and needs a separate read.
    Separate(Extent),
    /// The sample has no such member.
    Absent,
    /// The sample has two members with this name, so the name is ambiguous.
    Ambiguous,
}

pub(super) struct MemberSelection {
    keys: Vec<String>,
    /// The locations of the selected members, of one sample after another.
    places: Vec<MemberPlace>,
    pub(super) largest: u32,
    pub(super) total: u64,
    /// The number of members, of all samples, that need a separate read.
    pub(super) separate_reads: u64,
    /// The indices of a shard's samples in the order of their extents. Only shards whose samples are not in this order
    /// have an entry.
    pub(super) sorted: HashMap<u32, Vec<u32>>,
}

#[derive(Clone, Copy)]
struct MemberRange {
    offset: u64,
    length: u32,
    member: usize,
}

impl DatasetPart {
    pub(super) fn keys(&self) -> Vec<String> {
        serde_json::from_slice(self.file.section(Section::Keys)).unwrap_or_default()
    }

    /// Whether a field of this name is the sample's own image.
    pub(super) fn is_own_image(&self, name: &str) -> bool {
        let is_directory = || self.layout() == Layout::Parallel && self.notes.image.as_deref() == Some(name);
        name == IMAGE || is_directory()
    }

    /// The fields of parallel directories; `None` for other layouts.
    pub(super) fn all_directories(&self) -> Option<Vec<String>> {
        let names = self.notes.parallel.iter().map(|field| field.source.clone());
        (self.layout() == Layout::Parallel).then(|| names.collect())
    }

    /// Selects the members with the keys `selected` as those that are read from each sample. An empty list changes
    /// nothing, so that only [`IMAGE`] is read. The index must have been loaded with its members. Drops the locations
    /// of all other members.
    pub(super) fn select(&mut self, selected: &[String]) -> Result<()> {
        if self.layout().is_array() {
            return if selected.is_empty() { Ok(()) } else { self.select_arrays(selected) };
        }
        let all_have_images = !self.notes.every_stem && !self.notes.images_missing;
        if selected.is_empty() || selected.iter().all(|key| self.is_own_image(key)) && all_have_images {
            return Ok(());
        }
        if !self.file.has_members {
            return Err(Error::Internal("an index was read without its members".to_owned()));
        }
        let keys = self.keys();
        let number = |key: &str| keys.binary_search_by(|known| known.as_str().cmp(key)).ok();
        let key_numbers: Vec<Vec<u32>> = selected
            .iter()
            .map(|name| match number(name) {
                // The name of a table column can contain a `;` itself.
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
            // Whether `row` is the image itself. A member that replaces a missing image has the same offset, but its
            // key is not that of an image.
            let own = |row: &MemberRow| {
                row.place.offset_from_image == 0
                    && is_image.get(row.key as usize).is_some_and(|&is_image| is_image)
            };
            // A sample that is a loose file always has an image, even if a manifest adds columns.
            let is_row = self.is_table() && self.has_shards_of_samples();
            let needs_none = self.notes.every_stem || is_row;
            let has_image = !needs_none || self.members_in_file(sample).any(|row| own(&row));
            for (member, place) in places.iter_mut().enumerate() {
                if self.is_own_image(&selected[member]) {
                    if has_image {
                        let (length, packed) = (self.image(sample).length, self.has_packed_image(sample));
                        *place = MemberPlace { offset_from_image: 0, length, packed };
                    }
                } else {
                    let of = |key: &u32| self.members_in_file(sample).find(|row| row.key == *key);
                    let found = key_numbers[member].iter().find_map(of);
                    *place = found.map_or(MemberPlace::ABSENT, |row| row.place);
                }
            }
        }
        self.file.drop_members();
        let (largest, total, separate_reads) = (0, 0, 0);
        let keys = selected.to_vec();
        let mut members =
            MemberSelection { keys, places, largest, total, separate_reads, sorted: HashMap::new() };
        for group in 0..self.groups() {
            let samples = self.samples_of_group(group);
            let mut offsets = Vec::with_capacity((samples.end - samples.start) as usize);
            for sample in samples {
                let ranges = self.member_ranges(&members, sample, self.image(sample));
                let extent = self.read_extent(&members, sample);
                members.largest = members.largest.max(extent.length);
                members.total += u64::from(extent.length);
                members.separate_reads += ranges.iter().filter(|item| !item.is_within(&range(extent))).count()
                    as u64
                    + self.named_of(sample);
                offsets.push(extent.offset);
            }
            members.sorted.extend(order(&offsets).map(|order| (group as u32, order)));
        }
        self.members = Some(members);
        Ok(())
    }

    /// Returns the only sample in `samples` that can have `extent`. All `samples` must be in the same shard. Uses
    /// binary search, either over the samples or over their order by extent in `members`.
    pub(super) fn sample_with(
        &self,
        members: &MemberSelection,
        samples: Range<u64>,
        extent: Extent,
    ) -> Option<u64> {
        let offset = |sample| self.read_extent(members, sample).offset;
        let Some(order) = members.sorted.get(&extent.file.0) else {
            // In most cases, the sample with `extent` is directly at the position that the search finds.
            let near = search(samples.start, samples.end, |sample| self.image(sample).offset < extent.offset);
            let beside = [near, near.wrapping_sub(1)].into_iter().filter(|near| samples.contains(near));
            let found = beside.into_iter().find(|&sample| self.read_extent(members, sample) == extent);
            return found
                .or_else(|| Some(search(samples.start, samples.end, |of| offset(of) < extent.offset)));
        };
        let at = order.partition_point(|&number| offset(samples.start + u64::from(number)) < extent.offset);
        order.get(at).map(|&number| samples.start + u64::from(number))
    }

    pub(super) fn is_apart(&self, sample: u64) -> bool {
        self.members.as_ref().filter(|members| members.separate_reads > 0).is_some_and(|members| {
            let extent = range(self.read_extent(members, sample));
            let ranges = self.member_ranges(members, sample, self.image(sample));
            self.named_of(sample) > 0 || ranges.iter().any(|item| !item.is_within(&extent))
        })
    }

    /// The extent that the first read of a sample fetches: its largest member, and the members that are stored near it.
    pub(super) fn read_extent(&self, members: &MemberSelection, sample: u64) -> Extent {
        let image = self.image(sample);
        let ranges = self.member_ranges(members, sample, image);
        match first_read_range(&ranges) {
            Some(Range { start, end }) => Extent { offset: start, length: (end - start) as u32, ..image },
            // A loose file is always read completely.
            None if !self.layout().is_sharded() => image,
            None => Extent { length: 0, ..image },
        }
    }

    /// Locates the selected member at index `member` in a sample. If no members were selected, the only member is the
    /// image.
    pub(super) fn member(&self, sample: u64, member: usize) -> MemberBytes {
        if self.layout().is_array() {
            return self.array_member(sample, member);
        }
        let image = self.image(sample);
        let Some(members) = &self.members else {
            return MemberBytes::WholeExtent;
        };
        if let Some(named) = self.named_member(sample, member) {
            return named;
        }
        if members.places_of(sample)[member].length == MemberPlace::DUPLICATE {
            return MemberBytes::Ambiguous;
        }
        let ranges = self.member_ranges(members, sample, image);
        let Some(item) = ranges.iter().find(|item| item.member == member) else {
            return MemberBytes::Absent;
        };
        let (extent, MemberRange { offset, length, .. }) =
            (first_read_range(&ranges).unwrap_or_default(), *item);
        if extent == (offset..offset + u64::from(length)) {
            return MemberBytes::WholeExtent;
        }
        if item.is_within(&extent) {
            let start = (offset - extent.start) as usize;
            return MemberBytes::InExtent(start..start + length as usize);
        }
        MemberBytes::Separate(Extent { offset, length, ..image })
    }

    pub(super) fn separate_extents(&self, sample: u64) -> Vec<Extent> {
        let members = self.members.as_ref().filter(|members| members.separate_reads > 0);
        let members = members.map_or(0, |members| members.keys.len());
        let apart = |member| match self.member(sample, member) {
            MemberBytes::Separate(extent) => Some(extent),
            _ => None,
        };
        (0..members).filter_map(apart).collect()
    }

    /// Whether the selected member at index `member` is stored as a packed image in a sample.
    pub(super) fn is_packed_member(&self, sample: u64, member: usize) -> bool {
        let places = self.members.as_ref().map(|members| members.places_of(sample));
        places.map_or_else(|| self.has_packed_image(sample), |places| places[member].packed)
    }

    pub(super) fn is_packed_record(&self, sample: u64) -> bool {
        let members = self.members.as_ref().map_or(1, |members| members.keys.len());
        (0..members).any(|member| {
            self.is_packed_member(sample, member) && self.member(sample, member) == MemberBytes::WholeExtent
        })
    }

    fn member_ranges(&self, members: &MemberSelection, sample: u64, image: Extent) -> Vec<MemberRange> {
        let mut ranges: Vec<MemberRange> = Vec::with_capacity(members.keys.len());
        for (member, &place @ MemberPlace { offset_from_image, length, .. }) in
            members.places_of(sample).iter().enumerate()
        {
            if place.is_single() {
                let offset =
                    image.offset.saturating_add_signed(offset_from_image).min(super::part::MAX_OFFSET);
                ranges.push(MemberRange { offset, length, member });
            }
        }
        ranges.sort_unstable_by_key(|item| item.offset);
        ranges
    }

    /// The bytes of all members of the samples; `None` if samples are loose files, or if the index was loaded without
    /// members.
    pub(super) fn member_bytes(&self) -> Option<SampleBytes> {
        let known = self.file.has_members && !self.keys().is_empty() && !self.layout().is_array();
        known.then(|| SampleBytes::of((0..self.len()).map(|sample| self.bytes_of_sample(sample))))
    }

    /// The total size of all members of a sample in bytes, if the index was loaded with members and has any; else the
    /// size of its image.
    pub(super) fn bytes_of_sample(&self, sample: u64) -> u64 {
        if !self.file.has_members || self.file.section(Section::MemberEnds).is_empty() {
            let named = self.separate_extents(sample).into_iter().map(|extent| u64::from(extent.length));
            return u64::from(self.image(sample).length) + named.sum::<u64>();
        }
        let there = |row: MemberRow| Some(u64::from(row.place.length)).filter(|_| row.place.is_single());
        self.members_in_file(sample).filter_map(there).sum()
    }

    pub(super) fn members_in_file(&self, sample: u64) -> impl Iterator<Item = MemberRow> {
        let end = |before: u64| match before {
            0 => 0,
            before => u64_at(self.file.section(Section::MemberEnds), 8 * (before as usize - 1)) as usize,
        };
        let rows = self.file.section(Section::Members).as_chunks::<MEMBER_ROW>().0;
        let rows = rows.get(end(sample)..end(sample + 1)).unwrap_or_default();
        rows.iter().map(|row| MemberRow::from_bytes(row))
    }

    /// Whether the members of a sample differ between the index and `found`, which was read from the shard. `keys` are
    /// the names of the index's keys, and `names` those of the keys in `found`. Compares only the selected members if a
    /// selection was made ([`DatasetPart::select`]). Returns false if no members were loaded.
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
            None if !self.file.has_members => false,
            None => {
                let key = |row: &MemberRow| keys.get(row.key as usize).map_or("", String::as_str);
                !there().eq(self.members_in_file(sample).map(|row| (key(&row), row.place)))
            }
        }
    }
}

impl MemberSelection {
    fn places_of(&self, sample: u64) -> &[MemberPlace] {
        let each = self.keys.len();
        &self.places[each * sample as usize..][..each]
    }
}

impl MemberRange {
    fn is_within(&self, extent: &Range<u64>) -> bool {
        extent.start <= self.offset && self.offset + u64::from(self.length) <= extent.end
    }
}

fn range(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + u64::from(extent.length)
}

/// Returns the byte range that the first read fetches: the largest member, and the members near it. `ranges` must be
/// sorted by offset.
fn first_read_range(ranges: &[MemberRange]) -> Option<Range<u64>> {
    let end = |item: &MemberRange| item.offset + u64::from(item.length);
    // Of several members with the largest length, take the first, so that the result is deterministic.
    let largest = (0..ranges.len()).rev().max_by_key(|&at| ranges[at].length)?;
    let mut found = ranges[largest].offset..end(&ranges[largest]);
    let fits = |range: &Range<u64>| range.end - range.start <= u64::from(u32::MAX);
    for item in ranges[..largest].iter().rev() {
        let wider = item.offset..found.end;
        if found.start.saturating_sub(end(item)) > MAX_GAP || !fits(&wider) {
            break;
        }
        found = wider;
    }
    for item in &ranges[largest + 1..] {
        let wider = found.start..end(item).max(found.end);
        if item.offset.saturating_sub(found.end) > MAX_GAP || !fits(&wider) {
            break;
        }
        found = wider;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(ranges: &[(u64, u32)]) -> Option<Range<u64>> {
        let item = |(member, &(offset, length)): (usize, &(u64, u32))| MemberRange { offset, length, member };
        first_read_range(&ranges.iter().enumerate().map(item).collect::<Vec<_>>())
    }

    #[test]
    fn what_lies_together_is_read_at_once() {
        assert_eq!(extent(&[]), None);
        assert_eq!(extent(&[(512, 10), (1536, 100_000), (102_400, 7)]), Some(512..102_407));
        // A caption that is a megabyte away needs a separate read, whether it is before or after the image.
        assert_eq!(extent(&[(512, 10), (1 << 20, 100_000)]), Some(1 << 20..(1 << 20) + 100_000));
        assert_eq!(extent(&[(512, 100_000), (1 << 20, 10)]), Some(512..100_512));
        assert_eq!(extent(&[(512, 5), (1 << 20, 5)]), Some(512..517));
        // No extent exceeds the longest possible read.
        let most = u32::MAX - 10;
        assert_eq!(
            extent(&[(512, most), (512 + u64::from(most) + 100, 50)]),
            Some(512..512 + u64::from(most))
        );
    }
}
