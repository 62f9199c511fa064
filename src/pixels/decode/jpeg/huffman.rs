//! Huffman codes as lookup tables: one lookup decodes a symbol and its value bits.

use base::error::DecodeError;
use std::mem::offset_of;

/// The number of index bits of the AC lookup tables. With one more bit, the tables of two components would fill an L1
/// cache of 32 KB, and decoding would be slower.
pub(super) const AC_BITS: u32 = 11;
pub(super) const DC_BITS: u32 = 9;
/// The largest number of bits that one lookup of several symbols consumes. Three lookups consume fewer bits than a
/// refill provides.
pub(super) const MAX_STEP: u32 = 18;

/// The largest number of entries of the lookup table of long codes. The codes of annex K need a tenth of these entries.
/// [`HuffmanCode::find`] finds the codes that do not fit.
const MAX_LONG: usize = 1 << 12;

/// The largest number of value bits of a coefficient of an 8-bit image (ITU T.81, F.1.2.1.1 and F.1.2.2.1).
pub(super) const MAX_AC_SIZE: u8 = 10;
/// The largest number of value bits of a DC difference of an 8-bit image.
pub(super) const MAX_DC_SIZE: u8 = 11;

/// A code in the format of a DHT segment: the number of codes of each length 1..=16, and the symbols in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::decode) struct Spec {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

impl Spec {
    /// Makes the code of `symbols`; `counts[i]` symbols have codes of i + 1 bits. Returns `None` if the counts do not
    /// match the symbols or give no valid Huffman code, or if a code consists only of ones, which JPEG forbids.
    pub(super) fn new(counts: [u8; 16], symbols: &[u8]) -> Option<Self> {
        let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
        if total != symbols.len() || total > 256 {
            return None;
        }
        let mut next = 0u32;
        for (i, &count) in counts.iter().enumerate() {
            next = (next << 1) + u32::from(count);
            if count > 0 && next >= 1 << (i + 1) {
                return None;
            }
        }
        Some(Self { counts, symbols: symbols.to_vec() })
    }

    /// The contents of the DHT segment: the number of codes of each length, and the symbols.
    pub(in crate::decode) fn parts(&self) -> [&[u8]; 2] {
        [&self.counts, &self.symbols]
    }

    /// Returns this code if it is valid for DC differences.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if a symbol is not a size of a DC difference.
    pub(super) fn check_dc(&self) -> Result<&Self, DecodeError> {
        match self.symbols.iter().find(|&&symbol| symbol > 15) {
            Some(symbol) => {
                Err(DecodeError::Corrupt(format!("DC Huffman table has symbol {symbol}, the maximum is 15")))
            }
            None => Ok(self),
        }
    }

    /// The codes in order, each as (code, length, symbol).
    pub(super) fn codes(&self) -> impl Iterator<Item = (u32, u32, u8)> {
        let mut code = 0;
        let lengths = self
            .counts
            .iter()
            .enumerate()
            .flat_map(|(i, &count)| std::iter::repeat_n(i as u32 + 1, usize::from(count)));
        let mut previous = 0;
        lengths.zip(&self.symbols).map(move |(length, &symbol)| {
            code <<= length - previous;
            previous = length;
            let this = code;
            code += 1;
            (this, length, symbol)
        })
    }
}

/// The result of a fast lookup of the next symbol: 32 bits from which the hot loop extracts fields by shifts alone.
///
/// In plain entries, bits 0–5 are the total length of code and value, and bits 8–13 the length of the code. Bits 16–21
/// are the right shift that moves the value to the lowest bits, and bits 24–28 the distance by which the coefficient
/// index advances. Special entries have the sign bit set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LookupEntry(pub(super) u32);

impl LookupEntry {
    const SPECIAL: u32 = 1 << 31;
    const END: u32 = 1 << 30;
    const ZEROS: u32 = 1 << 29;
    /// The entry for a code longer than the lookup, a value longer than allowed, or an invalid code.
    /// [`HuffmanCode::find`] distinguishes these cases.
    pub(super) const OTHER: Self = Self(Self::SPECIAL);

    #[inline(always)]
    pub(super) fn is_special(self) -> bool {
        (self.0 as i32) < 0
    }

