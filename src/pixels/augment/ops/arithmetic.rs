//! How 32-bit floats become grey levels: the few rules that all operations share, on the CPU and on a GPU.
//!
//! Multiplications, additions and divisions are rounded one by one; only [`fma`] fuses two of them.

/// `a` · `b` + `c`, rounded once: what torch's `add(…, alpha=…)` computes.
#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// The level of a value: clamped to 0..=255, and truncated.
#[inline(always)]
pub(super) fn truncate(value: f32) -> u8 {
    // Both comparisons fail for what is no number.
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: the value lies in 0..=255. The checks of `as` would double the instructions of a loop.
    let level: i32 = unsafe { value.to_int_unchecked() };
    level as u8
}

/// 1.5 · 2^23: the unit of a float that was added to it is 1, so that the sum is rounded to a whole number, halves to
/// the even one.
const WHOLE: f32 = 12_582_912.0;

/// The whole number next to a value within ±2^22, of two the even one.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    (value + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

/// The level next to a value of 0..=255, rounded as by [`nearest`].
#[inline(always)]
pub(super) fn rounded(value: f32) -> u8 {
    (value + WHOLE).to_bits() as u8
}

/// A value within these bounds, the lower one for what is no number.
#[inline(always)]
pub(super) fn within(value: f32, least: f32, most: f32) -> f32 {
    let value = if value > least { value } else { least };
    if value < most { value } else { most }
}

/// The largest whole number that is not above a value within ±2^22.
#[inline(always)]
pub(super) fn floor(value: f32) -> i32 {
    let nearest = nearest(value);
    nearest - i32::from(nearest as f32 > value)
}
