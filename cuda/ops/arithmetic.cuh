//! How 32-bit floats become grey levels: `src/pixels/augment/ops/arithmetic.rs`.

#ifndef FORELOAD_ARITHMETIC
#define FORELOAD_ARITHMETIC

#include "platform.cuh"

/// 1.5 * 2^23: the unit of a float that was added to it is 1, so that the sum is rounded to a whole number, halves
/// to the even one.
#define WHOLE 12582912.0f

/// A value within these bounds, the lower one for what is no number.
INLINE f32 within(f32 value, f32 least, f32 most) {
    const f32 above = value > least ? value : least;
    return above < most ? above : most;
}

/// The level of a value: clamped to 0..=255, and truncated.
INLINE u32 truncated(f32 value) { return (u32)within(value, 0.0f, 255.0f); }

/// The whole number next to a value within +-2^22, of two the even one.
INLINE f32 round_even(f32 value) { return (value + WHOLE) - WHOLE; }

/// The level next to a value: clamped to 0..=255, and rounded as by `round_even`.
INLINE u32 rounded(f32 value) { return bits_of(within(value, 0.0f, 255.0f) + WHOLE) & 0xff; }

/// The largest whole number that is not above a value within +-2^31.
INLINE i32 floor_of_float(f32 value) {
    const i32 towards_zero = (i32)value;
    return towards_zero - ((f32)towards_zero > value);
}

#endif
