//! The catalog: in which segment, and where in it, each cached sample is. It takes about 26 bytes of memory for each
//! cached sample, and half a byte for each other sample of the dataset. A segment is a file of the store, or a block of
//! memory. The store keeps summaries of image headers separately (`store/header_summaries.rs`).

use super::copies::Location;
use base::parts::RawHeaderSummary;
use data::dataset::{Extent, FileId, FileVersion, Stamp};
use pixels::decode::StorageFormat;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// The index of a segment in the catalog. Readers use it as [`data::dataset::FileId`]. It is never reused, so that no
/// reader confuses two segments.
pub(in crate::tier) type SegmentIndex = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tier) struct SegmentRow {
    pub sample: u64,
    /// The version of the source file from which the bytes come.
    pub version: FileVersion,
    /// The offset of the sample's bytes in the segment. All samples of a segment begin below 4 GiB.
    pub offset: u32,
    pub length: u32,
    pub crc: u32,
    pub form: StorageFormat,
    /// The storage format to which a conversion of the sample was last tried. It differs from `form` if the conversion
    /// failed.
    pub last_target: StorageFormat,
    /// The summary of the header of an image that was packed for the cache, if the segment has it; zeros otherwise.
    pub header_summary: RawHeaderSummary,
}

/// The location and checksum of a sample's copy, and the version of the source file. The version is split into two
/// halves, so that alignment wastes no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tier) struct PackedLocation {
    pub segment: SegmentIndex,
    pub offset: u32,
    pub length: u32,
    pub crc: u32,
    version: [u32; 2],
}

impl PackedLocation {
    fn new(segment: SegmentIndex, row: &SegmentRow) -> Self {
        let SegmentRow { offset, length, crc, version, .. } = *row;
        Self { segment, offset, length, crc, version: [version.0 as u32, (version.0 >> 32) as u32] }
    }

    pub(in crate::tier) fn version(&self) -> FileVersion {
        FileVersion(u64::from(self.version[0]) | u64::from(self.version[1]) << 32)
    }
}

/// Marks a sample that was taken but is not yet written.
const PENDING: PackedLocation =
    PackedLocation { segment: u32::MAX, offset: 0, length: 0, crc: 0, version: [0; 2] };

#[derive(Debug, Clone, Copy)]
pub(in crate::tier) struct Segment {
    /// The number of the segment in its tier, which is also in the name of a file.
    pub number: u64,
    /// The group of the segment's samples, which are evicted together.
    pub group: u64,
    pub bytes: u64,
    /// The modification time of the file, in nanoseconds since 1970.
    pub mtime: i64,
    /// Whether the segment must not be read any more. The catalog may still have locations in it, which are ignored.
    pub forgotten: bool,
    /// The number of samples whose location is in this segment.
    samples: u32,
    rows: u32,
    stale: u32,
    /// The lowest `last_target` of the segment's rows: a conversion to this storage format was tried for all samples.
    pub last_target: StorageFormat,
    /// The segment from which this segment was converted.
    former: Option<SegmentIndex>,
}

impl Segment {
    /// Returns whether no location is in the segment any more, because later segments have all its samples.
    pub(in crate::tier) fn is_superseded(&self) -> bool {
        self.rows > 0 && self.samples == 0
    }

    /// Returns whether the segment can be read and has samples for which a conversion to `form` was not tried.
    pub(in crate::tier) fn waits_for(&self, form: StorageFormat) -> bool {
        !self.forgotten && self.last_target < form && !self.is_superseded()
    }

    fn is_mostly_stale(&self) -> bool {
        2 * u64::from(self.stale) > u64::from(self.rows)
    }
}

/// The locations of 64 samples with consecutive ids. `present` has a bit for each sample that has a location.
#[derive(Default)]
struct CatalogChunk {
    present: u64,
    /// A bit for each sample whose copy this run has verified to match the source.
    checked: u64,
    places: Vec<PackedLocation>,
}

impl CatalogChunk {
    fn rank(&self, bit: u32) -> usize {
        (self.present & ((1 << bit) - 1)).count_ones() as usize
    }

    fn get(&self, bit: u32) -> Option<PackedLocation> {
        (self.present >> bit & 1 == 1).then(|| self.places[self.rank(bit)])
    }

    fn set(&mut self, bit: u32, place: PackedLocation) -> Option<PackedLocation> {
        let rank = self.rank(bit);
        if self.present >> bit & 1 == 1 {
            return Some(std::mem::replace(&mut self.places[rank], place));
        }
        if self.places.len() == self.places.capacity() {
            // Do not double the capacity, because most of it would stay empty in millions of chunks.
            self.places.reserve_exact(4);
        }
        self.places.insert(rank, place);
        self.present |= 1 << bit;
        None
    }

    fn clear(&mut self, bit: u32) {
        if self.present >> bit & 1 == 1 {
            self.places.remove(self.rank(bit));
            self.present &= !(1 << bit);
            self.checked &= !(1 << bit);
        }
    }
}

