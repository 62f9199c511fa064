//! Canvases, for images that are padded before they are resized: where the image is on its canvas, and how the canvas
//! is painted. Only the part that the views need is painted. A painted canvas is an ordinary image, so the resize needs
//! no special case.

use super::kernels;
use super::upsample::{PADDING, Upsampler};
use super::weights::Resize;
use super::{Axis, DrawnViews, Filter, Padding};
use crate::decode::{ColorModel, Planes, Region};
use base::simd::Level;
use std::ops::Range;

/// The position of an image on the canvas that a view resizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddedCanvas {
    /// The horizontal axis.
    pub x: CanvasAxis,
    /// The vertical axis.
    pub y: CanvasAxis,
    /// How the canvas continues the image.
    pub padding: Padding,
    /// The grey levels of R, G and B outside of the image, for [`Padding::Constant`].
    pub fill: [u8; 3],
}

/// One axis of a canvas. Canvas pixel 0 is the first pixel that the view resizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanvasAxis {
    /// The index of the first image pixel that is on the canvas.
    pub first: u32,
    /// The number of image pixels that are on the canvas.
    pub length: u32,
    /// The index of the canvas pixel that shows image pixel `first`. Negative if the canvas cuts off the image's
    /// beginning. This occurs only for padding that is not constant: padding that mirrors the image can show the pixels
    /// that were cut off.
    pub at: i32,
}

impl PaddedCanvas {
    /// Returns the part of the image that `region` of the canvas shows, or a single pixel if it shows only the fill.
    pub(super) fn of_image(&self, region: &Region) -> Region {
        let along = |axis: &CanvasAxis, first: u32, n: u32| {
            axis.sources(self.padding, &(first..first + n)).unwrap_or(axis.first..axis.first + 1)
        };
        let (x, y) = (along(&self.x, region.x, region.width), along(&self.y, region.y, region.height));
        Region { x: x.start, y: y.start, width: x.len() as u32, height: y.len() as u32 }
    }
}

impl CanvasAxis {
    /// Removes the image pixels that are outside of a canvas of `length` pixels. If all are outside, returns the axis
    /// unchanged.
    pub(super) fn trimmed(self, length: u32) -> Self {
        let Range { start, end } = self.inside(&(0..length));
        if start == end {
            return self;
        }
        let cut = (i64::from(start) - i64::from(self.at)) as u32;
        Self { first: self.first + cut, length: end - start, at: start as i32 }
    }

    /// Returns the image pixel that canvas pixel `pixel` shows, or `None` if it shows the fill.
    pub(super) fn source(&self, padding: Padding, pixel: u32) -> Option<u32> {
        let pixel = i64::from(pixel) - i64::from(self.at);
        padding.source(pixel, self.length).map(|pixel| self.first + pixel)
    }

    /// Returns the range of image pixels that the canvas pixels `pixels` show, or `None` if all of them show the fill.
    pub(super) fn sources(&self, padding: Padding, pixels: &Range<u32>) -> Option<Range<u32>> {
        let shown = || pixels.clone().filter_map(|pixel| self.source(padding, pixel));
        Some(shown().min()?..shown().max()? + 1)
    }

    /// Returns the part of `pixels`, a range of canvas pixels, that shows the image itself and not its padding.
    pub(super) fn inside(&self, pixels: &Range<u32>) -> Range<u32> {
        let clip = |edge: i64| edge.clamp(i64::from(pixels.start), i64::from(pixels.end)) as u32;
        clip(self.at.into())..clip(i64::from(self.at) + i64::from(self.length))
    }

    /// Returns how many pixels at the beginning and at the end of the resized axis show nothing of the image, if the
    /// canvas is resized along `axis` with `filter`.
    pub(super) fn filled(&self, filter: Filter, axis: &Axis) -> [u32; 2] {
        let resize = Resize::new(filter, axis.length, axis.resized);
        let (first, end) = (i64::from(self.at), i64::from(self.at) + i64::from(self.length));
        let before = first_where(axis.resized, |pixel| i64::from(resize.bounds(pixel).end) > first);
        let after = first_where(axis.resized, |pixel| i64::from(resize.bounds(pixel).start) >= end);
        [before, axis.resized - after]
    }
}

