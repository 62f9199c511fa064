//! Mixes the images of a mixing group in place, with torchvision's arithmetic. Each product and the sum are rounded in
//! float32; for float16 and bfloat16, the sum is rounded again, to nearest even. The loops are written so that
//! compilers vectorise them; all instruction sets give the same bits.

use super::draw::{DrawnMix, MixRegion};
use crate::arrays::{brain_to_single, single_to_brain};
use crate::augment::{DType, MemoryFormat, Output};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// The weights of an image and of its partner in float32, as torch computes them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixWeights {
    /// The weight of the image itself.
    pub own: f32,
    /// The weight of the other image, which is mixed into the image itself.
    pub other: f32,
}

impl MixWeights {
    /// Returns the weights for this share of the image itself.
    pub fn new(share: f64) -> Self {
        Self { own: share as f32, other: (1.0 - share) as f32 }
    }

    /// Returns the mixture of `own`, a value of the image, and `other`, the same value of its partner.
    #[inline(always)]
    pub fn of(self, own: f32, other: f32) -> f32 {
        own * self.own + other * self.other
    }
}

/// The number of bytes of each image that are mixed at a time: whole elements, and few enough that the bytes of a whole
/// group fit the L1 cache.
const RUN: usize = 2048;

/// Mixes the images of a group, which have the format of `output`. Each image becomes its mixture with the image before
/// it, and the first image with the last. A single image is not changed.
///
/// # Panics
/// Panics if it would blend grey levels (`uint8`). Rectangles of grey levels are replaced without a panic.
pub fn mix_images(drawn: &DrawnMix, output: &Output, images: &mut [&mut [u8]]) {
    if images.len() < 2 {
        return;
    }
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
                    for_each_pair(images, columns, |own, previous| own.copy_from_slice(previous));
                }
            }
        }
        (MixRegion::Everywhere, dtype) => {
            let all = 0..output.bytes();
            match dtype {
                DType::F32 => for_each_pair(images, all, |own, other| blend_f32(weights, own, other)),
                DType::Bf16 => for_each_pair(images, all, |own, other| blend_bf16(weights, own, other)),
                DType::F16 => for_each_pair(images, all, |own, other| blend_f16(weights, own, other)),
                DType::U8 => panic!("uint8 images cannot be mixed"),
            }
        }
    }
}

/// Calls `mix` with the `bytes` of each image and the unmixed bytes of the image before it, one run at a time.
#[inline(always)]
fn for_each_pair(images: &mut [&mut [u8]], bytes: Range<usize>, mix: impl Fn(&mut [u8], &[u8])) {
    let mut saved = [0; RUN];
    for start in bytes.clone().step_by(RUN) {
        let run = start..bytes.end.min(start + RUN);
        // Goes from the last image to the first, so that only the last image must be saved before it is overwritten.
        let last = images.len() - 1;
        let saved = &mut saved[..run.len()];
        saved.copy_from_slice(&images[last][run.clone()]);
        for image in (1..=last).rev() {
            let (before, rest) = images.split_at_mut(image);
            mix(&mut rest[0][run.clone()], &before[image - 1][run.clone()]);
        }
        mix(&mut images[0][run], saved);
    }
}

fn blend_f32(weights: MixWeights, own: &mut [u8], other: &[u8]) {
    for (own, other) in own.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
        *own = weights.of(f32::from_ne_bytes(*own), f32::from_ne_bytes(*other)).to_ne_bytes();
    }
}

fn blend_bf16(weights: MixWeights, own: &mut [u8], other: &[u8]) {
    for (own, other) in own.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
        let [x, y] = [*own, *other].map(|bytes| brain_to_single(u16::from_ne_bytes(bytes)));
        *own = single_to_brain(weights.of(x, y)).to_ne_bytes();
    }
}

/// Blends float16 values in float32. `half` converts slices with the processor's own instructions if it has any.
fn blend_f16(weights: MixWeights, own: &mut [u8], other: &[u8]) {
    const HALVES: usize = RUN / 2;
    let (own, other) = (own.as_chunks_mut().0, other.as_chunks().0);
    let n = own.len();
    let mut halves = [f16::ZERO; HALVES];
    let (mut x, mut y) = ([0f32; HALVES], [0f32; HALVES]);
    for (from, to) in [(&*own, &mut x), (other, &mut y)] {
        halves.iter_mut().zip(from).for_each(|(half, bytes)| *half = f16::from_ne_bytes(*bytes));
        halves[..n].convert_to_f32_slice(&mut to[..n]);
    }
    for (x, y) in x[..n].iter_mut().zip(&y[..n]) {
        *x = weights.of(*x, *y);
    }
    halves[..n].convert_from_f32_slice(&x[..n]);
    own.iter_mut().zip(&halves).for_each(|(bytes, half)| *bytes = half.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::Fidelity;
    use base::rng::{RandomKey, Use};
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

    /// Mixes groups of one and more images and compares them with the formula, one value at a time.
    #[test]
    fn every_type_and_order_is_the_formula() {
        let (height, width) = (13, 37);
        let mut stream = RandomKey::new(b"mix", 0, 0, Use::Mix).stream(0);
        let region = MixRegion::Rectangle { left: 5, top: 2, right: 30, bottom: 13 };
        let n = 3 * height as usize * width as usize;
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for format in [MemoryFormat::Nchw, MemoryFormat::Nhwc] {
                for (drawn, images) in [
                    (DrawnMix { share: 0.3, region: MixRegion::Everywhere }, 2),
                    (DrawnMix { share: 0.3, region: MixRegion::Everywhere }, 5),
                    (DrawnMix { share: 0.0, region: MixRegion::Everywhere }, 3),
                    (DrawnMix { share: 0.3, region }, 2),
                    (DrawnMix { share: 0.3, region }, 4),
                    (DrawnMix { share: 0.3, region }, 1),
                ] {
                    let mut values = || (0..n).map(|_| stream.uniform(-3.0, 3.0) as f32).collect::<Vec<_>>();
                    let mut mixed: Vec<_> = (0..images).map(|_| stored(dtype, &values())).collect();
                    let before: Vec<_> = mixed.iter().map(|image| read(dtype, image)).collect();
                    let mut ring: Vec<_> = mixed.iter_mut().map(Vec::as_mut_slice).collect();
                    mix_images(&drawn, &output(dtype, format, (height, width)), &mut ring);
                    let (own, other) = (drawn.share as f32, (1.0 - drawn.share) as f32);
                    for (image, at) in (0..images).flat_map(|image| (0..n).map(move |at| (image, at))) {
                        let pixel = if format == MemoryFormat::Nchw { at } else { at / 3 } as u32;
                        let (row, column) = (pixel / width % height, pixel % width);
                        let inside = (5..30).contains(&column) && (2..13).contains(&row);
                        let (x, y) = (before[image][at], before[(image + images - 1) % images][at]);
                        let expected = match drawn.region {
                            MixRegion::Rectangle { .. } if inside => y,
                            MixRegion::Rectangle { .. } => x,
                            MixRegion::Everywhere => x * own + y * other,
                        };
                        let got = &mixed[image][at * dtype.size()..][..dtype.size()];
                        let context =
                            format!("{dtype:?} {format:?} {drawn:?} image {image} of {images}, {at}");
                        assert_eq!(got, stored(dtype, &[expected]), "{context}");
                    }
                }
            }
        }
    }
}