pub(in crate::tier) struct Catalog {
    chunks: Vec<CatalogChunk>,
    segments: Vec<Segment>,
    /// The index of each segment by its number; `None` for a segment that will be published soon.
    by_number: HashMap<u64, Option<u32>>,
    held_samples: u64,
    held_bytes: u64,
}

impl Catalog {
    pub(in crate::tier) fn new(samples: u64) -> Self {
        let chunks = (0..samples.div_ceil(64)).map(|_| CatalogChunk::default()).collect();
        Self { chunks, segments: Vec::new(), by_number: HashMap::new(), held_samples: 0, held_bytes: 0 }
    }

    fn get(&self, sample: u64) -> Option<PackedLocation> {
        self.chunks[(sample / 64) as usize].get((sample % 64) as u32)
    }

    fn is_live(&self, place: PackedLocation) -> bool {
        self.segments.get(place.segment as usize).is_some_and(|segment| !segment.forgotten)
    }

    /// Returns the location of a sample's copy, if it can be read, and whether this run has verified the copy.
    pub(in crate::tier) fn locate(&self, sample: u64) -> Option<(PackedLocation, bool)> {
        let place = self.get(sample).filter(|&place| self.is_live(place))?;
        let checked = self.chunks[(sample / 64) as usize].checked >> (sample % 64) & 1 == 1;
        Some((place, checked))
    }

    /// Records that the copy of a sample in this segment matches the source. If the copy was converted during the
    /// check, the converted copy counts as verified, too.
    pub(in crate::tier) fn confirm(&mut self, sample: u64, segment_index: SegmentIndex) {
        let former = |place: PackedLocation| self.segments.get(place.segment as usize)?.former;
        let is_of = |place| place == segment_index;
        if self.get(sample).is_some_and(|place| is_of(place.segment) || former(place).is_some_and(is_of)) {
            self.chunks[(sample / 64) as usize].checked |= 1 << (sample % 64);
        }
    }

