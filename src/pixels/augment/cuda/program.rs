//! The programs of images: what is done to their pixels behind the pass, as words that `cuda/ops/` runs.
//!
//! An image's drawn operations become instructions. What needs sines, exponentials or tables is computed here, by
//! the functions that the CPU's kernels use, so that both engines make the same bits. Grey levels lie in *sets*,
//! three planes of the output's size; which of them an instruction reads and writes is decided here, too.

use super::super::ops::{
    ErasedBy, Erasure, LevelTables, PixelOp, Rectangle, RowShift, Sampler, Warp, blur_weights, mix_shares,
};
use super::super::{DrawnView, RecipeView};
use super::views::ProgramsAt;
use base::error::{Error, Result};
use std::mem::size_of;

/// The bytes of an image's span, which says where its program is: the first of its words and their end, then the number
/// of sets.
pub(super) const SPAN_BYTES: usize = size_of::<[u32; 3]>();

/// The most sets that an operation works with, in which it leaves one. A blur has two between its passes.
const SETS_OF_OPS: usize = 3;

/// The codes of instructions, in the order of `cuda/ops/program.cuh`, which says what words they have.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum OpCode {
    Table,
    Contrast,
    Autocontrast,
    Equalize,
    Grey,
    Saturation,
    Hue,
    Permute,
    Fill,
    Store,
    Sharpness,
    Blur,
    Move,
    Warp,
    Shift,
    Mix,
    Erase,
    Noise,
}

impl OpCode {
    /// Whether an instruction can write into the set that it reads: it sees each pixel by itself.
    fn is_in_place(self) -> bool {
        (self as u32) < Self::Sharpness as u32
    }
}

/// The most sets that images of `view` work with.
pub(super) fn most_sets(view: &RecipeView) -> usize {
    // The chains of AugMix are kept until they are mixed, and the image with them.
    SETS_OF_OPS + view.most_chains()
}

/// The programs of the images of a batch.
#[derive(Debug, Default)]
pub struct Programs {
    spans: Vec<[u32; 3]>,
    words: Vec<u32>,
    views: Vec<ViewPrograms>,
    /// The sets that the image at hand uses.
    sets: Sets,
}

/// What the programs of a view have in common.
#[derive(Debug)]
struct ViewPrograms {
    /// Whether they begin with grey levels, so that each image has one.
    has_levels: bool,
    /// Whether any image has one.
    is_needed: bool,
    most_sets: usize,
    first_span: usize,
}

impl Programs {
    /// Forgets all programs.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.words.clear();
        self.views.clear();
    }

    /// Says that the next images are those of another view, which work with so many sets of levels at most; with none
    /// where only finished images are changed.
    pub fn begin_view(&mut self, most_sets: usize) {
        let has_levels = most_sets > 0;
        let first_span = self.spans.len();
        self.views.push(ViewPrograms { has_levels, is_needed: has_levels, most_sets, first_span });
    }

    /// Adds the next image of the current view; `None` is a blank one.
    ///
    /// # Errors
    /// [`Error::Internal`] when the image needs more sets than there is memory for.
    pub fn add(&mut self, drawn: Option<&DrawnView>) -> Result<()> {
        let first = self.words.len() as u32;
        self.sets.used = 0;
        let Some(view) = self.views.last_mut() else { return Ok(()) };
        if let Some(DrawnView { width, height, ops, erasures, .. }) = drawn {
            let mut writer =
                ProgramWriter { words: &mut self.words, sets: &mut self.sets, size: (*width, *height) };
            if view.has_levels {
                writer.image(ops);
            }
            view.is_needed |= !erasures.is_empty();
            erasures.iter().for_each(|erasure| writer.erasure(erasure));
        }
        let sets = self.sets.used;
        if sets > view.most_sets {
            return Err(Error::Internal(format!("{sets} sets of levels, {} expected", view.most_sets)));
        }
        self.spans.push([first, self.words.len() as u32, sets as u32]);
        Ok(())
    }

    fn is_needed(&self) -> bool {
        self.views.iter().any(|view| view.is_needed)
    }

    /// The bytes of all spans and words; none where no image has a program.
    pub fn bytes(&self) -> usize {
        if self.is_needed() { self.spans.len() * SPAN_BYTES + 4 * self.words.len() } else { 0 }
    }

    /// Writes spans and words to exactly [`Programs::bytes`] bytes.
    pub fn write(&self, to: &mut [u8]) {
        let words = self.spans.as_flattened().iter().chain(&self.words);
        for (to, word) in to.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// The programs of the view with this number, where all were written to this address; `None` where its images have
    /// none.
    pub fn of_view(&self, view: usize, address: u64) -> Option<ProgramsAt> {
        let ViewPrograms { is_needed, first_span, .. } = self.views[view];
        let at = |spans: usize| address + (spans * SPAN_BYTES) as u64;
        is_needed.then(|| ProgramsAt { spans: at(first_span), words: at(self.spans.len()) })
    }
}

