//! Expands all coefficients of a block at once with AVX-512. One shift per lane unpacks the remainders (magnitude minus
//! 2 of large coefficients) to bytes, for all blocks of a unit. Two expansions then move the bytes of a block to the
//! positions that the masks mark. Blocks are transformed in pairs.

use std::arch::x86_64::*;

use super::super::idct::avx512::{ORDER, PlacedBlock, transform_placed};
use super::super::idct::{IdctBlock, InverseDct, OutOfRange, PLACES, PortableIdct};
use super::avx2::escaped_values;
use super::coefficients::CodedBlock;
use super::region::{BlockTarget, SamplePlace, UnitDecoder, UnitSink};
use super::unit::{ESCAPE, UNIT, UnitBlocks, UnitWindow, load};
use super::values::ReadCoded;
use std::ops::Range;

/// For each width of remainders, the indices of the bytes that contain the eight remainders of each quadword.
static GATHER: [[u8; 64]; 8] = {
    let mut tables = [[0; 64]; 8];
    let mut width = 0;
    while width < 8 {
        let mut byte = 0;
        while byte < 64 {
            tables[width][byte] = ((byte / 8) * width + byte % 8) as u8;
            byte += 1;
        }
        width += 1;
    }
    tables
};

/// For each width of remainders and each bit offset of the first remainder in its byte: the bit offsets of the eight
/// remainders of a quadword, in one byte each.
static SHIFTS: [[u64; 8]; 8] = {
    let mut tables = [[0; 8]; 8];
    let mut at = 0;
    while at < 64 {
        tables[at / 8][at % 8] =
            0x0706_0504_0302_0100 * (at / 8) as u64 + 0x0101_0101_0101_0101 * (at % 8) as u64;
        at += 1;
    }
    tables
};

/// For each width of remainders, the largest remainder.
static LARGEST: [u8; 8] = [0, 1, 3, 7, 15, 31, 63, 127];

/// For each position in the order of [`PLACES`], the index of its coefficient in coding order.
const ORDER_OF_BYTES: [u8; 64] = {
    let mut order = [0; 64];
    let mut place = 0;
    while place < 64 {
        order[place] = ORDER[place] as u8;
        place += 1;
    }
    order
};

const ORDER_OF_CODES: [u8; 64] = {
    let mut order = [0; 64];
    let mut k = 0;
    while k < 64 {
        order[k] = k as u8;
        k += 1;
    }
    order
};

/// The number of blocks that wait for their transform. While a block waits, its stores leave the processor's store
/// buffer, so that vector loads over several of these stores do not stall. The number is even, for pairs.
const WAITING: usize = 16;

/// Transforms blocks in pairs, because a vector holds two blocks.
pub(super) struct Avx512Expander {
    blocks: [PlacedBlock; WAITING],
    places: [SamplePlace; WAITING],
    count: usize,
    /// The remainders of a unit's blocks.
    rests: [[u8; 64]; UNIT],
    /// The masks of the remainders that are escape codes. They are computed long before the blocks are expanded,
    /// because a mispredicted branch that is found late discards much work on the next blocks.
    escaped: [u64; UNIT],
}

impl UnitSink for Avx512Expander {
    fn new() -> Self {
        let nowhere = SamplePlace { component: 0, at: 0 };
        Self {
            blocks: [const { PlacedBlock::new() }; WAITING],
            places: [nowhere; WAITING],
            count: 0,
            rests: [[0; 64]; UNIT],
            escaped: [0; UNIT],
        }
    }

    #[inline(always)]
    fn open(&mut self, window: &UnitWindow, blocks: &UnitBlocks, wanted: Range<usize>) {
        for number in wanted {
            // SAFETY: code that names this type has detected AVX-512 with VBMI; each reference covers 64 bytes.
            unsafe {
                let (rests, escaped) = remainders(window, blocks, number);
                _mm512_storeu_si512(self.rests[number].as_mut_ptr().cast(), rests);
                self.escaped[number] = escaped;
            }
        }
    }