    pub(in crate::tier) fn mark_unverified(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.checked = 0);
    }

    /// Removes the location of a sample in this segment, because the copy no longer matches the source. Returns whether
    /// the location was in this segment, and whether most of the segment is out of date now.
    pub(in crate::tier) fn drop_stale(&mut self, sample: u64, segment_index: SegmentIndex) -> (bool, bool) {
        let Some(place) = self.get(sample).filter(|place| place.segment == segment_index) else {
            return (false, false);
        };
        self.chunks[(sample / 64) as usize].clear((sample % 64) as u32);
        let live = self.is_live(place);
        let Some(segment) = self.segments.get_mut(segment_index as usize) else { return (false, false) };
        segment.samples -= 1;
        segment.stale += 1;
        self.held_samples -= u64::from(live);
        (true, segment.is_mostly_stale())
    }

    /// Returns whether a sample is kept in `group`, or was taken but is not yet written (pending).
    pub(in crate::tier) fn keeps(&self, sample: u64, group: u64) -> bool {
        let here = |place: PackedLocation| {
            self.is_live(place) && self.segments[place.segment as usize].group == group
        };
        self.get(sample).is_some_and(|place| place == PENDING || here(place))
    }

    /// Marks a sample as pending: taken for `group`, but not yet written. Returns `false` if the sample is pending or
    /// kept in `group` already. If another group keeps the sample, the sample moves, and cannot be located until it is
    /// written again.
    pub(in crate::tier) fn mark_pending(&mut self, sample: u64, group: u64) -> bool {
        let new = !self.keeps(sample, group);
        if new {
            self.set(sample, PENDING, false);
        }
        new
    }

    pub(in crate::tier) fn is_pending(&self, sample: u64) -> bool {
        self.get(sample) == Some(PENDING)
    }

    pub(in crate::tier) fn cancel_pending(&mut self, sample: u64) {
        if self.is_pending(sample) {
            self.chunks[(sample / 64) as usize].clear((sample % 64) as u32);
        }
    }

    fn set(&mut self, sample: u64, place: PackedLocation, checked: bool) {
        let chunk = &mut self.chunks[(sample / 64) as usize];
        let bit = (sample % 64) as u32;
        let former = chunk.set(bit, place);
        chunk.checked = chunk.checked & !(1 << bit) | u64::from(checked) << bit;
        let Some(former) = former else { return };
        if let Some(segment) = self.segments.get_mut(former.segment as usize) {
            segment.samples -= 1;
            self.held_samples -= u64::from(!segment.forgotten);
        }
    }

    /// Records that segment `number` will be published soon. Returns whether the number is new.
    pub(in crate::tier) fn announce(&mut self, number: u64) -> bool {
        match self.by_number.entry(number) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
        }
    }

    /// Undoes [`Catalog::announce`] for a segment that could not be published.
    pub(in crate::tier) fn retract(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    /// Adds an announced segment that is now published, and returns its index. The caller adds the samples with
    /// [`Catalog::place`] or [`Catalog::replace`].
    pub(in crate::tier) fn publish(&mut self, number: u64, group: u64, stamp: &Stamp) -> SegmentIndex {
        let segment_index = self.segments.len() as u32;
        let (bytes, mtime) = (stamp.size, stamp.mtime);
        self.segments.push(Segment {
            number,
            group,
            bytes,
            mtime,
            forgotten: false,
            samples: 0,
            rows: 0,
            stale: 0,
            last_target: StorageFormat::Packed,
            former: None,
        });
        self.by_number.insert(number, Some(segment_index));
        self.held_bytes += bytes;
        segment_index
    }

    /// Adds the locations of the samples of a published segment, except samples that a later segment has. `checked` is
    /// true if this run has verified that the copies match the source.
    pub(in crate::tier) fn place(&mut self, segment_index: SegmentIndex, rows: &[SegmentRow], checked: bool) {
        self.note_rows(segment_index, rows);
        for row in rows {
            let number = self.segments[segment_index as usize].number;
            let later = |place: PackedLocation| {
                self.is_live(place) && self.segments[place.segment as usize].number > number
            };
            if self.get(row.sample).is_some_and(later) {
                continue;
            }
            self.enter(segment_index, row, checked);
        }
    }

    /// Adds the locations of samples that were converted from the segment `former`, except samples whose location is no
    /// longer in `former`.
    pub(in crate::tier) fn replace(
        &mut self,
        former: SegmentIndex,
        segment_index: SegmentIndex,
        rows: &[SegmentRow],
    ) {
        self.note_rows(segment_index, rows);
        self.segments[segment_index as usize].former = Some(former);
        for row in rows {
            if let Some((_, checked)) = self.locate(row.sample).filter(|(place, _)| place.segment == former) {
                self.enter(segment_index, row, checked);
            }
        }
    }

    /// Records that a conversion to this storage format was tried for all samples of a segment, and failed.
    pub(in crate::tier) fn set_last_target(&mut self, segment_index: SegmentIndex, form: StorageFormat) {
        if let Some(segment) = self.segments.get_mut(segment_index as usize) {
            segment.last_target = form;
        }
    }

    fn note_rows(&mut self, segment_index: SegmentIndex, rows: &[SegmentRow]) {
        let segment = &mut self.segments[segment_index as usize];
        segment.rows += rows.len() as u32;
        segment.last_target =
            rows.iter().map(|row| row.last_target).fold(segment.last_target, StorageFormat::min);
    }

    fn enter(&mut self, segment_index: SegmentIndex, row: &SegmentRow, checked: bool) {
        self.set(row.sample, PackedLocation::new(segment_index, row), checked);
        let segment = &mut self.segments[segment_index as usize];
        segment.samples += 1;
        self.held_samples += u64::from(!segment.forgotten);
    }

    /// Records that `samples` more samples of this segment are out of date, because their files have changed. Returns
    /// whether most of the segment is out of date.
    pub(in crate::tier) fn note_stale(&mut self, segment_index: SegmentIndex, samples: u32) -> bool {
        let segment = &mut self.segments[segment_index as usize];
        segment.rows += samples;
        segment.stale += samples;
        segment.is_mostly_stale()
    }

    /// Marks a segment as forgotten, so that its samples can no longer be located. Returns whether it could be read
    /// before.
    pub(in crate::tier) fn forget(&mut self, segment_index: SegmentIndex) -> bool {
        let Some(segment) = self.segments.get_mut(segment_index as usize) else { return false };
        if std::mem::replace(&mut segment.forgotten, true) {
            return false;
        }
        self.by_number.remove(&segment.number);
        self.held_samples -= u64::from(segment.samples);
        self.held_bytes -= segment.bytes;
        true
    }

    pub(in crate::tier) fn segment(&self, segment_index: SegmentIndex) -> Option<Segment> {
        self.segments.get(segment_index as usize).copied()
    }

    pub(in crate::tier) fn has(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    pub(in crate::tier) fn live(&self) -> impl Iterator<Item = (SegmentIndex, Segment)> {
        self.by_number
            .values()
            .flatten()
            .map(|&segment_index| (segment_index, self.segments[segment_index as usize]))
    }

    pub(in crate::tier) fn superseded(&self) -> impl Iterator<Item = SegmentIndex> {
        self.live().filter(|(_, segment)| segment.is_superseded()).map(|(segment_index, _)| segment_index)
    }

    pub(in crate::tier) fn location(&self, sample: u64) -> Option<Location> {
        let (place, checked) = self.locate(sample)?;
        let extent =
            Extent { file: FileId(place.segment), offset: place.offset.into(), length: place.length };
        Some(Location { extent, crc: Some(place.crc), version: Some(place.version()), checked })
    }

    pub(in crate::tier) fn groups(&self) -> BTreeMap<u64, u64> {
        let mut groups = BTreeMap::new();
        for (_, segment) in self.live() {
            *groups.entry(segment.group).or_default() += segment.bytes;
        }
        groups
    }

    pub(in crate::tier) fn held(&self) -> (u64, u64) {
        (self.held_samples, self.held_bytes)
    }
}

#[cfg(test)]
mod tests;
