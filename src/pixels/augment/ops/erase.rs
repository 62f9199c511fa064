//! Overwrites rectangles of grey levels, or of finished values after Normalize.

use super::{Erasure, ErasureValues, Rectangle, noise};
use crate::augment::{DType, MemoryFormat, Output};
use base::simd::Level;
use std::ops::Range;

impl Rectangle {
    /// Returns the columns and rows of the rectangle, clipped to an image of `width` × `height` pixels.
    fn clipped_to(&self, (width, height): (usize, usize)) -> [Range<usize>; 2] {
        let span = |first: u32, length: u32, limit: usize| {
            (first as usize).min(limit)..(first as usize + length as usize).min(limit)
        };
        [span(self.j, self.w, width), span(self.i, self.h, height)]
    }
}

pub(super) fn erase_levels(
    planes: &mut [u8],
    (width, height): (usize, usize),
    rectangle: Rectangle,
    colour: [u8; 3],
) {
    let [columns, rows] = rectangle.clipped_to((width, height));
    for (plane, level) in planes.chunks_exact_mut(width * height).zip(colour) {
        for row in rows.clone() {
            plane[row * width..][columns.clone()].fill(level);
        }
    }
}

/// Overwrites rectangles of a finished image, in order. Uses the instructions of `level`, or of the best level below it
/// that this processor supports.
///
/// # Panics
/// If `image` does not have the size of `output`.
pub(in crate::augment) fn erase(level: Level, erasures: &[Erasure], output: &Output, image: &mut [u8]) {
    let (width, height) = (output.width as usize, output.height as usize);
    let level = level.lowered();
    let mut values = Vec::new();
    for Erasure { rectangle, v } in erasures {
        let [columns, rows] = rectangle.clipped_to((width, height));
        values.resize(columns.len(), 0.0);
        for (c, row) in (0..3).flat_map(|c| rows.clone().map(move |row| (c, row))) {
            let first = (c * height + row) * width + columns.start;
            match *v {
                ErasureValues::Values(of_channels) => values.fill(of_channels[c]),
                ErasureValues::Noise { key, mean, std } => {
                    noise::fill(level, key, first as u64, &mut values);
                    for value in &mut values {
                        *value = *value * std[c] + mean[c];
                    }
                }
            }
            for (x, &value) in columns.clone().zip(&values) {
                let place = match output.format {
                    MemoryFormat::Nchw => first + x - columns.start,
                    MemoryFormat::Nhwc => (row * width + x) * 3 + c,
                };
                put(output.dtype, value, place, image);
            }
        }
    }
}

/// Stores a value as the element at index `place`: floats are rounded to nearest, and levels are clamped and truncated.
#[inline(always)]
fn put(dtype: DType, value: f32, place: usize, image: &mut [u8]) {
    match dtype {
        DType::F32 => image[4 * place..][..4].copy_from_slice(&value.to_ne_bytes()),
        DType::F16 => image[2 * place..][..2].copy_from_slice(&half::f16::from_f32(value).to_ne_bytes()),
        DType::Bf16 => image[2 * place..][..2].copy_from_slice(&half::bf16::from_f32(value).to_ne_bytes()),
        DType::U8 => image[place] = value as u8,
    }
}
