//! The header summaries (`outlines`) of the images that were packed for the cache, by segment. Each takes 36 bytes of
//! memory while its segment can be read.

use super::super::catalog::{SegmentIndex, SegmentRow};
use base::parts::RawOutline;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// The header summaries of a segment's samples, each with the sample's offset, in that order. Samples without a summary
/// are left out.
pub(super) struct SegmentOutlines(Box<[(u32, RawOutline)]>);

impl SegmentOutlines {
    /// Collects those of the rows of a segment.
    pub(super) fn of(rows: &[SegmentRow]) -> Self {
        let known = rows.iter().filter(|row| row.outline != RawOutline::default());
        let mut outlines: Vec<_> = known.map(|row| (row.offset, row.outline)).collect();
        outlines.sort_unstable_by_key(|&(offset, _)| offset);
        Self(outlines.into())
    }

    fn get(&self, offset: u32) -> Option<RawOutline> {
        let found = self.0.binary_search_by_key(&offset, |&(offset, _)| offset).ok()?;
        Some(self.0[found].1)
    }
}

/// The header summaries of all segments that can be read.
#[derive(Default)]
pub(super) struct StoreOutlines(RwLock<HashMap<SegmentIndex, SegmentOutlines>>);

impl StoreOutlines {
    /// Keeps the summaries of a segment.
    pub(super) fn enter(&self, segment_index: SegmentIndex, outlines: SegmentOutlines) {
        if !outlines.0.is_empty() {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(segment_index, outlines);
        }
    }

    /// Drops the summaries of a segment that is not read any more.
    pub(super) fn forget(&self, segment_index: SegmentIndex) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&segment_index);
    }

    /// Returns the summary of the sample at `offset` of a segment, if it is known.
    pub(super) fn get(&self, segment_index: SegmentIndex, offset: u32) -> Option<RawOutline> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&segment_index)?.get(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::dataset::FileVersion;
    use pixels::decode::FileForm;

    fn row(offset: u32, outline: u8) -> SegmentRow {
        let (form, version) = (FileForm::Packed, FileVersion(3));
        let (sample, length, outline) = (u64::from(offset), 10, [outline; 32]);
        SegmentRow { sample, version, offset, length, crc: 0, form, tried: form, outline }
    }

    #[test]
    fn an_outline_is_found_by_its_place_until_its_segment_is_forgotten() {
        let outlines = StoreOutlines::default();
        outlines.enter(4, SegmentOutlines::of(&[row(30, 3), row(10, 0), row(0, 1), row(20, 2)]));
        outlines.enter(5, SegmentOutlines::of(&[row(20, 7)]));
        outlines.enter(6, SegmentOutlines::of(&[row(20, 0)]));
        let found = [0, 10, 20, 21, 30].map(|offset| outlines.get(4, offset).map(|outline| outline[0]));
        assert_eq!(found, [Some(1), None, Some(2), None, Some(3)]);
        assert_eq!(outlines.get(6, 20), None, "zeros are no outline");
        outlines.forget(4);
        assert_eq!((outlines.get(4, 20), outlines.get(5, 20)), (None, Some([7; 32])));
    }
}
