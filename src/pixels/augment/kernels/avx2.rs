//! The kernels' operations on 256-bit vectors: AVX2 and F16C.

use std::arch::x86_64::*;

use super::simd::Simd;
use crate::augment::taps::Taps;

/// Proof that AVX2 and F16C may be used: a value of this type is made only in functions that are compiled for them.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

macro_rules! op {
    ($intrinsic:expr) => {{
        // SAFETY: a value of the level's type exists only in functions compiled for its instructions; pointers come
        // from slices whose length, and alignment where it matters, was checked on the same line or the one before.
        unsafe { $intrinsic }
    }};
}
pub(super) use op;

/// Returns the start of a slice. Panics if the slice has fewer than `n` elements.
#[inline(always)]
pub(super) fn from<T>(slice: &[T], n: usize) -> *const T {
    slice[..n].as_ptr()
}

/// Returns the start of a writable slice. Panics if the slice has fewer than `n` elements.
#[inline(always)]
pub(super) fn to<T>(slice: &mut [T], n: usize) -> *mut T {
    slice[..n].as_mut_ptr()
}

/// Returns the start of a writable slice. Panics unless it holds a vector and begins at a multiple of the vector's
/// size.
#[inline(always)]
pub(super) fn aligned<V>(slice: &mut [u8]) -> *mut V {
    let to: *mut V = to(slice, size_of::<V>()).cast();
    assert!(to.is_aligned(), "non-temporal stores need an aligned address");
    to
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    // A shuffle picks bytes within 128 bits only, so one window has 16 samples and serves four columns.
    const WINDOWS: usize = 2;
    const WINDOW: usize = 16;
    const WIDE: usize = 32;
    type I = __m256i;
    type Wide = [__m256i; 2];
    type F = __m256;

    super::simd::inlined! {
        fn splat(self, value: i32) -> Self::I = op!(_mm256_set1_epi32(value));
        fn splat16(self, value: i16) -> Self::I = op!(_mm256_set1_epi16(value));
        fn load(self, v: &[i32]) -> Self::I = op!(_mm256_loadu_si256(from(v, 8).cast()));
        fn load16(self, v: &[i16]) -> Self::I = op!(_mm256_loadu_si256(from(v, 16).cast()));
        fn store(self, out: &mut [i32], v: Self::I) = op!(_mm256_storeu_si256(to(out, 8).cast(), v));
        fn store16(self, out: &mut [i16], v: Self::I) = op!(_mm256_storeu_si256(to(out, 16).cast(), v));
        fn load8(self, v: &[u8]) -> Self::I = op!(_mm256_loadu_si256(from(v, 32).cast()));
        fn store8(self, out: &mut [u8], v: Self::I) = op!(_mm256_storeu_si256(to(out, 32).cast(), v));
        fn widen(self, v: &[u8]) -> Self::I = op!(_mm256_cvtepu8_epi16(_mm_loadu_si128(from(v, 16).cast())));
        fn load_bytes(self, v: &[u8]) -> Self::I = op!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from(v, 8).cast())));
        fn pick(self, windows: Self::I, index: &[u8]) -> Self::I =
            op!(_mm256_shuffle_epi8(windows, _mm256_loadu_si256(from(index, 32).cast())));
        fn add(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_add_epi32(a, b));
        fn or(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_or_si256(a, b));
        fn xor(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_xor_si256(a, b));
        fn dot_add(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I =
            op!(_mm256_add_epi32(sum, _mm256_madd_epi16(a, b)));
        fn shift_right(self, v: Self::I, by: u32) -> Self::I = op!(_mm256_sra_epi32(v, _mm_cvtsi32_si128(by as i32)));
        fn limit(self, v: Self::I, least: Self::I, most: Self::I) -> Self::I =
            op!(_mm256_min_epi32(_mm256_max_epi32(v, least), most));
        fn shift_left(self, v: Self::I, by: u32) -> Self::I = op!(_mm256_sll_epi32(v, _mm_cvtsi32_si128(by as i32)));
        fn add16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_add_epi16(a, b));
        fn sub16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_sub_epi16(a, b));
        fn mul_round16(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_mulhrs_epi16(a, b));
        fn shift_right16<const BY: i32>(self, v: Self::I) -> Self::I = op!(_mm256_srai_epi16::<BY>(v));
        fn shift_left16<const BY: i32>(self, v: Self::I) -> Self::I = op!(_mm256_slli_epi16::<BY>(v));
        fn split8_first(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_unpacklo_epi8(a, b));
        fn split8_second(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_unpackhi_epi8(a, b));
        fn join8(self, first: Self::I, second: Self::I) -> Self::I = op!(_mm256_packus_epi16(first, second));
        fn dot8(self, weights: Self::I, v: Self::I) -> Self::I = op!(_mm256_maddubs_epi16(weights, v));
        fn float(self, v: Self::I) -> Self::F = op!(_mm256_cvtepi32_ps(v));
        fn splat_f(self, value: f32) -> Self::F = op!(_mm256_set1_ps(value));
        fn add_f(self, a: Self::F, b: Self::F) -> Self::F = op!(_mm256_add_ps(a, b));
        fn mul_f(self, a: Self::F, b: Self::F) -> Self::F = op!(_mm256_mul_ps(a, b));
        fn clamp(self, v: Self::F, low: f32, high: f32) -> Self::F =
            op!(_mm256_min_ps(_mm256_max_ps(v, self.splat_f(low)), self.splat_f(high)));
        fn load_f32(self, v: &[u8]) -> Self::F = op!(_mm256_loadu_ps(from(v, 32).cast()));
        fn store_f32(self, out: &mut [u8], v: Self::F) = op!(_mm256_storeu_ps(to(out, 32).cast(), v));
        fn store_f16(self, out: &mut [u8], v: Self::F) = op!(_mm_storeu_si128(to(out, 16).cast(), f16_of(v)));
        fn store_bf16(self, out: &mut [u8], v: Self::F) = op!(_mm_storeu_si128(to(out, 16).cast(), bf16_of(self, v)));
        fn stream_f32(self, out: &mut [u8], v: Self::F) = op!(_mm256_stream_ps(aligned::<__m256>(out).cast(), v));
        fn stream_f16(self, out: &mut [u8], v: Self::F) = op!(_mm_stream_si128(aligned(out), f16_of(v)));
        fn stream_bf16(self, out: &mut [u8], v: Self::F) = op!(_mm_stream_si128(aligned(out), bf16_of(self, v)));
        fn fence(self) = op!(_mm_sfence());
    }

    #[inline(always)]
    fn narrow(self, out: &mut [u8], v: Self::I) {
        let packed =
            op!(_mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi16(v, v))));
        op!(_mm_storeu_si128(to(out, 16).cast(), packed));
    }
    #[inline(always)]
    fn windows(self, row: &[u8], bases: &[u32]) -> Self::I {
        let at = |base: u32| op!(_mm_loadu_si128(from(&row[base as usize..], 16).cast()));
        op!(_mm256_set_m128i(at(bases[1]), at(bases[0])))
    }
    #[inline(always)]
    fn wide_windows(self, row: &[u8], bases: &[u32]) -> Self::Wide {
        let at = |base: u32| op!(_mm256_loadu_si256(from(&row[base as usize..], 32).cast()));
        let (a, b) = (at(bases[0]), at(bases[1]));
        op!([_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)])
    }
    #[inline(always)]
    fn pick_wide(self, [first, second]: Self::Wide, index: &[u8]) -> Self::I {
        let index = op!(_mm256_loadu_si256(from(index, 32).cast()));
        // A shuffle gives 0 for indices from 128 on. For the first half, adding 0x70 moves indices 16 to 31 to that
        // range. For the second half, subtracting 0x10 makes indices 0 to 15 wrap around to that range.
        let in_first = op!(_mm256_adds_epu8(index, _mm256_set1_epi8(0x70)));
        let in_second = op!(_mm256_sub_epi8(index, _mm256_set1_epi8(0x10)));
        op!(_mm256_or_si256(_mm256_shuffle_epi8(first, in_first), _mm256_shuffle_epi8(second, in_second)))
    }
    #[inline(always)]
    fn interleave(self, [r, g, b]: [Self::F; 3]) -> [Self::F; 3] {
        // Each lane of a channel is used in one output only, so one permutation puts all lanes of a channel in place.
        let (r, g, b) = op!((
            _mm256_permutevar8x32_ps(r, _mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5)),
            _mm256_permutevar8x32_ps(g, _mm256_setr_epi32(5, 0, 3, 6, 1, 4, 7, 2)),
            _mm256_permutevar8x32_ps(b, _mm256_setr_epi32(2, 5, 0, 3, 6, 1, 4, 7)),
        ));
        op!([
            _mm256_blend_ps::<0b0010_0100>(_mm256_blend_ps::<0b1001_0010>(r, g), b),
            _mm256_blend_ps::<0b0100_1001>(_mm256_blend_ps::<0b0010_0100>(r, g), b),
            _mm256_blend_ps::<0b1001_0010>(_mm256_blend_ps::<0b0100_1001>(r, g), b),
        ])
    }
    #[inline(always)]
    fn store_u8(self, out: &mut [u8], v: Self::F) {
        let words = op!(_mm256_cvttps_epi32(v));
        let packed = op!(_mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(words, words)));
        let packed = op!(_mm256_castsi256_si128(packed));
        op!(_mm_storel_epi64(to(out, 8).cast(), _mm_packus_epi16(packed, packed)));
    }
    #[inline(always)]
    fn resize_long<const CLAMPED: bool>(
        self,
        rows: [&[u8]; 2],
        columns: &super::ColumnTaps,
        shift: u32,
        out: &mut [i32],
    ) {
        op!(resize_long::<CLAMPED>(rows, columns, shift, out));
    }
}

