//! The sizes of planes: the pixel values that a region needs, and memory for them.

use std::ops::Range;

use super::{ColorModel, Plane, Planes, Region};

/// The number of bytes after the last sample that readers may load.
const SLACK: usize = 64;

/// Scratch memory beyond this many bytes is freed when an image needs less, so that one huge image does not cost a
/// thread memory for the rest of its life.
const KEPT: usize = 16 << 20;

/// Makes `buffer` hold at least `bytes` bytes of arbitrary content.
pub(super) fn ensure_length(buffer: &mut Vec<u8>, bytes: usize) {
    if bytes <= KEPT && buffer.capacity() > KEPT {
        *buffer = Vec::new();
    }
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

/// The subsampling of a component: the pixels that a sample spans, and the image's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampling {
    pub(super) step_x: u32,
    pub(super) step_y: u32,
    pub(super) image_width: u32,
    pub(super) image_height: u32,
}

impl Sampling {
    /// Returns the columns and rows of the component that `region` needs. One more sample is included on each side
    /// where chroma upsampling reads it.
    pub(super) fn wanted(&self, region: Region) -> (Range<u32>, Range<u32>) {
        (
            along(region.x..region.x + region.width, self.step_x, self.image_width),
            along(region.y..region.y + region.height, self.step_y, self.image_height),
        )
    }
}

fn along(pixels: Range<u32>, step: u32, full: u32) -> Range<u32> {
    let margin = u32::from(step > 1);
    let start = (pixels.start / step).saturating_sub(margin);
    let end = (pixels.end.div_ceil(step) + margin).min(full.div_ceil(step));
    start..end
}

impl Plane {
    /// Shapes this plane to store `columns` and `rows`, which can exceed the component. Samples beyond the component
    /// are stored, but not counted in the width and height. Does not clear the samples.
    pub(super) fn shape(&mut self, sampling: &Sampling, columns: Range<u32>, rows: Range<u32>) {
        self.full_width = sampling.image_width.div_ceil(sampling.step_x);
        self.full_height = sampling.image_height.div_ceil(sampling.step_y);
        self.step_x = sampling.step_x;
        self.step_y = sampling.step_y;
        self.x0 = columns.start;
        self.y0 = rows.start;
        self.width = columns.end.min(self.full_width) - columns.start;
        self.height = rows.end.min(self.full_height) - rows.start;
        self.stride = columns.len();
        ensure_length(&mut self.data, self.stride * rows.len() + SLACK);
    }
}

impl Planes {
    /// Whether both decoded images cover the same region with equal pixel values.
    pub fn same_samples(&self, other: &Self) -> bool {
        let count = if self.color == ColorModel::Gray { 1 } else { 3 };
        let shape =
            |plane: &Plane| (plane.x0, plane.y0, plane.width, plane.height, plane.step_x, plane.step_y);
        self.color == other.color
            && self.planes.iter().zip(&other.planes).take(count).all(|(a, b)| {
                let row = |plane: &Plane, y: usize| plane.stride * y..plane.stride * y + plane.width as usize;
                shape(a) == shape(b) && (0..a.height as usize).all(|y| a.data[row(a, y)] == b.data[row(b, y)])
            })
    }

    /// Shapes the planes as R, G and B of an image that ends at the right and lower edges of `region`. Only the region
    /// is stored. Does not clear the samples.
    pub fn shape_rgb(&mut self, region: Region) {
        self.shape_full((region.x + region.width, region.y + region.height), region, ColorModel::Rgb);
    }

    /// Shapes the planes for an image of `size` (width, height) with one sample per pixel. Only `region` is stored.
    /// Does not clear the samples.
    pub(crate) fn shape_full(&mut self, size: (u32, u32), region: Region, color: ColorModel) {
        let (image_width, image_height) = size;
        (self.image_width, self.image_height, self.color) = (image_width, image_height, color);
        let sampling = Sampling { step_x: 1, step_y: 1, image_width, image_height };
        let count = if color == ColorModel::Gray { 1 } else { 3 };
        for plane in &mut self.planes[..count] {
            plane.shape(&sampling, region.x..region.x + region.width, region.y..region.y + region.height);
        }
    }

    /// Copies `region` of an interleaved image of `size` (width, height) with BYTES bytes per pixel; `pixel` turns a
    /// pixel into samples.
    pub(super) fn take<const BYTES: usize, const CHANNELS: usize>(
        &mut self,
        image: &[u8],
        size: (u32, u32),
        region: Region,
        color: ColorModel,
        pixel: impl Fn(&[u8; BYTES]) -> [u8; CHANNELS],
    ) {
        self.shape_full(size, region, color);
        let width = region.width as usize;
        for row in 0..region.height as usize {
            let first = (region.y as usize + row) * size.0 as usize + region.x as usize;
            let source = image[first * BYTES..(first + width) * BYTES].as_chunks::<BYTES>().0;
            for (channel, plane) in self.planes[..CHANNELS].iter_mut().enumerate() {
                let target = &mut plane.data[row * width..(row + 1) * width];
                for (sample, bytes) in target.iter_mut().zip(source) {
                    *sample = pixel(bytes)[channel];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_huge_image_took_is_given_back() {
        let mut buffer = Vec::new();
        ensure_length(&mut buffer, 1000);
        ensure_length(&mut buffer, 10);
        assert_eq!(buffer.len(), 1000, "normal images keep what they have");
        ensure_length(&mut buffer, KEPT + 1);
        ensure_length(&mut buffer, KEPT + 1);
        assert_eq!(buffer.len(), KEPT + 1);
        ensure_length(&mut buffer, 1000);
        assert_eq!(buffer.len(), 1000);
        assert!(buffer.capacity() <= KEPT);
    }
}