    #[inline(always)]
    fn put(
        &mut self,
        unit: &mut UnitDecoder,
        number: usize,
        target: &mut BlockTarget,
        place: SamplePlace,
    ) -> Result<(), OutOfRange> {
        if unit.blocks.nonzero[number] == 0 {
            return target.write_dc(unit.blocks.dc[number], place);
        }
        let at = self.count % WAITING;
        // SAFETY: code that names this type has detected AVX-512 with VBMI and VBMI2; the reference covers 64 bytes.
        unsafe {
            let rests = _mm512_loadu_si512(self.rests[number].as_ptr().cast());
            expand(unit, number, &IN_PLACES, (rests, self.escaped[number]), &mut self.blocks[at].0);
        }
        self.places[at] = place;
        self.count += 1;
        if self.count == WAITING { self.flush(target) } else { Ok(()) }
    }

    #[inline(always)]
    fn flush(&mut self, target: &mut BlockTarget) -> Result<(), OutOfRange> {
        let count = std::mem::take(&mut self.count) % (WAITING + 1);
        if count % 2 == 1 {
            // The last block has no second block, so it is transformed and written twice.
            self.blocks[count] = self.blocks[count - 1];
            self.places[count] = self.places[count - 1];
        }
        let pairs = count.div_ceil(2);
        // SAFETY: as above.
        unsafe {
            transform_all(&self.blocks.as_chunks().0[..pairs], &self.places.as_chunks().0[..pairs], target)
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn transform_all(
    blocks: &[[PlacedBlock; 2]],
    places: &[[SamplePlace; 2]],
    target: &mut BlockTarget,
) -> Result<(), OutOfRange> {
    for (blocks, &[first, second]) in blocks.iter().zip(places) {
        let tables = [&target.quantisation[first.component], &target.quantisation[second.component]];
        match transform_placed([blocks[0].load(), blocks[1].load()], tables) {
            Some(samples) if second.component == first.component && second.at == first.at + 8 => {
                let (_, out, stride) = target.at(first);
                // SAFETY: this function has the instructions.
                unsafe { samples.write_side_by_side(out, stride) };
            }
            Some(samples) => {
                for (block, place) in [first, second].into_iter().enumerate() {
                    let (_, out, stride) = target.at(place);
                    // SAFETY: as above.
                    unsafe { samples.write(block, out, stride) };
                }
            }
            None => {
                transform_single(&blocks[0], target, first)?;
                transform_single(&blocks[1], target, second)?;
            }
        }
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn transform_single(
    block: &PlacedBlock,
    target: &mut BlockTarget,
    place: SamplePlace,
) -> Result<(), OutOfRange> {
    let mut alone = IdctBlock::new();
    alone.0[..64].copy_from_slice(&block.0);
    let (quantisation, out, stride) = target.at(place);
    PortableIdct::block(&mut alone, quantisation, out, stride)
}

impl ReadCoded for Avx512Expander {
    #[inline(always)]
    fn read(unit: &mut UnitDecoder, number: usize, block: &mut CodedBlock) {
        // SAFETY: code that names this type has detected AVX-512 with VBMI and VBMI2.
        unsafe {
            let rests = remainders(unit.window, unit.blocks, number);
            expand(unit, number, &IN_CODING_ORDER, rests, block);
        }
    }
}

/// A permutation of a block's coefficients: for each stored position the index in coding order, and the inverse.
struct BlockOrder {
    order: [u8; 64],
    places: [u8; 64],
}

static IN_CODING_ORDER: BlockOrder = BlockOrder { order: ORDER_OF_CODES, places: ORDER_OF_CODES };

static IN_PLACES: BlockOrder = BlockOrder { order: ORDER_OF_BYTES, places: *PLACES.first_chunk().unwrap() };

/// Unpacks the remainders of block `number` to bytes. Also returns the mask of those that are escape codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi1,bmi2,popcnt")]
fn remainders(window: &UnitWindow, blocks: &UnitBlocks, number: usize) -> (__m512i, u64) {
    let (width, rest) = (usize::from(blocks.width[number] & 7), blocks.rest[number] as usize);
    let bytes: &[u8; 64] = load(window, rest / 8);
    // SAFETY: each reference covers 64 bytes.
    let (bytes, gather) = unsafe {
        (_mm512_loadu_si512(bytes.as_ptr().cast()), _mm512_loadu_si512(GATHER[width].as_ptr().cast()))
    };
    let shifts = _mm512_set1_epi64(SHIFTS[width][rest % 8] as i64);
    let shifted = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(gather, bytes));
    let rests = _mm512_and_si512(shifted, _mm512_set1_epi8(LARGEST[width] as i8));
    let escaped = _mm512_cmpeq_epi8_mask(rests, _mm512_set1_epi8(ESCAPE[width] as i8));
    (rests, _bzhi_u64(escaped, blocks.large[number].count_ones()))
}

/// Writes the coefficients of block `number` in the order `to`. `rests` and `escaped` are its [`remainders`].
///
/// Inlined, so that it is compiled with the target features of its caller: a call per block would cost a tenth of the
/// decoding time.
///
/// # Safety
/// The processor must have AVX-512 with VBMI and VBMI2.
#[inline(always)]
unsafe fn expand(
    unit: &mut UnitDecoder,
    number: usize,
    to: &'static BlockOrder,
    (rests, escaped): (__m512i, u64),
    block: &mut [i16; 64],
) {
    // SAFETY: the caller guarantees that the processor has the instructions.
    unsafe {
        let blocks = unit.blocks;
        let (nonzero, negative, large) =
            (blocks.nonzero[number], blocks.negative[number], blocks.large[number]);
        // The reference covers 64 bytes.
        let order = _mm512_loadu_si512(to.order.as_ptr().cast());
        let large_magnitudes = _mm512_add_epi8(rests, _mm512_set1_epi8(2));
        let magnitudes = _mm512_mask_expand_epi8(_mm512_set1_epi8(1), large, large_magnitudes);
        let values = _mm512_mask_sub_epi8(magnitudes, negative, _mm512_setzero_si512(), magnitudes);
        let placed = _mm512_permutexvar_epi8(order, _mm512_maskz_expand_epi8(nonzero, values));
        let halves = [
            _mm512_cvtepi8_epi16(_mm512_castsi512_si256(placed)),
            _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(placed)),
        ];
        store(halves, block);
        if escaped != 0 {
            let escaped = _pdep_u64(_pdep_u64(escaped, large), nonzero);
            let count = escaped.count_ones() as usize;
            match blocks.short_escapes(unit.bytes, unit.escapes, count) {
                // At width 7, the byte of an escaped value does not have its sign.
                Some(escapes) if blocks.width[number] < 7 => {
                    let escapes =
                        _mm512_maskz_loadu_epi8(_bzhi_u64(!0, count as u32), escapes.as_ptr().cast());
                    let escapes = _mm512_permutexvar_epi8(order, _mm512_maskz_expand_epi8(escaped, escapes));
                    store(add_escapes(halves, escapes, _mm512_movepi8_mask(placed)), block);
                    unit.escapes += count;
                }
                _ => {
                    let place = |k: usize| usize::from(to.places[k & 63]) & 63;
                    escaped_values(unit, number, escaped, |k, value| block[place(k)] = value);
                }
            }
        }
        block[0] = blocks.dc[number];
    }
}

/// Adds escapes, in the order of the block, to the magnitudes of its values. `negative` marks the negative values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add_escapes([low, high]: [__m512i; 2], escapes: __m512i, negative: u64) -> [__m512i; 2] {
    let first = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(escapes));
    let second = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(escapes));
    [
        _mm512_mask_sub_epi16(_mm512_add_epi16(low, first), negative as u32, low, first),
        _mm512_mask_sub_epi16(_mm512_add_epi16(high, second), (negative >> 32) as u32, high, second),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store([low, high]: [__m512i; 2], block: &mut [i16; 64]) {
    let to: *mut i16 = block.as_mut_ptr();
    // SAFETY: the block has 64 values of 2 bytes.
    unsafe {
        _mm512_storeu_si512(to.cast(), low);
        _mm512_storeu_si512(to.add(32).cast(), high);
    }
}
