//! Expands the coefficients of a block with AVX2. The remainder of a large coefficient is its magnitude minus 2.
//! Sixteen remainders are unpacked at once. Then two steps, eight lanes at a time, move the values to their lanes. The
//! mask `large` marks the nonzero coefficients that have a remainder. The mask `nonzero` marks the coefficients of the
//! block that are not zero.

use std::arch::x86_64::*;

use super::super::idct::{IdctBlock, PLACES};
use super::coefficients::CodedBlock;
use super::region::UnitDecoder;
use super::unit::{ESCAPE, MAX_MAGNITUDE, UNIT, UnitBlocks, UnitWindow, load, lowest};
use super::values::{Expand, ReadCoded};
use std::ops::Range;

/// For each mask of eight lanes, a shuffle that moves consecutive bytes to the lanes that the mask marks. The other
/// lanes become 0.
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

/// Constants that unpack sixteen remainders (magnitude minus 2 of a coefficient) to 16-bit words: the indices of the
/// two bytes that contain each remainder, and the factor that moves the remainder to the top of its word.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct RestTable {
    bytes: [u8; 32],
    factors: [u16; 16],
}

/// The constants for unpacking, by the width of remainders in bits, then by the bit offset of the first remainder in
/// its byte.
static REST_TABLES: [[RestTable; 8]; 8] = {
    let mut tables = [[RestTable { bytes: [0; 32], factors: [0; 16] }; 8]; 8];
    let mut width = 1;
    while width < 8 {
        let mut bit = 0;
        while bit < 8 {
            let table = &mut tables[width][bit];
            let mut number = 0;
            while number < 16 {
                let at = bit + number * width;
                table.bytes[2 * number] = (at / 8) as u8;
                table.bytes[2 * number + 1] = (at / 8 + 1) as u8;
                table.factors[number] = 1 << (16 - width - at % 8);
                number += 1;
            }
            bit += 1;
        }
        width += 1;
    }
    tables
};

/// For each quarter of a block in coding order, a shuffle that moves its coefficients to the order of [`PLACES`]. 0x80
/// clears the bytes that belong to the other quarters.
static QUARTER_PLACES: [[u8; 64]; 4] = {
    let mut quarters = [[0x80; 64]; 4];
    let mut k = 0;
    while k < 64 {
        quarters[k / 16][PLACES[k] as usize] = (k % 16) as u8;
        k += 1;
    }
    quarters
};

pub(super) struct Avx2Expander;

/// The remainders of a block, and whether one of them is an escape code. They are computed long before the block is
/// expanded, because a mispredicted branch that is found late discards much work on the next blocks.
#[derive(Clone, Copy)]
pub(super) struct BlockRemainders {
    rests: LaneBytes,
    is_escaped: bool,
}

impl BlockRemainders {
    const fn new() -> Self {
        Self { rests: LaneBytes([0; 72]), is_escaped: false }
    }
}

impl Expand for Avx2Expander {
    type Prepared = [BlockRemainders; UNIT];

    fn new() -> Self::Prepared {
        [BlockRemainders::new(); UNIT]
    }

    #[inline(always)]
    fn prepare(
        prepared: &mut Self::Prepared,
        window: &UnitWindow,
        blocks: &UnitBlocks,
        wanted: Range<usize>,
    ) {
        for number in wanted {
            // SAFETY: code that names this type has detected the level's instructions.
            unsafe { prepare_block(window, blocks, number, &mut prepared[number]) };
        }
    }

    #[inline(always)]
    fn expand(prepared: &Self::Prepared, unit: &mut UnitDecoder, number: usize, block: &mut IdctBlock) {
        let block = block.0.first_chunk_mut().expect("64 values and more");
        // SAFETY: as above.
        unsafe { expand::<true>(&prepared[number], unit, number, block) }
    }
}

