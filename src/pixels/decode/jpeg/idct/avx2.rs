//! The inverse DCT with AVX2: transforms one block at a time, eight columns in a register.

use std::arch::x86_64::*;

use super::{EVEN, IdctBlock, InverseDct, ODD, ONE, OutOfRange, PortableIdct, QUICK, Quantisation};

/// The inverse DCT for processors of [`base::simd::Level::Avx2`] and above; other processors must not run it.
pub(in super::super) struct Avx2Idct;

impl InverseDct for Avx2Idct {
    #[inline(always)]
    fn block(
        block: &mut IdctBlock,
        quantisation: &Quantisation,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), OutOfRange> {
        let out = &mut out[..7 * stride + 8];
        // SAFETY: this type is used only at [`base::simd::Level::Avx2`] and above, so the processor has AVX2; `out`
        // holds 7 strides and 8 bytes.
        if unsafe { transform(block, quantisation, out.as_mut_ptr(), stride) } {
            Ok(())
        } else {
            unusual(block, quantisation, out, stride)
        }
    }
}

/// Transforms blocks that exceed the range of the fast arithmetic.
#[cold]
#[inline(never)]
fn unusual(
    block: &mut IdctBlock,
    quantisation: &Quantisation,
    out: &mut [u8],
    stride: usize,
) -> Result<(), OutOfRange> {
    PortableIdct::block(block, quantisation, out, stride)
}

#[inline]
#[target_feature(enable = "avx2")]
fn factors(low: i32, high: i32) -> __m256i {
    _mm256_set1_epi32((low & 0xFFFF) | high << 16)
}

/// Transforms one dimension. `x` has the inputs (0, 4), (2, 6), (1, 3), (5, 7) as pairs of 16 bits, eight columns each.
/// The outputs are 32 bits wide, divided by 2^SHIFT and rounded.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(x: [__m256i; 4]) -> [__m256i; 8] {
    let rounding = _mm256_set1_epi32(1 << (SHIFT - 1));
    let sum = _mm256_add_epi32(_mm256_madd_epi16(x[0], factors(ONE, ONE)), rounding);
    let difference = _mm256_add_epi32(_mm256_madd_epi16(x[0], factors(ONE, -ONE)), rounding);
    let outer = _mm256_madd_epi16(x[1], factors(EVEN[0][0], EVEN[0][1]));
    let inner = _mm256_madd_epi16(x[1], factors(EVEN[1][0], EVEN[1][1]));
    let even = [
        _mm256_add_epi32(sum, outer),
        _mm256_add_epi32(difference, inner),
        _mm256_sub_epi32(difference, inner),
        _mm256_sub_epi32(sum, outer),
    ];
    let mut y = [rounding; 8];
    for i in 0..4 {
        let odd = _mm256_add_epi32(
            _mm256_madd_epi16(x[2], factors(ODD[i][0], ODD[i][1])),
            _mm256_madd_epi16(x[3], factors(ODD[i][2], ODD[i][3])),
        );
        y[i] = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[i], odd));
        y[7 - i] = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[i], odd));
    }
    y
}

/// A shuffle mask that pairs columns in each half of a register. The code reads it as volatile, because a compiler that
/// sees the mask replaces two shuffles by five.
// SAFETY: both types have 32 bytes, and any bytes are valid.
static PAIRS: __m256i = unsafe {
    std::mem::transmute::<[[u8; 16]; 2], __m256i>([[0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]; 2])
};

/// Writes 8×8 samples to `out` and clears the block. Returns `false`, without any change, if a coefficient is too
/// large.
///
/// # Safety
/// `out` must be valid for writes of 8 bytes at each of 8 multiples of `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transform(block: &mut IdctBlock, quantisation: &Quantisation, out: *mut u8, stride: usize) -> bool {
    let load = |values: &[i16], i: usize| {
        let values: &[i16; 16] = values[16 * i..].first_chunk().expect("64 values");
        // SAFETY: the reference covers 16 values of 2 bytes.
        unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
    };
    let mut x = [_mm256_setzero_si256(); 4];
    let mut sums = _mm256_setzero_si256();
    // Check the limits separately from the sums: a product that wraps to -32768 stays negative in 16 bits, and would
    // lower a sum that is already too large.
    let mut beyond = _mm256_setzero_si256();
    for (i, x) in x.iter_mut().enumerate() {
        let raw = load(&block.0, i);
        if quantisation.coarse {
            let far = _mm256_cmpgt_epi16(_mm256_abs_epi16(raw), load(&quantisation.limits, i));
            beyond = _mm256_or_si256(beyond, far);
        }
        *x = _mm256_mullo_epi16(raw, load(&quantisation.steps, i));
        sums = _mm256_adds_epi16(sums, _mm256_abs_epi16(*x));
    }
    let beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi16(sums, _mm256_set1_epi16(QUICK as i16)));
    if _mm256_movemask_epi8(beyond) != 0 {
        return false;
    }
    block.0[..64].fill(0);

    // The first pass transforms columns: y[i] is row i. The second pass transforms rows; its input needs pairs of
    // columns, as the first pass needed pairs of rows.
    let y = pass::<11>(x);
    // In each lane, the 16-bit values of columns 0..8 become the pairs (0, 4), (2, 6), (1, 3), (5, 7).
    // SAFETY: a reference is valid for reads.
    let pairs = unsafe { std::ptr::from_ref(&PAIRS).read_volatile() };
    let paired = |a, b| {
        let rows = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
        _mm256_shuffle_epi8(rows, pairs)
    };
    let (r01, r23, r45, r67) =
        (paired(y[0], y[1]), paired(y[2], y[3]), paired(y[4], y[5]), paired(y[6], y[7]));
    let (low0, low1) = (_mm256_unpacklo_epi32(r01, r23), _mm256_unpacklo_epi32(r45, r67));
    let (high0, high1) = (_mm256_unpackhi_epi32(r01, r23), _mm256_unpackhi_epi32(r45, r67));
    // In each register, lane 0 has rows 0, 2, 4, 6 and lane 1 has rows 1, 3, 5, 7.
    let y = pass::<18>([
        _mm256_unpacklo_epi64(low0, low1),
        _mm256_unpackhi_epi64(low0, low1),
        _mm256_unpacklo_epi64(high0, high1),
        _mm256_unpackhi_epi64(high0, high1),
    ]);
    // Now y[i] is column i. Saturating packs clamp the values; each lane then has four columns of four rows.
    let columns = |a, b, c, d| _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let transpose = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    );
    let left = _mm256_shuffle_epi8(columns(y[0], y[1], y[2], y[3]), transpose);
    let right = _mm256_shuffle_epi8(columns(y[4], y[5], y[6], y[7]), transpose);
    let center = _mm256_set1_epi8(-128);
    let first = _mm256_xor_si256(_mm256_unpacklo_epi32(left, right), center);
    let second = _mm256_xor_si256(_mm256_unpackhi_epi32(left, right), center);
    for (rows, row) in [
        (_mm256_castsi256_si128(first), 0),
        (_mm256_extracti128_si256::<1>(first), 1),
        (_mm256_castsi256_si128(second), 4),
        (_mm256_extracti128_si256::<1>(second), 5),
    ] {
        // SAFETY: the caller guarantees 8 rows of 8 bytes.
        unsafe {
            _mm_storel_epi64(out.add(row * stride).cast(), rows);
            _mm_storel_epi64(out.add((row + 2) * stride).cast(), _mm_unpackhi_epi64(rows, rows));
        }
    }
    true
}
