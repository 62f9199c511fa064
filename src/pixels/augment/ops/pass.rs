//! Runs the operations of one image on its grey levels.

use super::blur::Blur;
use super::resample::WarpScratch;
use super::table::LevelTables;
use super::warp::Warp;
use super::{PixelOp, augmix, resample, shear, shift};
use base::simd::Level;

/// The R, G and B planes of an image, one byte per pixel, and scratch memory for operations. Each thread has its own
/// `PixelPass`.
#[derive(Debug)]
pub(in crate::augment) struct PixelPass {
    level: Level,
    planes: Vec<u8>,
    scratch: Scratch,
}

#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Planes for operations that cannot write in place. They are swapped with the image's planes.
    planes: Vec<u8>,
    warp: WarpScratch,
    /// Columns that a shear moves together.
    strip: Vec<[u8; shear::STRIP]>,
    pub(super) blur: Blur,
    chains: Vec<Vec<u8>>,
}

impl PixelPass {
    /// Creates a pass with the instructions of `level`, or of the best level below it that this processor supports.
    pub(in crate::augment) fn new(level: Level) -> Self {
        Self { level: level.lowered(), planes: Vec::new(), scratch: Scratch::default() }
    }

    /// Returns space for the levels of an image of this many pixels. The caller must write all of them.
    pub(in crate::augment) fn levels(&mut self, pixels: usize) -> &mut [u8] {
        self.planes.resize(3 * pixels, 0);
        &mut self.planes
    }

    /// Applies `ops` in order to the levels of an image of `width` × `height` pixels, and returns the new levels.
    pub(in crate::augment) fn run(&mut self, ops: &[PixelOp], (width, height): (u32, u32)) -> &[u8] {
        if !self.planes.is_empty() {
            self.scratch.apply(self.level, ops, (width, height), &mut self.planes);
        }
        &self.planes
    }
}

/// The levels of an image, with a pending table lookup. Consecutive lookups are merged into one.
pub(super) struct PendingLevels<'a> {
    pub(super) level: Level,
    planes: &'a mut Vec<u8>,
    tables: Option<LevelTables>,
}

impl PendingLevels<'_> {
    pub(super) fn look_up(&mut self, next: Option<LevelTables>) {
        self.tables = match (self.tables.take(), next) {
            (Some(before), Some(next)) => Some(before.then(&next)),
            (before, next) => next.or(before),
        };
    }

    /// Applies the pending lookup and returns the planes.
    pub(super) fn planes(&mut self) -> &mut Vec<u8> {
        if let Some(tables) = self.tables.take() {
            tables.apply(self.level, channels(self.planes));
        }
        self.planes
    }

    /// Applies the pending lookup and returns the planes of R, G and B.
    pub(super) fn channels(&mut self) -> [&mut [u8]; 3] {
        channels(self.planes())
    }

    /// Returns the levels and leaves the lookup pending, for operations that move pixels and change no level.
    pub(super) fn without_lookup(&mut self) -> &mut Vec<u8> {
        self.planes
    }
}

impl Scratch {
    fn apply(&mut self, level: Level, ops: &[PixelOp], size: (u32, u32), planes: &mut Vec<u8>) {
        let mut levels = PendingLevels { level, planes, tables: None };
        for op in ops {
            op.run(self, &mut levels, size);
        }
        levels.planes();
    }

    pub(super) fn warp(&mut self, level: Level, warp: &Warp, size: (u32, u32), planes: &mut Vec<u8>) {
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

    pub(super) fn mix(
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

    /// Replaces `planes` by the output of `make`, which reads its first argument and writes its second argument.
    pub(super) fn replace(&mut self, planes: &mut Vec<u8>, make: impl FnOnce(&mut [u8], &mut [u8])) {
        self.planes.resize(planes.len(), 0);
        make(planes, &mut self.planes);
        std::mem::swap(planes, &mut self.planes);
    }
}

pub(super) fn channels(planes: &mut [u8]) -> [&mut [u8]; 3] {
    let pixels = planes.len() / 3;
    let (red, others) = planes.split_at_mut(pixels);
    let (green, blue) = others.split_at_mut(pixels);
    [red, green, blue]
}
