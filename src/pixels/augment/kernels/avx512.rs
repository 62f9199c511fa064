//! The kernels' operations on 512-bit vectors: AVX-512 F, BW, DQ, VL, VBMI, VNNI.

use std::arch::x86_64::*;

use super::avx2::{self, aligned, from, op, to};
use super::simd::Simd;

/// Proof that these AVX-512 instructions may be used: a value of this type is made only in functions that are compiled
/// for them.
#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// For each channel, and for each lane of the interleaved vectors: the lane of the channel that is moved to that lane.
/// Each lane of a channel is used once.
const INTERLEAVE: [[i32; 16]; 3] = {
    let mut order = [[0; 16]; 3];
    let mut at = 0;
    while at < 48 {
        order[at % 3][at % 16] = at as i32 / 3;
        at += 1;
    }
    order
};

/// For each channel and interleaved vector, the mask of the lanes that the channel fills.
const LANES_OF: [[u16; 3]; 3] = {
    let mut masks = [[0; 3]; 3];
    let mut at = 0;
    while at < 48 {
        masks[at % 3][at / 16] |= 1 << (at % 16);
        at += 1;
    }
    masks
};

impl Simd for Avx512 {
    const LANES: usize = 16;
    const WINDOWS: usize = 1;
    const WINDOW: usize = 64;
    const WIDE: usize = 128;
    type I = __m512i;
    type Wide = [__m512i; 2];
    type F = __m512;

