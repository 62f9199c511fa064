//! The CRC-32C (Castagnoli) of a sample's bytes, by which they are known wherever they are copied to, and the CRC-32
//! that other people's formats have.

use crc_fast::{CrcAlgorithm, Digest};

/// What the catalogue of CRCs calls Castagnoli's.
const CASTAGNOLI: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// The checksum of bytes that are all there.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CASTAGNOLI, bytes) as u32
}

/// The CRC-32 of gzip and PNG, which Parquet has for its pages.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// The checksum of bytes that come in pieces.
pub struct Checksum(Digest);

impl Checksum {
    /// That of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CASTAGNOLI))
    }

    /// Goes on with the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of the pieces so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_castagnolis_in_one_piece_or_several() {
        let mut pieces = Checksum::new();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!((checksum(b"123456789"), pieces.value()), (0xE306_9283, 0xE306_9283));
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
