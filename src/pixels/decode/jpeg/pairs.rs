//! The AC lookup table for decoding and skipping blocks: it finds up to two symbols at once.

use super::huffman::{AC_BITS, MAX_STEP, Spec, span};

/// One or two symbols with their values, as a table entry from which the hot loop extracts fields by shifts alone. An
/// entry has four bytes, because the tables of two components share the L1 cache with the image.
///
/// Bits 0–5 are the number of bits of all symbols. Bits 6–10 are the distance by which the first symbol advances the
/// coefficient index, and bits 11–16 its value. Bits 17–24 are the last symbol's value, without bits beyond the lookup.
/// Bits 25–31 are the distance by which all symbols together advance the index. A single symbol is both first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbols(u32);

/// The distance by which an end of block advances the coefficient index. Other symbols advance it by less, so the
/// highest bit of the distance marks an end of block.
const END: u32 = 64;
/// The distance in an unusable entry, for which [`Symbols::last`] returns `None`.
const NONE: u32 = 127;
/// The largest number of value bits of an entry's last symbol.
const MAX_LAST: u32 = 7;
/// The largest number of value bits of the first of two symbols.
const MAX_FIRST: u32 = 5;

impl Symbols {
    /// The entry for bits whose symbol the table does not cover.
    const NONE: Self = Self::single(0, NONE, 0);

    /// An entry of one symbol. The decoder stores two values for each entry. For one symbol it stores both at the same
    /// index, and the second, which is the symbol's value, overwrites the first. For an end of block, the first value
    /// is a zero that overwrites a zero, and the second is stored outside the block.
    const fn single(bits: u32, advance: u32, value: i32) -> Self {
        let first = if advance < END { advance } else { 1 };
        Self(bits | first << 6 | (value as u32 & 0xFF) << 17 | advance << 25)
    }

    /// An entry of two symbols. The fields of both entries are added, except the values: the first value is the value
    /// of the first symbol, the last value is the value of the second symbol.
    const fn two(self, second: Self) -> Self {
        let value = self.0 >> 17 & 63;
        Self((self.0 & 0xFE00_07FF | value << 11) + (second.0 & 0xFFFE_003F))
    }

    /// The number of bits of all symbols, in the lowest six bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(super) fn first(self) -> usize {
        (self.0 >> 6 & 31) as usize
    }

    #[inline(always)]
    pub(super) fn advance(self) -> usize {
        (self.0 >> 25) as usize
    }

    /// The index of the block's last coefficient, if the symbols end the block. `next` is the coefficient index after
    /// the symbols, and must be at least 63: symbols that advance the index less do not end the block. Returns `None`
    /// if the table does not cover the symbols, or if the first of two symbols already ends the block.
    #[inline(always)]
    pub(super) fn last(self, next: usize) -> Option<usize> {
        let last = next.wrapping_sub(END as usize);
        if self.0 >> 31 == 1 && last < 63 { Some(last) } else { (next == 63).then_some(63) }
    }

    #[inline(always)]
    pub(super) fn first_value(self) -> i32 {
        (self.0 << 15) as i32 >> 26
    }

    /// The last symbol's value. `window` begins with the symbols.
    #[inline(always)]
    pub(super) fn last_value(self, window: u64) -> i32 {
        let known = (self.0 << 7) as i32 >> 24;
        let beyond = BEYOND[(self.0 & 31) as usize];
        known + ((window >> (beyond & 63)) & !(u64::MAX << (beyond >> 8))) as i32
    }
}

/// For each total number of bits of the symbols, where a window has the bits that the lookup does not cover: the index
/// of the lowest of these bits, plus 256 times their number.
static BEYOND: [u16; 32] = {
    let mut places = [0; 32];
    let mut bits = AC_BITS + 1;
    while bits <= MAX_STEP {
        places[bits as usize] = (64 - bits + 256 * (bits - AC_BITS)) as u16;
        bits += 1;
    }
    places
};

/// The lookup table, indexed by the next [`AC_BITS`] bits, for symbols that take at most [`MAX_STEP`] bits.
#[derive(Debug)]
pub(super) struct PairTable(pub(super) [Symbols; 1 << AC_BITS]);

