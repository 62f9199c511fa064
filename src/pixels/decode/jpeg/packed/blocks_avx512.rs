//! Examines all coefficients of a block at once with AVX-512, to write units and scans.

use std::arch::x86_64::*;

use super::coefficients::CodedBlock;
use super::masks::{BlockMasks, MaskWork, Remainders};
use super::scan_bits::BitCursor;
use super::sequential::{AcCodes, CodeBlock, END};

/// For each magnitude, the number of bits of its binary representation.
static SIZES: [u8; 128] = {
    let mut sizes = [0; 128];
    let mut magnitude = 0u8;
    while magnitude < 128 {
        sizes[magnitude as usize] = (8 - magnitude.leading_zeros()) as u8;
        magnitude += 1;
    }
    sizes
};

static ONES: [u8; 64] = {
    let mut ones = [0; 64];
    let mut size = 0;
    while size < 8 {
        ones[size] = ((1u32 << size) - 1) as u8;
        size += 1;
    }
    ones
};

static NUMBERS: [u8; 64] = {
    let mut numbers = [0; 64];
    let mut k = 0;
    while k < 64 {
        numbers[k] = k as u8;
        k += 1;
    }
    numbers
};

/// The largest magnitude that the vector path handles; larger magnitudes do not fit in a signed byte.
const MAX_VECTOR_MAGNITUDE: i8 = 126;

/// The longest run of zeros before a coefficient that the vector path handles; a longer run takes additional symbols.
const MAX_VECTOR_RUN: i8 = 15;

/// The nonzero AC coefficients of a block, ready to encode.
struct Prepared {
    count: usize,
    /// The mask of coefficients whose magnitudes or runs the vector path does not handle.
    scalar_mask: u64,
    places: [u8; 64],
    /// The symbol of each coefficient, then zeros; the first zero ends the block.
    symbols: [u8; 64],
    values: [u8; 64],
}

/// Encodes a block: finds all its symbols and values at once, and writes them in pairs.
pub(super) struct Avx512BlockEncoder;

impl CodeBlock for Avx512BlockEncoder {
    #[inline(always)]
    fn ac(block: &CodedBlock, codes: &AcCodes, cursor: &mut BitCursor, space: &mut [u8], missing: &mut bool) {
        // SAFETY: code that names this type has detected AVX-512 with VBMI and VBMI2.
        let Prepared { count, mut scalar_mask, places, symbols, values } = unsafe { prepare(block) };
        // A block whose last coefficient is nonzero has no end symbol.
        let all = (count + usize::from(block[63] == 0)).min(64);
        let ((symbols, odd_symbol), (values, odd_value)) =
            (symbols[..all].as_chunks::<2>(), values[..all].as_chunks::<2>());
        for (number, (symbols, values)) in symbols.iter().zip(values).enumerate() {
            if scalar_mask & 3 == 0 {
                let (first, first_length) = codes.with_bits(symbols[0], values[0].into(), missing);
                let (second, length) = codes.with_bits(symbols[1], values[1].into(), missing);
                cursor.put(space, u64::from(first) << length | u64::from(second), first_length + length);
            } else {
                for number in 2 * number..2 * number + 2 {
                    put_scalar(block, (&places, count, number), codes, cursor, space, missing);
                }
            }
            scalar_mask >>= 2;
        }
        if let (&[symbol], &[value]) = (odd_symbol, odd_value) {
            match scalar_mask {
                0 => codes.put(symbol, value.into(), cursor, space, missing),
                _ => put_scalar(block, (&places, count, all - 1), codes, cursor, space, missing),
            }
        }
    }
}

