//! TFRecord shards: one record after another, each with its length and checksums.
//!
//! A record is its length (u64), the masked CRC-32C of these eight bytes (u32), the payload, and the payload's masked
//! CRC-32C (u32), all little-endian. Masked means `rotate_right(crc, 15) + 0xa282ead8` (TensorFlow,
//! `core/lib/io/record_writer.h`, `core/lib/hash/crc32c.h`). Indexing skips the payloads.

use super::super::build::{SampleRow, ShardRows};
use super::super::samples::{ShardContents, ShardFindings};
use super::super::survey::is_tfrecord;
use super::super::unpack::BlockCodec;
use super::super::whole_file::{self, UnpackedShard};
use super::super::{Contents, shards};
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, Malformed, ReadAt, Window};
use base::crc::{Checksum, checksum};
use base::error::Result;

/// Shards of records. The payload of each record is a sample.
pub(super) struct RecordShards;

impl ShardLayout for RecordShards {
    fn samples(&self) -> Contents {
        Contents::Files
    }

    fn is_shard(&self, name: &[u8]) -> bool {
        is_tfrecord(name)
    }

    fn empty_message(&self) -> String {
        "the shards hold no record".to_owned()
    }

    fn is_table(&self) -> bool {
        false
    }

    fn parser(&self, _: &dyn DatasetSource, _: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(Self))
    }
}

impl ShardParser for RecordShards {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        fn parse<S: ReadAt + ?Sized>(bytes: &S) -> Result<ShardContents, Malformed> {
            let rows = ShardRows { samples: records(bytes)?, ..ShardRows::default() };
            Ok(ShardContents { rows, findings: ShardFindings::default() })
        }
        match codec_of(bytes)? {
            Some(codec) => UnpackedShard::of(bytes, codec, None)?.contents(parse),
            None => parse(bytes),
        }
    }
}

/// The codec of a shard that is compressed as a whole. TensorFlow's writers support GZIP and ZLIB. A shard that begins
/// with a valid length and checksum of a record is not compressed, even if its first bytes look like a signature of a
/// codec.
pub(super) fn codec_of(source: &dyn ReadAt) -> Result<Option<BlockCodec>, Malformed> {
    let mut start = [0; HEADER as usize];
    let got = source.fill_at(&mut start, 0)?;
    if length(&start).is_some() {
        return Ok(None);
    }
    match start[..got] {
        // The first byte gives the method and the window size. The first two bytes, as a big-endian number, are a
        // multiple of 31 (RFC 1950).
        [0x78, flags, ..] if u16::from_be_bytes([0x78, flags]).is_multiple_of(31) => {
            Ok(Some(BlockCodec::Zlib))
        }
        _ => whole_file::codec_of(source),
    }
}

const HEADER: u64 = 12;
const FOOTER: u64 = 4;
const PIECE: u64 = 1 << 20;

/// The locations of the payloads of a shard's records, in order and without labels.
///
/// # Errors
/// [`Malformed`] for a shard that is damaged, truncated or compressed, for a file that is not a shard, and for a record
/// of 4 GiB or more.
pub fn records<S: ReadAt + ?Sized>(source: &S) -> Result<Vec<SampleRow>, Malformed> {
    shards::refuse_compressed(source, "uncompressed TFRecord files")?;
    let (mut source, mut at) = (Window::new(source), 0);
    let mut records = Vec::new();
    while let Some(record) = next_record(&mut source, &mut at)? {
        records.push(record);
    }
    Ok(records)
}

/// The location of the payload of the record at `at`; `None` at the end of the shard. Sets `at` to the offset of the
/// next record.
pub(super) fn next_record<S: ReadAt + ?Sized>(
    source: &mut Window<'_, S>,
    at: &mut u64,
) -> Result<Option<SampleRow>, Malformed> {
    let start = *at;
    if start >= source.size() {
        return Ok(None);
    }
    let header = source.read(start, HEADER)?;
    let fail = |message: String| Malformed { offset: start, message };
    let Some(length) = length(&header) else { return Err(fail(no_record(start))) };
    let payload = start + HEADER;
    let end = payload.checked_add(length).and_then(|end| end.checked_add(FOOTER));
    let Some(end) = end.filter(|&end| end <= source.size()) else {
        return Err(Malformed { offset: start, ..source.truncated(payload, length.saturating_add(FOOTER)) });
    };
    let short = u32::try_from(length);
    let length = short.map_err(|_| fail(format!("a record of {length} bytes: 4 GiB or more")))?;
    *at = end;
    Ok(Some(SampleRow { offset: payload, length, label: 0 }))
}

pub(super) fn check_payload<S: ReadAt + ?Sized>(
    source: &mut Window<'_, S>,
    record: SampleRow,
) -> Result<(), Malformed> {
    let (mut at, end) = (record.offset, record.offset + u64::from(record.length));
    let mut sum = Checksum::new();
    while at < end {
        let piece = source.read(at, (end - at).min(PIECE))?;
        sum.update(&piece);
        at += piece.len() as u64;
    }
    if source.read(end, FOOTER)? == masked(sum.value()).to_le_bytes() {
        return Ok(());
    }
    let message = "the record is damaged: its checksum does not match".to_owned();
    Err(Malformed { offset: record.offset - HEADER, message })
}

/// The length at the beginning of a record; `None` if the checksum of the length differs.
fn length(header: &[u8]) -> Option<u64> {
    let (length, stated) = header.split_first_chunk::<8>()?;
    let stated = u32::from_le_bytes(*stated.first_chunk()?);
    (masked(checksum(length)) == stated).then(|| u64::from_le_bytes(*length))
}

/// Masks a CRC-32C as TFRecord shards store it.
pub fn masked(checksum: u32) -> u32 {
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
        // RFC 3720, appendix B.4: the CRC-32C of 32 zeros is sent as the bytes aa 36 91 8a, which are 0x8a9136aa.
        assert_eq!(masked(checksum(&[0; 32])), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }
}
