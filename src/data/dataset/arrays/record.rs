//! The record of a sample: its stored bytes, which may be in many extents of several files, as one sequence.
//!
//! Ranges of a record and extents of files are two views of the same bytes. [`SampleRecord::cut`] converts the ranges
//! that a window needs to the reads that fetch them.

use crate::dataset::{Extent, FileId};
use std::ops::Range;

/// The stored bytes of a sample, one piece after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// The pieces in the order of the record. Each begins where the one before it ends, and none is empty.
    pub pieces: Vec<Piece>,
    /// The number of bytes of all pieces.
    pub length: u32,
}

/// Some bytes of a record that are contiguous in a file or in a decompressed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The location of the bytes: offsets in a file, or addresses in a block.
    pub extent: Extent,
    /// The offset of the bytes in the record.
    pub at: u32,
}

/// One read of a file, and the pieces of a record that it fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordRead {
    /// The bytes to read: all pieces, and the gaps between them.
    pub extent: Extent,
    /// The pieces in the order of the file. They are inside of `extent`.
    pub pieces: Vec<Piece>,
}

/// Ranges of a record's bytes: sorted, apart from each other, and none of them empty. Without any range, a request
/// reads nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordRanges(Box<[Range<u32>]>);

impl SampleRecord {
    /// Makes the record whose bytes are those of `extents`, in this order. Returns `None` if a record cannot be so
    /// long.
    pub fn of(extents: impl IntoIterator<Item = Extent>) -> Option<Self> {
        let mut record = Self::default();
        for extent in extents.into_iter().filter(|extent| extent.length > 0) {
            record.pieces.push(Piece { extent, at: record.length });
            record.length = record.length.checked_add(extent.length)?;
        }
        Some(record)
    }

    /// Cuts the record into reads of `ranges`, or of all bytes if `ranges` is `None`. The reads are in the order of
    /// files and offsets.
    ///
    /// Pieces of one file become one read if at most `longest_gap` bytes are between them. This must be less than the
    /// distance of the addresses of two blocks, so that no read covers two blocks. Files for which `is_whole` is true
    /// can only be read whole. So if any byte of a piece of such a file is needed, the whole piece is read.
    pub fn cut(
        &self,
        ranges: Option<&RecordRanges>,
        longest_gap: u64,
        is_whole: impl Fn(FileId) -> bool,
    ) -> Vec<RecordRead> {
        let whole = RecordRanges(std::iter::once(0..self.length).collect());
        let mut wanted = Vec::new();
        for range in &*ranges.unwrap_or(&whole).0 {
            let first = self.pieces.partition_point(|piece| piece.end() <= range.start.into());
            let touched = self.pieces.iter().enumerate().skip(first);
            for (number, piece) in touched.take_while(|(_, piece)| piece.at < range.end) {
                let is_whole = is_whole(piece.extent.file);
                wanted.push((number, if is_whole { *piece } else { piece.clipped(range) }));
            }
        }
        wanted.sort_unstable_by_key(|(_, Piece { extent, at })| (extent.file, extent.offset, *at));
        let mut reads: Vec<RecordRead> = Vec::new();
        let mut last = None;
        for (number, piece) in wanted {
            match reads.last_mut().and_then(|read| Some((read.extended(piece.extent, longest_gap)?, read))) {
                Some((extent, read)) => read.add(extent, piece, last == Some(number)),
                None => reads.push(RecordRead { extent: piece.extent, pieces: vec![piece] }),
            }
            last = Some(number);
        }
        reads
    }
}

impl Piece {
    /// Returns the end of the piece in the record. In a damaged index, it may be more than a record can have.
    fn end(&self) -> u64 {
        u64::from(self.at) + u64::from(self.extent.length)
    }

    fn clipped(self, range: &Range<u32>) -> Self {
        let at = self.at.max(range.start);
        let end = self.end().min(range.end.into());
        let offset = self.extent.offset.saturating_add(u64::from(at - self.at));
        let length = end.saturating_sub(at.into()) as u32;
        Self { extent: Extent { offset, length, ..self.extent }, at }
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        let end = self.extent.offset.saturating_add(self.extent.length.into());
        self.end() == u64::from(next.at) && end == next.extent.offset
    }
}

