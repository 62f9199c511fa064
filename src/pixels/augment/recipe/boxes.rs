//! Maps boxes in the same way as the pixels of their image, and clips them to the part that is shown.

use super::DrawnView;
use crate::augment::{Axis, BoxFormat, CanvasAxis};

impl DrawnView {
    /// Maps `boxes` of four numbers each, in place and in the same `format`: from pixels of the whole source image to
    /// pixels of the output. Returns, for each box, the share of its area that is inside of the output. A box that is
    /// not shown becomes a box without area, and a box without area has a share of 0. A box that was
    /// [dropped](DrawnView::dropped) becomes zeros.
    ///
    /// The result is that of torchvision v2 for `tv_tensors.BoundingBoxes`, with two exceptions. A box that extends
    /// beyond its image is clipped to the image even if padding follows. A dropped box becomes zeros even if
    /// torchvision would move it. A warped box becomes the bounding box of its corners, and the share is the share of
    /// this bounding box.
    pub fn map_boxes(&self, format: BoxFormat, boxes: &mut [[f32; 4]]) -> Vec<f32> {
        let (across, down) = (self.canvas.as_ref().map(|on| &on.x), self.canvas.as_ref().map(|on| &on.y));
        let across = BoxAxis::new(&self.view.x, across, self.width);
        let down = BoxAxis::new(&self.view.y, down, self.height);
        let map = |corners: [f32; 4]| {
            let [left, top, right, bottom] = format.to_corners(corners.map(f64::from));
            let (x, y) = (across.map([left, right]), down.map([top, bottom]));
            let (shown_x, shown_y) = (across.clip(x), down.clip(y));
            let area = |x: [f64; 2], y: [f64; 2]| (x[1] - x[0]) * (y[1] - y[0]);
            let whole = area(x, y);
            let share = if whole > 0.0 { area(shown_x, shown_y) / whole } else { 0.0 };
            let x = if self.view.flip { mirrored(self.width, shown_x) } else { shown_x };
            let y = if self.view.vertical_flip { mirrored(self.height, shown_y) } else { shown_y };
            let (mut corners, mut share) = ([x[0], y[0], x[1], y[1]], share);
            for op in self.ops.iter().filter(|op| op.moves_pixels()) {
                let (moved, left) = op.move_box(corners, (self.width, self.height));
                (corners, share) = (moved, share * left);
            }
            let mapped = format.of_corners(corners);
            (mapped.map(|value| value as f32), share as f32)
        };
        let map_row = |(row, place): (usize, &mut [f32; 4])| {
            let is_dropped = self.dropped.get(row).is_some_and(|dropped| *dropped);
            let (mapped, share) = if is_dropped { ([0.0; 4], 0.0) } else { map(*place) };
            *place = mapped;
            share
        };
        boxes.iter_mut().enumerate().map(map_row).collect()
    }
}

/// One axis of a view. It maps coordinates of the source to coordinates of the output, before mirroring.
struct BoxAxis {
    start: f64,
    scale: f64,
    offset: f64,
    /// The part of the output that shows the image instead of padding.
    shown: [f64; 2],
}

impl BoxAxis {
    /// Creates the axis of an output of `n` pixels. `image` is the position of the image on its canvas, or `None` if
    /// there is no canvas.
    fn new(axis: &Axis, image: Option<&CanvasAxis>, n: u32) -> Self {
        let scale = f64::from(axis.resized) / f64::from(axis.length);
        let inside = image.map_or(0..axis.length, |image| image.inside(&(0..axis.length)));
        let edge = |at: u32| match at {
            // Both ends of the axis are mapped exactly: multiplying by `scale` could round.
            0 => 0.0,
            at if at == axis.length => f64::from(axis.resized),
            at => f64::from(at) * scale,
        };
        let offset = f64::from(axis.offset);
        let shown = [inside.start, inside.end].map(|at| (edge(at) - offset).clamp(0.0, f64::from(n)));
        let start = image.map_or(f64::from(axis.start), |image| f64::from(image.first) - f64::from(image.at));
        Self { start, scale, offset, shown }
    }

