//! The AC coefficients of a block, one after another, for processors without the instructions to expand them at once.

use super::unit::{ESCAPE, UnitBlocks, bits, lowest};

/// The number of coefficients whose remainders one load of 64 bits is sure to hold.
const PER_LOAD: u32 = 8;

impl UnitBlocks {
    /// Calls `put` with each AC coefficient of block `number` that is not zero: its index in coding order, and its
    /// value. One that has an escape comes once more, and is right then. The escapes of the blocks before it take the
    /// last `after` bytes of the unit; returns how many bytes this block's take.
    #[inline(always)]
    pub(super) fn values(
        &self,
        unit: &[u8],
        number: usize,
        after: usize,
        mut put: impl FnMut(usize, i16),
    ) -> usize {
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
