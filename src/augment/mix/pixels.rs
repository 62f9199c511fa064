//! Mixes two images in place, with torchvision's arithmetic: in float32 each product and the sum are rounded, and other
//! types are rounded once more, to nearest even. It is written so that compilers vectorise it, and all instruction
//! sets give the same bits.

use super::draw::{DrawnMix, MixRegion};
use crate::augment::{DType, MemoryFormat, Output};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The weights of an image and of its partner in float32, as torch has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MixWeights {
    pub own: f32,
    pub other: f32,
}

impl MixWeights {
    pub(crate) fn new(share: f64) -> Self {
        Self { own: share as f32, other: (1.0 - share) as f32 }
    }

    /// The mixture of two numbers, of which the first is the image's own.
    #[inline(always)]
    pub(crate) fn of(self, own: f32, other: f32) -> f32 {
        own * self.own + other * self.other
    }
}

/// How many values of half precision are converted at a time: few enough for the first level cache.
const RUN: usize = 256;

/// Mixes images `a` and `b`, which are as `output` has them: each becomes its mixture with the other.
///
/// # Panics
/// Panics for grey levels, which are not mixed.
pub(crate) fn mix_images(drawn: &DrawnMix, output: &Output, a: &mut [u8], b: &mut [u8]) {
    let weights = MixWeights::new(drawn.share);
    match (drawn.region, output.dtype) {
        (MixRegion::Rectangle { left, top, right, bottom }, dtype) => {
            let (height, width) = (output.height as usize, output.width as usize);
            let (planes, pixel) = match output.format {
                MemoryFormat::Nchw => (3, dtype.size()),
                MemoryFormat::Nhwc => (1, 3 * dtype.size()),
            };
            for plane in 0..planes {
                for row in top as usize..bottom as usize {
                    let start = (plane * height + row) * width;
                    let columns = (start + left as usize) * pixel..(start + right as usize) * pixel;
                    a[columns.clone()].swap_with_slice(&mut b[columns]);
                }
            }
        }
        (MixRegion::Everywhere, DType::F32) => {
            for (a, b) in a.as_chunks_mut::<4>().0.iter_mut().zip(b.as_chunks_mut::<4>().0) {
                let (x, y) = (f32::from_ne_bytes(*a), f32::from_ne_bytes(*b));
                (*a, *b) = (weights.of(x, y).to_ne_bytes(), weights.of(y, x).to_ne_bytes());
            }
        }
        (MixRegion::Everywhere, DType::Bf16) => {
            for (a, b) in a.as_chunks_mut::<2>().0.iter_mut().zip(b.as_chunks_mut::<2>().0) {
                let (x, y) = (brain_value(*a), brain_value(*b));
                (*a, *b) = (brain_bytes(weights.of(x, y)), brain_bytes(weights.of(y, x)));
            }
        }
        (MixRegion::Everywhere, DType::F16) => blend_halves(weights, a, b),
        (MixRegion::Everywhere, DType::U8) => panic!("grey levels are not mixed"),
    }
}

#[inline(always)]
fn brain_value(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16)
}

/// The nearest bfloat16, ties to even; `half`'s function for single values keeps compilers from vectorising.
#[inline(always)]
fn brain_bytes(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nearest = if value.is_nan() { bits >> 16 | 0x40 } else { nearest };
    (nearest as u16).to_ne_bytes()
}