    fn map(&self, span: [f64; 2]) -> [f64; 2] {
        span.map(|at| (at - self.start) * self.scale - self.offset)
    }

    fn clip(&self, span: [f64; 2]) -> [f64; 2] {
        span.map(|at| at.clamp(self.shown[0], self.shown[1]))
    }
}

/// Returns the span counted from the other end of an axis of `n` pixels.
fn mirrored(n: u32, [low, high]: [f64; 2]) -> [f64; 2] {
    [f64::from(n) - high, f64::from(n) - low]
}

impl BoxFormat {
    /// Converts a box to left, top, right and bottom.
    pub fn to_corners(self, [a, b, c, d]: [f64; 4]) -> [f64; 4] {
        match self {
            Self::Xyxy => [a, b, c, d],
            Self::Xywh => [a, b, a + c, b + d],
            Self::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        }
    }

    /// Converts left, top, right and bottom to a box.
    pub fn of_corners(self, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let (width, height) = (right - left, bottom - top);
        match self {
            Self::Xyxy => [left, top, right, bottom],
            Self::Xywh => [left, top, width, height],
            Self::Cxcywh => [left + width / 2.0, top + height / 2.0, width, height],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::{Fidelity, MemoryFormat, Recipe, Transforms, View};

    /// Boxes in an image of 100×80 pixels: a box in the middle, the whole image, a box at the right bottom, and a small
    /// box at the left top.
    const BOXES: [[f32; 4]; 4] =
        [[10.0, 20.0, 60.0, 50.0], [0.0, 0.0, 100.0, 80.0], [70.0, 60.0, 99.0, 79.0], [5.0, 5.0, 12.0, 9.0]];

    fn axis(start: u32, length: u32, resized: u32, offset: i32) -> Axis {
        Axis { start, length, resized, offset, filled: [0; 2] }
    }

    fn drawn(x: Axis, y: Axis, flip: bool, (width, height): (u32, u32)) -> DrawnView {
        let (filter, padding) = Default::default();
        let view = View { x, y, flip, vertical_flip: false, filter, padding };
        let is_resized_mirrored = [false; 2];
        let (of_planes, canvas, dropped, ops, erasures) = Default::default();
        DrawnView { view, of_planes, width, height, is_resized_mirrored, canvas, dropped, ops, erasures }
    }

    fn near(a: &[[f32; 4]], b: &[[f32; 4]]) -> bool {
        a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    /// Expected results are those of torchvision 0.29's `v2.functional` on `tv_tensors.BoundingBoxes`, step by step.
    #[test]
    fn boxes_go_where_torchvision_has_them() {
        // horizontal_flip(resized_crop(boxes, top=12, left=8, height=40, width=50, size=[30, 20]))
        let cropped = drawn(axis(8, 50, 20, 0), axis(12, 40, 30, 0), true, (20, 30));
        // center_crop(resize(boxes, [56]), [48, 48])
        let centred = drawn(axis(0, 100, 70, 11), axis(0, 80, 56, 4), false, (48, 48));
        // crop(pad(horizontal_flip(boxes), [4, 3, 2, 1]), top=2, left=1, height=70, width=90)
        let padded = drawn(axis(0, 100, 100, 13), axis(0, 80, 80, -1), true, (90, 70));
        // pad(crop(boxes, top=10, left=20, height=40, width=60), [5, 6, 7, 8])
        let framed = drawn(axis(20, 60, 60, -5), axis(10, 40, 40, -6), false, (72, 54));
        let golden: [(&DrawnView, BoxFormat, [[f32; 4]; 4]); 6] = [
            (
                &cropped,
                BoxFormat::Xyxy,
                [
                    [0.0, 6.0, 19.2, 28.5],
                    [0.0, 0.0, 20.0, 30.0],
                    [0.0, 30.0, 0.0, 30.0],
                    [18.4, 0.0, 20.0, 0.0],
                ],
            ),
            (
                &cropped,
                BoxFormat::Cxcywh,
                [
                    [9.6, 17.25, 19.2, 22.5],
                    [10.0, 15.0, 20.0, 30.0],
                    [0.0, 30.0, 0.0, 0.0],
                    [19.2, 0.0, 1.6, 0.0],
                ],
            ),
            (
                &centred,
                BoxFormat::Xywh,
                [
                    [0.0, 10.0, 31.0, 21.0],
                    [0.0, 0.0, 48.0, 48.0],
                    [38.0, 38.0, 10.0, 10.0],
                    [0.0, 0.0, 0.0, 2.3],
                ],
            ),
            (
                &padded,
                BoxFormat::Xyxy,
                [
                    [43.0, 21.0, 90.0, 51.0],
                    [3.0, 1.0, 90.0, 70.0],
                    [4.0, 61.0, 33.0, 70.0],
                    [90.0, 6.0, 90.0, 10.0],
                ],
            ),
            (
                &padded,
                BoxFormat::Xywh,
                [
                    [43.0, 21.0, 47.0, 30.0],
                    [3.0, 1.0, 87.0, 69.0],
                    [4.0, 61.0, 29.0, 9.0],
                    [90.0, 6.0, 0.0, 4.0],
                ],
            ),
            (
                &framed,
                BoxFormat::Cxcywh,
                [
                    [25.0, 31.0, 40.0, 30.0],
                    [35.0, 26.0, 60.0, 40.0],
                    [60.0, 46.0, 10.0, 0.0],
                    [5.0, 6.0, 0.0, 0.0],
                ],
            ),
        ];
        for (view, format, expected) in golden {
            let to = |corners: [f32; 4]| format.of_corners(corners.map(f64::from)).map(|value| value as f32);
            let mut boxes = BOXES.map(to);
            view.map_boxes(format, &mut boxes);
            assert!(near(&boxes, &expected), "{view:?} {format:?}: {boxes:?}, expected {expected:?}");
        }
    }

    #[test]
    fn the_share_that_is_left_is_of_the_boxs_area() {
        // The left half of an image, with both sides resized to half their length.
        let view = drawn(axis(0, 50, 25, 0), axis(0, 80, 40, 0), false, (25, 40));
        let mut boxes = [
            [10.0, 10.0, 30.0, 20.0],
            [40.0, 10.0, 60.0, 20.0],
            [60.0, 10.0, 70.0, 20.0],
            [30.0, 10.0, 30.0, 20.0],
        ];
        assert_eq!(view.map_boxes(BoxFormat::Xyxy, &mut boxes), [1.0, 0.5, 0.0, 0.0]);
        assert_eq!(boxes[1], [20.0, 5.0, 25.0, 10.0]);
    }

    /// A box around one pixel moves with the pixel in every draw of a recipe.
    #[test]
    fn a_box_stays_around_its_pixel() {
        let text = r#"[{"RandomCrop": {"size": [30, 40], "padding": 5}}, {"RandomHorizontalFlip": {}}]"#;
        let request = Transforms::from_json(text).unwrap();
        let recipe = Recipe::new(&request, MemoryFormat::Nchw, Fidelity::Fast).unwrap();
        let keys = recipe.keys(5, 0);
        for sample in 0..200 {
            let drawn = recipe.draw(&keys, sample, 0, (45, 33)).unwrap().views()[0].clone();
            let (x, y) = (7 + sample as u32 % 30, 3 + sample as u32 % 25);
            let corner = [x as f32, y as f32, x as f32 + 1.0, y as f32 + 1.0];
            let mut boxes = [corner];
            let share = drawn.map_boxes(BoxFormat::Xyxy, &mut boxes)[0];
            let (left, top) = (x as i32 - drawn.view.x.offset, y as i32 - drawn.view.y.offset);
            let is_shown = (0..40).contains(&left) && (0..30).contains(&top);
            assert_eq!(share, f32::from(u8::from(is_shown)), "sample {sample}");
            if is_shown {
                let left = if drawn.view.flip { 39 - left } else { left };
                assert_eq!(boxes[0], [left, top, left + 1, top + 1].map(|value| value as f32));
            }
        }
    }
}