    super::simd::inlined! {
        fn splat(self, value: i32) -> Self::I = op!(_mm512_set1_epi32(value));
        fn splat16(self, value: i16) -> Self::I = op!(_mm512_set1_epi16(value));
        fn load(self, v: &[i32]) -> Self::I = op!(_mm512_loadu_si512(from(v, 16).cast()));
        fn load16(self, v: &[i16]) -> Self::I = op!(_mm512_loadu_si512(from(v, 32).cast()));
        fn store(self, out: &mut [i32], v: Self::I) = op!(_mm512_storeu_si512(to(out, 16).cast(), v));
        fn store16(self, out: &mut [i16], v: Self::I) = op!(_mm512_storeu_si512(to(out, 32).cast(), v));
        fn load8(self, v: &[u8]) -> Self::I = op!(_mm512_loadu_si512(from(v, 64).cast()));
        fn store8(self, out: &mut [u8], v: Self::I) = op!(_mm512_storeu_si512(to(out, 64).cast(), v));
        fn widen(self, v: &[u8]) -> Self::I = op!(_mm512_cvtepu8_epi16(_mm256_loadu_si256(from(v, 32).cast())));
        fn load_bytes(self, v: &[u8]) -> Self::I = op!(_mm512_cvtepu8_epi32(_mm_loadu_si128(from(v, 16).cast())));
        fn windows(self, row: &[u8], bases: &[u32]) -> Self::I =
            op!(_mm512_loadu_si512(from(&row[bases[0] as usize..], 64).cast()));
        fn add(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_add_epi32(a, b));
        fn or(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_or_si512(a, b));
        fn xor(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_xor_si512(a, b));
        fn dot_add(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_dpwssd_epi32(sum, a, b));
        fn shift_right(self, v: Self::I, by: u32) -> Self::I = op!(_mm512_sra_epi32(v, _mm_cvtsi32_si128(by as i32)));
        fn limit(self, v: Self::I, least: Self::I, most: Self::I) -> Self::I =
            op!(_mm512_min_epi32(_mm512_max_epi32(v, least), most));
        fn shift_left(self, v: Self::I, by: u32) -> Self::I = op!(_mm512_sll_epi32(v, _mm_cvtsi32_si128(by as i32)));
        fn add16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_add_epi16(a, b));
        fn sub16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_sub_epi16(a, b));
        fn mul_round16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_mulhrs_epi16(a, b));
        fn shift_right16<const BY: i32>(self, v: Self::I) -> Self::I =
            op!(_mm512_sra_epi16(v, _mm_cvtsi32_si128(BY)));
        fn shift_left16<const BY: i32>(self, v: Self::I) -> Self::I = op!(_mm512_sll_epi16(v, _mm_cvtsi32_si128(BY)));
        fn split8_first(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_unpacklo_epi8(a, b));
        fn split8_second(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm512_unpackhi_epi8(a, b));
        fn join8(self, first: Self::I, second: Self::I) -> Self::I = op!(_mm512_packus_epi16(first, second));
        fn dot8(self, weights: Self::I, v: Self::I) -> Self::I = op!(_mm512_maddubs_epi16(weights, v));
        fn float(self, v: Self::I) -> Self::F = op!(_mm512_cvtepi32_ps(v));
        fn splat_f(self, value: f32) -> Self::F = op!(_mm512_set1_ps(value));
        fn add_f(self, a: Self::F, b: Self::F) -> Self::F = op!(_mm512_add_ps(a, b));
        fn mul_f(self, a: Self::F, b: Self::F) -> Self::F = op!(_mm512_mul_ps(a, b));
        fn clamp(self, v: Self::F, low: f32, high: f32) -> Self::F =
            op!(_mm512_min_ps(_mm512_max_ps(v, self.splat_f(low)), self.splat_f(high)));
        fn load_f32(self, v: &[u8]) -> Self::F = op!(_mm512_loadu_ps(from(v, 64).cast()));
        fn store_f32(self, out: &mut [u8], v: Self::F) = op!(_mm512_storeu_ps(to(out, 64).cast(), v));
        fn store_f16(self, out: &mut [u8], v: Self::F) = op!(_mm256_storeu_si256(to(out, 32).cast(), f16_of(v)));
        fn store_bf16(self, out: &mut [u8], v: Self::F) =
            op!(_mm256_storeu_si256(to(out, 32).cast(), bf16_of(self, v)));
        fn stream_f32(self, out: &mut [u8], v: Self::F) = op!(_mm512_stream_ps(aligned::<__m512>(out).cast(), v));
        fn stream_f16(self, out: &mut [u8], v: Self::F) = op!(_mm256_stream_si256(aligned(out), f16_of(v)));
        fn stream_bf16(self, out: &mut [u8], v: Self::F) = op!(_mm256_stream_si256(aligned(out), bf16_of(self, v)));
        fn fence(self) = op!(_mm_sfence());
        fn store_u8(self, out: &mut [u8], v: Self::F) =
            op!(_mm_storeu_si128(to(out, 16).cast(), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(v))));
    }

    #[inline(always)]
    fn narrow(self, out: &mut [u8], v: Self::I) {
        let packed = op!(_mm512_cvtusepi16_epi8(_mm512_max_epi16(v, _mm512_setzero_si512())));
        op!(_mm256_storeu_si256(to(out, 32).cast(), packed));
    }
    #[inline(always)]
    fn pick(self, windows: Self::I, index: &[u8]) -> Self::I {
        let index = op!(_mm512_loadu_si512(from(index, 64).cast()));
        op!(_mm512_maskz_permutexvar_epi8(0x5555_5555_5555_5555, index, windows))
    }
    #[inline(always)]
    fn wide_windows(self, row: &[u8], bases: &[u32]) -> Self::Wide {
        let window = from(&row[bases[0] as usize..], 128);
        op!([_mm512_loadu_si512(window.cast()), _mm512_loadu_si512(window.add(64).cast())])
    }
    #[inline(always)]
    fn pick_wide(self, [first, second]: Self::Wide, index: &[u8]) -> Self::I {
        let index = op!(_mm512_loadu_si512(from(index, 64).cast()));
        op!(_mm512_maskz_permutex2var_epi8(0x5555_5555_5555_5555, first, index, second))
    }
    #[inline(always)]
    fn interleave(self, rgb: [Self::F; 3]) -> [Self::F; 3] {
        let order = |c: usize| op!(_mm512_loadu_si512(INTERLEAVE[c].as_ptr().cast()));
        let (r, g, b) = op!((
            _mm512_permutexvar_ps(order(0), rgb[0]),
            _mm512_permutexvar_ps(order(1), rgb[1]),
            _mm512_permutexvar_ps(order(2), rgb[2]),
        ));
        op!([
            _mm512_mask_mov_ps(_mm512_mask_mov_ps(r, LANES_OF[1][0], g), LANES_OF[2][0], b),
            _mm512_mask_mov_ps(_mm512_mask_mov_ps(r, LANES_OF[1][1], g), LANES_OF[2][1], b),
            _mm512_mask_mov_ps(_mm512_mask_mov_ps(r, LANES_OF[1][2], g), LANES_OF[2][2], b),
        ])
    }
    #[inline(always)]
    fn resize_long<const CLAMPED: bool>(
        self,
        rows: [&[u8]; 2],
        columns: &super::ColumnTaps,
        shift: u32,
        out: &mut [i32],
    ) {
        op!(avx2::resize_long::<CLAMPED>(rows, columns, shift, out));
    }
}

#[inline(always)]
fn f16_of(v: __m512) -> __m256i {
    op!(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
}

/// Returns the nearest bfloat16 of sixteen floats. No float may be NaN.
#[inline(always)]
fn bf16_of(s: Avx512, v: __m512) -> __m256i {
    let bits = op!(_mm512_castps_si512(v));
    // Adds half of the lowest kept bit, or slightly less if a tie would otherwise round up to an odd value.
    let even = op!(_mm512_and_si512(_mm512_srli_epi32::<16>(bits), s.splat(1)));
    let rounded = s.shift_right(s.add(bits, s.add(even, s.splat(0x7fff))), 16);
    op!(_mm512_cvtepi32_epi16(rounded))
}
