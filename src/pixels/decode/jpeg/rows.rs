//! The start positions of a JPEG's rows of MCUs, found while decoding the file. Later decoding of another region of the
//! same file starts at that region's first row, and reads each row only up to the region's right edge.
//! `src/engine/pipeline/row_start_cache.rs` keeps the positions from epoch to epoch.
//!
//! Positions are known only for files with one sequential scan and no restart markers, and only down to the lowest
//! region that was decoded. Below that region everything is read. Pixels and errors are the same as without positions:
//! a position is kept only if everything before it was read without a fault, and used only while the file has the same
//! bytes.

use super::bits::FileOffsets;
use super::indexed::EntryPoint;
use super::markers::ScanHeader;
use super::scan::{self, Component, RowStart, Scan, ScanStart};
use super::{Jpeg, PROGRESSIVE, RegionLayout};
use crate::decode::{Plane, Planes};
use base::crc::checksum;
use base::simd::Level;
use std::ops::Range;

/// The start positions of a file's rows of MCUs, beginning with the first row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowStarts {
    length: usize,
    crc: u32,
    rows: Vec<PackedEntry>,
}

/// An entry point in eight bytes: 25 bits for the byte offset, 3 for the bits to skip, and 12 for each DC coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackedEntry(u64);

const BYTE_BITS: u32 = 25;
const DC_BITS: u32 = 12;

impl PackedEntry {
    /// Packs an entry point. Returns `None` if the byte offset is too large, or if a coefficient is out of the range of
    /// 8-bit samples.
    fn new(byte: usize, RowStart { bit, dc }: RowStart) -> Option<Self> {
        let limit = 1 << (DC_BITS - 1);
        if byte >> BYTE_BITS != 0 || dc.iter().any(|dc| !(-limit..limit).contains(dc)) {
            return None;
        }
        let start = ((byte as u64) << 3) | (bit as u64 % 8);
        Some(Self(
            dc[..3]
                .iter()
                .fold(start, |packed, &dc| packed << DC_BITS | u64::from(dc as u32 % (1 << DC_BITS))),
        ))
    }

    fn unpack(self) -> EntryPoint {
        let at = |place: u32| ((self.0 << (64 - DC_BITS - DC_BITS * place)) as i64 >> (64 - DC_BITS)) as i16;
        let start = self.0 >> (3 * DC_BITS);
        EntryPoint { byte: (start >> 3) as u32, skip: start as u32 % 8, dc: [at(2), at(1), at(0)] }
    }
}

impl RowStarts {
    /// The size of the allocated memory in bytes.
    pub fn held(&self) -> usize {
        size_of::<Self>() + self.rows.capacity() * size_of::<PackedEntry>()
    }

    /// The positions that decoding of `file` found. The file's entropy-coded data begins at `start`. Returns `None` if
    /// there are no positions.
    pub(super) fn found(file: &[u8], start: usize, rows: &[RowStart]) -> Option<Self> {
        let mut found = Self { length: file.len(), crc: checksum(file), rows: Vec::new() };
        found.add(file, start, rows);
        (!found.rows.is_empty()).then_some(found)
    }

    /// Adds rows, whose bit positions count from `file[start]`.
    fn add(&mut self, file: &[u8], start: usize, rows: &[RowStart]) {
        let mut offsets = FileOffsets::new(file, start);
        self.rows.reserve_exact(rows.len());
        self.rows.extend(rows.iter().map_while(|&row| PackedEntry::new(offsets.of(row.bit / 8), row)));
    }

    fn matches_file(&self, file: &[u8]) -> bool {
        self.length == file.len() && self.crc == checksum(file)
    }
}

/// Whether row positions can be known for this kind of file.
pub(super) fn supports_row_starts(header: &ScanHeader, layout: &RegionLayout) -> bool {
    layout.planes_are_components && is_sequential_scan(header) && header.tables.restart_interval == 0
}

/// Whether the file's first scan codes all components, sequentially.
pub(super) fn is_sequential_scan(header: &ScanHeader) -> bool {
    header.scan.len() == header.frame.components.len() && header.frame.marker != PROGRESSIVE
}