    /// Whether this entry is an end of block. In progressive files one symbol can end several blocks; see
    /// [`Self::run_bits`].
    #[inline(always)]
    pub(super) fn is_end(self) -> bool {
        self.0 & Self::END != 0
    }

    /// For a symbol that ends several blocks: the number of bits after its code, which encode the number of blocks.
    #[inline(always)]
    pub(super) fn run_bits(self) -> u32 {
        self.0 >> 24 & 15
    }

    /// Whether this entry stands for a run of sixteen zero coefficients (ZRL).
    #[inline(always)]
    pub(super) fn is_zeros(self) -> bool {
        self.0 & Self::ZEROS != 0
    }
}

/// The complete code, for symbols that the lookup tables do not cover. The type has the same fields as in
/// `cuda/indexed/table.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) struct HuffmanCode {
    /// At index length - 1: the first value too large for codes of this length, left-aligned to 16 bits.
    limit: [u32; 16],
    /// At index length - 1: the number to add to a code of this length to get the index of its symbol.
    offset: [i32; 16],
    symbols: [u8; 256],
}

// Size and offsets must match `cuda/indexed/table.cuh`; there is no padding.
const _: () = assert!(size_of::<HuffmanCode>() == 2 * 16 * 4 + 256);
const _: () = assert!(offset_of!(HuffmanCode, offset) == 64);
const _: () = assert!(offset_of!(HuffmanCode, symbols) == 128);

impl HuffmanCode {
    pub(super) fn new(spec: &Spec) -> Self {
        let (mut limit, mut offset, mut symbols) = ([0; 16], [0; 16], [0; 256]);
        symbols[..spec.symbols.len()].copy_from_slice(&spec.symbols);
        let (mut code, mut index) = (0u32, 0u32);
        for i in 0..16 {
            offset[i] = index as i32 - code as i32;
            code += u32::from(spec.counts[i]);
            index += u32::from(spec.counts[i]);
            limit[i] = code << (15 - i);
            code <<= 1;
        }
        Self { limit, offset, symbols }
    }

    /// The symbol of this code of `length` bits, at most 16. `None` if the code is invalid. The first bits of `code`
    /// must not be a shorter valid code.
    pub(super) fn symbol(&self, code: u32, length: u32) -> Option<u8> {
        let i = length as usize - 1;
        let known = code << (15 - i) < self.limit[i];
        known.then(|| self.symbols[(code as i32 + self.offset[i]) as usize & 255])
    }

    #[cold]
    pub(super) fn find(&self, window: u64) -> Option<(u32, u8)> {
        let top = (window >> 48) as u32;
        // The index is the number of limits at or below `top`, because limits never decrease. Counting needs no branch
        // per length.
        let i = self.limit.iter().filter(|&&limit| top >= limit).count();
        if i == 16 {
            return None;
        }
        let code = (top >> (15 - i)) as i32;
        Some((i as u32 + 1, self.symbols[(code + self.offset[i]) as usize & 255]))
    }
}

/// The lookup tables of a Huffman code for DC differences.
#[derive(Debug)]
pub(super) struct DcTable {
    /// The lookup table, indexed by the next [`DC_BITS`] bits. A plain entry consumes at most 16 bits, including the
    /// value. Its shift is one less than for AC coefficients, because the value can have no bits.
    pub(super) fast: [LookupEntry; 1 << DC_BITS],
    pub(super) code: HuffmanCode,
}

impl DcTable {
    pub(super) fn new(spec: &Spec) -> Self {
        let mut fast = [LookupEntry::OTHER; 1 << DC_BITS];
        for (code, length, size) in spec.codes().take_while(|&(_, length, _)| length <= DC_BITS) {
            let total = length + u32::from(size);
            if size <= MAX_DC_SIZE && total <= 16 {
                let entry = LookupEntry(total | length << 8 | (63 - u32::from(size)) << 16);
                fast[span(code, length, DC_BITS)].fill(entry);
            }
        }
        Self { fast, code: HuffmanCode::new(spec) }
    }
}