/// Encodes nonzero coefficient `number` with the zeros before it or, after the last coefficient, the end of the block.
#[inline]
fn put_scalar(
    block: &CodedBlock,
    (places, count, number): (&[u8; 64], usize, usize),
    codes: &AcCodes,
    cursor: &mut BitCursor,
    space: &mut [u8],
    missing: &mut bool,
) {
    if number >= count {
        return codes.put(END, 0, cursor, space, missing);
    }
    let before = if number == 0 { 0 } else { places[number - 1] };
    let place = places[number & 63];
    codes.put_value(block[usize::from(place & 63)], u32::from(place - before - 1), cursor, space, missing);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi2")]
fn prepare(block: &CodedBlock) -> Prepared {
    let [low, high] = halves(block);
    // SAFETY: the tables have as many bytes as are loaded.
    let (numbers, ones, sizes) = unsafe {
        let sizes = |at| _mm512_loadu_si512(SIZES.as_ptr().add(at).cast());
        let numbers = _mm512_loadu_si512(NUMBERS.as_ptr().cast());
        (numbers, _mm512_loadu_si512(ONES.as_ptr().cast()), [sizes(0), sizes(64)])
    };
    let bytes = _mm512_inserti64x4::<1>(
        _mm512_castsi256_si512(_mm512_cvtsepi16_epi8(low)),
        _mm512_cvtsepi16_epi8(high),
    );
    let ac = !1;
    let nonzero = _mm512_test_epi8_mask(bytes, bytes) & ac;
    let coefficients = _mm512_maskz_compress_epi8(nonzero, bytes);
    let places = _mm512_maskz_compress_epi8(nonzero, numbers);
    let count = nonzero.count_ones();
    let one = _mm512_set1_epi8(1);
    let magnitudes = _mm512_abs_epi8(coefficients);
    let before = _mm512_maskz_permutexvar_epi8(ac, _mm512_sub_epi8(numbers, one), places);
    let runs = _mm512_maskz_sub_epi8(_bzhi_u64(!0, count), _mm512_sub_epi8(places, before), one);
    let longest = _mm512_set1_epi8(MAX_VECTOR_RUN);
    let largest = _mm512_set1_epi8(MAX_VECTOR_MAGNITUDE);
    let scalar_mask = _mm512_cmpgt_epu8_mask(magnitudes, largest) | _mm512_cmpgt_epu8_mask(runs, longest);
    let size = _mm512_permutex2var_epi8(sizes[0], magnitudes, sizes[1]);
    // A negative value has the bits of the value minus one (ITU T.81, F.1.2.1).
    let below = _mm512_mask_sub_epi8(coefficients, _mm512_movepi8_mask(coefficients), coefficients, one);
    let bits = _mm512_and_si512(below, _mm512_permutexvar_epi8(size, ones));
    let symbols = _mm512_or_si512(_mm512_slli_epi16::<4>(_mm512_and_si512(runs, longest)), size);
    let _: () = const { assert!(END == 0) };
    let bytes = |all: __m512i| {
        let mut bytes = [0; 64];
        // SAFETY: the array has 64 bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), all) };
        bytes
    };
    Prepared {
        count: count as usize,
        scalar_mask,
        places: bytes(places),
        symbols: bytes(symbols),
        values: bytes(bits),
    }
}

pub(super) struct Avx512Masks;

impl MaskWork for Avx512Masks {
    #[inline(always)]
    fn masks(block: &CodedBlock) -> BlockMasks {
        // SAFETY: code that names this type has detected AVX-512.
        unsafe { masks(block) }
    }

    #[inline(always)]
    fn compress(bits: u64, mask: u64) -> u64 {
        // SAFETY: code that names this type has detected BMI2.
        unsafe { _pext_u64(bits, mask) }
    }

    #[inline(always)]
    fn remainders(block: &CodedBlock, large: u64, rests: &mut [u16; 64]) -> Remainders {
        // SAFETY: code that names this type has detected AVX-512 with VBMI2.
        unsafe { remainders(block, large, rests) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn halves(block: &CodedBlock) -> [__m512i; 2] {
    // SAFETY: a block has 64 values of 2 bytes.
    [0, 32].map(|at| unsafe { _mm512_loadu_si512(block.as_ptr().add(at).cast()) })
}

#[inline(always)]
fn joined([low, high]: [__mmask32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn masks(block: &CodedBlock) -> BlockMasks {
    let [low, high] = halves(block);
    let one = _mm512_set1_epi16(1);
    let ac = !1;
    let large = [low, high].map(|half| _mm512_cmpgt_epu16_mask(_mm512_abs_epi16(half), one));
    BlockMasks {
        nonzero: joined([_mm512_test_epi16_mask(low, low), _mm512_test_epi16_mask(high, high)]) & ac,
        negative: joined([_mm512_movepi16_mask(low), _mm512_movepi16_mask(high)]) & ac,
        large: joined(large) & ac,
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt,avx2")]
fn remainders(block: &CodedBlock, large: u64, rests: &mut [u16; 64]) -> Remainders {
    let masks = [large as __mmask32, (large >> 32) as __mmask32];
    let [low, high] = halves(block);
    let low = _mm512_maskz_abs_epi16(masks[0], low);
    let high = _mm512_maskz_abs_epi16(masks[1], high);
    let two = _mm512_set1_epi16(2);
    let first = masks[0].count_ones() as usize;
    // SAFETY: 64 values have space for both stores, because at most 32 precede the second.
    unsafe {
        let rests = rests.as_mut_ptr();
        let packed = |mask, half| _mm512_maskz_compress_epi16(mask, _mm512_sub_epi16(half, two));
        _mm512_storeu_si512(rests.cast(), packed(masks[0], low));
        _mm512_storeu_si512(rests.add(first).cast(), packed(masks[1], high));
    }
    let both = _mm512_max_epu16(low, high);
    let both = _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64::<1>(both));
    let both = _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    // x86 can only find the minimum of eight words, so invert the words to find their maximum.
    let least = _mm_minpos_epu16(_mm_xor_si128(both, _mm_set1_epi16(-1)));
    let most = (!_mm_cvtsi128_si32(least) as u16).max(2);
    let mut escapes = [0; 8];
    escapes[0] = large.count_ones() as u8;
    for (width, escapes) in escapes.iter_mut().enumerate().skip(1) {
        // At this width and larger widths, no remainder needs an escape.
        if most <= 1 << width {
            break;
        }
        let fits = _mm512_set1_epi16(1 << width);
        let of = |half| _mm512_cmpgt_epu16_mask(half, fits).count_ones() as u8;
        *escapes = of(low) + of(high);
    }
    Remainders { most, escapes }
}
