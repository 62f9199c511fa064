//! Expands all coefficients of a block at once with AVX-512. One shift per lane unpacks the remainders (magnitude minus
//! 2 of large coefficients) to bytes. Two expansions then move them to the positions that the masks mark.

use std::arch::x86_64::*;

use super::super::idct::avx512::{ORDER, PlacedBlock, transform_placed};
use super::super::idct::{IdctBlock, InverseDct, OutOfRange, PLACES, PortableIdct};
use super::avx2::escaped_values;
use super::coefficients::CodedBlock;
use super::region::{BlockTarget, SamplePlace, UnitDecoder, UnitSink};
use super::unit::{ESCAPE, load};
use super::values::ReadCoded;

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

/// Transforms blocks in pairs, because a vector holds two blocks.
pub(super) struct Avx512Expander {
    /// A block that waits for the second block of its pair. [`Self::place`] is the block's place, or `None` if no block
    /// waits. The fields are separate, because a struct of both would be moved byte by byte instead of in registers.
    block: PlacedBlock,
    place: Option<SamplePlace>,
}

impl UnitSink for Avx512Expander {
    fn new() -> Self {
        // SAFETY: code that names this type has detected AVX-512.
        Self { block: [unsafe { _mm512_setzero_si512() }; 2], place: None }
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
        // SAFETY: code that names this type has detected AVX-512 with VBMI and VBMI2.
        let block = unsafe { expand(unit, number, &IN_PLACES) };
        let Some(first) = self.place.take() else {
            (self.block, self.place) = (block, Some(place));
            return Ok(());
        };
        let before = self.block;
        let quantisation = [first, place].map(|place| &target.quantisation[place.component]);
        // SAFETY: as above.
        match unsafe { transform_placed([before, block], quantisation) } {
            Some(samples) if place.component == first.component && place.at == first.at + 8 => {
                let (_, out, stride) = target.at(first);
                // SAFETY: as above.
                unsafe { samples.write_side_by_side(out, stride) };
                Ok(())
            }
            Some(samples) => {
                // SAFETY: as above.
                for (samples, place) in unsafe { samples.each() }.into_iter().zip([first, place]) {
                    let (_, out, stride) = target.at(place);
                    samples.write(out, stride);
                }
                Ok(())
            }
            None => {
                transform_single(before, target, first)?;
                transform_single(block, target, place)
            }
        }
    }

    #[inline(always)]
    fn flush(&mut self, target: &mut BlockTarget) -> Result<(), OutOfRange> {
        match self.place.take() {
            Some(place) => transform_single(self.block, target, place),
            None => Ok(()),
        }
    }
}

#[cold]
#[inline(never)]
fn transform_single(
    block: PlacedBlock,
    target: &mut BlockTarget,
    place: SamplePlace,
) -> Result<(), OutOfRange> {
    let mut alone = IdctBlock::new();
    // SAFETY: the caller's level guarantees AVX-512.
    unsafe { store(block, alone.0.first_chunk_mut().expect("64 values and more")) };
    let (quantisation, out, stride) = target.at(place);
    PortableIdct::block(&mut alone, quantisation, out, stride)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(halves: PlacedBlock, block: &mut [i16; 64]) {
    for (part, half) in block.as_chunks_mut::<32>().0.iter_mut().zip(halves) {
        // SAFETY: the reference covers 32 values of 2 bytes.
        unsafe { _mm512_storeu_si512(part.as_mut_ptr().cast(), half) };
    }
}

impl ReadCoded for Avx512Expander {
    #[inline(always)]
    fn read(unit: &mut UnitDecoder, number: usize, block: &mut CodedBlock) {
        // SAFETY: code that names this type has detected AVX-512 with VBMI and VBMI2.
        unsafe { store(expand(unit, number, &IN_CODING_ORDER), block) };
    }
}

/// A permutation of a block's coefficients: for each stored position the index in coding order, and the inverse.
struct BlockOrder {
    order: [u8; 64],
    places: [u8; 64],
}

static IN_CODING_ORDER: BlockOrder = BlockOrder { order: ORDER_OF_CODES, places: ORDER_OF_CODES };

static IN_PLACES: BlockOrder = BlockOrder { order: ORDER_OF_BYTES, places: *PLACES.first_chunk().unwrap() };

/// The coefficients of block `number` in the order `to`.
///
/// Inlined, so that it is compiled with the target features of its caller: a call per block would cost a tenth of the
/// decoding time.
///
/// # Safety
/// The processor must have AVX-512 with VBMI and VBMI2.
#[inline(always)]
unsafe fn expand(unit: &mut UnitDecoder, number: usize, to: &'static BlockOrder) -> PlacedBlock {
    // SAFETY: the caller guarantees that the processor has the instructions.
    unsafe {
        let blocks = unit.blocks;
        let (width, rest) = (usize::from(blocks.width[number] & 7), blocks.rest[number]);
        let (nonzero, negative, large) =
            (blocks.nonzero[number], blocks.negative[number], blocks.large[number]);
        // Each reference covers 64 bytes.
        let gather = _mm512_loadu_si512(GATHER[width].as_ptr().cast());
        let order = _mm512_loadu_si512(to.order.as_ptr().cast());
        let bytes: &[u8; 64] = load(unit.window, rest as usize / 8);
        let packed = _mm512_permutexvar_epi8(gather, _mm512_loadu_si512(bytes.as_ptr().cast()));
        // In each quadword, the remainder for byte i begins i · `width` bits after the first remainder.
        let steps =
            0x0706_0504_0302_0100u64.wrapping_mul(width as u64) + u64::from(rest % 8) * 0x0101_0101_0101_0101;
        let shifted = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(steps as i64), packed);
        let rests = _mm512_and_si512(shifted, _mm512_set1_epi8(((1u32 << width) - 1) as i8));
        let one = _mm512_set1_epi8(1);
        let magnitudes = _mm512_add_epi8(one, _mm512_maskz_expand_epi8(large, _mm512_add_epi8(rests, one)));
        let values = _mm512_mask_sub_epi8(magnitudes, negative, _mm512_setzero_si512(), magnitudes);
        let placed = _mm512_permutexvar_epi8(order, _mm512_maskz_expand_epi8(nonzero, values));
        let low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(placed));
        let high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(placed));
        let halves = [_mm512_mask_set1_epi16(low, 1, blocks.dc[number]), high];
        let escaped = _mm512_cmpeq_epi8_mask(rests, _mm512_set1_epi8(ESCAPE[width] as i8));
        let escaped = _bzhi_u64(escaped, large.count_ones());
        if escaped == 0 { halves } else { with_escapes(unit, number, escaped, halves, to) }
    }
}

/// Adds the escapes (numbers at the unit's end) to the values of a block. `escaped` has one bit for each large
/// coefficient: whether it has an escape.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt")]
fn with_escapes(
    unit: &mut UnitDecoder,
    number: usize,
    escaped: u64,
    [mut low, mut high]: PlacedBlock,
    to: &'static BlockOrder,
) -> PlacedBlock {
    let put = |k: usize, value| {
        let place = 1u64 << (to.places[k & 63] & 63);
        // Going through memory would be slower: a register load cannot be forwarded from several smaller stores.
        low = _mm512_mask_set1_epi16(low, place as u32, value);
        high = _mm512_mask_set1_epi16(high, (place >> 32) as u32, value);
    };
    let (nonzero, large) = (unit.blocks.nonzero[number], unit.blocks.large[number]);
    escaped_values(unit, number, _pdep_u64(_pdep_u64(escaped, large), nonzero), put);
    [low, high]
}
