//! The arithmetic of the pass, which resizes, converts colours, normalises, casts and stores. Each kernel is written
//! once over [`simd::Simd`] and compiled for every SIMD level. Integers and a fixed order of floating-point operations
//! give the same bits at all levels.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blur;
mod columns;
mod element;
mod finish;
mod pixels;
mod portable;
mod rows;
mod simd;

pub(super) use blur::{PairedWeights, words};
pub(super) use columns::{ColumnTaps, LoadLayout};
pub(super) use finish::{Colour, FRACTION, Finish, fill, filling, scaling};
pub(super) use pixels::Blend;
pub(super) use rows::{ResizedRows, RowTaps};

use base::simd::Level;

/// The number of columns of the longest vector at any SIMD level.
pub(super) const VECTOR: usize = 16;

/// Calls the version of a kernel that is compiled for `$level`.
macro_rules! dispatch {
    ($level:expr, $kernel:ident($($argument:expr),* $(,)?)) => {
        match $level {
            // SAFETY: `Augmenter::new`, `PixelPass::new` and `CanvasPainter::new` lower the level to one that this
            // processor supports.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::$kernel($($argument),*) },
            // SAFETY: the level was lowered to one that this processor supports, as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::$kernel($($argument),*) },
            _ => portable::$kernel($($argument),*),
        }
    };
}

/// Compiles every kernel for one level. `$simd` is the level's type of vectors, and `$features` are the instructions
/// that the kernels may use.
macro_rules! kernels {
    ($simd:expr $(, #[$features:meta])?) => {
        use super::{
            Blend, ColumnTaps, Finish, PairedWeights, ResizedRows, LoadLayout, blur, columns, finish, pixels, simd,
        };

        pub(super) fn load_layout() -> LoadLayout {
            columns::load_layout($simd)
        }

        $(#[$features])?
        pub(in crate::augment) fn resize_columns(rows: [&[u8]; 2], columns: &ColumnTaps, shift: u32, out: &mut [i32]) {
            columns::resize($simd, rows, columns, shift, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn finish_row(
            sources: [ResizedRows; 3],
            finish: &Finish,
            row: usize,
            values: &mut Vec<u8>,
            out: &mut [u8],
        ) {
            finish::row($simd, sources, finish, row, values, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn store(levels: [&[u8]; 3], finish: &Finish, out: &mut [u8]) {
            finish::stored($simd, levels, finish, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn fence() {
            simd::Simd::fence($simd);
        }

        $(#[$features])?
        pub(in crate::augment) fn sum_rows(near: &[u8], next: Option<&[u8]>, count: usize, out: &mut [i16]) {
            pixels::sum_rows($simd, near, next, count, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn blend_rows(near: &[u8], next: &[u8], bias: i16, out: &mut [u8]) {
            pixels::blend_rows($simd, near, next, bias, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn blend_columns(sums: &[i16], blend: Blend, out: &mut [u8]) {
            pixels::blend_columns($simd, sums, blend, out);
        }

        $(#[$features])?
        pub(in crate::augment) fn convert(from: [&[u8]; 3], to: [&mut [u8]; 3]) {
            pixels::convert($simd, from, to);
        }

        $(#[$features])?
        pub(in crate::augment) fn blur_along(rows: [&[i16]; 2], weights: &PairedWeights, to: &mut [i32]) {
            blur::along($simd, rows, weights, to);
        }

        $(#[$features])?
        pub(in crate::augment) fn blur_down(pairs: &[i32], weights: &PairedWeights, odd: bool, to: &mut [u8]) {
            blur::down($simd, pairs, weights, odd, to);
        }
    };
}
use kernels;

pub(super) fn load_layout(level: Level) -> LoadLayout {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::load_layout(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::load_layout(),
        _ => portable::load_layout(),
    }
}

/// Resizes two rows to the output's columns. `out[x]` holds both results: the first row's result in the low half.
#[inline(always)]
pub(super) fn resize_columns(
    level: Level,
    rows: [&[u8]; 2],
    columns: &ColumnTaps,
    shift: u32,
    out: &mut [i32],
) {
    dispatch!(level, resize_columns(rows, columns, shift, out));
}

/// Makes row `row` of the output: resizes `sources` along y to one row, converts, normalises, casts and stores it.
/// `values` is scratch.
pub(super) fn finish_row(
    level: Level,
    sources: [ResizedRows; 3],
    finish: &Finish,
    row: usize,
    values: &mut Vec<u8>,
    out: &mut [u8],
) {
    dispatch!(level, finish_row(sources, finish, row, values, out));
}

/// Normalises, casts and stores an image of grey levels, given as planes of R, G and B.
pub(super) fn store(level: Level, levels: [&[u8]; 3], finish: &Finish, out: &mut [u8]) {
    dispatch!(level, store(levels, finish, out));
}

/// Makes stores past the caches visible to every thread that sees a later store.
pub(super) fn fence(level: Level) {
    dispatch!(level, fence());
}

/// Computes `count` sums 3·near + next of the samples of two rows, or copies `near` if there is no next row.
pub(super) fn sum_rows(level: Level, near: &[u8], next: Option<&[u8]>, count: usize, out: &mut [i16]) {
    dispatch!(level, sum_rows(near, next, count, out));
}

/// Doubles the height: computes (3·near + next + bias) / 4 for every byte of `out`.
pub(super) fn blend_rows(level: Level, near: &[u8], next: &[u8], bias: i16, out: &mut [u8]) {
    dispatch!(level, blend_rows(near, next, bias, out));
}

/// Doubles the width of a row. `sums[0]` belongs to the sample before the first sample of the row.
pub(super) fn blend_columns(level: Level, sums: &[i16], blend: Blend, out: &mut [u8]) {
    dispatch!(level, blend_columns(sums, blend, out));
}

/// Converts Y, Cb, Cr to R, G, B for every byte of `to`, bit for bit as libjpeg's tables do.
pub(super) fn convert(level: Level, from: [&[u8]; 3], to: [&mut [u8]; 3]) {
    dispatch!(level, convert(from, to));
}

/// Blurs two rows of levels along x, to a pair of rows of [`words`] in `to`. Each input row has `weights.reach` levels
/// of margin, then the levels of its columns, then `weights.reach` levels of margin again. With the levels that vectors
/// may read after the margin, an input row has `to.len() + 2 * weights.reach + 2` levels.
pub(super) fn blur_along(level: Level, rows: [&[i16]; 2], weights: &PairedWeights, to: &mut [i32]) {
    dispatch!(level, blur_along(rows, weights, to));
}

/// Blurs pairs of rows down each column, to a row of levels. The sums begin with the first row of `pairs`, or with the
/// second if `odd`.
pub(super) fn blur_down(level: Level, pairs: &[i32], weights: &PairedWeights, odd: bool, to: &mut [u8]) {
    dispatch!(level, blur_down(pairs, weights, odd, to));
}