impl ReadCoded for Avx2Expander {
    #[inline(always)]
    fn read(unit: &mut UnitDecoder, number: usize, block: &mut CodedBlock) {
        let mut remainders = BlockRemainders::new();
        // SAFETY: as above.
        unsafe {
            prepare_block(unit.window, unit.blocks, number, &mut remainders);
            expand::<false>(&remainders, unit, number, block);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn prepare_block(window: &UnitWindow, blocks: &UnitBlocks, number: usize, to: &mut BlockRemainders) {
    let (width, at) = (usize::from(blocks.width[number] & 7), blocks.rest[number] as usize);
    let count = blocks.large[number].count_ones();
    let mut escaped = 0;
    // The second half is seldom needed.
    for half in 0..if count > 32 { 2 } else { 1 } {
        let rests = remainders(window, at, width, half);
        put(&mut to.rests, half, rests);
        let escape = _mm256_set1_epi8(ESCAPE[width].wrapping_add(1) as i8);
        escaped |= u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(rests, escape)) as u32) << (32 * half);
    }
    to.is_escaped = lowest(escaped, count) != 0;
}

/// Calls `put` for each coefficient that the mask `escaped` marks, with its index in coding order and its value
/// including the escape, a number at the unit's end.
#[inline(always)]
pub(super) fn escaped_values(
    unit: &mut UnitDecoder,
    number: usize,
    mut escaped: u64,
    mut put: impl FnMut(usize, i16),
) {
    let blocks = unit.blocks;
    let (nonzero, negative) = (blocks.nonzero[number], blocks.negative[number]);
    let count = escaped.count_ones() as usize;
    let short = blocks.short_escapes(unit.bytes, unit.escapes, count);
    for index in 0..count {
        let k = escaped.trailing_zeros();
        escaped &= escaped - 1;
        let magnitude = match short {
            Some(escapes) => blocks.escape_base(number) + i16::from(escapes[index]),
            None => blocks.escaped_magnitude(unit.bytes, number, unit.escapes, (index, count)),
        };
        unit.is_damaged |= magnitude > MAX_MAGNITUDE;
        let before = lowest(nonzero, k).count_ones();
        put(k as usize, if negative >> before & 1 == 1 { -magnitude } else { magnitude });
    }
    unit.escapes += blocks.escape_length(count);
}

/// Writes the coefficients of block `number`, in the order of [`PLACES`] if `PLACED`, otherwise in coding order.
///
/// Inlined, so that it is compiled with the target features of its caller: a call per block would cost a tenth of the
/// decoding time.
///
/// # Safety
/// The processor must have the instructions of [`base::simd::Level::Avx2`].
#[inline(always)]
unsafe fn expand<const PLACED: bool>(
    remainders: &BlockRemainders,
    unit: &mut UnitDecoder,
    number: usize,
    block: &mut [i16; 64],
) {
    // In many blocks, only the first quarter or half has nonzero coefficients. One branch for all steps is predicted
    // better than one branch per step. SAFETY: the caller guarantees that the processor has the instructions.
    let escaped = unsafe {
        match unit.blocks.nonzero[number] {
            0..=0xFFFF => expand_quarters::<1, 1, PLACED>(remainders, unit.blocks, number, block),
            0x1_0000..=0xFFFF_FFFF => expand_quarters::<2, 1, PLACED>(remainders, unit.blocks, number, block),
            _ => expand_quarters::<4, 2, PLACED>(remainders, unit.blocks, number, block),
        }
    };
    if remainders.is_escaped {
        let place = |k: usize| if PLACED { usize::from(PLACES[k & 63]) & 63 } else { k & 63 };
        escaped_values(unit, number, escaped, |k, value| block[place(k)] = value);
    }
}

/// Does the work of [`expand`] for a block whose nonzero coefficients are in its first `QUARTERS` quarters, which are
/// in its first `HALVES` halves. Returns the mask of the coefficients whose escapes are not yet added to their values.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn expand_quarters<const QUARTERS: usize, const HALVES: usize, const PLACED: bool>(
    remainders: &BlockRemainders,
    blocks: &UnitBlocks,
    number: usize,
    block: &mut [i16; 64],
) -> u64 {
    let (nonzero, negative, large) = (blocks.nonzero[number], blocks.negative[number], blocks.large[number]);
    let width = usize::from(blocks.width[number] & 7);
    let half_of = |mask: u64, half: usize| (mask >> (32 * half)) as u32;
    let before = |mask: u64, half: usize| half * (mask as u32).count_ones() as usize;
    let mut values = LaneBytes([0; 72]);
    for half in 0..HALVES {
        let large = spread::<QUARTERS>(&remainders.rests, before(large, half), half_of(large, half));
        put(&mut values, half, signed(large, half_of(negative, half)));
    }
    let (mut all, mut escaped) = ([_mm256_setzero_si256(); HALVES], 0);
    for (half, all) in all.iter_mut().enumerate() {
        *all = spread::<QUARTERS>(&values, before(nonzero, half), half_of(nonzero, half));
        if remainders.is_escaped {
            escaped |= u64::from(equal(*all, 2 + ESCAPE[width])) << (32 * half);
        }
    }
    store(
        if PLACED { in_places::<QUARTERS, HALVES>(all) } else { in_coding_order(all) },
        blocks.dc[number],
        block,
    );
    escaped
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal(values: __m256i, magnitude: u8) -> u32 {
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_abs_epi8(values), _mm256_set1_epi8(magnitude as i8))) as u32
}

/// One byte for each of up to 64 lanes, and padding, so that eight bytes can be loaded from any lane on. It is aligned
/// to a cache line, because stores across two lines are slow.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct LaneBytes([u8; 72]);

