//! Warps: torchvision's `affine` and `rotate`, which keep an image's size, as a map from the pixels of the result to
//! places in the image.

use super::shear::Shear;
use super::shift::RowShift;
use super::{Affine, PixelOp, WarpSampling};
use crate::augment::Filter;

/// A warp, reduced to numbers that kernels only multiply, add and divide.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::augment) struct Warp {
    /// One row for x and one row for y: the factors of a pixel's column and row, both counted from the image's centre,
    /// and an offset. The results are places in the image, counted from its centre in units of half its size.
    pub(in crate::augment) matrix: [[f32; 3]; 2],
    /// The row shift that the matrix describes, if it only moves rows.
    pub(in crate::augment) shift: Option<RowShift>,
    /// The shear that the matrix describes, if it does nothing else and the sampler is [`Sampler::Nearest`].
    pub(super) shear: Option<Shear>,
    pub(in crate::augment) sampler: Sampler,
    /// The levels of R, G and B outside of the image.
    pub(in crate::augment) fill: Option<[f32; 3]>,
}

/// How the value at a place is computed from the pixels around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Sampler {
    Nearest,
    /// Two by two pixels, weighted by their distance.
    Bilinear,
    /// Four by four pixels, weighted by torch's cubic with a = -¾.
    Bicubic,
}

impl Warp {
    /// Returns the warp of an operation on an image of `size` (width, height), or `None` if the operation is no warp.
    pub(in crate::augment) fn of(op: &PixelOp, size: (u32, u32)) -> Option<Self> {
        match op {
            PixelOp::Affine(affine) => Some(Self::new(affine, size)),
            PixelOp::Rotate { angle, sampling } => {
                // torchvision's `rotate` turns counter-clockwise, but its `affine` clockwise.
                let sampling = sampling.clone();
                let affine = Affine {
                    angle: -angle.rem_euclid(360.0),
                    translate: [0.0; 2],
                    scale: 1.0,
                    shear: [0.0; 2],
                    sampling,
                };
                Some(Self::new(&affine, size))
            }
            _ => None,
        }
    }

    /// Returns the place along an axis of `length` pixels that the pixel at `column` and `row` shows, both counted from
    /// the image's centre. The first argument is the axis' row of the matrix. Each step is rounded as torch rounds it.
    #[inline(always)]
    pub(super) fn place([across, down, moved]: [f32; 3], column: f32, row: f32, length: f32) -> f32 {
        ((column * across + row * down + moved) + 1.0) * (length * 0.5) - 0.5
    }

    fn new(affine: &Affine, (width, height): (u32, u32)) -> Self {
        let WarpSampling { interpolation, fill, center } = &affine.sampling;
        let half = [f64::from(width) * 0.5, f64::from(height) * 0.5];
        let centre = center.map_or([0.0; 2], |[x, y]| [x - half[0], y - half[1]]);
        let matrix = inverse(affine, centre);
        let sampler = match interpolation {
            Filter::Nearest | Filter::NearestExact => Sampler::Nearest,
            Filter::Bilinear => Sampler::Bilinear,
            // `Filter::Lanczos` does not occur here, because the checks of all transforms refuse it.
            Filter::Bicubic | Filter::Lanczos => Sampler::Bicubic,
        };
        let shift = match sampler {
            Sampler::Bicubic => None,
            _ => RowShift::of(matrix, sampler == Sampler::Nearest),
        };
        let shear = Shear::of(matrix).filter(|_| sampler == Sampler::Nearest);
        Self {
            matrix: [0, 1].map(|row| matrix[row].map(|value| value as f32 / half[row] as f32)),
            shift,
            shear,
            sampler,
            fill: fill.map(|fill| fill.map(|level| level.clamp(0.0, 255.0) as f32)),
        }
    }
}

/// Returns the matrix that maps pixels of the result to pixels of the image, both counted from the image's centre. As
/// in torchvision's `_get_inverse_affine_matrix`, it is the inverse of T · C · R · C⁻¹: rotation, scale and shear (R)
/// about the centre (C), then the translation (T).
fn inverse(affine: &Affine, centre: [f64; 2]) -> [[f64; 3]; 2] {
    let turn = affine.angle.to_radians();
    let [shear_x, shear_y] = affine.shear.map(f64::to_radians);
    let (cos_shear, tan_shear) = (libm::cos(shear_y), libm::tan(shear_x));
    let a = libm::cos(turn - shear_y) / cos_shear;
    let b = -(a * tan_shear + libm::sin(turn));
    let c = libm::sin(turn - shear_y) / cos_shear;
    let d = libm::cos(turn) - c * tan_shear;
    let moved = [0, 1].map(|axis| centre[axis] + affine.translate[axis]);
    let row = |x: f64, y: f64, centre: f64| [x, y, 0.0 + (centre - x * moved[0] - y * moved[1])];
    [row(d / affine.scale, -b / affine.scale, centre[0]), row(-c / affine.scale, a / affine.scale, centre[1])]
}
