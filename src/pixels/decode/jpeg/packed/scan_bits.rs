//! A writer for entropy-coded bits in JPEG's format: highest bit first, and a zero after each byte 0xFF.

/// The entropy-coded data of a scan during writing. Bits are collected in unstuffed bytes. These bytes are stuffed when
/// a restart interval ends.
pub(in crate::decode) struct ScanBits<'a> {
    out: &'a mut Vec<u8>,
    /// The bytes of the current restart interval, before stuffing, and space for more bytes.
    plain: &'a mut Vec<u8>,
    cursor: BitCursor,
    padded_with_zeros: bool,
    marker: u8,
}

/// The write position in a restart interval. It is a separate value, so that it stays in registers while a block is
/// encoded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BitCursor {
    at: usize,
    /// The bits of the incomplete byte, highest first.
    window: u64,
    filled: u32,
}

impl BitCursor {
    /// Appends the lowest `count` bits of `bits`, at most 56. The other bits must be zero. `space` is the slice from
    /// [`ScanBits::open_block`].
    #[inline(always)]
    pub(super) fn put(&mut self, space: &mut [u8], bits: u64, count: u32) {
        self.filled += count;
        self.window |= bits << ((64 - self.filled) & 63);
        // Store all eight bytes, so that the number of complete bytes need not be tested.
        if let Some(bytes) = space.get_mut(self.at..self.at + 8) {
            bytes.copy_from_slice(&self.window.to_be_bytes());
        }
        self.at += (self.filled / 8) as usize;
        self.window <<= self.filled & 56;
        self.filled &= 7;
    }
}

/// The space in bytes that is always available. It is enough for a block of 64 values of 32 bits, and for the largest
/// number of pending correction bits.
const MIN_SPACE: usize = 1 << 11;

impl<'a> ScanBits<'a> {
    pub(in crate::decode) fn new(
        out: &'a mut Vec<u8>,
        plain: &'a mut Vec<u8>,
        padded_with_zeros: bool,
    ) -> Self {
        Self { out, plain, cursor: BitCursor::default(), padded_with_zeros, marker: 0 }
    }

    /// Returns the cursor for writing a block's bits, and the space for the bits. [`Self::close_block`] takes the
    /// cursor back.
    #[inline(always)]
    pub(super) fn open_block(&mut self) -> (BitCursor, &mut [u8]) {
        let cursor = self.cursor;
        if self.plain.len() < cursor.at + MIN_SPACE {
            self.grow();
        }
        (cursor, self.plain)
    }

    #[inline(always)]
    pub(super) fn close_block(&mut self, cursor: BitCursor) {
        self.cursor = cursor;
    }

    #[cold]
    fn grow(&mut self) {
        self.plain.resize(2 * self.plain.len() + (1 << 16), 0);
    }

    pub(in crate::decode) fn put(&mut self, bits: u32, count: u32) {
        let (mut cursor, space) = self.open_block();
        cursor.put(space, bits.into(), count);
        self.close_block(cursor);
    }

    /// Pads the last byte with bits, and appends all bytes to `out` with byte stuffing.
    pub(in crate::decode) fn finish(&mut self) {
        let missing = self.cursor.filled.wrapping_neg() % 8;
        let padding = if self.padded_with_zeros { 0 } else { (1 << missing) - 1 };
        self.put(padding, missing);
        let mut rest = &self.plain[..self.cursor.at];
        self.out.reserve(rest.len() + rest.len() / 64);
        while let Some(ff) = first_ff(rest) {
            self.out.extend_from_slice(&rest[..=ff]);
            self.out.push(0);
            rest = &rest[ff + 1..];
        }
        self.out.extend_from_slice(rest);
        self.cursor.at = 0;
    }

    pub(super) fn restart(&mut self) {
        self.finish();
        self.out.extend([0xFF, 0xD0 + self.marker]);
        self.marker = (self.marker + 1) % 8;
    }
}

/// The index of the first byte 0xFF. Eight bytes are examined together, because 0xFF is rare.
fn first_ff(bytes: &[u8]) -> Option<usize> {
    let (eights, rest) = bytes.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let inverted = !u64::from_le_bytes(*eight);
        // If one is subtracted from every byte, the lowest byte that borrows is the lowest zero byte.
        let zeros = inverted.wrapping_sub(0x0101_0101_0101_0101) & !inverted & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(8 * number + zeros.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|&byte| byte == 0xFF)?;
    Some(bytes.len() - rest.len() + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ff_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut bytes = vec![0xFE; length];
            assert_eq!(first_ff(&bytes), None, "{length}");
            for at in (0..length).rev() {
                bytes[at] = 0xFF;
                assert_eq!(first_ff(&bytes), Some(at), "{length}");
            }
        }
    }

    #[test]
    fn bits_come_highest_first_and_every_ff_is_stuffed() {
        for at in 0..8 {
            let (mut bytes, mut plain) = (vec![9; at], Vec::new());
            let mut bits = ScanBits::new(&mut bytes, &mut plain, false);
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
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        let mut bits = ScanBits::new(&mut bytes, &mut plain, true);
        for _ in 0..9 {
            bits.put(1, 1);
            bits.restart();
        }
        assert_eq!(bytes[..6], [0x80, 0xFF, 0xD0, 0x80, 0xFF, 0xD1]);
        assert_eq!(bytes[24..], [0x80, 0xFF, 0xD0]);
    }
}
