//! What the kernel reads of the images that a launch decodes: `cuda/packed/table.cuh` in Rust, field by field.

use crate::decode::packed::PackedPlan;

/// A component of an image. Arrays of two are along x and along y.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ComponentEntry {
    plane: u64,
    stride: u32,
    height: u32,
    columns: u32,
    rows: u32,
    wanted: [[u32; 2]; 2],
    steps: [u16; 64],
}

/// An image.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ImageEntry {
    components: [ComponentEntry; 3],
    count: u32,
    damage: u32,
}

/// A row of MCUs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RowEntry {
    bytes: u64,
    length: u32,
    checksum: u32,
    image: u32,
    number: u32,
}

// The sizes are those in `cuda/packed/table.cuh`; no byte is padding.
const _: () = assert!(size_of::<ComponentEntry>() == 8 + 8 * 4 + 64 * 2);
const _: () = assert!(size_of::<ImageEntry>() == 3 * 168 + 2 * 4);
const _: () = assert!(size_of::<RowEntry>() == 8 + 4 * 4);

/// The rows of MCUs that are usually wanted of an image, or fewer: as many as 640 rows of pixels have.
const USUAL_ROWS: usize = 40;

/// The images of a launch, and the rows of MCUs that are wanted of them.
#[derive(Debug, Default)]
pub struct PackedTable {
    images: Vec<ImageEntry>,
    rows: Vec<RowEntry>,
}

impl PackedTable {
    /// The bytes that a table of so many images usually has.
    pub(crate) fn usual_bytes(images: usize) -> usize {
        images * (size_of::<ImageEntry>() + USUAL_ROWS * size_of::<RowEntry>())
    }

    /// Begins the table of another launch.
    pub fn clear(&mut self) {
        self.images.clear();
        self.rows.clear();
    }

    /// Adds an image to be decoded as `plan` says: its planes go behind the device address `planes`, a multiple of 64,
    /// and [the bytes that it needs](PackedPlan::bytes) lie at `bytes`. Its damaged rows are counted by the number
    /// `damage`.
    pub fn add(&mut self, plan: &PackedPlan, planes: u64, bytes: u64, damage: u32) {
        let image = self.images.len() as u32;
        let none = ComponentEntry {
            plane: 0,
            stride: 0,
            height: 0,
            columns: 0,
            rows: 0,
            wanted: [[0; 2]; 2],
            steps: [0; 64],
        };
        let mut components = [none; 3];
        for ((to, part), plane) in components.iter_mut().zip(&plan.components).zip(plan.layout.used()) {
            *to = ComponentEntry {
                plane: planes + plane.offset,
                stride: plane.stride,
                height: plane.height,
                columns: part.columns,
                rows: part.rows,
                wanted: part.wanted.each_ref().map(|blocks| [blocks.start, blocks.end]),
                steps: part.steps,
            };
        }
        self.images.push(ImageEntry { components, count: plan.components.len() as u32, damage });
        self.rows.extend(plan.rows.iter().map(|row| RowEntry {
            bytes: bytes + row.start,
            length: row.length,
            checksum: row.crc,
            image,
            number: row.number,
        }));
    }

    /// The number of bytes of the table: the images, then the rows.
    pub fn bytes(&self) -> usize {
        self.rows_at() + size_of_val(&self.rows[..])
    }

    /// Where the rows begin in it.
    pub fn rows_at(&self) -> usize {
        size_of_val(&self.images[..])
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Writes the table to `to`, which has as many bytes.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn write(&self, to: &mut [u8]) {
        let (images, rows) = to.split_at_mut(self.rows_at());
        images.copy_from_slice(bytes_of(&self.images));
        rows.copy_from_slice(bytes_of(&self.rows));
    }
}

/// The bytes of entries as the kernel reads them.
fn bytes_of<T: Copy>(entries: &[T]) -> &[u8] {
    // SAFETY: entries are `repr(C)` structures of integers without padding, as asserted above.
    unsafe { std::slice::from_raw_parts(entries.as_ptr().cast(), size_of_val(entries)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The same numbers follow from the fields in `cuda/packed/table.cuh`.
    #[test]
    fn fields_lie_where_the_kernel_looks() {
        assert_eq!((offset_of!(ComponentEntry, wanted), offset_of!(ComponentEntry, steps)), (24, 40));
        assert_eq!((offset_of!(ImageEntry, count), offset_of!(ImageEntry, damage)), (504, 508));
        assert_eq!((offset_of!(RowEntry, image), offset_of!(RowEntry, number)), (16, 20));
    }
}
