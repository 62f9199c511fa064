//! Images that are stored mirrored or transposed. Everything is drawn for the image as it is shown: views, masks,
//! boxes, operations. Only the planes are decoded as they are stored, and there are two ways to make them fit the
//! views:
//!
//! - Mirroring costs nothing: the view of a mirrored image is the mirrored view. If axes were exchanged, too, the pass
//!   transposes the planes at their own resolution. It takes 64 columns at a time, so that the transposed rows stay in
//!   a cache.
//! - Where this would not give the bits of an upright file, the region is converted to RGB and mirrored first. Then it
//!   is used like an upright image. `exact` needs this because it rounds where PIL rounds. Nearest filters need it
//!   because they are not symmetric. Padding before a resize needs RGB in any case.

use super::{Axis, CanvasPainter, DrawnView, DrawnViews, Output, View};
use crate::decode::{ColorModel, Plane, Planes, Region, STRIP, Turn, Upsampling};
use base::simd::Level;

/// An image for which views are drawn.
#[derive(Debug, Clone, Copy)]
pub struct ImageToDraw<'a> {
    /// The width and height of the image in its file.
    pub stored: (u32, u32),
    /// How the image is turned to be upright.
    pub turn: Turn,
    /// The boxes of the sample, by which some transforms choose their crop: left, top, right and bottom in pixels of
    /// the upright image.
    pub boxes: &'a [[f32; 4]],
}

impl View {
    /// Returns the view of the mirrored image that gives the same output as this view of an image of `size`.
    pub(super) fn mirrored(mut self, [across, down]: [bool; 2], size: (u32, u32), output: &Output) -> Self {
        let mirror = |axis: Axis, full: u32, pixels: u32| Axis {
            start: full - axis.start - axis.length,
            offset: (i64::from(axis.resized) - i64::from(axis.offset) - i64::from(pixels)) as i32,
            filled: [axis.filled[1], axis.filled[0]],
            ..axis
        };
        if across {
            (self.x, self.flip) = (mirror(self.x, size.0, output.width), !self.flip);
        }
        if down {
            (self.y, self.vertical_flip) = (mirror(self.y, size.1, output.height), !self.vertical_flip);
        }
        self
    }
}

impl CanvasPainter {
    /// Turns `planes`, which hold [`DrawnViews::region`] of an image, as the views of the image need them. Their
    /// columns stay the rows of the image unless a canvas follows: the pass transposes them, or
    /// [`CanvasPainter::transpose`].
    pub(super) fn turn(&mut self, planes: &mut Planes, drawn: &DrawnViews) {
        if drawn.needs_upright_planes() {
            self.convert_mirrored(planes, drawn);
            std::mem::swap(planes, &mut self.turned);
        }
        if drawn.canvas().is_some() && drawn.turn().transposes() {
            planes.transpose_to(self.rows.level, &mut self.turned);
            std::mem::swap(planes, &mut self.turned);
        }
    }

    /// Transposes painted planes whose columns are the rows of the views, for kernels that do not transpose.
    pub fn transpose(&mut self, planes: &mut Planes, drawn: &DrawnViews) {
        if drawn.views().iter().any(DrawnView::has_transposed_planes) {
            planes.transpose_to(self.rows.level, &mut self.turned);
            std::mem::swap(planes, &mut self.turned);
        }
    }

    /// Converts the region to grey or RGB planes in `self.turned`, mirrored so that at most a transposition is left.
    fn convert_mirrored(&mut self, planes: &Planes, drawn: &DrawnViews) {
        let (stored, region, turn) = (drawn.stored_size(), drawn.region(), drawn.turn());
        let [across, down] = match (turn.transposes(), turn.mirrors()) {
            (true, [across, down]) => [down, across],
            (false, mirrors) => mirrors,
        };
        let color = if planes.color == ColorModel::Gray { ColorModel::Gray } else { ColorModel::Rgb };
        let x = if across { stored.0 - region.x - region.width } else { region.x };
        let y = if down { stored.1 - region.y - region.height } else { region.y };
        self.turned.shape_full(stored, Region { x, y, ..region }, color);
        let (width, height) = (region.width as usize, region.height as usize);
        for row in 0..height {
            let line = Region { y: region.y + row as u32, height: 1, ..region };
            let levels = self.rows.row(planes, &line);
            let to = if down { height - 1 - row } else { row };
            let count = if color == ColorModel::Gray { 1 } else { 3 };
            for (plane, levels) in self.turned.planes[..count].iter_mut().zip(levels) {
                let to = &mut plane.data[to * plane.stride..][..width];
                to.copy_from_slice(&levels[..width]);
                if across {
                    to.reverse();
                }
            }
        }
    }
}

/// The rows of a component as a pass reads them: those of a plane, or its columns.
#[derive(Debug, Default)]
pub(super) struct SourceRows {
    /// The transposed strip, and its first row; `None` before the first strip of an image.
    strip: Vec<u8>,
    first: Option<u32>,
    transposed: bool,
}

impl SourceRows {
    /// Begins an image. Returns how the rows' samples are upsampled across and down.
    pub(super) fn begin(&mut self, plane: &Plane, transposed: bool) -> (Upsampling, Upsampling) {
        (self.first, self.transposed) = (None, transposed);
        match transposed {
            true => Upsampling::of([plane.full_height, plane.full_width], [plane.step_y, plane.step_x]),
            false => plane.upsampling(),
        }
    }

    /// Returns the samples from column `skip` on of row `first` and of row `next`, which is the same or the next one.
    /// Rows are counted in the component, and come in pairs, in order, beginning with row `start`.
    pub(super) fn pair<'a>(
        &'a mut self,
        level: Level,
        plane: &'a Plane,
        (start, [first, next]): (u32, [u32; 2]),
        skip: u32,
    ) -> [&'a [u8]; 2] {
        if !self.transposed {
            let skip = (skip - plane.x0) as usize;
            return [first, next].map(|y| &plane.data[(y - plane.y0) as usize * plane.stride + skip..]);
        }
        let (skip, stride) = ((skip - plane.y0) as usize, plane.transposed_stride());
        let strip = first - (first - start) % STRIP as u32;
        if self.first != Some(strip) {
            // Vectors read beyond the samples of the last row.
            self.strip.resize((STRIP + 1) * stride, 0);
            plane.transpose_strip(level, (strip - plane.x0) as usize, &mut self.strip);
            self.first = Some(strip);
        }
        [first, next].map(|y| &self.strip[(y - strip) as usize * stride + skip..])
    }
}