/// Blends images of halves in float32. `half` converts slices with the processor's instructions, where it has some.
fn blend_halves(weights: MixWeights, a: &mut [u8], b: &mut [u8]) {
    let (a, b) = (a.as_chunks_mut::<2>().0, b.as_chunks_mut::<2>().0);
    let mut halves = [f16::ZERO; RUN];
    let (mut x, mut y) = ([0f32; RUN], [0f32; RUN]);
    for (a, b) in a.chunks_mut(RUN).zip(b.chunks_mut(RUN)) {
        let n = a.len();
        for (from, to) in [(&*a, &mut x), (&*b, &mut y)] {
            halves.iter_mut().zip(from).for_each(|(half, bytes)| *half = f16::from_ne_bytes(*bytes));
            halves[..n].convert_to_f32_slice(&mut to[..n]);
        }
        for (x, y) in x[..n].iter_mut().zip(&mut y[..n]) {
            (*x, *y) = (weights.of(*x, *y), weights.of(*y, *x));
        }
        for (from, to) in [(&x, a), (&y, b)] {
            halves[..n].convert_from_f32_slice(&from[..n]);
            to.iter_mut().zip(&halves).for_each(|(bytes, half)| *bytes = half.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::Fidelity;
    use crate::rng::{RandomKey, Use};
    use half::bf16;

    fn output(dtype: DType, format: MemoryFormat, (height, width): (u32, u32)) -> Output {
        let (mean, std, fill) = ([0.5; 3], [0.25; 3], [0; 3]);
        Output { height, width, dtype, format, mean, std, fill, fidelity: Fidelity::Fast }
    }

    fn stored(dtype: DType, values: &[f32]) -> Vec<u8> {
        match dtype {
            DType::F32 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_ne_bytes()).collect(),
            _ => values.iter().flat_map(|v| bf16::from_f32(*v).to_ne_bytes()).collect(),
        }
    }

    fn read(dtype: DType, bytes: &[u8]) -> Vec<f32> {
        let halves =
            |of: &dyn Fn([u8; 2]) -> f32| bytes.as_chunks::<2>().0.iter().map(|raw| of(*raw)).collect();
        match dtype {
            DType::F32 => bytes.as_chunks::<4>().0.iter().map(|raw| f32::from_ne_bytes(*raw)).collect(),
            DType::F16 => halves(&|raw| f16::from_ne_bytes(raw).to_f32()),
            _ => halves(&|raw| bf16::from_ne_bytes(raw).to_f32()),
        }
    }

    /// Two images by the formula, one value at a time.
    #[test]
    fn every_type_and_order_is_the_formula() {
        let (height, width) = (13, 37);
        let mut stream = RandomKey::new(b"mix", 0, 0, Use::Mix).stream(0);
        let region = MixRegion::Rectangle { left: 5, top: 2, right: 30, bottom: 13 };
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for format in [MemoryFormat::Nchw, MemoryFormat::Nhwc] {
                for drawn in [
                    DrawnMix { share: 0.3, region: MixRegion::Everywhere },
                    DrawnMix { share: 0.0, region: MixRegion::Everywhere },
                    DrawnMix { share: 0.3, region },
                ] {
                    let n = 3 * height as usize * width as usize;
                    let mut values = || (0..n).map(|_| stream.uniform(-3.0, 3.0) as f32).collect::<Vec<_>>();
                    let (mut a, mut b) = (stored(dtype, &values()), stored(dtype, &values()));
                    let (x, y) = (read(dtype, &a), read(dtype, &b));
                    mix_images(&drawn, &output(dtype, format, (height, width)), &mut a, &mut b);
                    for at in 0..n {
                        let pixel = if format == MemoryFormat::Nchw { at } else { at / 3 } as u32;
                        let (row, column) = (pixel / width % height, pixel % width);
                        let inside = (5..30).contains(&column) && (2..13).contains(&row);
                        let expected = match drawn.region {
                            MixRegion::Rectangle { .. } if inside => [y[at], x[at]],
                            MixRegion::Rectangle { .. } => [x[at], y[at]],
                            MixRegion::Everywhere => {
                                let (own, other) = (drawn.share as f32, (1.0 - drawn.share) as f32);
                                [x[at] * own + y[at] * other, y[at] * own + x[at] * other]
                            }
                        };
                        let size = dtype.size();
                        let got = [&a[at * size..][..size], &b[at * size..][..size]];
                        for (got, expected) in got.into_iter().zip(expected) {
                            assert_eq!(
                                got,
                                stored(dtype, &[expected]),
                                "{dtype:?} {format:?} {drawn:?} {at}"
                            );
                        }
                    }
                }
            }
        }
    }
}
