//! Expands the coefficients of a block by eights, with AVX2.

use std::arch::x86_64::*;

use super::region::OpenUnit;
use super::unit::{ESCAPE, MOST_MAGNITUDE, bits};
use super::values::Expand;

/// For each mask of eight lanes: which of the bytes that come one after another goes to a lane, or none.
static LANES: [u64; 256] = {
    let mut lanes = [0; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            let byte = if mask >> lane & 1 == 1 { next } else { 0x80 };
            next += (mask >> lane & 1) as u64;
            lanes[mask] |= byte << (8 * lane);
            lane += 1;
        }
        mask += 1;
    }
    lanes
};

/// Makes eight coefficients at once, for processors of [`base::simd::Level::Avx2`] and above.
pub(super) struct ByEights;

impl Expand for ByEights {
    #[inline(always)]
    fn expand(unit: &mut OpenUnit, number: usize, places: &[u8; 256], block: &mut [i16; 256]) {
        let mut values = [0; 64];
        // SAFETY: whoever names this type has detected AVX2.
        let escaped = unsafe { by_eights(unit, number, &mut values) };
        let mut nonzero = unit.blocks.nonzero[number];
        for eight in values.as_chunks::<8>().0 {
            // Behind the last coefficient zeros go to an unused place, so that the loop ends where it is foreseen.
            for &value in eight {
                block[usize::from(places[nonzero.trailing_zeros() as usize & 255])] = value;
                nonzero &= nonzero.wrapping_sub(1);
            }
            if nonzero == 0 {
                break;
            }
        }
        if escaped != 0 {
            let put = |k: usize, value| block[usize::from(places[k & 255])] = value;
            // SAFETY: whoever names this type has detected BMI2.
            unsafe { escaped_values(unit, number, escaped, put) };
        }
    }
}

/// Calls `put` with the coefficients that have escapes, which are those of the large ones that `escaped` marks: the
/// index in coding order, and the value. Like [`by_eights`] it becomes a part of its caller.
///
/// # Safety
/// The processor has BMI2.
#[inline(always)]
pub(super) unsafe fn escaped_values(
    unit: &mut OpenUnit,
    number: usize,
    mut escaped: u64,
    mut put: impl FnMut(usize, i16),
) {
    let blocks = unit.blocks;
    let (nonzero, large) = (blocks.nonzero[number], blocks.large[number]);
    let count = escaped.count_ones() as usize;
    for index in 0..count {
        // SAFETY: the caller says that the processor has the instruction.
        let (among_all, k) = unsafe {
            let among_all = _pdep_u64(escaped & escaped.wrapping_neg(), large);
            (among_all, _pdep_u64(among_all, nonzero).trailing_zeros() as usize)
        };
        escaped &= escaped - 1;
        let magnitude = blocks.escaped_magnitude(unit.bytes, number, unit.escapes, (index, count));
        unit.is_damaged |= magnitude > MOST_MAGNITUDE;
        let is_negative = blocks.negative[number] & among_all != 0;
        put(k, if is_negative { -magnitude } else { magnitude });
    }
    unit.escapes += blocks.escape_length(count);
}

/// Makes the coefficients of block `number` that are not zero, one after another. Returns a mask of the large ones that
/// have escapes, and are wrong without them.
///
/// It takes the instructions of the function that it becomes a part of: a call for each block would cost a tenth of the
/// decoding.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn by_eights(unit: &OpenUnit, number: usize, values: &mut [i16; 64]) -> u64 {
    // SAFETY: the caller says that the processor has the instructions.
    unsafe {
        let blocks = unit.blocks;
        let width = i64::from(blocks.width[number] & 7);
        let (mut negative, mut large) = (blocks.negative[number], blocks.large[number]);
        let mut at = blocks.rest[number] as usize;
        let steps = _mm256_setr_epi64x(0, width, 2 * width, 3 * width);
        let (first, second) = (steps, _mm256_add_epi64(steps, _mm256_set1_epi64x(4 * width)));
        let kept = _mm256_set1_epi32((1 << width) - 1);
        let gather = _mm256_setr_epi8(
            0, 8, -1, -1, 4, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
            -1, -1, 0, 8, -1, -1, 4, 12, -1, -1, -1, -1, -1, -1, -1, -1,
        );
        let (one, escape) = (_mm_set1_epi8(1), _mm_set1_epi8(ESCAPE[width as usize] as i8));
        let lane_bits = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
        let (mut escaped, mut before) = (0, 0);
        let groups = blocks.nonzero[number].count_ones().div_ceil(8) as usize;
        for eight in values.as_chunks_mut::<8>().0.iter_mut().take(groups) {
            let (is_large, is_negative) = (large as u8, negative as u8);
            (large, negative) = (large >> 8, negative >> 8);
            let window = _mm256_set1_epi64x(bits(unit.bytes.bytes, at) as i64);
            at += is_large.count_ones() as usize * width as usize;
            let (low, high) = (_mm256_srlv_epi64(window, first), _mm256_srlv_epi64(window, second));
            // Remainders 0 to 3 in the even places of 32 bits, 4 to 7 in the odd ones.
            let both = _mm256_blend_epi32::<0b1010_1010>(low, _mm256_slli_epi64::<32>(high));
            let bytes = _mm256_shuffle_epi8(_mm256_and_si256(both, kept), gather);
            let rests = _mm_or_si128(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            let found = _mm_movemask_epi8(_mm_cmpeq_epi8(rests, escape)) as u32;
            escaped |= u64::from(found & !(u32::MAX << is_large.count_ones())) << before;
            before += is_large.count_ones();
            let lanes = _mm_cvtsi64_si128(LANES[usize::from(is_large)] as i64);
            let magnitudes = _mm_add_epi8(_mm_shuffle_epi8(_mm_add_epi8(rests, one), lanes), one);
            let marked = _mm_and_si128(_mm_set1_epi8(is_negative as i8), lane_bits);
            let sign = _mm_cmpeq_epi8(marked, lane_bits);
            let signed = _mm_sub_epi8(_mm_xor_si128(magnitudes, sign), sign);
            // The reference is to eight values of 2 bytes.
            _mm_storeu_si128(eight.as_mut_ptr().cast(), _mm_cvtepi8_epi16(signed));
        }
        escaped
    }
}
