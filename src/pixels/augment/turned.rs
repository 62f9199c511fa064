//! Images that are stored mirrored or transposed. Everything is drawn for the image as it is shown: views, masks,
//! boxes, operations. Only the planes are decoded as they are stored, and there are two ways to make them fit the
//! views:
//!
//! - Mirroring costs nothing: the view of a mirrored image is the mirrored view. If axes were exchanged, too, the planes
//!   are transposed at their own resolution.
//! - Where this would not give the bits of an upright file, the region is converted to RGB, turned, and then used like
//!   an upright image: `exact` rounds where PIL rounds, nearest filters are not symmetric, and padding before a resize
//!   needs RGB in any case.

use super::{Axis, CanvasPainter, DrawnViews, Output, View};
use crate::decode::{ColorModel, Planes, Region, Turn};

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
    /// Turns `planes`, which hold [`DrawnViews::region`] of an image, as the views of the image need them.
    pub(super) fn turn(&mut self, planes: &mut Planes, drawn: &DrawnViews) {
        let turn = drawn.turn();
        if drawn.needs_upright_planes() {
            self.convert_mirrored(planes, drawn);
            std::mem::swap(planes, &mut self.turned);
        }
        if turn.transposes() {
            planes.transpose_to(&mut self.turned);
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
