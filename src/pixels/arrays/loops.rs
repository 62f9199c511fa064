//! The loops of conversions: each reads or writes a block of elements. The vectorised function that calls them compiles
//! them for its SIMD level.

use super::Number;
use super::floats::{
    brain_to_single, half_to_single, odd, odd_signed, odd_unsigned, single_to_brain, single_to_half,
};
use std::ops::{Add, Div, Mul, Sub};

/// A type in which values are computed.
pub(super) trait WorkFloat:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const NAN: Self;
    fn of(value: f64) -> Self;
    fn double(self) -> f64;
}

impl WorkFloat for f32 {
    const NAN: Self = f32::NAN;

    fn of(value: f64) -> Self {
        value as f32
    }

    fn double(self) -> f64 {
        self.into()
    }
}

impl WorkFloat for f64 {
    const NAN: Self = f64::NAN;

    fn of(value: f64) -> Self {
        value
    }

    fn double(self) -> f64 {
        self
    }
}

#[inline(always)]
fn load<const N: usize, T>(raw: &[u8], to: &mut [T], of: impl Fn([u8; N]) -> T) {
    for (to, bytes) in to.iter_mut().zip(raw.as_chunks().0) {
        *to = of(*bytes);
    }
}

#[inline(always)]
fn store<const N: usize, T: Copy>(from: &[T], out: &mut [u8], bytes_of: impl Fn(T) -> [u8; N]) {
    for (bytes, from) in out.as_chunks_mut().0.iter_mut().zip(from) {
        *bytes = bytes_of(*from);
    }
}

/// Reverses the bytes of each element.
#[inline(always)]
pub(super) fn swap(size: usize, raw: &[u8], out: &mut [u8]) {
    match size {
        2 => store(raw.as_chunks().0, out, |of| u16::from_ne_bytes(of).swap_bytes().to_ne_bytes()),
        4 => store(raw.as_chunks().0, out, |of| u32::from_ne_bytes(of).swap_bytes().to_ne_bytes()),
        _ => store(raw.as_chunks().0, out, |of| u64::from_ne_bytes(of).swap_bytes().to_ne_bytes()),
    }
}

/// Defines a function that loads elements of any type and casts them.
macro_rules! loads {
    ($name:ident, $to:ty) => {
        #[inline(always)]
        pub(super) fn $name(number: Number, raw: &[u8], to: &mut [$to]) {
            match number {
                Number::Bool => load(raw, to, |[of]| u8::from(of != 0) as $to),
                Number::Signed(1) => load(raw, to, |of| i8::from_ne_bytes(of) as $to),
                Number::Signed(2) => load(raw, to, |of| i16::from_ne_bytes(of) as $to),
                Number::Signed(4) => load(raw, to, |of| i32::from_ne_bytes(of) as $to),
                Number::Signed(_) => load(raw, to, |of| i64::from_ne_bytes(of) as $to),
                Number::Unsigned(1) => load(raw, to, |of| u8::from_ne_bytes(of) as $to),
                Number::Unsigned(2) => load(raw, to, |of| u16::from_ne_bytes(of) as $to),
                Number::Unsigned(4) => load(raw, to, |of| u32::from_ne_bytes(of) as $to),
                Number::Unsigned(_) => load(raw, to, |of| u64::from_ne_bytes(of) as $to),
                Number::Float(2) => load(raw, to, |of| half_to_single(u16::from_ne_bytes(of)) as $to),
                Number::Float(4) => load(raw, to, |of| f32::from_ne_bytes(of) as $to),
                Number::Float(_) => load(raw, to, |of| f64::from_ne_bytes(of) as $to),
                Number::Brain => load(raw, to, |of| brain_to_single(u16::from_ne_bytes(of)) as $to),
            }
        }
    };
}

loads!(load_singles, f32);
loads!(load_doubles, f64);
loads!(load_integers, i64);

/// Loads elements like `load_doubles`, but rounds integers that float64 cannot hold to odd.
#[inline(always)]
pub(super) fn load_odd(number: Number, raw: &[u8], to: &mut [f64]) {
    match number {
        Number::Signed(8) => load(raw, to, |of| odd_signed(i64::from_ne_bytes(of))),
        Number::Unsigned(8) => load(raw, to, |of| odd_unsigned(u64::from_ne_bytes(of))),
        _ => load_doubles(number, raw, to),
    }
}

/// Replaces values whose stored bits say that they are missing by NaN.
#[inline(always)]
pub(super) fn mask<F: WorkFloat>(missing: &[u64], size: usize, raw: &[u8], values: &mut [F]) {
    macro_rules! replace {
        ($bits:ident, $type:ty) => {
            for (value, bytes) in values.iter_mut().zip(raw.as_chunks().0) {
                *value = if <$type>::from_ne_bytes(*bytes) == $bits as $type { F::NAN } else { *value };
            }
        };
    }
    for &bits in missing {
        match size {
            1 => replace!(bits, u8),
            2 => replace!(bits, u16),
            4 => replace!(bits, u32),
            _ => replace!(bits, u64),
        }
    }
}

/// Returns the first integer that is out of range as an error.
#[inline(always)]
pub(super) fn fit(integers: &[i64], [least, most]: [i64; 2]) -> Result<(), i64> {
    // Without an early end, so that the loop can be vectorised.
    let mut fits = true;
    for &integer in integers {
        fits &= (integer >= least) & (integer <= most);
    }
    let first = || integers.iter().find(|integer| !(least..=most).contains(integer));
    if fits { Ok(()) } else { first().map_or(Ok(()), |&integer| Err(integer)) }
}

#[inline(always)]
pub(super) fn store_integers(size: usize, integers: &[i64], out: &mut [u8]) {
    match size {
        1 => store(integers, out, |integer| (integer as u8).to_ne_bytes()),
        2 => store(integers, out, |integer| (integer as u16).to_ne_bytes()),
        4 => store(integers, out, |integer| (integer as u32).to_ne_bytes()),
        _ => store(integers, out, i64::to_ne_bytes),
    }
}

#[inline(always)]
pub(super) fn store_singles(to: Number, singles: &[f32], out: &mut [u8]) {
    match to {
        Number::Float(2) => store(singles, out, |single| single_to_half(single).to_ne_bytes()),
        Number::Brain => store(singles, out, |single| single_to_brain(single).to_ne_bytes()),
        Number::Float(8) => store(singles, out, |single| f64::from(single).to_ne_bytes()),
        _ => store(singles, out, f32::to_ne_bytes),
    }
}

#[inline(always)]
pub(super) fn store_doubles(to: Number, doubles: &[f64], out: &mut [u8]) {
    match to {
        Number::Float(2) => store(doubles, out, |double| single_to_half(odd(double)).to_ne_bytes()),
        Number::Brain => store(doubles, out, |double| single_to_brain(odd(double)).to_ne_bytes()),
        Number::Float(4) => store(doubles, out, |double| (double as f32).to_ne_bytes()),
        _ => store(doubles, out, f64::to_ne_bytes),
    }
}