/// Returns the smallest integer below `n` for which `holds` is true, or `n` if there is none. `holds` must be true for
/// all larger integers, too.
fn first_where(n: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Paints canvases. A painter owns scratch memory, so each thread has its own painter.
#[derive(Debug)]
pub struct CanvasPainter {
    pub(super) rows: ColourRows,
    canvas: Planes,
    pub(super) turned: Planes,
}

/// Makes rows of R, G and B from planes, as libjpeg does.
#[derive(Debug)]
pub(super) struct ColourRows {
    pub(super) level: Level,
    upsamplers: [Upsampler; 3],
    converted: [Vec<u8>; 3],
}

impl CanvasPainter {
    /// Creates a painter with the instructions of `level`, or of the best level below it that this processor supports.
    pub fn new(level: Level) -> Self {
        let (upsamplers, converted) = Default::default();
        let rows = ColourRows { level: level.lowered(), upsamplers, converted };
        Self { rows, canvas: Planes::default(), turned: Planes::default() }
    }

    /// Turns `planes`, which hold [`DrawnViews::region`] of an image, if the image is stored rotated or mirrored. Then
    /// replaces them by the canvas of the views, if the views have a canvas. The canvas is R, G and B at the image's
    /// own resolution, so that upsampling does not mix the fill colour with the image before the resize.
    pub fn paint(&mut self, planes: &mut Planes, drawn: &DrawnViews) {
        self.turn(planes, drawn);
        let Some((region, parts)) = drawn.canvas() else { return };
        self.canvas.shape_rgb(region);
        for (view, part) in drawn.views().iter().zip(parts) {
            if let Some(canvas) = &view.canvas {
                let corner = [part.x - view.view.x.start, part.y - view.view.y.start];
                self.paint_part(planes, canvas, corner, part);
            }
        }
        std::mem::swap(planes, &mut self.canvas);
    }

    fn paint_part(&mut self, planes: &Planes, canvas: &PaddedCanvas, [left, top]: [u32; 2], part: &Region) {
        let PaddedCanvas { x, y, padding, fill } = canvas;
        let columns = left..left + part.width;
        let (across, inside) = (x.sources(*padding, &columns), x.inside(&columns));
        for row in 0..part.height {
            let source = y.source(*padding, top + row).zip(across.clone()).map(|(y, across)| {
                let region = Region { x: across.start, y, width: across.len() as u32, height: 1 };
                (self.rows.row(planes, &region), across.start)
            });
            for (c, plane) in self.canvas.planes.iter_mut().enumerate() {
                let begin = (part.y + row - plane.y0) as usize * plane.stride + (part.x - plane.x0) as usize;
                let to = &mut plane.data[begin..][..part.width as usize];
                let Some((levels, first)) = source else {
                    to.fill(fill[c]);
                    continue;
                };
                let margins = (columns.start..inside.start).chain(inside.end..columns.end);
                for column in margins {
                    let shown = x.source(*padding, column);
                    to[(column - left) as usize] =
                        shown.map_or(fill[c], |shown| levels[c][(shown - first) as usize]);
                }
                if let Some(shown) = x.source(*padding, inside.start).filter(|_| !inside.is_empty()) {
                    let from = &levels[c][(shown - first) as usize..][..inside.len()];
                    to[(inside.start - left) as usize..][..inside.len()].copy_from_slice(from);
                }
            }
        }
    }
}

impl ColourRows {
    pub(super) fn row<'a>(&'a mut self, planes: &'a Planes, region: &Region) -> [&'a [u8]; 3] {
        let (level, [first, second, third]) = (self.level, &mut self.upsamplers);
        let first = first.row(level, &planes.planes[0], region, region.y);
        if planes.color == ColorModel::Gray {
            return [first; 3];
        }
        let second = second.row(level, &planes.planes[1], region, region.y);
        let third = third.row(level, &planes.planes[2], region, region.y);
        if planes.color == ColorModel::Rgb {
            return [first, second, third];
        }
        let padded = (region.width as usize).next_multiple_of(PADDING);
        let converted = self.converted.each_mut().map(|row| {
            row.resize(row.len().max(padded), 0);
            &mut row[..padded]
        });
        kernels::convert(level, [first, second, third], converted);
        self.converted.each_ref().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pixel_of_the_canvas_shows_the_image_or_what_pads_it() {
        let axis = CanvasAxis { first: 10, length: 4, at: 2 };
        let shown = |padding| (0..8).map(|pixel| axis.source(padding, pixel)).collect::<Vec<_>>();
        let some = |pixels: [u32; 8]| pixels.map(Some).to_vec();
        let image = [10, 11, 12, 13].map(Some);
        assert_eq!(shown(Padding::Constant), [&[None; 2][..], &image, &[None; 2]].concat());
        assert_eq!(shown(Padding::Edge), some([10, 10, 10, 11, 12, 13, 13, 13]));
        assert_eq!(shown(Padding::Reflect), some([12, 11, 10, 11, 12, 13, 12, 11]));
        assert_eq!(axis.sources(Padding::Constant, &(0..8)), Some(10..14));
        assert_eq!(axis.sources(Padding::Constant, &(0..2)), None);
        assert_eq!(axis.sources(Padding::Reflect, &(0..2)), Some(11..13));
        assert_eq!((axis.inside(&(0..8)), axis.inside(&(4..5)), axis.inside(&(6..8))), (2..6, 4..5, 6..6));
    }

    #[test]
    fn what_a_canvas_cuts_off_is_no_part_of_it() {
        let of = |at| CanvasAxis { first: 10, length: 20, at }.trimmed(8);
        assert_eq!(of(-5), CanvasAxis { first: 15, length: 8, at: 0 });
        assert_eq!(of(3), CanvasAxis { first: 10, length: 5, at: 3 });
        assert_eq!(of(-15), CanvasAxis { first: 25, length: 5, at: 0 });
        assert_eq!(of(9), CanvasAxis { first: 10, length: 20, at: 9 });
    }

    /// Exactly the pixels whose filter covers the image are computed. Checks the filter of each pixel.
    #[test]
    fn what_shows_no_image_is_filled() {
        for filter in
            [Filter::Nearest, Filter::NearestExact, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos]
        {
            for (length, resized) in [(50, 10), (50, 50), (20, 60), (33, 7), (40, 1)] {
                for (at, n) in [(0, 5), (12, 1), (7, 30), (-9, 20), (31, 2), (60, 9), (-20, 5)] {
                    let axis = Axis { start: 0, length, resized, offset: 0, filled: [0; 2] };
                    let canvas = CanvasAxis { first: 3, length: n, at };
                    let resize = Resize::new(filter, length, resized);
                    let image = at..at + n as i32;
                    let sees = |pixel: &u32| resize.bounds(*pixel).any(|seen| image.contains(&(seen as i32)));
                    let seeing: Vec<u32> = (0..resized).filter(sees).collect();
                    let [before, behind] = canvas.filled(filter, &axis);
                    let computed: Vec<u32> = (before..resized - behind).collect();
                    assert_eq!(computed, seeing, "{filter:?}, {n} at {at} of {length} to {resized}");
                }
            }
        }
    }
}