impl RecordRead {
    fn end(&self) -> u64 {
        self.extent.offset.saturating_add(self.extent.length.into())
    }

    /// Returns the extent of this read with a later extent of the same file; `None` if that is too far away.
    fn extended(&self, next: Extent, longest_gap: u64) -> Option<Extent> {
        let is_near = next.offset <= self.end().saturating_add(longest_gap);
        let end = self.end().max(next.offset.saturating_add(next.length.into()));
        let length = u32::try_from(end - self.extent.offset).ok()?;
        (next.file == self.extent.file && is_near).then_some(Extent { length, ..self.extent })
    }

    /// Adds a piece to the read, whose extent then is `extent`. If the bytes between the read's last piece and this one
    /// belong to the record (`is_same`: both are parts of one piece of it), the two become one.
    fn add(&mut self, extent: Extent, piece: Piece, is_same: bool) {
        self.extent = extent;
        match self.pieces.last_mut() {
            Some(last) if is_same || last.is_continued_by(&piece) => {
                let end = last.end().max(piece.end());
                last.extent.length = (end - u64::from(last.at)) as u32;
            }
            _ => self.pieces.push(piece),
        }
    }
}

impl RecordRanges {
    /// Makes ranges of these, which may overlap and be in any order.
    pub fn of(mut ranges: Vec<Range<u32>>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        Self(ranges.into())
    }

    /// Returns the number of bytes in all ranges.
    pub fn bytes(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, RandomStream, Use};

    const fn extent(file: u32, offset: u64, length: u32) -> Extent {
        Extent { file: FileId(file), offset, length }
    }

    fn random_ranges(random: &mut RandomStream, length: u32) -> RecordRanges {
        let ranges = (0..random.below(6)).map(|_| {
            let start = random.below(u64::from(length) + 1) as u32;
            start..start + random.below(u64::from(length - start) + 1) as u32
        });
        RecordRanges::of(ranges.collect())
    }

    #[test]
    fn ranges_are_sorted_and_joined() {
        let ranges = RecordRanges::of(vec![9..12, 3..3, 0..2, 2..4, 10..11, 20..21]);
        assert_eq!(*ranges.0, [0..4, 9..12, 20..21]);
        assert_eq!((ranges.bytes(), RecordRanges::of(vec![]).bytes()), (8, 0));
    }

    #[test]
    fn near_pieces_are_read_at_once_and_far_ones_apart() {
        let extents = [extent(1, 100, 10), extent(0, 50, 5), extent(1, 110, 10), extent(1, 124, 6)];
        let record = SampleRecord::of(extents.into_iter().chain([extent(2, 0, 0)])).unwrap();
        assert_eq!((record.pieces.len(), record.length), (4, 31));
        let piece = |file, offset, length, at| Piece { extent: extent(file, offset, length), at };
        let read = |extent, pieces: &[Piece]| RecordRead { extent, pieces: pieces.to_vec() };
        let first = read(extents[1], &[piece(0, 50, 5, 10)]);
        let (a, b, c) = (piece(1, 100, 10, 0), piece(1, 110, 10, 15), piece(1, 124, 6, 25));
        let whole = |gap| record.cut(None, gap, |_| false);
        assert_eq!(whole(4), [first.clone(), read(extent(1, 100, 30), &[a, b, c])]);
        assert_eq!(whole(3), [first, read(extent(1, 100, 20), &[a, b]), read(extents[3], &[c])]);
        // Pieces that follow each other in the record and in the file are one.
        let record = SampleRecord::of([extent(1, 7, 3), extent(1, 10, 4)]).unwrap();
        assert_eq!(record.cut(None, 0, |_| false), [read(extent(1, 7, 7), &[piece(1, 7, 7, 0)])]);
        // So are two ranges of a piece with the gap between them, because the gap belongs to the record.
        let ranges = RecordRanges::of(vec![1..2, 5..6]);
        let cut = |gap, is_whole| record.cut(Some(&ranges), gap, |_| is_whole);
        assert_eq!(cut(2, false).len(), 2);
        let one = SampleRecord::of([extent(1, 7, 7)]).unwrap().cut(Some(&ranges), 3, |_| false);
        assert_eq!(one, [read(extent(1, 8, 5), &[piece(1, 8, 5, 1)])]);
        assert_eq!(cut(0, true), [read(extent(1, 7, 7), &[piece(1, 7, 7, 0)])]);
        assert!(record.cut(Some(&RecordRanges::of(vec![])), 9, |_| false).is_empty());
    }

