//! The rows in the tables of stream segments. [`store::segments::footer`] defines the rest of the file format.
//!
//! ```text
//! row, 32 bytes  id u64 · offset u64 · bytes u32 · CRC-32C u32 · class u32 · 0 u32
//! ```
//!
//! Samples follow one another without gaps. The class of a sample without a class is 2^32 - 1.

use super::rows::{RecordRow, RecordRows};
use std::fs::File;
use store::segments::footer::{SegmentError, SegmentFormat};
use store::segments::{u32_at, u64_at};

pub(super) const VERSION: u32 = 1;
const ROW: usize = 32;
const FORMAT: SegmentFormat<ROW, 0> = SegmentFormat { magic: *b"FLRECORD", version: VERSION };

/// The size in bytes of a segment with this number of `samples`, whose bytes sum up to `payload`.
pub(super) fn file_bytes(payload: u64, samples: usize) -> u64 {
    payload + SegmentFormat::<ROW, 0>::footer_bytes(samples)
}

pub(super) fn encode_footer(number: u64, rows: &RecordRows) -> Vec<u8> {
    let encode = |row: &RecordRow| {
        let mut bytes = [0; ROW];
        bytes[..16].copy_from_slice([row.id, row.offset].map(u64::to_le_bytes).as_flattened());
        bytes[16..28].copy_from_slice([row.length, row.crc, row.label].map(u32::to_le_bytes).as_flattened());
        bytes
    };
    FORMAT.encode(number, rows.payload(), [], &rows.iter().map(encode).collect::<Vec<_>>())
}

/// Reads and checks the table and the trailer of segment `number`, a file of `size` bytes.
///
/// # Errors
/// [`SegmentError::Damaged`] if any check fails, [`SegmentError::Io`] if the file cannot be read.
pub(super) fn read_footer(file: &File, size: u64, number: u64) -> Result<RecordRows, SegmentError> {
    let footer = FORMAT.read(file, size, number)?;
    let mut rows = RecordRows::default();
    for row in footer.rows() {
        let (u32_at, u64_at) = (|at| u32_at(row, at), |at| u64_at(row, at));
        if u64_at(8) != rows.payload() {
            return Err(SegmentError::Damaged("its table has gaps"));
        }
        rows.push(RecordRow::new(u64_at(0), u64_at(8), u32_at(16), u32_at(20), u32_at(24)));
    }
    if rows.payload() != footer.trailer.payload {
        return Err(SegmentError::Damaged("its table has gaps"));
    }
    Ok(rows)
}
