//! The table entries that the kernel reads for packed images. The types have the same fields as in
//! `cuda/packed/table.cuh`.

use super::image::{ImageEntry, TableEntry, bytes_of};
use crate::decode::jpeg::plan::{CudaPlan, PlannedRow};
use std::mem::offset_of;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PackedRowEntry {
    bytes: u64,
    length: u32,
    checksum: u32,
    image: u32,
    number: u32,
}

// Size and offsets must match `cuda/packed/table.cuh`; there is no padding.
const _: () = assert!(size_of::<PackedRowEntry>() == 8 + 4 * 4);
const _: () = assert!(offset_of!(PackedRowEntry, length) == 8);
const _: () = assert!(offset_of!(PackedRowEntry, image) == 16);
const _: () = assert!(offset_of!(PackedRowEntry, number) == 20);

// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for PackedRowEntry {}

#[derive(Debug, Default)]
pub(super) struct PackedTable {
    images: Vec<ImageEntry>,
    rows: Vec<PackedRowEntry>,
}

impl PackedTable {
    /// The size in bytes of the table entries of an image with this many rows.
    pub(super) const fn image_bytes(rows: usize) -> usize {
        size_of::<ImageEntry>() + rows * size_of::<PackedRowEntry>()
    }

    pub(super) fn clear(&mut self) {
        self.images.clear();
        self.rows.clear();
    }

    /// Adds an image whose needed bytes are at the device address `bytes`.
    pub(super) fn add(
        &mut self,
        plan: &CudaPlan,
        rows: &[(PlannedRow, u32)],
        [planes, bytes]: [u64; 2],
        damage: u32,
    ) {
        let image = self.images.len() as u32;
        self.images.push(ImageEntry::new(plan, planes, damage));
        self.rows.extend(rows.iter().map(|&(row, checksum)| PackedRowEntry {
            bytes: bytes + row.start,
            length: row.length,
            checksum,
            image,
            number: row.number,
        }));
    }

    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [bytes_of(&self.images), bytes_of(&self.rows)]
    }

    pub(super) fn blocks(&self) -> u32 {
        self.rows.len() as u32
    }
}
