//! The lookup that decodes blocks: it finds AC symbols by twos.

use super::bits::value;
use super::huffman::{AC_BITS, AcTable, END, LookupEntry, MAX_STEP, NONE};

/// One or two symbols with their values, ready to be stored, as an entry that the hot loop takes apart by shifts alone.
///
/// Bits 0–5 are the number of bits of all symbols; 8–15 how far the first one advances the coefficient index; 16–31 its
/// value; 56–63 how far both advance it; 32–47 the last one's value without its bits behind the lookup; 48–53 the
/// number of these. A symbol alone is both first and last. See [`END`] and [`NONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbols(u64);

impl Symbols {
    /// The entry in which not even the first symbol is known.
    const NONE: Self = Self::new(KnownSymbol { bits: 0, advance: NONE, value: 0 }, None);

    const fn new(first: KnownSymbol, second: Option<KnownSymbol>) -> Self {
        let (bits, advance, last) = match second {
            Some(second) => (first.bits + second.bits, first.advance + second.advance, second),
            None => (first.bits, first.advance, first),
        };
        let beyond = bits.saturating_sub(AC_BITS);
        Self(
            bits as u64
                | (first.advance as u64) << 8
                | (first.value as u16 as u64) << 16
                | (last.value as u16 as u64) << 32
                | (beyond as u64) << 48
                | (advance as u64) << 56,
        )
    }

    /// The number of bits of all symbols, in the lowest six bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 as u32
    }

    /// How far the first symbol advances the coefficient index.
    #[inline(always)]
    pub(super) fn first(self) -> usize {
        (self.0 >> 8 & 0xFF) as usize
    }

    /// How far all symbols advance the coefficient index.
    #[inline(always)]
    pub(super) fn advance(self) -> usize {
        (self.0 >> 56) as usize
    }

    /// The first symbol's value, in the lowest 16 bits.
    #[inline(always)]
    pub(super) fn first_value(self) -> i32 {
        (self.0 >> 16) as i32
    }

    /// The last symbol's value, in the lowest 16 bits; `window` begins with the symbols.
    #[inline(always)]
    pub(super) fn last_value(self, window: u64) -> i32 {
        let all = window >> (self.0.wrapping_neg() & 63);
        let beyond = all & !(u64::MAX << (self.0 >> 48 & 63));
        (self.0 >> 32) as i32 + beyond as i32
    }
}

/// A symbol of which the code and the value's sign are known.
#[derive(Clone, Copy)]
struct KnownSymbol {
    bits: u32,
    advance: usize,
    /// The value if all bits that are not known were 0.
    value: i32,
}

impl KnownSymbol {
    /// Finds the symbol at the beginning of `index`. Only the first `known` of its [`AC_BITS`] bits are known, the
    /// others are 0.
    fn find(table: &AcTable, index: usize, known: u32) -> Option<Self> {
        let entry = table.fast[index];
        if !entry.is_special() {
            let length = entry.0 >> 8 & 63;
            let value = value((index as u64) << (64 - AC_BITS), length, |x| x >> (entry.0 >> 16 & 63));
            return (length < known).then_some(Self {
                bits: entry.0 & 63,
                advance: (entry.0 >> 24) as usize,
                value,
            });
        }
        let bits = entry.0 & 63;
        let advance = if entry.is_zeros() { 16 } else { END };
        (entry != LookupEntry::OTHER && bits <= known).then_some(Self { bits, advance, value: 0 })
    }
}

/// The lookup by the next [`AC_BITS`] bits, of symbols that take at most [`MAX_STEP`].
#[derive(Debug)]
pub(super) struct PairTable(pub(super) [Symbols; 1 << AC_BITS]);

impl PairTable {
    pub(super) fn new(table: &AcTable) -> Self {
        Self(std::array::from_fn(|index| {
            let Some(first) = KnownSymbol::find(table, index, AC_BITS) else { return Symbols::NONE };
            let rest = index << first.bits & (table.fast.len() - 1);
            let second = match AC_BITS.checked_sub(first.bits) {
                Some(known) if first.advance < END => KnownSymbol::find(table, rest, known),
                _ => None,
            };
            let both = second.filter(|second| first.bits + second.bits <= MAX_STEP);
            if first.bits > MAX_STEP { Symbols::NONE } else { Symbols::new(first, both) }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::huffman::{MAX_AC_SIZE, Spec, standard};
    use super::*;

    /// Finds the symbol at the top of `window` step by step: the length of its code, and what should be found of it.
    fn by_hand(table: &AcTable, window: u64) -> Option<(u32, KnownSymbol)> {
        let (length, symbol) = table.code.find(window).filter(|&(_, symbol)| symbol & 15 <= MAX_AC_SIZE)?;
        let size = u32::from(symbol & 15);
        let bits = (window << length >> 1 >> (63 - size)) as i32;
        let negative = size > 0 && bits >> (size - 1) == 0;
        let value = if negative { bits - (1 << size) + 1 } else { bits };
        let ends = size == 0 && symbol != 0xF0;
        let advance = if ends { END } else { usize::from(symbol >> 4) + 1 };
        Some((length, KnownSymbol { bits: length + size, advance, value }))
    }

    #[test]
    fn every_entry_is_the_next_symbols() {
        let mut specs = [false, true].map(|chroma| standard::tables(chroma).1).to_vec();
        let short = [0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        specs.push(Spec::new(short, &[1, 0, 0x11, 0xF0, 10, 0x31]).unwrap());
        for spec in specs {
            let table = AcTable::new(&spec, MAX_AC_SIZE);
            let pairs = PairTable::new(&table);
            let (mut none, mut two) = (0, 0);
            for window in (0..1u64 << 20).map(|top| top << 44 | 0x5A5_A5A5_A5A5) {
                let symbols = pairs.0[(window >> (64 - AC_BITS)) as usize];
                // The symbol is known if code and sign lie in the lookup, and all its bits in a step.
                let known = |used: u32, length: u32, symbol: &KnownSymbol| {
                    used + length + u32::from(symbol.bits > length) <= AC_BITS
                        && used + symbol.bits <= MAX_STEP
                };
                let first = by_hand(&table, window).filter(|(length, symbol)| known(0, *length, symbol));
                let Some((_, first)) = first else {
                    assert_eq!(symbols, Symbols::NONE);
                    none += 1;
                    continue;
                };
                let second = by_hand(&table, window << first.bits)
                    .filter(|(length, symbol)| first.advance < END && known(first.bits, *length, symbol));
                let (bits, advance, last) = match second {
                    None => (first.bits, first.advance, first.value),
                    Some((_, second)) => {
                        two += 1;
                        (first.bits + second.bits, first.advance + second.advance, second.value)
                    }
                };
                assert_eq!(
                    (symbols.bits() & 63, symbols.first(), symbols.advance()),
                    (bits, first.advance, advance)
                );
                assert_eq!(symbols.last_value(window) as i16, last as i16);
                if second.is_some() {
                    assert_eq!(symbols.first_value() as i16, first.value as i16);
                }
            }
            assert!(none > 1000 && two > 100_000, "{none} {two}");
        }
    }
}