/// The lookup tables of a Huffman code for AC coefficients. A symbol is a run of zeros and the size of the value after
/// it.
#[derive(Debug)]
pub(super) struct AcTable {
    /// The lookup table of codes of up to [`AC_BITS`] bits, indexed by the next [`AC_BITS`] bits. A plain entry
    /// consumes at most 21 bits, including the value.
    pub(super) fast: [LookupEntry; 1 << AC_BITS],
    /// The lookup table of codes longer than [`AC_BITS`] bits, indexed by the next 16 bits minus `long_from`. A plain
    /// entry consumes at most 26 bits, including the value.
    long: Vec<LookupEntry>,
    /// The first code that is longer than [`AC_BITS`] bits, left-aligned to 16 bits; 2^16 if there is none.
    long_from: usize,
    pub(super) code: HuffmanCode,
}

impl AcTable {
    /// Builds the table. Values of more than `max_size` bits, which is at most [`MAX_AC_SIZE`], are not in the lookup
    /// tables: [`HuffmanCode::find`] and its callers handle them.
    pub(super) fn new(spec: &Spec, max_size: u8) -> Self {
        let mut fast = [LookupEntry::OTHER; 1 << AC_BITS];
        let first_long = spec.codes().find(|&(_, length, _)| length > AC_BITS);
        let long_from = first_long.map_or(1 << 16, |(code, length, _)| (code as usize) << (16 - length));
        let mut long = vec![LookupEntry::OTHER; ((1 << 16) - long_from).min(MAX_LONG)];
        for (code, length, symbol) in spec.codes() {
            let entry = Self::entry(length, symbol, max_size);
            if length <= AC_BITS {
                fast[span(code, length, AC_BITS)].fill(entry);
            } else {
                let span = span(code, length, 16);
                let end = (span.end - long_from).min(long.len());
                long[(span.start - long_from).min(end)..end].fill(entry);
            }
        }
        Self { fast, long, long_from, code: HuffmanCode::new(spec) }
    }

    fn entry(length: u32, symbol: u8, max_size: u8) -> LookupEntry {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        match (run, size) {
            (15, 0) => LookupEntry(LookupEntry::SPECIAL | LookupEntry::ZEROS | length),
            // As in libjpeg, a run without a value ends the block, even in a baseline file.
            (_, 0) => LookupEntry(LookupEntry::SPECIAL | LookupEntry::END | length | run << 24),
            _ if size > u32::from(max_size) => LookupEntry::OTHER,
            _ => LookupEntry((length + size) | length << 8 | (64 - size) << 16 | (run + 1) << 24),
        }
    }

    /// Looks up the symbol at the top of `window`, whose code is longer than [`AC_BITS`] or unknown.
    #[inline(always)]
    pub(super) fn long(&self, window: u64) -> LookupEntry {
        let at = ((window >> 48) as usize).wrapping_sub(self.long_from);
        self.long.get(at).copied().unwrap_or(LookupEntry::OTHER)
    }
}

/// The range of entries that begin with this code, in a lookup table that is indexed by `bits` bits.
pub(super) fn span(code: u32, length: u32, bits: u32) -> std::ops::Range<usize> {
    let first = (code << (bits - length)) as usize;
    first..first + (1 << (bits - length))
}

/// The codes of annex K.3, which files without DHT segments use (frames of Motion JPEG).
pub(super) mod standard {
    use super::Spec;

