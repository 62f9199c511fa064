//! Runs the operations of one image on its grey levels.

use super::blur::{self, Blur};
use super::resample::WarpScratch;
use super::table::LevelTables;
use super::warp::Warp;
use super::{PixelOp, augmix, erase, grey, hue, mirror, resample, sharpness, shear, shift, statistics};
use base::simd::Level;

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

/// The levels of an image, and tables that they are still to be looked up in: those that follow each other are one.
struct PendingLevels<'a> {
    level: Level,
    planes: &'a mut Vec<u8>,
    tables: Option<LevelTables>,
}

impl PendingLevels<'_> {
    fn look_up(&mut self, next: Option<LevelTables>) {
        self.tables = match (self.tables.take(), next) {
            (Some(before), Some(next)) => Some(before.then(&next)),
            (before, next) => next.or(before),
        };
    }

    /// The levels as they are by now.
    fn planes(&mut self) -> &mut Vec<u8> {
        if let Some(tables) = self.tables.take() {
            tables.apply(self.level, channels(self.planes));
        }
        self.planes
    }

    /// The planes of R, G and B as they are by now.
    fn channels(&mut self) -> [&mut [u8]; 3] {
        channels(self.planes())
    }

    /// The levels before what they are still to be looked up in, for what moves levels and changes none.
    fn unchanged(&mut self) -> &mut Vec<u8> {
        self.planes
    }
}

impl Scratch {
    /// Applies operations in order. Each has its place here: a new one does not compile without.
    fn apply(&mut self, level: Level, ops: &[PixelOp], size: (u32, u32), planes: &mut Vec<u8>) {
        let (width, height) = (size.0 as usize, size.1 as usize);
        let mut levels = PendingLevels { level, planes, tables: None };
        for op in ops {
            match op {
                PixelOp::AdjustBrightness { .. }
                | PixelOp::Invert
                | PixelOp::Posterize { .. }
                | PixelOp::Solarize { .. }
                | PixelOp::SolarizeAdd { .. } => levels.look_up(LevelTables::of(op)),
                PixelOp::AdjustContrast { contrast_factor } => {
                    let [red, green, blue] = levels.channels();
                    let pixels = red.len();
                    let mean = statistics::mean(statistics::grey_sum(level, red, green, blue), pixels);
                    levels.look_up(Some(LevelTables::contrast(*contrast_factor, mean)));
                }
                PixelOp::Autocontrast => {
                    let extremes = levels.channels().map(|plane| statistics::extremes(level, plane));
                    levels.look_up(Some(LevelTables::autocontrast(extremes)));
                }
                PixelOp::Equalize => {
                    let histograms = levels.channels().map(|plane| statistics::histogram(plane));
                    levels.look_up(Some(LevelTables::equalize(&histograms)));
                }
                PixelOp::HorizontalFlip => mirror::left_right(levels.unchanged(), width),
                PixelOp::VerticalFlip => {
                    for plane in channels(levels.unchanged()) {
                        mirror::top_bottom(plane, width);
                    }
                }
                PixelOp::RgbToGrayscale => {
                    let [red, green, blue] = levels.channels();
                    grey::to_grey(level, red, green, blue);
                }
                PixelOp::AdjustSaturation { saturation_factor } => {
                    let [red, green, blue] = levels.channels();
                    let (of_level, of_grey) = (*saturation_factor as f32, (1.0 - saturation_factor) as f32);
                    grey::saturate(level, red, green, blue, of_level, of_grey);
                }
                PixelOp::AdjustHue { hue_factor } => {
                    let [red, green, blue] = levels.channels();
                    hue::turn(level, red, green, blue, *hue_factor as f32);
                }
                PixelOp::PermuteChannels { permutation } => {
                    self.replace(levels.planes(), |from, to| mirror::permute(from, *permutation, to));
                }
                PixelOp::Affine(_) | PixelOp::Rotate { .. } => {
                    if let Some(warp) = Warp::of(op, size) {
                        self.warp(level, &warp, size, levels.planes());
                    }
                }
                PixelOp::AdjustSharpness { sharpness_factor } => {
                    let of_smooth = (1.0 - sharpness_factor) as f32;
                    self.replace(levels.planes(), |from, to| {
                        for (from, to) in channels(from).into_iter().zip(channels(to)) {
                            sharpness::sharpen(level, from, to, width, of_smooth);
                        }
                    });
                }
                PixelOp::GaussianBlur { kernel_size, sigma } => {
                    let weights = [0, 1].map(|axis| blur::weights(kernel_size[axis], sigma[axis]));
                    if weights.iter().any(|weights| weights.len() > 1) {
                        let weights = weights.each_ref().map(|weights| &weights[..]);
                        self.blur.run(level, levels.channels(), (width, height), weights);
                    }
                }
                PixelOp::Erase { rectangle, v } => {
                    erase::erase_levels(levels.planes(), (width, height), *rectangle, *v);
                }
                PixelOp::Augmix { weights, chains } => {
                    self.mix(level, weights, chains, size, levels.planes())
                }
            }
        }
        levels.planes();
    }

    fn warp(&mut self, level: Level, warp: &Warp, size: (u32, u32), planes: &mut Vec<u8>) {
        let sides = (size.0 as usize, size.1 as usize);
        if let Some(shift) = warp.shift {
            self.replace(planes, |from, to| shift::shift(level, shift, warp.fill, sides, from, to));
        } else if let Some(shear) = warp.shear {
            let mut strip = std::mem::take(&mut self.strip);
            self.replace(planes, |from, to| shear::shear(level, warp, shear, sides, from, to, &mut strip));
            self.strip = strip;
        } else {
            resample::warp(level, warp, planes, size, &mut self.warp);
        }
    }

    fn mix(
        &mut self,
        level: Level,
        weights: &[f64],
        chains: &[Vec<PixelOp>],
        size: (u32, u32),
        planes: &mut [u8],
    ) {
        let mut made = std::mem::take(&mut self.chains);
        made.resize_with(chains.len(), Vec::new);
        for (ops, made) in chains.iter().zip(&mut made) {
            planes.clone_into(made);
            self.apply(level, ops, size, made);
        }
        augmix::mix(level, planes, &made, weights);
        self.chains = made;
    }

    /// Puts what `make` makes of planes in their place.
    fn replace(&mut self, planes: &mut Vec<u8>, make: impl FnOnce(&mut [u8], &mut [u8])) {
        self.planes.resize(planes.len(), 0);
        make(planes, &mut self.planes);
        std::mem::swap(planes, &mut self.planes);
    }
}

/// The planes of R, G and B.
fn channels(planes: &mut [u8]) -> [&mut [u8]; 3] {
    let pixels = planes.len() / 3;
    let (red, others) = planes.split_at_mut(pixels);
    let (green, blue) = others.split_at_mut(pixels);
    [red, green, blue]
}
