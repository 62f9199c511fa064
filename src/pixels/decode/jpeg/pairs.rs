//! The lookup that decodes blocks and steps over them: it finds AC symbols by twos.

use super::huffman::{AC_BITS, MAX_STEP, Spec, span};

/// One or two symbols with their values, ready to be stored, as an entry that the hot loop takes apart by shifts alone.
/// It has four bytes, because the tables of two components share the first-level cache with the image.
///
/// Bits 0–5 are the number of bits of all symbols; 6–10 how far the first one advances the coefficient index; 11–16 its
/// value; 17–24 the last one's value without its bits beyond the lookup; 25–31 how far both advance the index. A symbol
/// alone is both first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbols(u32);

/// An end of block advances the index by this much. No other symbols do, so that it is the advance's highest bit.
const END: u32 = 64;
/// The advance of an entry that cannot be used, of which [`Symbols::last`] knows no index.
const NONE: u32 = 127;
/// The most value bits of a symbol that an entry holds, and of the first one of two.
const MAX_LAST: u32 = 7;
const MAX_FIRST: u32 = 5;

impl Symbols {
    /// The entry in which not even the first symbol is known.
    const NONE: Self = Self::alone(0, NONE, 0);

    /// One symbol. It is stored twice in the same place; an end of block stores a zero where there is one, and its
    /// value outside of the block.
    const fn alone(bits: u32, advance: u32, value: i32) -> Self {
        let first = if advance < END { advance } else { 1 };
        Self(bits | first << 6 | (value as u32 & 0xFF) << 17 | advance << 25)
    }

    /// Two symbols, each as it is alone: the fields of both add up, except that the last value is the second's and the
    /// first value that of the first.
    const fn two(self, second: Self) -> Self {
        let value = self.0 >> 17 & 63;
        Self((self.0 & 0xFE00_07FF | value << 11) + (second.0 & 0xFFFE_003F))
    }

    /// The number of bits of all symbols, in the lowest six bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// How far the first symbol advances the coefficient index.
    #[inline(always)]
    pub(super) fn first(self) -> usize {
        (self.0 >> 6 & 31) as usize
    }

    /// How far all symbols advance the coefficient index.
    #[inline(always)]
    pub(super) fn advance(self) -> usize {
        (self.0 >> 25) as usize
    }

    /// The index of the block's last coefficient, where the symbols end the block by advancing to `next`, which is
    /// beyond 62. `None` where they are not known, or the first one alone ends it.
    #[inline(always)]
    pub(super) fn last(self, next: usize) -> Option<usize> {
        let last = next.wrapping_sub(END as usize);
        if self.0 >> 31 == 1 && last < 63 { Some(last) } else { (next == 63).then_some(63) }
    }

    /// The first symbol's value.
    #[inline(always)]
    pub(super) fn first_value(self) -> i32 {
        (self.0 << 15) as i32 >> 26
    }

    /// The last symbol's value; `window` begins with the symbols.
    #[inline(always)]
    pub(super) fn last_value(self, window: u64) -> i32 {
        let known = (self.0 << 7) as i32 >> 24;
        let beyond = BEYOND[(self.0 & 31) as usize];
        known + ((window >> (beyond & 63)) & !(u64::MAX << (beyond >> 8))) as i32
    }
}

/// Where the bits beyond the lookup lie in a window, by the number of bits of all symbols: the place of the lowest one,
/// and 256 times how many there are.
static BEYOND: [u16; 32] = {
    let mut places = [0; 32];
    let mut bits = AC_BITS + 1;
    while bits <= MAX_STEP {
        places[bits as usize] = (64 - bits + 256 * (bits - AC_BITS)) as u16;
        bits += 1;
    }
    places
};

/// The lookup by the next [`AC_BITS`] bits, of symbols that take at most [`MAX_STEP`].
#[derive(Debug)]
pub(super) struct PairTable(pub(super) [Symbols; 1 << AC_BITS]);

impl PairTable {
    /// Makes the table. Most files have codes of their own, so that this takes a share of each image's time.
    pub(super) fn new(spec: &Spec) -> Self {
        let mut firsts = [Symbols::NONE; 1 << AC_BITS];
        // How many of an entry's bits must be known for its symbol, and how many are left for a second one.
        let (mut known, mut left) = ([u8::MAX; 1 << AC_BITS], [0; 1 << AC_BITS]);
        for (code, length, symbol) in spec.codes().take_while(|&(_, length, _)| length <= AC_BITS) {
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            let bits = length + size;
            // The sign, which is the value's first bit, has to lie in the lookup, too.
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
            // The bits after the value are dropped; those of the value that are not known count as zeros.
            let (after, missing) = (AC_BITS.saturating_sub(bits), bits.saturating_sub(AC_BITS));
            for (rest, first) in firsts[span].iter_mut().enumerate() {
                let value = (rest >> after << missing) as i32 & ((1 << size) - 1);
                // Values that begin with a 0 are negative, as `bits::value` says.
                let negative = i32::from(value << 1 >> size == 0) * ((1 << size) - 1);
                *first = Symbols::alone(bits, advance, value - negative);
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

    /// A symbol found step by step.
    struct Found {
        /// The length of its code, and with its value.
        length: u32,
        bits: u32,
        advance: u32,
        value: i32,
    }

    /// Finds the symbol at the top of `window`.
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
                // The symbol is known if code and sign lie in the lookup, and all its bits in a step.
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
                // A value behind an end of block is stored outside of it.
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
        // Symbols lead from index `k` to the block's last coefficient or, by an end of block, behind it.
        for k in 0..63 {
            let lead = |symbols: Symbols| symbols.last(k + symbols.advance());
            assert_eq!(lead(Symbols::NONE), None);
            let end = Symbols::alone(4, END, 0);
            assert_eq!(lead(end), Some(k));
            for run in 1..=16 {
                let one = Symbols::alone(5, run, -3);
                if k + run as usize > 62 {
                    assert_eq!(lead(one), (k + run as usize == 63).then_some(63));
                }
                assert_eq!(lead(one.two(end)), (k + run as usize <= 62).then_some(k + run as usize));
            }
        }
    }
}
