//! The bit masks of a packed block, which precede its values: nonzero, negative and large coefficients.

use super::coefficients::CodedBlock;

/// The masks of a block's AC coefficients: bit k stands for coefficient k in coding order, and bit 0 is never set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockMasks {
    pub(super) nonzero: u64,
    pub(super) negative: u64,
    /// The mask of coefficients of magnitude greater than 1.
    pub(super) large: u64,
}

/// Statistics of the remainders (magnitude minus 2) of a block's large coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remainders {
    /// The largest magnitude; 2 if there are no large coefficients.
    pub(super) most: u16,
    /// For each width w in bits, the number of remainders of at least 2^w - 1, which need an escape. (At width 7, a
    /// remainder of 126 needs an escape but is not counted.)
    pub(super) escapes: [u8; 8],
}

pub(super) trait MaskWork {
    fn masks(block: &CodedBlock) -> BlockMasks;

    /// Moves the bits of `bits` that `mask` marks together to the lowest positions.
    fn compress(bits: u64, mask: u64) -> u64;

    /// Writes the remainders of the `large` coefficients to the front of `rests`.
    #[inline(always)]
    fn remainders(block: &CodedBlock, large: u64, rests: &mut [u16; 64]) -> Remainders {
        // Eight counters of one byte: the numbers of remainders for which remainder + 1 has 1, 2, ... 7, or at least 8
        // bits.
        let mut lengths = 0u64;
        let (mut left, mut count) = (large, 0);
        let mut most = 2;
        while left != 0 {
            let magnitude = block[left.trailing_zeros() as usize & 63].unsigned_abs();
            left &= left - 1;
            most = most.max(magnitude);
            rests[count & 63] = magnitude - 2;
            lengths += 1 << (8 * (15 - (magnitude - 1).leading_zeros()).min(7));
            count += 1;
        }
        let (mut escapes, mut left) = ([0; 8], count as u8);
        for (escapes, fewer) in escapes.iter_mut().zip(lengths.to_le_bytes()) {
            *escapes = left;
            left -= fewer;
        }
        Remainders { most, escapes }
    }
}

pub(super) struct PlainMasks;

impl MaskWork for PlainMasks {
    fn masks(block: &CodedBlock) -> BlockMasks {
        let mut masks = BlockMasks::default();
        for (k, &value) in block.iter().enumerate().skip(1) {
            masks.nonzero |= u64::from(value != 0) << k;
            masks.negative |= u64::from(value < 0) << k;
            masks.large |= u64::from(value.unsigned_abs() > 1) << k;
        }
        masks
    }

    fn compress(bits: u64, mut mask: u64) -> u64 {
        let (mut packed, mut place) = (0, 0);
        while mask != 0 {
            packed |= (bits >> mask.trailing_zeros() & 1) << place;
            mask &= mask - 1;
            place += 1;
        }
        packed
    }
}

/// Mask operations with AVX2 and BMI2, which the processor must have.
#[cfg(target_arch = "x86_64")]
pub(super) struct VectorMasks;

#[cfg(target_arch = "x86_64")]
impl MaskWork for VectorMasks {
    #[inline(always)]
    fn masks(block: &CodedBlock) -> BlockMasks {
        // SAFETY: code that names this type has detected AVX2.
        unsafe { vector_masks(block) }
    }

    #[inline(always)]
    fn compress(bits: u64, mask: u64) -> u64 {
        // SAFETY: code that names this type has detected BMI2.
        unsafe { std::arch::x86_64::_pext_u64(bits, mask) }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn vector_masks(block: &CodedBlock) -> BlockMasks {
    use std::arch::x86_64::*;
    let mut masks = BlockMasks::default();
    for half in 0..2 {
        let load = |at: usize| {
            let values: &[i16; 16] = block[32 * half + at..].first_chunk().expect("64 values");
            // SAFETY: the reference covers 16 values of 2 bytes.
            unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
        };
        // Saturating packs preserve zeros, signs, and whether a magnitude is greater than 1.
        let packed = _mm256_packs_epi16(load(0), load(16));
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
        let bits = |of: __m256i| u64::from(_mm256_movemask_epi8(of) as u32) << (32 * half);
        masks.nonzero |= !bits(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) & 0xFFFF_FFFF << (32 * half);
        masks.negative |= bits(bytes);
        // The magnitude of -128 stays 0x80, which is 128 as an unsigned number, so it counts as greater than 1.
        let magnitudes = _mm256_min_epu8(_mm256_abs_epi8(bytes), _mm256_set1_epi8(2));
        masks.large |= bits(_mm256_cmpeq_epi8(magnitudes, _mm256_set1_epi8(2)));
    }
    let ac = !1;
    BlockMasks { nonzero: masks.nonzero & ac, negative: masks.negative & ac, large: masks.large & ac }
}
