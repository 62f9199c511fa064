//! The conversion of float32 values to grey levels: the few rules that all operations share, on the CPU and on a GPU.
//!
//! Multiplications, additions and divisions are rounded one by one; only [`fma`] fuses a multiplication and an
//! addition.

/// Returns `a` · `b` + `c`, rounded once: what torch's `add(…, alpha=…)` computes.
#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Converts a value to a level: clamps it to 0..=255 and truncates it.
#[inline(always)]
pub(super) fn truncate(value: f32) -> u8 {
    // NaN fails the comparison and becomes 0.
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: the value is in 0..=255. The checks of `as` would double the instructions of a loop.
    let level: i32 = unsafe { value.to_int_unchecked() };
    level as u8
}

/// 1.5 · 2^23. Floats of this size have a spacing of 1. So adding this constant to a value rounds the value to an
/// integer, halves to even.
const WHOLE: f32 = 12_582_912.0;

/// Returns the integer nearest to a value within ±2^22, halves to even.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    (value + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

/// Returns the level nearest to a value of 0..=255, rounded as by [`nearest`].
#[inline(always)]
pub(super) fn rounded(value: f32) -> u8 {
    (value + WHOLE).to_bits() as u8
}

/// Clamps a value to `least..=most`; NaN becomes `least`.
#[inline(always)]
pub(super) fn clamp_to(value: f32, least: f32, most: f32) -> f32 {
    let value = if value > least { value } else { least };
    if value < most { value } else { most }
}

/// Returns the largest integer that is not above a value within ±2^22.
#[inline(always)]
pub(super) fn floor(value: f32) -> i32 {
    let nearest = nearest(value);
    nearest - i32::from(nearest as f32 > value)
}
