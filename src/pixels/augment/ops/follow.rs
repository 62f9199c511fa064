//! Applies operations that move pixels to masks and boxes: to masks pixel by pixel, and to boxes by their corners, as
//! torchvision does with its `tv_tensors`. AugMix changes neither masks nor boxes, because it mixes the original with
//! images that were moved in several ways.

use super::arithmetic::{clamp_to, nearest};
use super::warp::Warp;
use super::{PixelOp, mirror};

/// Left, top, right and bottom, in pixels.
pub(in crate::augment) type Corners = [f64; 4];

impl PixelOp {
    /// Moves the values of a mask as the operation moves pixels. The mask has the image's `size` (width, height). A
    /// warp takes the nearest values, and `fill` outside of the mask.
    pub(in crate::augment) fn move_mask(&self, values: &mut Vec<u16>, size: (u32, u32), fill: u16) {
        if values.is_empty() {
            return;
        }
        match self {
            Self::HorizontalFlip => mirror::left_right(values, size.0 as usize),
            Self::VerticalFlip => mirror::top_bottom(values, size.0 as usize),
            _ => {
                if let Some(warp) = Warp::of(self, size) {
                    *values = warp_mask(&warp, values, size, fill);
                }
            }
        }
    }

    /// Moves a box within an image of `size` (width, height), and clips it to the image. A warped box becomes the
    /// bounding box of its four corners. Returns the new box, and the share of the moved box's area that is inside of
    /// the image.
    pub(in crate::augment) fn move_box(&self, corners: Corners, size: (u32, u32)) -> (Corners, f64) {
        let [width, height] = [f64::from(size.0), f64::from(size.1)];
        let [left, top, right, bottom] = corners;
        match self {
            Self::HorizontalFlip => ([width - right, top, width - left, bottom], 1.0),
            Self::VerticalFlip => ([left, height - bottom, right, height - top], 1.0),
            _ => match Warp::of(self, size) {
                Some(warp) => {
                    clip_to_image(warped_bounding_box(&warp, corners, [width, height]), [width, height])
                }
                None => (corners, 1.0),
            },
        }
    }
}

fn warp_mask(warp: &Warp, values: &[u16], (width, height): (u32, u32), fill: u16) -> Vec<u16> {
    let length = [width as f32, height as f32];
    let centred = |at: u32, axis: usize| at as f32 - (length[axis] - 1.0) * 0.5;
    let value = |column: u32, row: u32| {
        let (x, y) = (centred(column, 0), centred(row, 1));
        let shown = |axis: usize| {
            let place = Warp::place(warp.matrix[axis], x, y, length[axis]);
            nearest(clamp_to(place, -1.0, length[axis]))
        };
        let (x, y) = (shown(0), shown(1));
        let is_inside = (0..width as i32).contains(&x) && (0..height as i32).contains(&y);
        if is_inside { values[y as usize * width as usize + x as usize] } else { fill }
    };
    (0..height)
        .flat_map(|row| (0..width).map(move |column| (column, row)))
        .map(|(x, y)| value(x, y))
        .collect()
}

/// Returns the bounding box of the warped corners of a box. The matrix of a warp maps the result to the image, so the
/// inverse matrix moves the corners.
fn warped_bounding_box(warp: &Warp, [left, top, right, bottom]: Corners, length: [f64; 2]) -> Corners {
    // The matrix maps pixels, counted from the centre, to units of half the image's size.
    let [[a, b, c], [d, e, f]] = warp.matrix.map(|row| row.map(f64::from));
    let determinant = a * e - b * d;
    let half = length.map(|length| length / 2.0);
    let moved = |x: f64, y: f64| {
        let (x, y) = (x / half[0] - 1.0 - c, y / half[1] - 1.0 - f);
        [(e * x - b * y) / determinant + half[0], (a * y - d * x) / determinant + half[1]]
    };
    let corners = [moved(left, top), moved(right, top), moved(right, bottom), moved(left, bottom)];
    let least = |axis: usize| corners.iter().fold(f64::INFINITY, |least, corner| least.min(corner[axis]));
    let most = |axis: usize| corners.iter().fold(f64::NEG_INFINITY, |most, corner| most.max(corner[axis]));
    [least(0), least(1), most(0), most(1)]
}

