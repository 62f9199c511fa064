//! The AC coefficients of a block: the ways to expand them, and the plain one.

use super::coefficients::CodedBlock;
use super::region::OpenUnit;
use super::unit::{ESCAPE, UnitBlocks, bits, lowest};
use crate::decode::jpeg::idct::IdctBlock;

/// A way to expand the coefficients of a block.
pub(super) trait Expand {
    /// Puts each AC coefficient of block `number` that is not zero to the place of its index in coding order. Indices
    /// beyond 63 have unused places, whose values are of no matter.
    fn expand(unit: &mut OpenUnit, number: usize, places: &[u8; 256], block: &mut [i16; 256]);
}

/// A way to read blocks in coding order.
pub(super) trait ReadCoded {
    /// Reads all coefficients of block `number`.
    fn read(unit: &mut OpenUnit, number: usize, block: &mut CodedBlock);
}

impl<E: Expand> ReadCoded for E {
    #[inline(always)]
    fn read(unit: &mut OpenUnit, number: usize, block: &mut CodedBlock) {
        let mut all = IdctBlock::new();
        E::expand(unit, number, &IDENTITY, &mut all.0);
        block.copy_from_slice(&all.0[..64]);
        block[0] = unit.blocks.dc[number];
    }
}

/// The places of coefficients that stay in coding order.
pub(super) static IDENTITY: [u8; 256] = {
    let mut order = [64; 256];
    let mut k = 0;
    while k < 64 {
        order[k] = k as u8;
        k += 1;
    }
    order
};

/// Makes one coefficient after another.
pub(super) struct OneByOne;

impl Expand for OneByOne {
    #[inline(always)]
    fn expand(unit: &mut OpenUnit, number: usize, places: &[u8; 256], block: &mut [i16; 256]) {
        let put = |k: usize, value| block[usize::from(places[k & 255])] = value;
        unit.escapes += unit.blocks.values(unit.bytes, number, unit.escapes, put);
    }
}

/// The number of coefficients whose remainders one load of 64 bits is sure to hold.
const PER_LOAD: u32 = 8;

impl UnitBlocks {
    /// Calls `put` with each AC coefficient of block `number` that is not zero: its index in coding order, and its
    /// value. One that has an escape comes once more, and is right then. The escapes of the blocks before it take the
    /// last `after` bytes of the unit; returns how many bytes this block's take.
    #[inline(always)]
    fn values(&self, unit: &[u8], number: usize, after: usize, mut put: impl FnMut(usize, i16)) -> usize {
        let width = u32::from(self.width[number]);
        let escape = u64::from(ESCAPE[width as usize & 7]);
        let (mut nonzero, mut negative, mut large) =
            (self.nonzero[number], self.negative[number], self.large[number]);
        let mut at = self.rest[number] as usize;
        // The indices of coefficients with escapes; those of negative ones with the highest bit set.
        let (mut escaped, mut escapes) = ([0u8; 64], 0);
        while nonzero != 0 {
            let mut window = bits(unit, at);
            at += ((large & 0xFF).count_ones() * width) as usize;
            for _ in 0..nonzero.count_ones().min(PER_LOAD) {
                let k = nonzero.trailing_zeros();
                nonzero &= nonzero - 1;
                let (is_large, is_negative) = (large & 1, negative & 1);
                (large, negative) = (large >> 1, negative >> 1);
                let rest = lowest(window, width);
                window >>= width * is_large as u32;
                // A remainder that is no number is at most one more than a byte can hold with the 2 that it lacks.
                let magnitude = (1 + (is_large.wrapping_neg() & (1 + rest))) as i8;
                let sign = -(is_negative as i8);
                put(k as usize, i16::from((magnitude ^ sign).wrapping_sub(sign)));
                if is_large == 1 && rest == escape {
                    escaped[escapes & 63] = k as u8 | (is_negative as u8) << 7;
                    escapes += 1;
                }
            }
        }
        self.put_escaped(unit, after, &escaped[..escapes], i16::from(escape as u8), put)
    }

    /// Calls `put` with the coefficients that have escapes.
    pub(super) fn put_escaped(
        &self,
        unit: &[u8],
        after: usize,
        escaped: &[u8],
        escape: i16,
        mut put: impl FnMut(usize, i16),
    ) -> usize {
        for (index, &coefficient) in escaped.iter().enumerate() {
            let more = self.escape(unit, after, (index, escaped.len()));
            let magnitude = more.wrapping_add(escape + 2);
            let value = if coefficient >> 7 == 1 { magnitude.wrapping_neg() } else { magnitude };
            put(usize::from(coefficient & 63), value);
        }
        self.escape_length(escaped.len())
    }
}
