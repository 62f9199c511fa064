//! The types of the output's elements.

use super::simd::Simd;
use std::marker::PhantomData;

pub(super) trait ElementType {
    const SIZE: usize;

    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F);

    /// Stores a vector past the caches. `to` begins at a multiple of the vector's bytes. The caller calls
    /// [`Simd::fence`] afterwards.
    #[inline(always)]
    fn stream<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        Self::put(s, to, v);
    }
}

/// Elements that are stored past the caches.
pub(super) struct Streamed<E>(PhantomData<E>);

impl<E: ElementType> ElementType for Streamed<E> {
    const SIZE: usize = E::SIZE;

    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        E::stream(s, to, v);
    }
}

pub(super) struct F32;

impl ElementType for F32 {
    const SIZE: usize = 4;

    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.store_f32(to, v);
    }

    #[inline(always)]
    fn stream<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.stream_f32(to, v);
    }
}

pub(super) struct F16;

impl ElementType for F16 {
    const SIZE: usize = 2;

    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.store_f16(to, v);
    }

    #[inline(always)]
    fn stream<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.stream_f16(to, v);
    }
}

pub(super) struct Bf16;

impl ElementType for Bf16 {
    const SIZE: usize = 2;

    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.store_bf16(to, v);
    }

    #[inline(always)]
    fn stream<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.stream_bf16(to, v);
    }
}

/// [`DType::U8`](crate::augment::DType::U8): floats are rounded to the nearest grey level.
pub(super) struct U8;

impl ElementType for U8 {
    const SIZE: usize = 1;

    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::F) {
        s.store_u8(to, s.add_f(v, s.splat_f(0.5)));
    }
}