/// Unpacks 32 remainders of `width` bits, and returns each remainder plus 1 in a byte. The first remainder begins at
/// bit `at`. If `half` is 1, the first 32 remainders are skipped.
#[inline]
#[target_feature(enable = "avx2")]
fn remainders(window: &UnitWindow, at: usize, width: usize, half: usize) -> __m256i {
    let table = &REST_TABLES[width][at % 8];
    // SAFETY: both fields of the table have 32 bytes, and the table is aligned to 64.
    let (places, factors) = unsafe {
        (_mm256_load_si256(table.bytes.as_ptr().cast()), _mm256_load_si256(table.factors.as_ptr().cast()))
    };
    let sixteen = |number: usize| {
        let bytes: &[u8; 16] = load(window, at / 8 + 2 * width * number);
        // SAFETY: the reference covers 16 bytes.
        let bytes = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
        let words = _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, places), factors);
        _mm256_srl_epi16(words, _mm_cvtsi32_si128(16 - width as i32))
    };
    let all = _mm256_packus_epi16(sixteen(2 * half), sixteen(2 * half + 1));
    _mm256_add_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(all), _mm256_set1_epi8(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(bytes: &mut LaneBytes, half: usize, values: __m256i) {
    let bytes: &mut [u8; 32] = bytes.0[32 * half..].first_chunk_mut().expect("32 bytes");
    // SAFETY: the reference covers 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), values) }
}

/// Moves consecutive bytes, starting at index `from`, to the lanes (of 32, or of 16 if `QUARTERS` is 1) that `mask`
/// marks. The other lanes become 0.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
fn spread<const QUARTERS: usize>(bytes: &LaneBytes, from: usize, mask: u32) -> __m256i {
    let eight = |group: u32| {
        let before = (mask & ((1 << (8 * group)) - 1)).count_ones() as usize;
        let these: &[u8; 8] = bytes.0[(from + before) & 63..].first_chunk().expect("eight bytes");
        let lanes = &LANES[(mask >> (8 * group)) as usize & 255];
        // SAFETY: each reference covers 8 bytes.
        unsafe {
            let lanes = _mm_loadl_epi64(std::ptr::from_ref(lanes).cast());
            _mm_shuffle_epi8(_mm_loadl_epi64(these.as_ptr().cast()), lanes)
        }
    };
    let low = _mm_unpacklo_epi64(eight(0), eight(1));
    if QUARTERS == 1 {
        return _mm256_zextsi128_si256(low);
    }
    let high = _mm_unpacklo_epi64(eight(2), eight(3));
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

/// Adds 1 to magnitudes, and negates the magnitudes that `negative` marks.
#[inline]
#[target_feature(enable = "avx2")]
fn signed(magnitudes: __m256i, negative: u32) -> __m256i {
    // Each lane receives the byte that contains its bit.
    let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let marked = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(negative as i32), bytes), bits);
    let sign = _mm256_cmpeq_epi8(marked, bits);
    let magnitudes = _mm256_add_epi8(magnitudes, _mm256_set1_epi8(1));
    _mm256_sub_epi8(_mm256_xor_si256(magnitudes, sign), sign)
}

#[inline]
#[target_feature(enable = "avx2")]
fn in_coding_order<const HALVES: usize>(halves: [__m256i; HALVES]) -> [__m256i; 2] {
    [halves[0], if HALVES == 2 { halves[1] } else { _mm256_setzero_si256() }]
}

#[inline]
#[target_feature(enable = "avx2")]
fn in_places<const QUARTERS: usize, const HALVES: usize>(halves: [__m256i; HALVES]) -> [__m256i; 2] {
    let mut placed = [_mm256_setzero_si256(); 2];
    for (half, values) in halves.into_iter().enumerate() {
        let quarters = [
            _mm256_permute4x64_epi64::<0b01_00_01_00>(values),
            _mm256_permute4x64_epi64::<0b11_10_11_10>(values),
        ];
        for (table, values) in QUARTER_PLACES[2 * half..QUARTERS].iter().zip(quarters) {
            for (placed, table) in placed.iter_mut().zip(table.as_chunks::<32>().0) {
                // SAFETY: the reference covers 32 bytes.
                let table = unsafe { _mm256_loadu_si256(table.as_ptr().cast()) };
                *placed = _mm256_or_si256(*placed, _mm256_shuffle_epi8(values, table));
            }
        }
    }
    placed
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(values: [__m256i; 2], dc: i16, block: &mut [i16; 64]) {
    let [a, b] = values.map(|values| {
        let halves = [_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values)];
        halves.map(|half| _mm256_cvtepi8_epi16(half))
    });
    let all = [_mm256_insert_epi16::<0>(a[0], dc), a[1], b[0], b[1]];
    for (part, values) in block.as_chunks_mut::<16>().0.iter_mut().zip(all) {
        // SAFETY: the reference covers 16 values of 2 bytes.
        unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), values) };
    }
}
