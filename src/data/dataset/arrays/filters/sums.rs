//! Checksums of chunks.

use super::ChunkSum;

/// Verifies the checksum and returns the bytes without it.
pub(super) fn payload(sum: ChunkSum, bytes: &[u8]) -> Result<&[u8], String> {
    let (bytes, stored) =
        bytes.split_last_chunk().ok_or_else(|| format!("its {} bytes have no checksum", bytes.len()))?;
    let stored = u32::from_le_bytes(*stored);
    let (title, is_right) = match sum {
        ChunkSum::Fletcher32 => {
            // The first versions of HDF5 stored the bytes of each half in the other order; libhdf5 accepts both.
            let found = fletcher32(bytes);
            let swapped = found.swap_bytes().rotate_left(16);
            ("fletcher32", stored == found || stored == swapped)
        }
        ChunkSum::Crc32c => ("CRC-32C", stored == base::crc::checksum(bytes)),
    };
    if is_right { Ok(bytes) } else { Err(format!("its {title} checksum does not match: it is damaged")) }
}

/// The Fletcher checksum of HDF5: of big-endian words of 16 bits. The second half of an odd last word is 0.
fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (words, odd) = bytes.as_chunks::<2>();
    let (mut low, mut high) = (0u32, 0u32);
    // 360 words are the most before a sum of 32 bits can overflow.
    for words in words.chunks(360) {
        for &word in words {
            low += u32::from(u16::from_be_bytes(word));
            high += low;
        }
        (low, high) = (fold(low), fold(high));
    }
    if let [byte] = *odd {
        low += u32::from(byte) << 8;
        high += low;
        (low, high) = (fold(low), fold(high));
    }
    fold(high) << 16 | fold(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_libraries() {
        // By numcodecs.
        assert_eq!((fletcher32(b""), fletcher32(b"a"), fletcher32(b"abc")), (0, 0x6100_6100, 0x25C5_C462));
    }

    #[test]
    fn a_damaged_checksum_is_an_error() {
        for sum in [ChunkSum::Fletcher32, ChunkSum::Crc32c] {
            for short in 0..4 {
                assert!(payload(sum, &[0; 3][..short]).is_err(), "{sum:?}");
            }
            assert!(payload(sum, b"abcdefgh").unwrap_err().contains("does not match"), "{sum:?}");
        }
    }
}
