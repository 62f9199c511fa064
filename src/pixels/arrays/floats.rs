//! Conversions between float32, float16 and bfloat16, each with one rounding, to nearest even. They have no branches,
//! so compilers vectorise loops over them. The functions of the crate `half` for single values cannot be vectorised,
//! and round float64 twice or drop its low bits.

/// Returns the value of a float16. NaNs keep their bits.
#[inline(always)]
pub(super) fn half_to_single(half: u16) -> f32 {
    let bits = u32::from(half & 0x7fff) << 13;
    let normal = bits + (112 << 23);
    // A subnormal is written after the leading 1 of 2^-14, which is then subtracted.
    let subnormal = (f32::from_bits(bits + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let finite = if bits < 1 << 23 { subnormal } else { normal };
    let magnitude = if bits < 31 << 23 { finite } else { normal + (112 << 23) };
    f32::from_bits(u32::from(half & 0x8000) << 16 | magnitude)
}

/// Returns the nearest float16. NaNs become quiet and keep their upper bits, as in processors.
#[inline(always)]
pub(super) fn single_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    // The last bit of 0.5 has the weight of the least subnormal, so the sum is rounded to a multiple of it.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let rounded = if magnitude < 143 << 23 { finite } else { 0x7c00 };
    let half = if magnitude > 0x7f80_0000 { 0x7e00 | magnitude >> 13 & 0x3ff } else { rounded };
    (bits >> 16 & 0x8000 | half) as u16
}

/// Returns the value of a bfloat16.
#[inline(always)]
pub(crate) fn brain_to_single(brain: u16) -> f32 {
    f32::from_bits(u32::from(brain) << 16)
}

/// Returns the nearest bfloat16. NaNs become quiet and keep their upper bits.
#[inline(always)]
pub(crate) fn single_to_brain(value: f32) -> u16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if value.is_nan() { bits >> 16 | 0x40 } else { nearest }) as u16
}

/// Rounds to odd: a value between two floats becomes the one whose last bit is 1. If the result is rounded again, to a
/// type with at least two bits less, that is the only rounding that shows.
#[inline(always)]
pub(super) fn odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let towards_zero = nearest.to_bits().wrapping_sub(u32::from(back.abs() > value.abs()));
    f32::from_bits(towards_zero | u32::from(back != value))
}

/// Rounds an integer to odd, to a float64. Integers of up to 53 bits stay as they are.
#[inline(always)]
pub(super) fn odd_signed(value: i64) -> f64 {
    odd_bits(value, value.unsigned_abs()) as f64
}

/// Rounds an integer to odd, like [`odd_signed`].
#[inline(always)]
pub(super) fn odd_unsigned(value: u64) -> f64 {
    odd_bits(value.cast_signed(), value).cast_unsigned() as f64
}

/// Replaces the lowest 12 bits by whether one of them is set, if 53 bits cannot hold the `magnitude`.
#[inline(always)]
fn odd_bits(value: i64, magnitude: u64) -> i64 {
    const LOW: i64 = 0xfff;
    let rounded = value & !LOW | i64::from(value & LOW != 0) << 12;
    if magnitude < 1 << 53 { value } else { rounded }
}
