//! The parameters of the kernels: `cuda/params.cuh` in Rust, field by field.

use super::super::kernels::{filling, scaling};
use super::super::view::ViewAxis;
use super::super::weights;
use super::super::{DType, Filter, MemoryFormat, Output, Padding, View};
use crate::decode::{ColorModel, PlaneLayout, PlanesLayout, Region, Upsampling};
use std::mem::offset_of;

/// The samples of one component in device memory. Arrays of two have a value for x and a value for y.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct PlaneParams {
    data: u64,
    stride: u32,
    x0: u32,
    y0: u32,
    width: u32,
    height: u32,
    full: [u32; 2],
    step: [u32; 2],
    upsampling: [u32; 2],
    like: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct AxisParams {
    scale: f64,
    inverse: f64,
    start: u32,
    length: u32,
    resized: u32,
    offset: i32,
    shown_first: u32,
    shown_end: u32,
    filter: u32,
    padding: u32,
}

/// One image's entry in the table that a launch reads from device memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageParams {
    planes: [PlaneParams; 3],
    axes: [AxisParams; 2],
    color: u32,
    flip: u32,
    blank: u32,
    place: u32,
}

/// The output of a launch, and how its blocks divide it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OutputParams {
    /// The distance from one image to the next, in bytes.
    pub image_bytes: u64,
    /// The number of columns of an image.
    pub width: u32,
    /// The number of rows of an image.
    pub height: u32,
    /// The element type: 0 is f32, 1 is f16, 2 is bf16, 3 is u8.
    pub dtype: u32,
    /// The order of dimensions: 0 is NCHW, 1 is NHWC.
    pub format: u32,
    /// The gain of each channel: output value = grey level · gain + offset.
    pub gain: [f32; 3],
    /// The offset of each channel; see `gain`.
    pub offset: [f32; 3],
    /// The output value of each channel for pixels that show no image.
    pub fill: [f32; 3],
    /// The number of columns of a block's tile: a multiple of 4, at most `threads_across`.
    pub tile_columns: u32,
    /// The number of rows of a block's tile: at most 64, and at most the number of threads of a block.
    pub tile_rows: u32,
    /// The number of tiles side by side.
    pub tiles_across: u32,
    /// The number of threads side by side: a divisor of the threads of a block.
    pub threads_across: u32,
    /// The number of rows that a block finishes at a time. Each thread makes four columns of one row.
    pub step_rows: u32,
    /// The size of a block's dynamic shared memory, in bytes.
    pub shared_bytes: u32,
    /// Unused, always zero.
    pub unused: u32,
}

// The sizes and offsets must equal those of the structures in `cuda/params.cuh`; no byte is padding.
const _: () = assert!(size_of::<PlaneParams>() == 8 + 12 * 4);
const _: () = assert!(offset_of!(PlaneParams, full) == 28);
const _: () = assert!(offset_of!(PlaneParams, like) == 52);
const _: () = assert!(size_of::<AxisParams>() == 2 * 8 + 8 * 4);
const _: () = assert!(offset_of!(AxisParams, start) == 16);
const _: () = assert!(offset_of!(AxisParams, shown_end) == 36);
const _: () = assert!(offset_of!(AxisParams, padding) == 44);
const _: () = assert!(size_of::<ImageParams>() == 3 * 56 + 2 * 48 + 4 * 4);
const _: () = assert!(offset_of!(ImageParams, axes) == 168);
const _: () = assert!(offset_of!(ImageParams, color) == 264);
const _: () = assert!(offset_of!(ImageParams, blank) == 272);
const _: () = assert!(offset_of!(ImageParams, place) == 276);
const _: () = assert!(size_of::<OutputParams>() == 8 + 20 * 4);
const _: () = assert!(offset_of!(OutputParams, gain) == 24);
const _: () = assert!(offset_of!(OutputParams, fill) == 48);
const _: () = assert!(offset_of!(OutputParams, tile_columns) == 60);
const _: () = assert!(offset_of!(OutputParams, shared_bytes) == 80);

impl PlaneParams {
    fn new(plane: &PlaneLayout, data: u64) -> Self {
        let (full, step) = ([plane.full_width, plane.full_height], [plane.step_x, plane.step_y]);
        let methods = Upsampling::of(full, step);
        Self {
            data,
            stride: plane.stride,
            x0: plane.x0,
            y0: plane.y0,
            width: plane.width,
            height: plane.height,
            full,
            step,
            upsampling: [methods.0, methods.1].map(|method| match method {
                Upsampling::None => 0,
                Upsampling::Linear { .. } => 1,
                Upsampling::Repeat(_) => 2,
            }),
            like: 0,
        }
    }

    fn has_sampling_of(&self, other: &Self) -> bool {
        self.full == other.full && self.step == other.step
    }

