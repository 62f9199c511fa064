//! The codes of symbols, and the bits of values behind them, for what codes scans again.

use super::super::huffman::Spec;

/// The code of each symbol and its length, which is 0 where there is none.
pub(super) struct SymbolCodes([u32; 256]);

impl SymbolCodes {
    pub(super) fn new(spec: &Spec) -> Self {
        let mut codes = [0; 256];
        for (code, length, symbol) in spec.codes() {
            // A symbol that has two codes is coded by the first one.
            if codes[usize::from(symbol)] == 0 {
                codes[usize::from(symbol)] = code << 8 | length;
            }
        }
        Self(codes)
    }

    /// The code of a symbol followed by `size` bits, and the number of bits of both. The number is that of the bits
    /// alone where there is no code, which `missing` keeps in mind.
    #[inline(always)]
    pub(super) fn with_bits(&self, symbol: usize, bits: u32, size: u32, missing: &mut bool) -> (u32, u32) {
        let entry = self.0[symbol & 255];
        *missing |= entry == 0;
        ((entry >> 8) << size | bits, (entry & 0xFF) + size)
    }
}

/// The bits that tell a value of this size from others of the same size (ITU T.81, F.1.2.1).
#[inline(always)]
pub(super) fn value_bits(value: i32, size: u32) -> u32 {
    (value + (value >> 31)) as u32 & !(u32::MAX << size)
}

/// The number of bits of a value's magnitude.
#[inline(always)]
pub(super) fn size_of_value(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}
