//! Entropy-coded bits as JPEG writes them: the highest first, each byte 0xFF followed by a zero.

/// The entropy-coded data of a scan that is being written.
pub(super) struct ScanBits<'a> {
    out: &'a mut Vec<u8>,
    /// The bits that are not written yet, the first one highest among the lowest `filled`.
    window: u64,
    filled: u32,
    padded_with_zeros: bool,
    /// The number of the next restart marker, 0..=7.
    marker: u8,
}

impl<'a> ScanBits<'a> {
    /// Begins a scan behind what `out` holds.
    pub(super) fn new(out: &'a mut Vec<u8>, padded_with_zeros: bool) -> Self {
        Self { out, window: 0, filled: 0, padded_with_zeros, marker: 0 }
    }

    /// Appends the lowest `count` bits of `bits`, whose others are zero; at most 32.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u32, count: u32) {
        self.window = self.window << count | u64::from(bits);
        self.filled += count;
        if self.filled >= 32 {
            self.filled -= 32;
            self.write((self.window >> self.filled) as u32);
        }
    }

    /// Writes four bytes, and zeros behind those that are 0xFF.
    #[inline(always)]
    fn write(&mut self, word: u32) {
        // A byte is 0xFF if adding one to it makes its highest bit fall.
        if word & 0x8080_8080 & !word.wrapping_add(0x0101_0101) == 0 {
            self.out.extend_from_slice(&word.to_be_bytes());
        } else {
            word.to_be_bytes().into_iter().for_each(|byte| self.stuff(byte));
        }
    }

    fn stuff(&mut self, byte: u8) {
        self.out.push(byte);
        if byte == 0xFF {
            self.out.push(0);
        }
    }

    /// Fills the last byte, and writes what is left.
    pub(super) fn finish(&mut self) {
        let missing = self.filled.wrapping_neg() % 8;
        let padding = if self.padded_with_zeros { 0 } else { (1 << missing) - 1 };
        self.put(padding, missing);
        while self.filled >= 8 {
            self.filled -= 8;
            self.stuff((self.window >> self.filled) as u8);
        }
    }

    /// Ends a restart interval with its marker.
    pub(super) fn restart(&mut self) {
        self.finish();
        self.out.extend([0xFF, 0xD0 + self.marker]);
        self.marker = (self.marker + 1) % 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_highest_first_and_every_ff_is_stuffed() {
        for at in 0..8 {
            let mut bytes = vec![9; at];
            let mut bits = ScanBits::new(&mut bytes, false);
            (0..at).for_each(|_| bits.put(0xA5, 8));
            bits.put(0xFF, 8);
            bits.put(0b101, 3);
            bits.finish();
            let expected: Vec<u8> = [vec![9; at], vec![0xA5; at], vec![0xFF, 0, 0b1011_1111]].concat();
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn restart_markers_come_in_turn_behind_padding() {
        let mut bytes = Vec::new();
        let mut bits = ScanBits::new(&mut bytes, true);
        for _ in 0..9 {
            bits.put(1, 1);
            bits.restart();
        }
        assert_eq!(bytes[..6], [0x80, 0xFF, 0xD0, 0x80, 0xFF, 0xD1]);
        assert_eq!(bytes[24..], [0x80, 0xFF, 0xD0]);
    }
}