    pub(in super::super) fn tables(chroma: bool) -> (Spec, Spec) {
        let (dc_counts, ac_counts, ac_head) = if chroma {
            (
                [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
                [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77],
                CHROMA_AC,
            )
        } else {
            (
                [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
                [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D],
                LUMA_AC,
            )
        };
        let dc: Vec<u8> = (0..12).collect();
        // The symbols of 16-bit codes are in ascending order, so only the symbols of shorter codes are listed.
        let mut ac = ac_head.to_vec();
        for run in 0..16u8 {
            ac.extend((1..=10).map(|size| run << 4 | size).filter(|symbol| !ac_head.contains(symbol)));
        }
        let spec = |counts, symbols: &[u8]| Spec::new(counts, symbols).expect("annex K holds Huffman codes");
        (spec(dc_counts, &dc), spec(ac_counts, &ac))
    }

    /// The symbols of codes shorter than 16 bits, from table K.5.
    const LUMA_AC: &[u8] = &[
        0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22,
        0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33,
        0x62, 0x72, 0x82,
    ];

    /// The symbols of codes shorter than 16 bits, from table K.6.
    const CHROMA_AC: &[u8] = &[
        0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13,
        0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62,
        0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs() -> Vec<Spec> {
        let mut specs: Vec<Spec> = [false, true].iter().map(|&chroma| standard::tables(chroma).1).collect();
        // The first code has short codes for many symbols with few value bits; the second code has only long codes.
        specs.push(
            Spec::new([0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0x11, 0xF0, 2, 0x31])
                .unwrap(),
        );
        specs.push(Spec::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1], &[0, 1, 0x0F]).unwrap());
        specs
    }

    #[test]
    fn the_codes_of_the_standard_are_those_of_its_tables() {
        let code_of =
            |spec: &Spec, symbol| spec.codes().find(|&(_, _, s)| s == symbol).map(|(c, l, _)| (c, l));
        let [luma, chroma] = [false, true].map(|chroma| standard::tables(chroma).1);
        // Rows of tables K.5 and K.6 of ITU T.81.
        assert_eq!(code_of(&luma, 0x00), Some((0b1010, 4)));
        assert_eq!(code_of(&luma, 0xF0), Some((0b11111111001, 11)));
        assert_eq!(code_of(&luma, 0x82), Some((0b111111111000000, 15)));
        assert_eq!(code_of(&luma, 0x09), Some((0b1111111110000010, 16)));
        assert_eq!(code_of(&luma, 0xFA), Some((0b1111111111111110, 16)));
        assert_eq!(code_of(&chroma, 0x00), Some((0b00, 2)));
        assert_eq!(code_of(&chroma, 0xF0), Some((0b1111111010, 10)));
        assert_eq!(code_of(&chroma, 0xF1), Some((0b111111111000011, 15)));
        assert_eq!(code_of(&chroma, 0x17), Some((0b1111111110001000, 16)));
        assert_eq!(code_of(&chroma, 0xFA), Some((0b1111111111111110, 16)));
    }

    #[test]
    fn every_lookup_agrees_with_the_code() {
        for spec in specs() {
            let ac = AcTable::new(&spec, MAX_AC_SIZE);
            for window in (0..1u64 << 16).map(|top| top << 48 | 0x5A5A_5A5A_5A5A) {
                let found = ac.code.find(window);
                let by_hand =
                    spec.codes().find(|&(code, length, _)| window >> (64 - length) == u64::from(code));
                assert_eq!(found, by_hand.map(|(_, length, symbol)| (length, symbol)));
                let entry = ac.fast[(window >> (64 - AC_BITS)) as usize];
                if let Some((length, symbol)) =
                    found.filter(|&(length, symbol)| length <= AC_BITS && symbol & 15 <= 10)
                {
                    let size = u32::from(symbol & 15);
                    assert_eq!(entry.0 & 63, length + size);
                    assert_eq!(entry.is_end(), size == 0 && symbol != 0xF0);
                    assert_eq!(entry.is_zeros(), symbol == 0xF0);
                    if !entry.is_special() {
                        assert_eq!((entry.0 >> 8 & 63, entry.0 >> 16 & 63), (length, 64 - size));
                        assert_eq!(entry.0 >> 24, u32::from(symbol >> 4) + 1);
                    }
                } else {
                    assert_eq!(entry, LookupEntry::OTHER);
                    let beyond = ((window >> 48) as usize).wrapping_sub(ac.long_from) >= MAX_LONG;
                    let long = found.filter(|&(_, symbol)| !beyond && symbol & 15 <= 10);
                    assert_eq!(
                        ac.long(window),
                        long.map_or(LookupEntry::OTHER, |(length, symbol)| {
                            AcTable::entry(length, symbol, MAX_AC_SIZE)
                        })
                    );
                }
            }
        }
    }

    #[test]
    fn impossible_codes_are_refused() {
        let counts = |pairs: &[(usize, u8)]| {
            let mut counts = [0; 16];
            pairs.iter().for_each(|&(length, count)| counts[length - 1] = count);
            counts
        };
        assert!(Spec::new(counts(&[(1, 1)]), &[7]).is_some());
        assert!(Spec::new(counts(&[(1, 2)]), &[7, 8]).is_none(), "a code of ones only");
        assert!(Spec::new(counts(&[(1, 1), (2, 3)]), &[1, 2, 3, 4]).is_none(), "too many codes");
        assert!(Spec::new(counts(&[(3, 2)]), &[1]).is_none(), "too few symbols");
    }
}