/// Decodes the region of `layout` from `file` into `out`, starting at the row positions in `rows`, and adds the
/// positions that decoding finds. If `rows` belongs to another file or a wanted row is damaged, clears `rows` and
/// returns `None`.
pub(super) fn decode_from(
    rows: &mut Option<RowStarts>,
    jpeg: &mut Jpeg,
    (file, header): (&[u8], &mut ScanHeader),
    layout: &RegionLayout,
    level: Level,
    out: &mut Planes,
) -> Option<()> {
    let is_usable = |known: &RowStarts| supports_row_starts(header, layout) && known.matches_file(file);
    let mut known = rows.take().filter(is_usable)?;
    let last = known.rows.len() as u32 - 1;
    let scan = ScanFromEntryPoint::new(jpeg, (file, header), layout, level, out)?;
    let wanted = scan.rows.clone();
    for row in wanted.start..wanted.end.min(last) {
        let [start, next] = [row, row + 1].map(|row| known.rows[row as usize].unpack());
        scan.decode(jpeg, (row, start), start.until(next, file), row..row + 1, &mut out.planes)?;
    }
    if wanted.end > last {
        // Only the last known row's start is known, not its end. From there on, read everything.
        let start = known.rows[last as usize].unpack();
        let part = start.byte as usize..file.len();
        scan.decode(jpeg, (last, start), part, wanted.start.max(last)..wanted.end, &mut out.planes)?;
        known.add(file, start.byte as usize, jpeg.rows.get(1..)?);
    }
    *rows = Some(known);
    Some(())
}

/// The only scan of a file, decoded from entry points.
pub(super) struct ScanFromEntryPoint<'a> {
    file: &'a [u8],
    components: Vec<Component>,
    mcus: (u32, u32),
    restart_interval: u32,
    columns: Range<u32>,
    pub(super) rows: Range<u32>,
    level: Level,
}

impl<'a> ScanFromEntryPoint<'a> {
    /// Prepares the decoding of the region of `layout`, and shapes `out` for it. Returns `None` if the file's tables
    /// are damaged.
    pub(super) fn new(
        jpeg: &mut Jpeg,
        (file, header): (&'a [u8], &mut ScanHeader),
        layout: &RegionLayout,
        level: Level,
        out: &mut Planes,
    ) -> Option<Self> {
        header.tables.add_standard();
        layout.describe(&header.frame, out);
        layout.shape(&mut out.planes);
        let (columns, rows) = layout.wanted(&header.scan);
        Some(Self {
            file,
            components: jpeg.components(header, layout).ok()?,
            mcus: layout.mcus(&header.scan),
            restart_interval: header.tables.restart_interval,
            columns,
            rows,
            level,
        })
    }

    /// Decodes the wanted blocks of `rows`. Reading starts at `entry`, where row `row` begins; this is the first of
    /// `rows` or an earlier row. Returns `None` if the bytes `part` of the file do not contain these blocks.
    pub(super) fn decode(
        &self,
        jpeg: &mut Jpeg,
        (row, entry): (u32, EntryPoint),
        part: Range<usize>,
        rows: Range<u32>,
        planes: &mut [Plane],
    ) -> Option<()> {
        let (width, height) = self.mcus;
        let start = ScanStart {
            mcu: u64::from(row) * u64::from(width),
            skip: entry.skip,
            dc: std::array::from_fn(|component| entry.dc.get(component).copied().unwrap_or(0).into()),
        };
        let segment = start.mcu.checked_div(u64::from(self.restart_interval)).unwrap_or(0);
        jpeg.entropy.unstuff_part(self.file, part, segment, self.level);
        let scan = Scan {
            entropy: &jpeg.entropy,
            components: &self.components,
            columns: width,
            rows: height,
            restart_interval: self.restart_interval,
            start,
            wanted: (self.columns.clone(), rows),
        };
        scan::decode(&scan, planes, &mut jpeg.rows, self.level).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_are_packed_into_eight_bytes() {
        for (byte, bit, dc) in
            [(0, 8, [0, 0, 0, 0]), (600, 7, [2047, -2048, -1, 0]), ((1 << 25) - 1, 13, [-2048, 2047, 1, 0])]
        {
            let entry = PackedEntry::new(byte, RowStart { bit, dc }).unwrap().unpack();
            let dc = std::array::from_fn(|component| dc[component] as i16);
            assert_eq!(entry, EntryPoint { byte: byte as u32, skip: bit as u32 % 8, dc });
        }
        assert!(PackedEntry::new(1 << 25, RowStart { bit: 0, dc: [0; 4] }).is_none());
        for outside in [-2049, 2048] {
            assert!(PackedEntry::new(0, RowStart { bit: 0, dc: [0, outside, 0, 0] }).is_none());
        }
    }
}