#[inline(always)]
fn f16_of(v: __m256) -> __m128i {
    op!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
}

/// Returns the nearest bfloat16 of eight floats. No float may be NaN.
#[inline(always)]
fn bf16_of(s: Avx2, v: __m256) -> __m128i {
    let bits = op!(_mm256_castps_si256(v));
    // Adds half of the lowest kept bit, or slightly less if a tie would otherwise round up to an odd value.
    let even = op!(_mm256_and_si256(_mm256_srli_epi32::<16>(bits), s.splat(1)));
    let rounded = op!(_mm256_srli_epi32::<16>(s.add(bits, s.add(even, s.splat(0x7fff)))));
    op!(_mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(rounded, rounded))))
}

/// Resizes with long filters: sixteen taps at a time along the row, and four columns at a time for the sums across
/// lanes.
#[target_feature(enable = "avx2")]
pub(super) fn resize_long<const CLAMPED: bool>(
    rows: [&[u8]; 2],
    columns: &super::ColumnTaps,
    shift: u32,
    out: &mut [i32],
) {
    let (half, by) = (_mm_set1_epi32(1 << (shift - 1)), _mm_cvtsi32_si128(shift as i32));
    let (least, most) = (_mm_setzero_si128(), _mm_set1_epi32(columns.most(shift)));
    for (i, out) in out.chunks_exact_mut(4).enumerate() {
        let mut sums = [_mm_setzero_si128(); 2];
        for (sums, row) in sums.iter_mut().zip(rows) {
            *sums = _mm_sra_epi32(_mm_add_epi32(four_columns(row, &columns.taps, 4 * i), half), by);
            if CLAMPED {
                *sums = _mm_min_epi32(_mm_max_epi32(*sums, least), most);
            }
        }
        let both = _mm_or_si128(sums[0], _mm_slli_epi32::<16>(sums[1]));
        op!(_mm_storeu_si128(to(out, 4).cast(), both));
    }
}

/// Returns the weighted sums of the samples for the output columns `o` to `o + 3`.
#[inline]
#[target_feature(enable = "avx2")]
fn four_columns(row: &[u8], taps: &Taps, o: usize) -> __m128i {
    let a = _mm256_hadd_epi32(column(row, taps, o), column(row, taps, o + 1));
    let b = _mm256_hadd_epi32(column(row, taps, o + 2), column(row, taps, o + 3));
    let lanes = _mm256_hadd_epi32(a, b);
    _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes))
}

/// Returns the weighted sum of the samples for the output column `o`, in parts: one in each lane of the vector.
#[inline]
#[target_feature(enable = "avx2")]
fn column(row: &[u8], taps: &Taps, o: usize) -> __m256i {
    let (mut sum, row) = (_mm256_setzero_si256(), &row[taps.start[o] as usize..]);
    for (samples, weights) in row.chunks_exact(16).zip(taps.padded(o).chunks_exact(16)) {
        let samples = op!(_mm256_cvtepu8_epi16(_mm_loadu_si128(from(samples, 16).cast())));
        let weights = op!(_mm256_loadu_si256(from(weights, 16).cast()));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(samples, weights));
    }
    sum
}