/// Clips a box to an image. Returns the clipped box, and the share of the box's area that is inside of the image.
fn clip_to_image(corners: Corners, [width, height]: [f64; 2]) -> (Corners, f64) {
    let area = |[left, top, right, bottom]: Corners| (right - left) * (bottom - top);
    let [left, top, right, bottom] = corners;
    let inside =
        [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)];
    let whole = area(corners);
    (inside, if whole > 0.0 { area(inside) / whole } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::Filter;
    use crate::augment::ops::{Affine, WarpSampling};

    fn sampling(center: Option<[f64; 2]>) -> WarpSampling {
        WarpSampling { interpolation: Filter::Bilinear, fill: None, center }
    }

    /// Expected results are those of torchvision 0.29's `v2.functional`, for two boxes and for a mask of 7×5 pixels
    /// with the values 1, 2, 3, ….
    #[test]
    fn masks_and_boxes_go_where_torchvision_has_them() {
        let rotate = PixelOp::Rotate { angle: 30.0, sampling: sampling(None) };
        let affine = PixelOp::Affine(Affine {
            angle: -20.0,
            translate: [1.0, -1.0],
            scale: 1.5,
            shear: [10.0, 5.0],
            sampling: sampling(Some([2.0, 3.0])),
        });
        #[rustfmt::skip]
        let golden = [
            (rotate, [
                0, 0, 4, 5, 13, 14, 0,
                2, 3, 11, 12, 19, 20, 28,
                1, 9, 17, 18, 19, 27, 35,
                8, 16, 17, 24, 25, 33, 34,
                0, 22, 23, 31, 32, 0, 0,
            ], [0.58494, 0.95096, 4.18301, 4.18301]),
            (affine, [
                8, 9, 9, 17, 18, 18, 26,
                8, 16, 16, 17, 25, 25, 26,
                15, 15, 23, 24, 24, 32, 33,
                22, 22, 23, 31, 31, 32, 33,
                22, 29, 30, 31, 31, 0, 0,
            ], [1.09054, 0.0, 5.72931, 2.63635]),
        ];
        for (op, mask, corners) in golden {
            let mut values: Vec<u16> = (1..36).collect();
            op.move_mask(&mut values, (7, 5), 0);
            assert_eq!(values, mask, "{op:?}");
            let (moved, _) = op.move_box([1.0, 1.0, 4.0, 3.0], (7, 5));
            let is_near = moved.iter().zip(corners).all(|(a, b)| (a - b).abs() < 1e-4);
            assert!(is_near, "{op:?}: {moved:?}");
            let (all, share) = op.move_box([0.0, 0.0, 7.0, 5.0], (7, 5));
            assert_eq!(all, [0.0, 0.0, 7.0, 5.0]);
            assert!(share < 0.9);
        }
    }

    #[test]
    fn flips_move_masks_and_boxes_to_the_other_side() {
        let corners = [1.0, 1.0, 2.0, 2.0];
        for (op, mask, moved) in [
            (PixelOp::HorizontalFlip, [3, 2, 1, 6, 5, 4], [1.0, 1.0, 2.0, 2.0]),
            (PixelOp::VerticalFlip, [4, 5, 6, 1, 2, 3], [1.0, 0.0, 2.0, 1.0]),
            (PixelOp::Invert, [1, 2, 3, 4, 5, 6], corners),
        ] {
            let mut values: Vec<u16> = (1..7).collect();
            op.move_mask(&mut values, (3, 2), 0);
            assert_eq!(values, mask, "{op:?}");
            assert_eq!(op.move_box(corners, (3, 2)), (moved, 1.0), "{op:?}");
        }
    }
}
