//! The inverse DCT with AVX2: transforms one block at a time, eight columns in a register.

use std::arch::x86_64::*;

use super::{CENTRE, EVEN, IdctBlock, InverseDct, ODD, ONE, OutOfRange, PortableIdct, QUICK, Quantisation};

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

    #[inline(always)]
    fn small_block(
        block: &mut IdctBlock,
        quantisation: &Quantisation,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), OutOfRange> {
        let out = &mut out[..7 * stride + 8];
        // SAFETY: as above.
        if unsafe { transform_small(block, quantisation, out.as_mut_ptr(), stride) } {
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

/// What the first pass adds to its sums, whose first lane is column 0: the rounding and [`CENTRE`].
const FIRST_LANE: i32 = (1 << 10) + (CENTRE << 11);

/// Transforms one dimension. `x` has the inputs (0, 4), (2, 6), (1, 3), (5, 7) as pairs of 16 bits, eight columns each.
/// The outputs are 32 bits wide, divided by 2^SHIFT and rounded. `start` has what rounds them.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(x: [__m256i; 4], start: __m256i) -> [__m256i; 8] {
    let sum = _mm256_add_epi32(_mm256_madd_epi16(x[0], factors(ONE, ONE)), start);
    let difference = _mm256_add_epi32(_mm256_madd_epi16(x[0], factors(ONE, -ONE)), start);
    let outer = _mm256_madd_epi16(x[1], factors(EVEN[0][0], EVEN[0][1]));
    let inner = _mm256_madd_epi16(x[1], factors(EVEN[1][0], EVEN[1][1]));
    let even = [
        _mm256_add_epi32(sum, outer),
        _mm256_add_epi32(difference, inner),
        _mm256_sub_epi32(difference, inner),
        _mm256_sub_epi32(sum, outer),
    ];
    let mut y = [start; 8];
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

/// Multiplies the first `REGISTERS` · 16 coefficients by their quantisation steps, and clears the block. Returns
/// `None`, without any change, if a coefficient is too large. The other coefficients must be zero.
#[inline]
#[target_feature(enable = "avx2")]
fn products<const REGISTERS: usize>(
    block: &mut IdctBlock,
    quantisation: &Quantisation,
) -> Option<[__m256i; REGISTERS]> {
    let load = |values: &[i16], i: usize| {
        let values: &[i16; 16] = values[16 * i..].first_chunk().expect("64 values");
        // SAFETY: the reference covers 16 values of 2 bytes.
        unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
    };
    let mut x = [_mm256_setzero_si256(); REGISTERS];
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
        return None;
    }
    block.0[..16 * REGISTERS].fill(0);
    Some(x)
}

/// Writes 8×8 samples to `out` and clears the block. Returns `false`, without any change, if a coefficient is too
/// large.
///
/// # Safety
/// `out` must be valid for writes of 8 bytes at each of 8 multiples of `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transform(block: &mut IdctBlock, quantisation: &Quantisation, out: *mut u8, stride: usize) -> bool {
    let Some(x) = products::<4>(block, quantisation) else { return false };
    // The first pass transforms columns: y[i] is row i. The second pass transforms rows; its input needs pairs of
    // columns, as the first pass needed pairs of rows.
    let start = _mm256_setr_epi32(FIRST_LANE, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10);
    let y = pass::<11>(x, start);
    // Each lane has a row; its columns are the pairs (0, 4), (2, 6), (1, 3), (5, 7).
    let paired = |a, b| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
    let (r01, r23, r45, r67) =
        (paired(y[0], y[1]), paired(y[2], y[3]), paired(y[4], y[5]), paired(y[6], y[7]));
    let (low0, low1) = (_mm256_unpacklo_epi32(r01, r23), _mm256_unpacklo_epi32(r45, r67));
    let (high0, high1) = (_mm256_unpackhi_epi32(r01, r23), _mm256_unpackhi_epi32(r45, r67));
    // In each register, lane 0 has rows 0, 2, 4, 6 and lane 1 has rows 1, 3, 5, 7.
    let x = [
        _mm256_unpacklo_epi64(low0, low1),
        _mm256_unpackhi_epi64(low0, low1),
        _mm256_unpacklo_epi64(high0, high1),
        _mm256_unpackhi_epi64(high0, high1),
    ];
    let y = pass::<18>(x, _mm256_setzero_si256());
    // SAFETY: the caller guarantees 8 rows of 8 bytes.
    unsafe { write(y, [0, 2, 4, 6, 1, 3, 5, 7], out, stride) };
    true
}

