//! Rectangles that are overwritten: of levels, and of finished values behind Normalize.

use super::noise::normal;
use super::{ErasedBy, Erasure, Rectangle};
use crate::augment::{DType, MemoryFormat, Output};
use std::ops::Range;

impl Rectangle {
    /// Its columns and rows, as far as an image of `width` × `height` pixels has them.
    fn within(&self, (width, height): (usize, usize)) -> [Range<usize>; 2] {
        let span = |first: u32, length: u32, limit: usize| {
            (first as usize).min(limit)..(first as usize + length as usize).min(limit)
        };
        [span(self.j, self.w, width), span(self.i, self.h, height)]
    }
}

/// Sets a rectangle of three planes of `width` × `height` levels to one colour.
pub(super) fn erase_levels(
    planes: &mut [u8],
    (width, height): (usize, usize),
    rectangle: Rectangle,
    colour: [u8; 3],
) {
    let [columns, rows] = rectangle.within((width, height));
    for (plane, level) in planes.chunks_exact_mut(width * height).zip(colour) {
        for row in rows.clone() {
            plane[row * width..][columns.clone()].fill(level);
        }
    }
}

/// Overwrites rectangles of a finished image, in order.
///
/// # Panics
/// If `image` does not have the size of `output`.
pub(in crate::augment) fn erase(erasures: &[Erasure], output: &Output, image: &mut [u8]) {
    for Erasure { rectangle, v } in erasures {
        let (width, height) = (output.width as usize, output.height as usize);
        let [columns, rows] = rectangle.within((width, height));
        for c in 0..3 {
            for row in rows.clone() {
                for x in columns.clone() {
                    let index = (c * height + row) * width + x;
                    let value = match *v {
                        ErasedBy::Values(values) => values[c],
                        ErasedBy::Noise { key, mean, std } => normal(key, index as u64) * std[c] + mean[c],
                    };
                    let place = match output.format {
                        MemoryFormat::Nchw => index,
                        MemoryFormat::Nhwc => (row * width + x) * 3 + c,
                    };
                    put(output.dtype, value, place, image);
                }
            }
        }
    }
}

/// Stores a value as element number `place`: floats are rounded to the nearest, levels are clamped and truncated.
#[inline(always)]
fn put(dtype: DType, value: f32, place: usize, image: &mut [u8]) {
    match dtype {
        DType::F32 => image[4 * place..][..4].copy_from_slice(&value.to_ne_bytes()),
        DType::F16 => image[2 * place..][..2].copy_from_slice(&half::f16::from_f32(value).to_ne_bytes()),
        DType::Bf16 => image[2 * place..][..2].copy_from_slice(&half::bf16::from_f32(value).to_ne_bytes()),
        DType::U8 => image[place] = value as u8,
    }
}
