//! Runs the operations of one image on its grey levels.

use super::blur::{self, Blur};
use super::resample::WarpScratch;
use super::table::LevelTables;
use super::warp::Warp;
use super::{PixelOp, augmix, erase, grey, hue, mirror, resample, sharpness, shear, shift, statistics};
use crate::simd::Level;

/// Three planes of grey levels, R, G and B, and what operations need beside them. Each thread has one.
#[derive(Debug)]
pub(in crate::augment) struct PixelPass {
    level: Level,
    planes: Vec<u8>,
    scratch: Scratch,
}

/// Memory that operations work in.
#[derive(Debug, Default)]
struct Scratch {
    /// Planes that take the place of the image's where an operation cannot write into what it reads.
    planes: Vec<u8>,
    warp: WarpScratch,
    /// Columns that a shear moves together.
    strip: Vec<[u8; shear::STRIP]>,
    blur: Blur,
    /// What chains of AugMix made.
    chains: Vec<Vec<u8>>,
}

impl PixelPass {
    /// A pass with the instructions of `level`, or the best below it that this processor has.
    pub(in crate::augment) fn new(level: Level) -> Self {
        Self { level: level.lowered(), planes: Vec::new(), scratch: Scratch::default() }
    }

    /// Room for the levels of an image of this many pixels, all of which must be written.
    pub(in crate::augment) fn levels(&mut self, pixels: usize) -> &mut [u8] {
        self.planes.resize(3 * pixels, 0);
        &mut self.planes
    }

    /// Applies `ops` in order to the levels of an image of `width` × `height` pixels, and returns them.
    pub(in crate::augment) fn run(&mut self, ops: &[PixelOp], (width, height): (u32, u32)) -> &[u8] {
        if !self.planes.is_empty() {
            self.scratch.apply(self.level, ops, (width, height), &mut self.planes);
        }
        &self.planes
    }
}

impl Scratch {
    fn apply(&mut self, level: Level, ops: &[PixelOp], size: (u32, u32), planes: &mut Vec<u8>) {
        // Tables that follow each other are one; whatever else comes next needs their levels.
        let mut pending: Option<LevelTables> = None;
        for op in ops {
            let tables = LevelTables::of(op).or_else(|| {
                if let Some(tables) =
                    pending.take_if(|_| !matches!(op, PixelOp::HorizontalFlip | PixelOp::VerticalFlip))
                {
                    tables.apply(level, channels(planes));
                }
                tables_of_image(level, op, planes)
            });
            match tables {
                Some(tables) => {
                    pending = Some(match pending.take() {
                        Some(before) => before.then(&tables),
                        None => tables,
                    })
                }
                None => self.apply_one(level, op, size, planes),
            }
        }
        if let Some(tables) = pending {
            tables.apply(level, channels(planes));
        }
    }

    /// Applies an operation that is no table.
    fn apply_one(&mut self, level: Level, op: &PixelOp, size: (u32, u32), planes: &mut Vec<u8>) {
        let (width, height) = (size.0 as usize, size.1 as usize);
        if let Some(warp) = Warp::of(op, size) {
            if warp.shift.is_none() && warp.shear.is_none() {
                return resample::warp(level, &warp, planes, size, &mut self.warp);
            }
            self.planes.resize(planes.len(), 0);
            if let Some(shift) = warp.shift {
                shift::shift(level, shift, warp.fill, (width, height), planes, &mut self.planes);
            } else if let Some(shear) = warp.shear {
                shear::shear(level, &warp, shear, (width, height), planes, &mut self.planes, &mut self.strip);
            }
            return std::mem::swap(planes, &mut self.planes);
        }
        match op {
            PixelOp::RgbToGrayscale => {
                let [red, green, blue] = channels(planes);
                grey::to_grey(level, red, green, blue);
            }
            PixelOp::AdjustSaturation { saturation_factor } => {
                let [red, green, blue] = channels(planes);
                let (of_level, of_grey) = (*saturation_factor as f32, (1.0 - saturation_factor) as f32);
                grey::saturate(level, red, green, blue, of_level, of_grey);
            }
            PixelOp::AdjustHue { hue_factor } => {
                let [red, green, blue] = channels(planes);
                hue::turn(level, red, green, blue, *hue_factor as f32);
            }
            PixelOp::AdjustSharpness { sharpness_factor } => {
                self.planes.resize(planes.len(), 0);
                for (from, to) in channels(planes).into_iter().zip(channels(&mut self.planes)) {
                    let of_smooth = (1.0 - sharpness_factor) as f32;
                    sharpness::sharpen(level, from, to, width, of_smooth);
                }
                std::mem::swap(planes, &mut self.planes);
            }
            PixelOp::GaussianBlur { kernel_size, sigma } => {
                let weights = [0, 1].map(|axis| blur::weights(kernel_size[axis], sigma[axis]));
                if weights.iter().any(|weights| weights.len() > 1) {
                    self.blur.run(
                        level,
                        channels(planes),
                        (width, height),
                        weights.each_ref().map(|w| &w[..]),
                    );
                }
            }
            PixelOp::PermuteChannels { permutation } => {
                self.planes.resize(planes.len(), 0);
                mirror::permute(planes, *permutation, &mut self.planes);
                std::mem::swap(planes, &mut self.planes);
            }
            PixelOp::HorizontalFlip => mirror::left_right(planes, width),
            PixelOp::VerticalFlip => {
                for plane in channels(planes) {
                    mirror::top_bottom(plane, width);
                }
            }
            PixelOp::Erase { rectangle, v } => erase::erase_levels(planes, (width, height), *rectangle, *v),
            PixelOp::Augmix { weights, chains } => {
                let mut made = std::mem::take(&mut self.chains);
                made.resize_with(chains.len(), Vec::new);
                for (ops, made) in chains.iter().zip(&mut made) {
                    made.clone_from(planes);
                    self.apply(level, ops, size, made);
                }
                augmix::mix(level, planes, &made, weights);
                self.chains = made;
            }
            // All others are tables or warps.
            _ => {}
        }
    }
}

/// The tables of an operation that depends on the whole image; `None` for what is no such.
fn tables_of_image(level: Level, op: &PixelOp, planes: &mut [u8]) -> Option<LevelTables> {
    let pixels = planes.len() / 3;
    let [red, green, blue] = channels(planes);
    match op {
        PixelOp::AdjustContrast { contrast_factor } => {
            let mean = statistics::mean(statistics::grey_sum(level, red, green, blue), pixels);
            Some(LevelTables::contrast(*contrast_factor, mean))
        }
        PixelOp::Autocontrast => {
            let extremes = [red, green, blue].map(|plane| statistics::extremes(level, plane));
            Some(LevelTables::autocontrast(extremes))
        }
        PixelOp::Equalize => {
            Some(LevelTables::equalize(&[red, green, blue].map(|plane| statistics::histogram(plane))))
        }
        _ => None,
    }
}

/// The planes of R, G and B.
fn channels(planes: &mut [u8]) -> [&mut [u8]; 3] {
    let pixels = planes.len() / 3;
    let (red, others) = planes.split_at_mut(pixels);
    let (green, blue) = others.split_at_mut(pixels);
    [red, green, blue]
}
