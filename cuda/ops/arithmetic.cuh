//! How 32-bit floats become grey levels: `src/pixels/augment/ops/arithmetic.rs`.

#ifndef FORELOAD_ARITHMETIC
#define FORELOAD_ARITHMETIC

#include "platform.cuh"

/// 1.5 * 2^23. A float that is added to it gets a unit of 1, so that the sum is rounded to an integer, halves to even.
#define WHOLE 12582912.0f

/// Clamps a value; NaN becomes the lower bound.
INLINE f32 within(f32 value, f32 least, f32 most) {
    const f32 above = value > least ? value : least;
    return above < most ? above : most;
}

/// The level of a value: clamped to 0..=255, and truncated.
INLINE u32 truncated(f32 value) { return (u32)within(value, 0.0f, 255.0f); }

/// The nearest integer to a value within +-2^22, halves to even.
INLINE f32 round_even(f32 value) { return (value + WHOLE) - WHOLE; }

/// The nearest level to a value: clamped to 0..=255, and rounded as by `round_even`.
INLINE u32 rounded(f32 value) { return bits_of(within(value, 0.0f, 255.0f) + WHOLE) & 0xff; }

/// The largest integer that is not above a value within +-2^31.
INLINE i32 floor_of_float(f32 value) {
    const i32 towards_zero = (i32)value;
    return towards_zero - ((f32)towards_zero > value);
}

#endif
