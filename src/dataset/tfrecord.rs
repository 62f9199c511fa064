//! TFRecord shards, which hold one record after another, each with its length and checksums.
//!
//! A record is its length (u64), the masked CRC-32C of these eight bytes (u32), the payload, and the payload's masked
//! CRC-32C (u32), all little-endian; masked is `rotate_right(crc, 15) + 0xa282ead8` (TensorFlow,
//! `core/lib/io/record_writer.h`, `core/lib/hash/crc32c.h`). Payloads are stepped over, never read.

use super::build::SampleRow;
use super::shards;
use crate::crc::checksum;
use crate::source::{Malformed, ReadAt, Window};

/// The number of bytes of a record's length and its checksum.
const HEADER: u64 = 12;
/// The number of bytes of the payload's checksum.
const FOOTER: u64 = 4;

/// The payloads of a shard's records, in order and without labels.
///
/// # Errors
/// [`Malformed`] for a shard that is damaged, truncated or compressed, for a file that is no shard, and for a record of
/// 4 GiB or more.
pub fn records<S: ReadAt + ?Sized>(source: &S) -> Result<Vec<SampleRow>, Malformed> {
    shards::refuse_compressed(source, "uncompressed TFRecord files")?;
    let mut source = Window::new(source);
    let mut records = Vec::new();
    let mut at = 0;
    while at < source.size() {
        let header = source.read(at, HEADER)?;
        let fail = |message: String| Malformed { offset: at, message };
        let Some(length) = length(&header) else { return Err(fail(no_record(at))) };
        let payload = at + HEADER;
        let end = payload.checked_add(length).and_then(|end| end.checked_add(FOOTER));
        let Some(end) = end.filter(|&end| end <= source.size()) else {
            return Err(Malformed { offset: at, ..source.truncated(payload, length.saturating_add(FOOTER)) });
        };
        let short = u32::try_from(length);
        let length = short.map_err(|_| fail(format!("a record of {length} bytes: 4 GiB or more")))?;
        records.push(SampleRow { offset: payload, length, label: 0 });
        at = end;
    }
    Ok(records)
}

/// The length that a record begins with; `None` where its checksum differs.
fn length(header: &[u8]) -> Option<u64> {
    let (length, stated) = header.split_first_chunk::<8>()?;
    let stated = u32::from_le_bytes(*stated.first_chunk()?);
    (masked(checksum(length)) == stated).then(|| u64::from_le_bytes(*length))
}

/// A CRC-32C as TFRecord shards have it.
pub(crate) fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn no_record(at: u64) -> String {
    match at {
        0 => "not a TFRecord shard: it does not begin with a record's length and its checksum".to_owned(),
        _ => "no record's length and checksum where the next record should begin: the shard is damaged"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720_masked() {
        // Appendix B.4: CRC-32C of 32 zeros is aa 36 91 8a as sent, 0x8a9136aa.
        assert_eq!(masked(checksum(&[0; 32])), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }
}