/// Does the same as [`transform`] for a block that is zero outside of its first four rows and columns.
///
/// # Safety
/// As for [`transform`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transform_small(
    block: &mut IdctBlock,
    quantisation: &Quantisation,
    out: *mut u8,
    stride: usize,
) -> bool {
    let Some([even, middle, odd]) = products::<3>(block, quantisation) else { return false };
    // The first pass computes two rows at once, one in each lane. Rows 4, 5, 6 and 7 are zero, so rows 0 and 2, 1 and 3
    // are multiplied together. The columns are 0, 2, 1, 3.
    let columns = _mm256_setr_epi32(0, 2, 4, 5, 0, 2, 4, 5);
    let rows02 = _mm256_or_si256(even, _mm256_slli_epi32::<16>(middle));
    let x = [_mm256_permutevar8x32_epi32(rows02, columns), _mm256_permutevar8x32_epi32(odd, columns)];
    let two = |[a, b]: [[[i32; 2]; 2]; 2], of: usize| {
        _mm256_inserti128_si256::<1>(
            factors(a[of][0], a[of][1]),
            _mm256_castsi256_si128(factors(b[of][0], b[of][1])),
        )
    };
    let start =
        _mm256_setr_epi32(FIRST_LANE, 1 << 10, 1 << 10, 1 << 10, FIRST_LANE, 1 << 10, 1 << 10, 1 << 10);
    let half_pass = |rows: [[[i32; 2]; 2]; 2]| {
        let even = _mm256_add_epi32(_mm256_madd_epi16(x[0], two(rows, 0)), start);
        let odd = _mm256_madd_epi16(x[1], two(rows, 1));
        let (sum, difference) = (_mm256_add_epi32(even, odd), _mm256_sub_epi32(even, odd));
        (_mm256_srai_epi32::<11>(sum), _mm256_srai_epi32::<11>(difference))
    };
    let (y01, y76) = half_pass([SMALL_FACTORS[0], SMALL_FACTORS[1]]);
    let (y23, y54) = half_pass([SMALL_FACTORS[2], SMALL_FACTORS[3]]);
    let first = _mm256_castsi256_ps(_mm256_packs_epi32(y01, y23));
    let second = _mm256_castsi256_ps(_mm256_packs_epi32(y76, y54));
    // In each register, lane 0 has rows 0, 2, 7, 5 and lane 1 has rows 1, 3, 6, 4.
    let columns02 = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(first, second));
    let columns13 = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(first, second));
    let mut y = [start; 8];
    for (i, [even, odd]) in SMALL_FACTORS.into_iter().enumerate() {
        let even = _mm256_madd_epi16(columns02, factors(even[0], even[1]));
        let odd = _mm256_madd_epi16(columns13, factors(odd[0], odd[1]));
        y[i] = _mm256_srai_epi32::<18>(_mm256_add_epi32(even, odd));
        y[7 - i] = _mm256_srai_epi32::<18>(_mm256_sub_epi32(even, odd));
    }
    // SAFETY: the caller guarantees 8 rows of 8 bytes.
    unsafe { write(y, [0, 2, 7, 5, 1, 3, 6, 4], out, stride) };
    true
}

/// For each of the outputs 0 to 3, if inputs 4 to 7 are zero: the factors of inputs 0 and 2, and of inputs 1 and 3.
const SMALL_FACTORS: [[[i32; 2]; 2]; 4] = [
    [[ONE, EVEN[0][0]], [ODD[0][0], ODD[0][1]]],
    [[ONE, EVEN[1][0]], [ODD[1][0], ODD[1][1]]],
    [[ONE, -EVEN[1][0]], [ODD[2][0], ODD[2][1]]],
    [[ONE, -EVEN[0][0]], [ODD[3][0], ODD[3][1]]],
];

/// Clamps and writes samples: `y[i]` is column i, whose lanes are the rows `rows`.
///
/// # Safety
/// `out` must be valid for writes of 8 bytes at each of 8 multiples of `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn write(y: [__m256i; 8], rows: [usize; 8], out: *mut u8, stride: usize) {
    // Saturating packs clamp the values; each lane then has four columns of four rows.
    let columns = |a, b, c, d| _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let transpose = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    );
    let left = _mm256_shuffle_epi8(columns(y[0], y[1], y[2], y[3]), transpose);
    let right = _mm256_shuffle_epi8(columns(y[4], y[5], y[6], y[7]), transpose);
    let (first, second) = (_mm256_unpacklo_epi32(left, right), _mm256_unpackhi_epi32(left, right));
    for (samples, lane) in [
        (_mm256_castsi256_si128(first), 0),
        (_mm256_castsi256_si128(second), 2),
        (_mm256_extracti128_si256::<1>(first), 4),
        (_mm256_extracti128_si256::<1>(second), 6),
    ] {
        // SAFETY: the caller guarantees 8 rows of 8 bytes.
        unsafe {
            _mm_storel_epi64(out.add(rows[lane] * stride).cast(), samples);
            _mm_storel_epi64(out.add(rows[lane + 1] * stride).cast(), _mm_unpackhi_epi64(samples, samples));
        }
    }
}
