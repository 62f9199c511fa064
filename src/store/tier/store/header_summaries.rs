//! The header summaries (`header_summaries`) of the images that were packed for the cache, by segment. Each takes 36
//! bytes of memory while its segment can be read.

use super::super::catalog::{SegmentIndex, SegmentRow};
use base::locks::{read_lock, write_lock};
use base::parts::RawHeaderSummary;
use std::collections::HashMap;
use std::sync::RwLock;

/// The header summaries of a segment's samples, each with the sample's offset, in the order of the offsets. Samples
/// without a summary are left out.
pub(super) struct SegmentSummaries(Box<[(u32, RawHeaderSummary)]>);

impl SegmentSummaries {
    pub(super) fn of(rows: &[SegmentRow]) -> Self {
        let known = rows.iter().filter(|row| row.header_summary != RawHeaderSummary::default());
        let mut header_summaries: Vec<_> = known.map(|row| (row.offset, row.header_summary)).collect();
        header_summaries.sort_unstable_by_key(|&(offset, _)| offset);
        Self(header_summaries.into())
    }

    fn get(&self, offset: u32) -> Option<RawHeaderSummary> {
        let found = self.0.binary_search_by_key(&offset, |&(offset, _)| offset).ok()?;
        Some(self.0[found].1)
    }
}

#[derive(Default)]
pub(super) struct StoreSummaries(RwLock<HashMap<SegmentIndex, SegmentSummaries>>);

impl StoreSummaries {
    pub(super) fn enter(&self, segment_index: SegmentIndex, header_summaries: SegmentSummaries) {
        if !header_summaries.0.is_empty() {
            write_lock(&self.0).insert(segment_index, header_summaries);
        }
    }

    pub(super) fn forget(&self, segment_index: SegmentIndex) {
        write_lock(&self.0).remove(&segment_index);
    }

    pub(super) fn get(&self, segment_index: SegmentIndex, offset: u32) -> Option<RawHeaderSummary> {
        read_lock(&self.0).get(&segment_index)?.get(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::dataset::FileVersion;
    use pixels::decode::StorageFormat;

    fn row(offset: u32, header_summary: u8) -> SegmentRow {
        let (form, version) = (StorageFormat::Packed, FileVersion(3));
        let (sample, length, header_summary) = (u64::from(offset), 10, [header_summary; 32]);
        SegmentRow { sample, version, offset, length, crc: 0, form, last_target: form, header_summary }
    }

    #[test]
    fn an_outline_is_found_by_its_place_until_its_segment_is_forgotten() {
        let header_summaries = StoreSummaries::default();
        header_summaries.enter(4, SegmentSummaries::of(&[row(30, 3), row(10, 0), row(0, 1), row(20, 2)]));
        header_summaries.enter(5, SegmentSummaries::of(&[row(20, 7)]));
        header_summaries.enter(6, SegmentSummaries::of(&[row(20, 0)]));
        let found = [0, 10, 20, 21, 30]
            .map(|offset| header_summaries.get(4, offset).map(|header_summary| header_summary[0]));
        assert_eq!(found, [Some(1), None, Some(2), None, Some(3)]);
        assert_eq!(header_summaries.get(6, 20), None, "zeros are no outline");
        header_summaries.forget(4);
        assert_eq!((header_summaries.get(4, 20), header_summaries.get(5, 20)), (None, Some([7; 32])));
    }
}
