//! Makes pixels from planes as libjpeg-turbo does: "fancy" chroma upsampling, then fixed-point colour conversion. The
//! `exact` pass resizes these pixels.

use super::kernels::{self, Blend};
use crate::decode::{Plane, Region, Upsampling};
use base::simd::Level;

/// The number of bytes after the last sample of a row that vector loads may read. [`Plane::data`] has these bytes.
pub(super) const PADDING: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Upsampler {
    sums: Vec<i16>,
    row: Vec<u8>,
}

impl Upsampler {
    /// Returns the upsampled values of the pixels of `region` in image row `y`. At least [`PADDING`] readable bytes
    /// follow them.
    pub(super) fn row<'a>(&'a mut self, level: Level, plane: &'a Plane, region: &Region, y: u32) -> &'a [u8] {
        let (across, down) = plane.upsampling();
        let (near, next) = down.samples_of(y);
        let stored = |row: u32| &plane.data[(row - plane.y0) as usize * plane.stride..];
        match across {
            Upsampling::None if next.is_none() => &stored(near)[(region.x - plane.x0) as usize..],
            Upsampling::Repeat(step) => {
                let from = stored(near);
                self.row.clear();
                self.row.extend(
                    (region.x..region.x + region.width).map(|x| from[(x / step - plane.x0) as usize]),
                );
                self.row.resize(self.row.len() + PADDING, 0);
                &self.row
            }
            Upsampling::None => {
                let skip = (region.x - plane.x0) as usize;
                let (near, next) = (&stored(near)[skip..], &stored(next.unwrap_or(near))[skip..]);
                let width = region.width as usize;
                self.row.resize(self.row.len().max(width + 2 * PADDING), 0);
                // The bias alternates between rows, so that halves are rounded up as often as down.
                let bias = if y % 2 == 1 { 2 } else { 1 };
                kernels::blend_rows(
                    level,
                    near,
                    next,
                    bias,
                    &mut self.row[..width.next_multiple_of(PADDING)],
                );
                &self.row
            }
            Upsampling::Linear { samples } => {
                // Computes the sums of samples first-1 ..= last+1. Beyond an edge of the image, the sum at the edge is
                // repeated.
                let first = region.x / 2;
                let last = (region.x + region.width - 1) / 2;
                let count = (last - first + 1) as usize;
                let from = first.saturating_sub(1);
                let to = (last + 1).min(samples - 1);
                let skip = (from - plane.x0) as usize;
                let near_row = &stored(near)[skip..];
                let next_row = next.map(|next| &stored(next)[skip..]);
                let (stored_sums, padded_count) = ((to - from + 1) as usize, count.next_multiple_of(PADDING));
                self.sums.resize(self.sums.len().max(padded_count + 2 * PADDING), 0);
                self.row.resize(self.row.len().max(2 * padded_count + PADDING), 0);
                // sums[1 + i] belongs to sample first + i.
                let at = 1 - (first - from) as usize;
                kernels::sum_rows(level, near_row, next_row, stored_sums, &mut self.sums[at..]);
                if from == first {
                    self.sums[0] = self.sums[1];
                }
                if to == last {
                    self.sums[count + 1] = self.sums[count];
                }
                let blend = if next.is_some() { Blend::TwoRows } else { Blend::OneRow };
                kernels::blend_columns(level, &self.sums, blend, &mut self.row[..2 * padded_count]);
                &self.row[(region.x % 2) as usize..]
            }
        }
    }
}
