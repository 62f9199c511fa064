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

/// Defines a function that runs a kernel, which is compiled once for each SIMD level. The function's first argument
/// selects the level. The kernel's first argument is a value of the level's type of vectors ([`simd::Simd`]).
///
/// For example, `fn convert(from: [&[u8]; 3], to: [&mut [u8]; 3]) = pixels::convert;` becomes
/// `fn convert(level: Level, from: [&[u8]; 3], to: [&mut [u8]; 3])`. At `Level::Avx2` this function calls its inner
/// function `avx2`, which is compiled for AVX2 and calls `pixels::convert(avx2::Avx2, from, to)`.
macro_rules! compiled_for_each_level {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) = $kernel:path;
    )+) => {$(
        $(#[$attribute])*
        pub(super) fn $name(level: Level, $($argument: $type),*) {
            fn portable($($argument: $type),*) {
                $kernel(portable::Portable, $($argument),*);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn avx2($($argument: $type),*) {
                $kernel(avx2::Avx2, $($argument),*);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,\
                                       avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
            fn avx512($($argument: $type),*) {
                $kernel(avx512::Avx512, $($argument),*);
            }

            match level {
                // SAFETY: `Augmenter::new`, `PixelPass::new` and `CanvasPainter::new` lower the level to one that this
                // processor supports.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { avx512($($argument),*) },
                // SAFETY: the level was lowered to one that this processor supports, as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2($($argument),*) },
                _ => portable($($argument),*),
            }
        }
    )+};
}

compiled_for_each_level! {
    /// Resizes two rows to the output's columns. `out[x]` holds both results: the first row's result in the low half.
    #[inline(always)]
    fn resize_columns(rows: [&[u8]; 2], columns: &ColumnTaps, shift: u32, out: &mut [i32]) = columns::resize;

    /// Makes row `row` of the output: resizes `sources` along y to one row, converts, normalises, casts and stores it.
    /// `values` is scratch.
    fn finish_row(
        sources: [ResizedRows; 3],
        finish: &Finish,
        row: usize,
        values: &mut Vec<u8>,
        out: &mut [u8]
    ) = finish::row;

    /// Normalises, casts and stores an image of grey levels, given as planes of R, G and B.
    fn store(levels: [&[u8]; 3], finish: &Finish, out: &mut [u8]) = finish::stored;

    /// Makes stores past the caches visible to every thread that sees a later store.
    fn fence() = simd::Simd::fence;

    /// Computes `count` sums 3·near + next of the samples of two rows, or copies `near` if there is no next row.
    fn sum_rows(near: &[u8], next: Option<&[u8]>, count: usize, out: &mut [i16]) = pixels::sum_rows;

    /// Doubles the height: computes (3·near + next + bias) / 4 for every byte of `out`.
    fn blend_rows(near: &[u8], next: &[u8], bias: i16, out: &mut [u8]) = pixels::blend_rows;

    /// Doubles the width of a row. `sums[0]` belongs to the sample before the first sample of the row.
    fn blend_columns(sums: &[i16], blend: Blend, out: &mut [u8]) = pixels::blend_columns;

    /// Converts Y, Cb, Cr to R, G, B for every byte of `to`, bit for bit as libjpeg's tables do.
    fn convert(from: [&[u8]; 3], to: [&mut [u8]; 3]) = pixels::convert;

    /// Blurs two rows of levels along x, to a pair of rows of [`words`] in `to`. Each input row has `weights.reach`
    /// levels of margin, then the levels of its columns, then `weights.reach` levels of margin again. With the levels
    /// that vectors may read after the margin, an input row has `to.len() + 2 * weights.reach + 2` levels.
    fn blur_along(rows: [&[i16]; 2], weights: &PairedWeights, to: &mut [i32]) = blur::along;

    /// Blurs pairs of rows down each column, to a row of levels. The sums begin with the first row of `pairs`, or with
    /// the second if `odd`.
    fn blur_down(pairs: &[i32], weights: &PairedWeights, odd: bool, to: &mut [u8]) = blur::down;
}

pub(super) fn load_layout(level: Level) -> LoadLayout {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => columns::load_layout::<avx512::Avx512>(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => columns::load_layout::<avx2::Avx2>(),
        _ => columns::load_layout::<portable::Portable>(),
    }
}