    #[test]
    fn a_record_has_at_most_4_gib() {
        assert!(SampleRecord::of([extent(0, 0, u32::MAX)]).is_some());
        assert!(SampleRecord::of([extent(0, 0, u32::MAX), extent(0, 0, 1)]).is_none());
    }

    /// Every wanted byte is in a read at its place, no other byte is read except in short gaps, and no two reads could
    /// be one.
    #[test]
    fn reads_have_the_wanted_bytes_and_short_gaps() {
        for seed in 0..3000 {
            let mut random = RandomKey::new(b"records", seed, 0, Use::Order).stream(0);
            let mut below = |limit: u64| random.below(limit);
            let extents: Vec<_> =
                (0..below(12)).map(|_| extent(below(3) as u32, below(400), below(60) as u32)).collect();
            let (gap, loose) = (below(40), FileId(below(4) as u32));
            let record = SampleRecord::of(extents).unwrap();
            let ranges = (below(4) > 0).then(|| random_ranges(&mut random, record.length));
            let shown = format!("seed {seed}: {ranges:?} of {record:?}, gap {gap}, whole {loose:?}");
            let is_in =
                |at: u32| ranges.as_ref().is_none_or(|all| all.0.iter().any(|range| range.contains(&at)));
            // The files' bytes that are needed, found byte by byte.
            let mut needed = std::collections::BTreeSet::new();
            let mut places = vec![(FileId(0), 0); record.length as usize];
            for Piece { extent, at } in &record.pieces {
                let place = |n: u32| (extent.file, extent.offset + u64::from(n));
                let any = (0..extent.length).any(|n| is_in(at + n));
                for n in 0..extent.length {
                    places[(at + n) as usize] = place(n);
                    if is_in(at + n) || any && extent.file == loose {
                        needed.insert(place(n));
                    }
                }
            }
            let reads = record.cut(ranges.as_ref(), gap, |file| file == loose);
            let mut read = std::collections::BTreeSet::new();
            let mut found = vec![false; record.length as usize];
            for one in &reads {
                let Extent { file, offset, length } = one.extent;
                read.extend((0..u64::from(length)).map(|n| (file, offset + n)));
                let mut between = 0;
                for n in 0..u64::from(length) {
                    between = if needed.contains(&(file, offset + n)) { 0 } else { between + 1 };
                    assert!(between <= gap, "{shown}: {one:?}");
                }
                assert!(needed.contains(&(file, offset)) && between == 0, "{shown}: {one:?}");
                for Piece { extent, at } in &one.pieces {
                    assert!(extent.file == file && extent.offset >= offset, "{shown}: {one:?}");
                    let end = extent.offset + u64::from(extent.length);
                    assert!(extent.length > 0 && end <= offset + u64::from(length), "{shown}: {one:?}");
                    for n in 0..extent.length {
                        assert_eq!(
                            places[(at + n) as usize],
                            (file, extent.offset + u64::from(n)),
                            "{shown}"
                        );
                        found[(at + n) as usize] = true;
                    }
                }
            }
            assert!(needed.is_subset(&read), "{shown}");
            assert!((0..record.length).all(|at| found[at as usize] || !is_in(at)), "{shown}");
            for pair in reads.windows(2) {
                let [one, next] = [&pair[0].extent, &pair[1].extent];
                assert!(one.file < next.file || pair[0].end() + gap < next.offset, "{shown}: {pair:?}");
            }
        }
    }
}
