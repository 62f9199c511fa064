//! The AC coefficients of a block: traits for expanding them, and the plain implementation.

use super::coefficients::CodedBlock;
use super::region::UnitDecoder;
use super::unit::{ESCAPE, MAX_MAGNITUDE, UnitBlocks, UnitWindow, bits, lowest};
use crate::decode::jpeg::idct::{IdctBlock, PLACES};
use std::ops::Range;

pub(super) trait Expand {
    /// What [`Expand::prepare`] computes for the blocks of a unit.
    type Prepared;

    fn new() -> Self::Prepared;

    /// Prepares the `wanted` blocks of a unit, before one of them is expanded.
    fn prepare(prepared: &mut Self::Prepared, window: &UnitWindow, blocks: &UnitBlocks, wanted: Range<usize>);

    /// Writes all coefficients of block `number` in the order of [`PLACES`]. `block` must contain only zeros.
    fn expand(prepared: &Self::Prepared, unit: &mut UnitDecoder, number: usize, block: &mut IdctBlock);
}

pub(super) trait ReadCoded {
    /// Reads all coefficients of block `number`, in coding order.
    fn read(unit: &mut UnitDecoder, number: usize, block: &mut CodedBlock);
}

pub(super) struct PortableExpander;

impl Expand for PortableExpander {
    type Prepared = ();

    fn new() {}

    fn prepare(_: &mut (), _: &UnitWindow, _: &UnitBlocks, _: Range<usize>) {}

    #[inline(always)]
    fn expand(_: &(), unit: &mut UnitDecoder, number: usize, block: &mut IdctBlock) {
        block.0[0] = unit.blocks.dc[number];
        unit.values(number, |k, value| block.0[usize::from(PLACES[k & 255])] = value);
    }
}

impl ReadCoded for PortableExpander {
    #[inline(always)]
    fn read(unit: &mut UnitDecoder, number: usize, block: &mut CodedBlock) {
        block.fill(0);
        block[0] = unit.blocks.dc[number];
        unit.values(number, |k, value| block[k & 63] = value);
    }
}

/// The number of coefficients whose remainders always fit in one load.
const PER_LOAD: u32 = 8;

impl UnitDecoder<'_> {
    /// Calls `put` with the index in coding order and the value of each nonzero AC coefficient of block `number`. If a
    /// coefficient has an escape, calls `put` twice, and the second value is the correct one.
    #[inline(always)]
    fn values(&mut self, number: usize, mut put: impl FnMut(usize, i16)) {
        let blocks = self.blocks;
        let width = u32::from(blocks.width[number]);
        let escape = u64::from(ESCAPE[width as usize & 7]);
        let (mut nonzero, mut negative, mut large) =
            (blocks.nonzero[number], blocks.negative[number], blocks.large[number]);
        let mut at = blocks.rest[number] as usize;
        let (mut escaped, mut count) = ([0u8; 64], 0);
        while nonzero != 0 {
            let mut window = bits(self.window, at);
            at += ((large & 0xFF).count_ones() * width) as usize;
            for _ in 0..nonzero.count_ones().min(PER_LOAD) {
                let k = nonzero.trailing_zeros();
                nonzero &= nonzero - 1;
                let (is_large, is_negative) = (large & 1, negative & 1);
                (large, negative) = (large >> 1, negative >> 1);
                let rest = lowest(window, width);
                window >>= width * is_large as u32;
                // Damaged data can have a remainder that is too large for a byte. The magnitude then wraps, in the same
                // way at every SIMD level.
                let magnitude = (1 + (is_large.wrapping_neg() & (1 + rest))) as i8;
                put(k as usize, i16::from(with_sign(magnitude, is_negative == 1)));
                if is_large == 1 && rest == escape {
                    escaped[count & 63] = k as u8 | (is_negative as u8) << 7;
                    count += 1;
                }
            }
        }
        for (index, &coefficient) in escaped[..count].iter().enumerate() {
            let magnitude = blocks.escaped_magnitude(self.bytes, number, self.escapes, (index, count));
            self.is_damaged |= magnitude > MAX_MAGNITUDE;
            let value = if coefficient >> 7 == 1 { -magnitude } else { magnitude };
            put(usize::from(coefficient & 63), value);
        }
        self.escapes += blocks.escape_length(count);
    }
}

#[inline(always)]
fn with_sign(magnitude: i8, is_negative: bool) -> i8 {
    let sign = -i8::from(is_negative);
    (magnitude ^ sign).wrapping_sub(sign)
}
