//! The programs of images: the operations on their pixels after the pass, as words that the kernels of `cuda/ops/` run.
//!
//! An image's drawn operations become instructions. Values that need sines, exponentials or tables are computed here,
//! by the functions that the CPU's kernels use, so that the CPU and the GPU make the same bits. Grey levels are in
//! *level sets*: three planes of the output's size. This module decides which level set an instruction reads and which
//! it writes, as a compiler assigns registers. So the kernels need not handle the order of operations, nesting or
//! probabilities.
//!
//! A block of threads makes an image (`cuda/ops/walk.cuh`). Instructions that handle each pixel independently run one
//! after another on a thread's own pixels. Barriers separate instructions that read other pixels or need statistics of
//! the whole image.

use super::super::ops::{
    Erasure, ErasureValues, LevelTables, OpCode, PixelOp, Rectangle, RowShift, Sampler, Warp, mix_shares,
};
use super::super::{DrawnView, RecipeView};
use super::views::ProgramsAt;
use base::error::{Error, Result};
use std::mem::size_of;

/// The size of an image's span in bytes. A span locates the program of an image: the index of its first word, the index
/// after its last word, and the number of level sets that it uses.
pub(super) const SPAN_BYTES: usize = size_of::<[u32; 3]>();

/// The maximum number of level sets that an operation uses at a time. A blur needs two sets between its passes. After
/// an operation, only one of its sets remains in use.
const SETS_OF_OPS: usize = 3;

pub(super) fn max_sets(view: &RecipeView) -> usize {
    // The image and the results of the chains of AugMix are kept until they are mixed.
    SETS_OF_OPS + view.max_chains()
}

/// The programs of the images of a batch.
#[derive(Debug, Default)]
pub struct Programs {
    spans: Vec<[u32; 3]>,
    words: Vec<u32>,
    views: Vec<ViewPrograms>,
    sets: SetAllocator,
}

#[derive(Debug)]
struct ViewPrograms {
    /// Whether the pass writes grey levels instead of finished images. Then each image needs a program that finishes
    /// it.
    has_levels: bool,
    /// Whether any image has a program.
    is_needed: bool,
    max_sets: usize,
    first_span: usize,
}

impl Programs {
    /// Removes all programs.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.words.clear();
        self.views.clear();
    }

    /// Begins another view: the next images belong to it. They use at most `max_sets` level sets; 0 if only finished
    /// images are changed.
    pub fn begin_view(&mut self, max_sets: usize) {
        let has_levels = max_sets > 0;
        let first_span = self.spans.len();
        self.views.push(ViewPrograms { has_levels, is_needed: has_levels, max_sets, first_span });
    }

    /// Adds the next image of the current view; `None` is a blank image.
    ///
    /// # Errors
    /// [`Error::Internal`] if the image uses more level sets than there is memory for.
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
        if sets > view.max_sets {
            return Err(Error::Internal(format!(
                "an image's program uses {sets} level sets, at most {} expected",
                view.max_sets
            )));
        }
        self.spans.push([first, self.words.len() as u32, sets as u32]);
        Ok(())
    }

    fn is_needed(&self) -> bool {
        self.views.iter().any(|view| view.is_needed)
    }

    /// Returns the size in bytes of all spans and words; 0 if no image has a program.
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

    /// Returns the addresses of the programs of this view, if all programs were written to `address`; `None` if the
    /// view's images have no programs.
    pub fn of_view(&self, view: usize, address: u64) -> Option<ProgramsAt> {
        let ViewPrograms { is_needed, first_span, .. } = self.views[view];
        let at = |spans: usize| address + (spans * SPAN_BYTES) as u64;
        is_needed.then(|| ProgramsAt { spans: at(first_span), words: at(self.spans.len()) })
    }
}

/// Tracks which level sets hold levels that are still needed.
#[derive(Debug, Default)]
struct SetAllocator {
    in_use: Vec<bool>,
    /// The number of level sets that the current image has needed so far.
    used: usize,
}

impl SetAllocator {
    /// Begins an image: the pass writes its levels to set 0.
    fn begin(&mut self) -> u32 {
        self.in_use.clear();
        self.take()
    }

    fn take(&mut self) -> u32 {
        let free = self.in_use.iter().position(|is_taken| !is_taken);
        let set = free.unwrap_or(self.in_use.len());
        self.in_use.resize(self.in_use.len().max(set + 1), false);
        self.in_use[set] = true;
        self.used = self.used.max(set + 1);
        set as u32
    }

    fn release(&mut self, set: u32) {
        self.in_use[set as usize] = false;
    }
}

/// The level set that holds an image's levels at some point of its program.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment) struct LevelSetRef {
    set: u32,
    /// Whether the levels are needed again, so that nothing may overwrite them.
    is_needed_later: bool,
}

pub(in crate::augment) struct ProgramWriter<'a> {
    words: &'a mut Vec<u32>,
    sets: &'a mut SetAllocator,
    pub(in crate::augment) size: (u32, u32),
}

