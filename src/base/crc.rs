//! Checksums: CRC-32C (Castagnoli), which is stored and sent with every copy of a sample's bytes, and CRC-32, which
//! gzip, PNG and Parquet use.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli). The catalogue of CRCs lists it as CRC-32/ISCSI.
const CASTAGNOLI: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// The CRC-32C of a contiguous range of bytes.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CASTAGNOLI, bytes) as u32
}

/// The CRC-32 that gzip, PNG and Parquet's pages use.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// The CRC-32C of bytes that arrive in chunks.
pub struct Checksum(Digest);

impl Checksum {
    /// Creates the checksum of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CASTAGNOLI))
    }

    /// Adds the next chunk.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all chunks that were added.
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
