//! The table entries that the kernel reads for indexed images. The types have the same fields as in
//! `cuda/indexed/table.cuh`.

use super::image::{ImageEntry, TableEntry, bytes_of};
use crate::decode::jpeg::plan::{CudaPlan, EntryPoint, HuffmanCode, PlannedRow, PlannedScan};
use std::mem::offset_of;

/// The table entry of an image. Its components are in the order of the scan.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct IndexedImageEntry {
    image: ImageEntry,
    mcus: [u32; 2],
    interval: u32,
    wanted: [u32; 2],
    codes: [[u32; 2]; 3],
    unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct IndexedRowEntry {
    bytes: u64,
    length: u32,
    number: u32,
    skip: u16,
    dc: [i16; 3],
}

/// The table entry of a group: consecutive rows of one image, which one thread block decodes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RowGroupEntry {
    image: u32,
    first: u32,
    count: u32,
}

// Sizes and offsets must match `cuda/indexed/table.cuh`. There is no padding. The type `HuffmanCode` has its own
// assertions.
const _: () = assert!(size_of::<IndexedImageEntry>() == 512 + 12 * 4);
const _: () = assert!(offset_of!(IndexedImageEntry, interval) == 520);
const _: () = assert!(offset_of!(IndexedImageEntry, codes) == 532);
const _: () = assert!(size_of::<IndexedRowEntry>() == 8 + 2 * 4 + 4 * 2);
const _: () = assert!(offset_of!(IndexedRowEntry, length) == 8);
const _: () = assert!(offset_of!(IndexedRowEntry, skip) == 16);
const _: () = assert!(offset_of!(IndexedRowEntry, dc) == 18);
const _: () = assert!(size_of::<RowGroupEntry>() == 3 * 4);
const _: () = assert!(offset_of!(RowGroupEntry, first) == 4);
const _: () = assert!(offset_of!(RowGroupEntry, count) == 8);

// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for IndexedImageEntry {}
// SAFETY: integers without padding, as asserted next to the type.
unsafe impl TableEntry for HuffmanCode {}
// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for IndexedRowEntry {}
// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for RowGroupEntry {}

/// The largest number of rows of a group: `GROUP_ROWS` in `cuda/indexed/shared.cuh`.
const GROUP_ROWS: usize = 16;

/// The number of recently added Huffman codes that are compared with a code before it is added. Usually all images of a
/// launch share the same four codes.
const KNOWN_CODES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct IndexedTable {
    images: Vec<IndexedImageEntry>,
    codes: Vec<HuffmanCode>,
    rows: Vec<IndexedRowEntry>,
    groups: Vec<RowGroupEntry>,
}

impl IndexedTable {
    /// The size in bytes of the table entries of an image with `rows` rows of MCUs to decode and `codes` new Huffman
    /// codes.
    pub(super) const fn image_bytes(rows: usize, codes: usize) -> usize {
        let groups = rows.div_ceil(GROUP_ROWS);
        size_of::<IndexedImageEntry>()
            + codes * size_of::<HuffmanCode>()
            + rows * size_of::<IndexedRowEntry>()
            + groups * size_of::<RowGroupEntry>()
    }

    pub(super) fn clear(&mut self) {
        self.images.clear();
        self.codes.clear();
        self.rows.clear();
        self.groups.clear();
    }

    /// Adds an image whose needed bytes are at the device address `bytes`.
    pub(super) fn add(
        &mut self,
        plan: &CudaPlan,
        (scan, rows): (&PlannedScan, &[(PlannedRow, EntryPoint)]),
        [planes, bytes]: [u64; 2],
        damage: u32,
    ) {
        let image = self.images.len() as u32;
        let mut codes = [[0; 2]; 3];
        for (to, both) in codes.iter_mut().zip(&scan.codes) {
            *to = both.each_ref().map(|code| self.number_of(code));
        }
        self.images.push(IndexedImageEntry {
            image: ImageEntry::new(plan, planes, damage),
            mcus: [scan.mcus.0, scan.mcus.1],
            interval: scan.restart_interval,
            wanted: [scan.wanted.start, scan.wanted.end],
            codes,
            unused: 0,
        });
        // All groups of an image have about the same number of rows, because a small last group would take as long as a
        // full group.
        let groups = rows.len().div_ceil(GROUP_ROWS).max(1);
        for group in rows.chunks(rows.len().div_ceil(groups).max(1)) {
            let (first, count) = (self.rows.len() as u32, group.len() as u32);
            self.groups.push(RowGroupEntry { image, first, count });
            self.rows.extend(group.iter().map(|(row, entry)| IndexedRowEntry {
                bytes: bytes + row.start,
                length: row.length,
                number: row.number,
                skip: entry.skip as u16,
                dc: entry.dc,
            }));
        }
    }

    /// Returns the index of a Huffman code in the table. Adds the code unless it is one of the latest [`KNOWN_CODES`]
    /// codes.
    fn number_of(&mut self, code: &HuffmanCode) -> u32 {
        let latest = self.codes.iter().enumerate().rev().take(KNOWN_CODES);
        let known = latest.into_iter().find(|(_, known)| *known == code).map(|(number, _)| number);
        let number = known.unwrap_or_else(|| {
            self.codes.push(*code);
            self.codes.len() - 1
        });
        number as u32
    }

    pub(super) fn parts(&self) -> [&[u8]; 4] {
        [bytes_of(&self.images), bytes_of(&self.codes), bytes_of(&self.rows), bytes_of(&self.groups)]
    }

    pub(super) fn blocks(&self) -> u32 {
        self.groups.len() as u32
    }
}