/// Which sets hold levels that are still needed.
#[derive(Debug, Default)]
struct Sets {
    are_taken: Vec<bool>,
    /// One more than the largest number of a set that was ever taken.
    used: usize,
}

impl Sets {
    /// Begins with the levels of the pass in set 0.
    fn begin(&mut self) -> u32 {
        self.are_taken.clear();
        self.take()
    }

    fn take(&mut self) -> u32 {
        let free = self.are_taken.iter().position(|is_taken| !is_taken);
        let set = free.unwrap_or(self.are_taken.len());
        self.are_taken.resize(self.are_taken.len().max(set + 1), false);
        self.are_taken[set] = true;
        self.used = self.used.max(set + 1);
        set as u32
    }

    fn release(&mut self, set: u32) {
        self.are_taken[set as usize] = false;
    }
}

/// The levels of an image at some point of its program.
#[derive(Debug, Clone, Copy)]
struct HeldLevels {
    set: u32,
    /// Whether they are needed once more, so that nothing may be written over them.
    are_kept: bool,
}

/// Writes the program of one image.
struct ProgramWriter<'a> {
    words: &'a mut Vec<u32>,
    sets: &'a mut Sets,
    /// The columns and the rows.
    size: (u32, u32),
}

impl ProgramWriter<'_> {
    /// Writes what is done to the levels of the pass, up to the finished image.
    fn image(&mut self, ops: &[PixelOp]) {
        let set = self.sets.begin();
        let levels = self.operations(ops, HeldLevels { set, are_kept: false });
        self.write(OpCode::Store, levels.set, levels.set, []);
    }

    /// Writes operations on `levels`, and returns where their result is.
    fn operations(&mut self, ops: &[PixelOp], mut levels: HeldLevels) -> HeldLevels {
        let mut ops = ops.iter().peekable();
        while let Some(op) = ops.next() {
            if let Some(mut tables) = LevelTables::of(op) {
                // As on the CPU, tables that follow each other are one.
                while let Some(next) = ops.peek().and_then(|next| LevelTables::of(next)) {
                    tables = tables.then(&next);
                    ops.next();
                }
                levels = self.tables(&tables, levels);
            } else {
                levels = self.operation(op, levels);
            }
        }
        levels
    }

    /// Writes an operation that is no table.
    fn operation(&mut self, op: &PixelOp, levels: HeldLevels) -> HeldLevels {
        let shares = |factor: &f64| [*factor as f32, (1.0 - factor) as f32].map(f32::to_bits);
        match op {
            PixelOp::RgbToGrayscale => self.instruction(OpCode::Grey, levels, []),
            PixelOp::AdjustContrast { contrast_factor } => {
                self.instruction(OpCode::Contrast, levels, shares(contrast_factor))
            }
            PixelOp::AdjustSaturation { saturation_factor } => {
                self.instruction(OpCode::Saturation, levels, shares(saturation_factor))
            }
            PixelOp::AdjustHue { hue_factor } => {
                self.instruction(OpCode::Hue, levels, [(*hue_factor as f32).to_bits()])
            }
            PixelOp::AdjustSharpness { sharpness_factor } => {
                self.instruction(OpCode::Sharpness, levels, [shares(sharpness_factor)[1]])
            }
            PixelOp::Autocontrast => self.instruction(OpCode::Autocontrast, levels, []),
            PixelOp::Equalize => self.instruction(OpCode::Equalize, levels, []),
            PixelOp::PermuteChannels { permutation } => {
                self.instruction(OpCode::Permute, levels, [bytes(*permutation)])
            }
            PixelOp::GaussianBlur { kernel_size, sigma } => {
                let [across, down] = [0, 1].map(|axis| blur_weights(kernel_size[axis], sigma[axis]));
                self.blur(levels, &across, &down)
            }
            PixelOp::HorizontalFlip => self.moved(levels, [[-1, 0, self.size.0 as i32 - 1], [0, 1, 0]]),
            PixelOp::VerticalFlip => self.moved(levels, [[1, 0, 0], [0, -1, self.size.1 as i32 - 1]]),
            PixelOp::Erase { rectangle, v } => {
                let words = self.rectangle(rectangle).into_iter().chain([bytes(*v)]);
                self.instruction(OpCode::Fill, levels, words)
            }
            PixelOp::Augmix { weights, chains } => self.augmix(levels, weights, chains),
            PixelOp::Affine(_) | PixelOp::Rotate { .. } => match Warp::of(op, self.size) {
                Some(warp) => self.warp(levels, &warp),
                None => levels,
            },
            PixelOp::AdjustBrightness { .. }
            | PixelOp::Invert
            | PixelOp::Posterize { .. }
            | PixelOp::Solarize { .. }
            | PixelOp::SolarizeAdd { .. } => match LevelTables::of(op) {
                Some(tables) => self.tables(&tables, levels),
                None => levels,
            },
        }
    }

    fn tables(&mut self, LevelTables(channels): &LevelTables, levels: HeldLevels) -> HeldLevels {
        let are_alike = channels[1..].iter().all(|channel| *channel == channels[0]);
        let channels = if are_alike { &channels[..1] } else { channels };
        let words = channels.as_flattened().as_chunks().0.iter().map(|four| u32::from_le_bytes(*four));
        self.instruction(OpCode::Table, levels, words)
    }

    fn blur(&mut self, levels: HeldLevels, across: &[u16], down: &[u16]) -> HeldLevels {
        // If one weight is all of them, nothing changes.
        if across.len() == 1 && down.len() == 1 {
            return levels;
        }
        let between = [self.sets.take(), self.sets.take()];
        let to = if levels.are_kept { self.sets.take() } else { levels.set };
        let head = [between[0] | between[1] << 16, across.len() as u32, down.len() as u32];
        let weights = across.iter().chain(down).map(|weight| u32::from(*weight));
        self.write(OpCode::Blur, levels.set, to, head.into_iter().chain(weights));
        between.into_iter().for_each(|set| self.sets.release(set));
        HeldLevels { set: to, are_kept: false }
    }

    /// Moves pixels by whole numbers: what is shown at (x, y) comes from these multiples of x, y and 1.
    fn moved(&mut self, levels: HeldLevels, from: [[i32; 3]; 2]) -> HeldLevels {
        self.instruction(OpCode::Move, levels, from.as_flattened().iter().map(|&number| number as u32))
    }

    fn warp(&mut self, levels: HeldLevels, Warp { matrix, shift, sampler, fill, .. }: &Warp) -> HeldLevels {
        let is_filled = u32::from(fill.is_some());
        let fill = [is_filled].into_iter().chain(fill.unwrap_or_default().map(f32::to_bits));
        if let Some(RowShift { along, per_row, down }) = *shift {
            let words = [along.to_bits(), per_row.to_bits(), down as u32].into_iter().chain(fill);
            return self.instruction(OpCode::Shift, levels, words);
        }
        let sampler = match sampler {
            Sampler::Nearest => 0,
            Sampler::Bilinear => 1,
            Sampler::Bicubic => 2,
        };
        let matrix = matrix.as_flattened().iter().map(|number| number.to_bits());
        self.instruction(OpCode::Warp, levels, matrix.chain([sampler]).chain(fill))
    }

    fn augmix(&mut self, levels: HeldLevels, weights: &[f64], chains: &[Vec<PixelOp>]) -> HeldLevels {
        let (of_image, weights) = mix_shares(weights);
        let image = HeldLevels { are_kept: true, ..levels };
        let made: Vec<_> = chains.iter().map(|ops| self.operations(ops, image).set).collect();
        let to = if levels.are_kept { self.sets.take() } else { levels.set };
        let shares = [(levels.set, of_image)].into_iter().chain(made.iter().copied().zip(weights));
        let words = shares.flat_map(|(set, weight)| [set, weight.to_bits()]);
        self.write(OpCode::Mix, levels.set, to, [1 + made.len() as u32].into_iter().chain(words));
        made.into_iter().filter(|&set| set != levels.set).for_each(|set| self.sets.release(set));
        HeldLevels { set: to, are_kept: false }
    }

    /// Writes what is done to the finished image.
    fn erasure(&mut self, Erasure { rectangle, v }: &Erasure) {
        let rectangle = self.rectangle(rectangle).into_iter();
        match v {
            ErasedBy::Values(values) => {
                self.write(OpCode::Erase, 0, 0, rectangle.chain(values.map(f32::to_bits)));
            }
            ErasedBy::Noise { key, mean, std } => {
                let words = key.iter().copied().chain([mean, std].into_iter().flatten().map(|n| n.to_bits()));
                self.write(OpCode::Noise, 0, 0, rectangle.chain(words));
            }
        }
    }

    /// The first row and column of a rectangle and their numbers, as far as the image has them.
    fn rectangle(&self, &Rectangle { i, j, h, w }: &Rectangle) -> [u32; 4] {
        let (width, height) = self.size;
        let (i, j) = (i.min(height), j.min(width));
        [i, j, h.min(height - i), w.min(width - j)]
    }

    /// Writes an instruction, and returns where its result is.
    fn instruction(
        &mut self,
        code: OpCode,
        levels: HeldLevels,
        words: impl IntoIterator<Item = u32>,
    ) -> HeldLevels {
        let writes_over = code.is_in_place() && !levels.are_kept;
        let to = if writes_over { levels.set } else { self.sets.take() };
        self.write(code, levels.set, to, words);
        if !writes_over && !levels.are_kept {
            self.sets.release(levels.set);
        }
        HeldLevels { set: to, are_kept: false }
    }

    fn write(&mut self, code: OpCode, from: u32, to: u32, words: impl IntoIterator<Item = u32>) {
        let head = self.words.len();
        self.words.extend([code as u32 | from << 8 | to << 20, 0]);
        self.words.extend(words);
        self.words[head + 1] = (self.words.len() - head) as u32;
    }
}

/// Three bytes in a word, the first one lowest.
fn bytes([first, second, third]: [u8; 3]) -> u32 {
    u32::from_le_bytes([first, second, third, 0])
}