impl ProgramWriter<'_> {
    /// Writes the program that turns the levels of the pass into the finished image.
    fn image(&mut self, ops: &[PixelOp]) {
        let set = self.sets.begin();
        let levels = self.operations(ops, LevelSetRef { set, is_needed_later: false });
        self.write(OpCode::Store, levels.set, levels.set, []);
    }

    fn operations(&mut self, ops: &[PixelOp], mut levels: LevelSetRef) -> LevelSetRef {
        let mut ops = ops.iter().peekable();
        while let Some(op) = ops.next() {
            if let Some(mut tables) = LevelTables::of(op) {
                // As on the CPU, consecutive tables are merged into one.
                while let Some(next) = ops.peek().and_then(|next| LevelTables::of(next)) {
                    tables = tables.then(&next);
                    ops.next();
                }
                levels = self.tables(&tables, levels);
            } else {
                levels = op.write(self, levels);
            }
        }
        levels
    }

    pub(in crate::augment) fn tables(
        &mut self,
        LevelTables(channels): &LevelTables,
        levels: LevelSetRef,
    ) -> LevelSetRef {
        let are_alike = channels[1..].iter().all(|channel| *channel == channels[0]);
        let channels = if are_alike { &channels[..1] } else { channels };
        let words = channels.as_flattened().as_chunks().0.iter().map(|four| u32::from_le_bytes(*four));
        self.instruction(OpCode::Table, levels, words)
    }

    pub(in crate::augment) fn blur(
        &mut self,
        levels: LevelSetRef,
        across: &[u16],
        down: &[u16],
    ) -> LevelSetRef {
        if across.len() == 1 && down.len() == 1 {
            return levels;
        }
        let between = [self.sets.take(), self.sets.take()];
        let to = if levels.is_needed_later { self.sets.take() } else { levels.set };
        let head = [between[0] | between[1] << 16, across.len() as u32, down.len() as u32];
        let weights = across.iter().chain(down).map(|weight| u32::from(*weight));
        self.write(OpCode::Blur, levels.set, to, head.into_iter().chain(weights));
        between.into_iter().for_each(|set| self.sets.release(set));
        LevelSetRef { set: to, is_needed_later: false }
    }

    /// Moves pixels by a matrix of integers: pixel (x, y) of the result shows pixel `from` · (x, y, 1) of `levels`.
    pub(in crate::augment) fn moved(&mut self, levels: LevelSetRef, from: [[i32; 3]; 2]) -> LevelSetRef {
        self.instruction(OpCode::Move, levels, from.as_flattened().iter().map(|&number| number as u32))
    }

    pub(in crate::augment) fn warp(
        &mut self,
        levels: LevelSetRef,
        Warp { matrix, shift, sampler, fill, .. }: &Warp,
    ) -> LevelSetRef {
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

    pub(in crate::augment) fn augmix(
        &mut self,
        levels: LevelSetRef,
        weights: &[f64],
        chains: &[Vec<PixelOp>],
    ) -> LevelSetRef {
        let (of_image, weights) = mix_shares(weights);
        let image = LevelSetRef { is_needed_later: true, ..levels };
        let made: Vec<_> = chains.iter().map(|ops| self.operations(ops, image).set).collect();
        let to = if levels.is_needed_later { self.sets.take() } else { levels.set };
        let shares = [(levels.set, of_image)].into_iter().chain(made.iter().copied().zip(weights));
        let words = shares.flat_map(|(set, weight)| [set, weight.to_bits()]);
        self.write(OpCode::Mix, levels.set, to, [1 + made.len() as u32].into_iter().chain(words));
        made.into_iter().filter(|&set| set != levels.set).for_each(|set| self.sets.release(set));
        LevelSetRef { set: to, is_needed_later: false }
    }

    fn erasure(&mut self, Erasure { rectangle, v }: &Erasure) {
        let rectangle = self.rectangle(rectangle).into_iter();
        match v {
            ErasureValues::Values(values) => {
                self.write(OpCode::Erase, 0, 0, rectangle.chain(values.map(f32::to_bits)));
            }
            ErasureValues::Noise { key, mean, std } => {
                let words = key.iter().copied().chain([mean, std].into_iter().flatten().map(|n| n.to_bits()));
                self.write(OpCode::Noise, 0, 0, rectangle.chain(words));
            }
        }
    }

    /// Clips a rectangle to the image. Returns its first row, its first column, the number of rows and the number of
    /// columns.
    pub(in crate::augment) fn rectangle(&self, &Rectangle { i, j, h, w }: &Rectangle) -> [u32; 4] {
        let (width, height) = self.size;
        let (i, j) = (i.min(height), j.min(width));
        [i, j, h.min(height - i), w.min(width - j)]
    }

    pub(in crate::augment) fn instruction(
        &mut self,
        code: OpCode,
        levels: LevelSetRef,
        words: impl IntoIterator<Item = u32>,
    ) -> LevelSetRef {
        let writes_over = code.is_in_place() && !levels.is_needed_later;
        let to = if writes_over { levels.set } else { self.sets.take() };
        self.write(code, levels.set, to, words);
        if !writes_over && !levels.is_needed_later {
            self.sets.release(levels.set);
        }
        LevelSetRef { set: to, is_needed_later: false }
    }

    fn write(&mut self, code: OpCode, from: u32, to: u32, words: impl IntoIterator<Item = u32>) {
        let head = self.words.len();
        self.words.extend([code as u32 | from << 8 | to << 20, 0]);
        self.words.extend(words);
        self.words[head + 1] = (self.words.len() - head) as u32;
    }
}
