//! The table entries that the kernels read for every image. The types have the same fields as in
//! `cuda/decode/table.cuh`.

use crate::decode::jpeg::plan::CudaPlan;
use std::mem::offset_of;

/// An entry of a table that a kernel reads.
///
/// # Safety
/// The type must be a `repr(C)` structure of integers without padding.
pub(super) unsafe trait TableEntry: Copy {}

pub(super) fn bytes_of<T: TableEntry>(entries: &[T]) -> &[u8] {
    // SAFETY: the entries consist of integers without padding, so all their bytes are initialised.
    unsafe { std::slice::from_raw_parts(entries.as_ptr().cast(), size_of_val(entries)) }
}

/// The table entry of a component. Arrays of two elements are for x and y.
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

/// The part of an image's table entry that both decoding kernels read.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageEntry {
    components: [ComponentEntry; 3],
    count: u32,
    damage: u32,
}

// Sizes and offsets must match `cuda/decode/table.cuh`; there is no padding.
const _: () = assert!(size_of::<ComponentEntry>() == 8 + 8 * 4 + 64 * 2);
const _: () = assert!(offset_of!(ComponentEntry, wanted) == 24);
const _: () = assert!(offset_of!(ComponentEntry, steps) == 40);
const _: () = assert!(size_of::<ImageEntry>() == 3 * 168 + 2 * 4);
const _: () = assert!(offset_of!(ImageEntry, count) == 504);
const _: () = assert!(offset_of!(ImageEntry, damage) == 508);

// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for ImageEntry {}

impl ImageEntry {
    /// The entry of an image that is decoded by `plan`. `planes` is the device address for its planes, a multiple of
    /// 64. `damage` is the index of the image's damage counter.
    pub(super) fn new(plan: &CudaPlan, planes: u64, damage: u32) -> Self {
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
        for (to, part) in components.iter_mut().zip(&plan.components) {
            let plane = &plan.layout.planes[part.plane];
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
        Self { components, count: plan.components.len() as u32, damage }
    }
}
