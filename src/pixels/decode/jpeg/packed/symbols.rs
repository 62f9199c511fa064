//! Huffman codes by symbol, and the bits of values after them, for the encoders of scans.

use super::super::huffman::Spec;

/// The code and its length by symbol; 0 if the symbol has no code.
pub(in crate::decode) struct SymbolCodes([u32; 256]);

impl SymbolCodes {
    pub(in crate::decode) fn new(spec: &Spec) -> Self {
        let mut codes = [0; 256];
        for (code, length, symbol) in spec.codes() {
            // If a symbol has two codes, use the first code.
            if codes[usize::from(symbol)] == 0 {
                codes[usize::from(symbol)] = code << 8 | length;
            }
        }
        Self(codes)
    }

    /// The code of a symbol followed by `size` value bits, and the length of both. If the symbol has no code, sets
    /// `missing`, and returns the length of the value bits alone.
    #[inline(always)]
    pub(in crate::decode) fn with_bits(
        &self,
        symbol: usize,
        bits: u32,
        size: u32,
        missing: &mut bool,
    ) -> (u32, u32) {
        let entry = self.0[symbol & 255];
        *missing |= entry == 0;
        ((entry >> 8) << size | bits, (entry & 0xFF) + size)
    }
}

/// The bits that distinguish a value from other values of the same size (ITU T.81, F.1.2.1).
#[inline(always)]
pub(in crate::decode) fn value_bits(value: i32, size: u32) -> u32 {
    (value + (value >> 31)) as u32 & !(u32::MAX << size)
}

#[inline(always)]
pub(in crate::decode) fn size_of_value(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}