    /// Panics unless the plane stores the samples that `region` of the image is made of. A kernel cannot check this.
    fn assert_holds(&self, region: &Region) {
        let inside = |axis: usize, start: u32, length: u32, first: u32, stored: u32| {
            let step = self.step[axis];
            let (mut low, mut high) = (start / step, (start + length - 1) / step);
            if self.upsampling[axis] == 1 {
                (low, high) = (low.saturating_sub(1), (high + 1).min(self.full[axis] - 1));
            }
            first <= low && high - first < stored
        };
        let holds = inside(0, region.x, region.width, self.x0, self.width)
            && inside(1, region.y, region.height, self.y0, self.height)
            && self.width <= self.stride
            // Kernels count the bytes of a plane in 32 bits.
            && u64::from(self.stride) * u64::from(self.height) <= u64::from(u32::MAX);
        assert!(holds, "{self:?} does not contain {region:?}");
    }
}

impl AxisParams {
    fn new(line: &ViewAxis) -> Self {
        let (axis, shown) = (&line.axis, line.shown());
        let scale = weights::scale(line.filter, axis.length, axis.resized);
        Self {
            scale,
            inverse: 1.0 / scale.max(1.0),
            start: axis.start,
            length: axis.length,
            resized: axis.resized,
            offset: axis.offset,
            shown_first: shown.start,
            shown_end: shown.end,
            filter: match line.filter {
                Filter::Nearest => 0,
                Filter::NearestExact => 1,
                Filter::Bilinear => 2,
                Filter::Bicubic => 3,
                Filter::Lanczos => 4,
            },
            padding: match line.padding {
                Padding::Constant => 0,
                Padding::Edge => 1,
                Padding::Reflect => 2,
                Padding::Symmetric => 3,
            },
        }
    }
}

impl ImageParams {
    /// The size of an entry in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// Makes the entry of an image whose planes are at the device address `base`, arranged as in `layout`. The image's
    /// `view` becomes `output`. The kernel reads samples in aligned words, so it reads up to three bytes before the
    /// first sample and after the last sample. Allocations are aligned, so these bytes are always inside of an
    /// allocation.
    ///
    /// # Panics
    /// If the planes do not hold [`View::region`] and the samples that chroma upsampling reads around it.
    pub fn new(layout: &PlanesLayout, base: u64, view: &View, output: &Output) -> Self {
        let mut params = Self {
            axes: [AxisParams::new(&view.columns(output)), AxisParams::new(&view.rows(output))],
            color: match layout.color {
                ColorModel::Gray => 0,
                ColorModel::YCbCr => 1,
                ColorModel::Rgb => 2,
            },
            flip: u32::from(view.flip) | u32::from(view.vertical_flip) << 1,
            ..Self::default()
        };
        let region = view.region(output);
        for (c, plane) in layout.used().iter().enumerate() {
            let mut plane = PlaneParams::new(plane, base + plane.offset);
            plane.assert_holds(&region);
            plane.like = (0..c).find(|&b| params.planes[b].has_sampling_of(&plane)).unwrap_or(c) as u32;
            params.planes[c] = plane;
        }
        params
    }

    /// Makes the entry of a sample that failed: its image becomes zero bytes.
    pub fn blank() -> Self {
        Self { blank: 1, ..Self::default() }
    }

    /// Returns the entry for the image at index `place` of its batch. Without this call, the index is 0.
    pub fn at(self, place: u32) -> Self {
        Self { place, ..self }
    }

    /// Returns the bytes of the entry as the kernel reads them.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` structure of integers and floats without padding, as asserted above.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), Self::BYTES) }
    }
}

impl OutputParams {
    /// Makes the parameters without the shape of the tiles.
    pub(super) fn new(output: &Output) -> Self {
        let (gain, offset) = scaling(output);
        Self {
            image_bytes: output.bytes() as u64,
            width: output.width,
            height: output.height,
            dtype: match output.dtype {
                DType::F32 => 0,
                DType::F16 => 1,
                DType::Bf16 => 2,
                DType::U8 => 3,
            },
            format: match output.format {
                MemoryFormat::Nchw => 0,
                MemoryFormat::Nhwc => 1,
            },
            gain,
            offset,
            fill: filling(output),
            ..Self::default()
        }
    }

    /// Returns the bytes of the parameters as the kernel reads them.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` structure of integers and floats without padding, as asserted above.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_entry_is_its_flag() {
        let blank = ImageParams::blank();
        let set: Vec<_> = blank.as_bytes().iter().enumerate().filter(|(_, byte)| **byte != 0).collect();
        assert_eq!(set, [(272, &1)]);
        assert_eq!(ImageParams::blank().at(7).as_bytes()[276], 7);
    }
}