impl PairTable {
    /// Builds the table. Most files have their own codes, so building it adds to the time of each image.
    pub(super) fn new(spec: &Spec) -> Self {
        let mut firsts = [Symbols::NONE; 1 << AC_BITS];
        // For each entry, the number of bits from which its symbol and sign are known, and the number of bits that the
        // entry's index has left for a second symbol.
        let (mut known, mut left) = ([u8::MAX; 1 << AC_BITS], [0; 1 << AC_BITS]);
        for (code, length, symbol) in spec.codes().take_while(|&(_, length, _)| length <= AC_BITS) {
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            let bits = length + size;
            // The sign, which is the value's first bit, must be inside the bits of the lookup.
            let needed = length + u32::from(size > 0);
            if size > MAX_LAST || bits > MAX_STEP || needed > AC_BITS {
                continue;
            }
            let advance = if size == 0 && run < 15 { END } else { run + 1 };
            let span = span(code, length, AC_BITS);
            known[span.clone()].fill(needed as u8);
            if advance < END && size <= MAX_FIRST {
                left[span.clone()].fill(AC_BITS.saturating_sub(bits) as u8);
            }
            // Bits after the value are dropped; unknown bits of the value count as zeros.
            let (after, missing) = (AC_BITS.saturating_sub(bits), bits.saturating_sub(AC_BITS));
            for (rest, first) in firsts[span].iter_mut().enumerate() {
                let value = (rest >> after << missing) as i32 & ((1 << size) - 1);
                // Values that begin with a 0 are negative; see `bits::value`.
                let negative = i32::from(value << 1 >> size == 0) * ((1 << size) - 1);
                *first = Symbols::single(bits, advance, value - negative);
            }
        }
        let mut table = firsts;
        for (index, symbols) in table.iter_mut().enumerate() {
            let first = firsts[index].0 & 31;
            let rest = index << first & (firsts.len() - 1);
            let second = firsts[rest];
            if known[rest] <= left[index] && first + (second.0 & 31) <= MAX_STEP {
                *symbols = firsts[index].two(second);
            }
        }
        Self(table)
    }
}

#[cfg(test)]
mod tests {
    use super::super::huffman::{AcTable, MAX_AC_SIZE, standard};
    use super::*;

    struct Found {
        length: u32,
        bits: u32,
        advance: u32,
        value: i32,
    }

    fn by_hand(table: &AcTable, window: u64) -> Option<Found> {
        let (length, symbol) = table.code.find(window)?;
        let size = u32::from(symbol & 15);
        let bits = (window << length >> 1 >> (63 - size)) as i32;
        let negative = size > 0 && bits >> (size - 1) == 0;
        let value = if negative { bits - (1 << size) + 1 } else { bits };
        let ends = size == 0 && symbol != 0xF0;
        let advance = if ends { END } else { u32::from(symbol >> 4) + 1 };
        Some(Found { length, bits: length + size, advance, value })
    }

    #[test]
    fn every_entry_is_the_next_symbols() {
        let mut specs = [false, true].map(|chroma| standard::tables(chroma).1).to_vec();
        let short = [0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        specs.push(Spec::new(short, &[1, 0, 0x11, 0xF0, 10, 0x31]).unwrap());
        for spec in specs {
            let table = AcTable::new(&spec, MAX_AC_SIZE);
            let pairs = PairTable::new(&spec);
            let (mut none, mut two) = (0, 0);
            for window in (0..1u64 << 20).map(|top| top << 44 | 0x5A5_A5A5_A5A5) {
                let symbols = pairs.0[(window >> (64 - AC_BITS)) as usize];
                // The symbol is known if its code and sign are inside the lookup, and all its bits fit in a step.
                let known = |used: u32, found: &Found, most: u32| {
                    let size = found.bits - found.length;
                    used + found.length + u32::from(size > 0) <= AC_BITS
                        && used + found.bits <= MAX_STEP
                        && size <= most
                };
                let first = by_hand(&table, window).filter(|found| known(0, found, MAX_LAST));
                let Some(first) = first else {
                    assert_eq!(symbols, Symbols::NONE);
                    none += 1;
                    continue;
                };
                let second = by_hand(&table, window << first.bits).filter(|second| {
                    first.advance < END && known(0, &first, MAX_FIRST) && known(first.bits, second, MAX_LAST)
                });
                let (bits, advance, last) = match &second {
                    None => (first.bits, first.advance, first.value),
                    Some(second) => {
                        two += 1;
                        (first.bits + second.bits, first.advance + second.advance, second.value)
                    }
                };
                assert_eq!((symbols.bits() & 63, symbols.advance()), (bits, advance as usize));
                // After an end of block, the decoder stores the last value outside the block, so that any value is
                // correct.
                if advance < END {
                    assert_eq!(symbols.last_value(window), last);
                }
                if second.is_some() {
                    assert_eq!(
                        (symbols.first(), symbols.first_value()),
                        (first.advance as usize, first.value)
                    );
                } else if first.advance == END {
                    assert_eq!((symbols.first(), symbols.first_value()), (1, 0));
                } else {
                    assert_eq!(symbols.first(), symbols.advance());
                }
            }
            assert!(none > 1000 && two > 100_000, "{none} {two}");
        }
    }

    #[test]
    fn the_end_of_a_block_is_told_by_the_index_that_is_reached() {
        // Symbols advance from index `k` to the block's last coefficient or, with an end of block, beyond it.
        for k in 0..63 {
            let lead = |symbols: Symbols| symbols.last(k + symbols.advance());
            assert_eq!(lead(Symbols::NONE), None);
            let end = Symbols::single(4, END, 0);
            assert_eq!(lead(end), Some(k));
            for run in 1..=16 {
                let one = Symbols::single(5, run, -3);
                if k + run as usize > 62 {
                    assert_eq!(lead(one), (k + run as usize == 63).then_some(63));
                }
                assert_eq!(lead(one.two(end)), (k + run as usize <= 62).then_some(k + run as usize));
            }
        }
    }
}
