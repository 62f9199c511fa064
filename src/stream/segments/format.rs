//! The format of a segment file: samples one after another, a table of them, a trailer that finds it. Never trusted.
//!
//! ```text
//! payload            the samples' bytes, one behind the other
//! table              of each: id u64 · offset u64 · bytes u32 · CRC-32C u32 · class u32 · 0 u32
//! trailer, 40 bytes  magic · version u32 · samples u32 · segment's number u64 · payload's bytes u64 ·
//!                    CRC of the table u32 · CRC of the trailer before it u32
//! ```
//!
//! All numbers are little-endian; the class of a sample that has none is 2^32 - 1.

use super::rows::{RecordRow, RecordRows};
use base::crc::checksum;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"FLRECORD";
/// The version of all files of a directory.
pub(super) const VERSION: u32 = 1;
const ROW: usize = 32;
const TRAILER: usize = 40;

/// Why the end of a segment cannot be used.
#[derive(Debug)]
pub(super) enum FooterFault {
    /// It is not what it should be.
    Damaged(&'static str),
    /// It could not be read.
    Io(io::Error),
}

impl From<io::Error> for FooterFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The bytes of a segment with so many samples of so many bytes together.
pub(super) fn file_bytes(payload: u64, samples: usize) -> u64 {
    payload + (samples * ROW + TRAILER) as u64
}

/// The table and the trailer of segment `number`.
pub(super) fn encode_footer(number: u64, rows: &RecordRows) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * ROW + TRAILER);
    for row in rows.iter() {
        bytes.extend([row.id.to_le_bytes(), row.offset.to_le_bytes()].as_flattened());
        bytes.extend([row.length, row.crc, row.label, 0].map(u32::to_le_bytes).as_flattened());
    }
    let (table, start) = (checksum(&bytes), bytes.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, rows.len() as u32].map(u32::to_le_bytes).as_flattened());
    bytes.extend([number, rows.payload()].map(u64::to_le_bytes).as_flattened());
    bytes.extend(table.to_le_bytes());
    let trailer = checksum(&bytes[start..]);
    bytes.extend(trailer.to_le_bytes());
    bytes
}

/// Reads and checks the table and the trailer of segment `number`, a file of `size` bytes.
///
/// # Errors
/// [`FooterFault::Damaged`] where anything is not as it must be, [`FooterFault::Io`] where it cannot be read.
pub(super) fn read_footer(file: &File, size: u64, number: u64) -> Result<RecordRows, FooterFault> {
    let Some(end) = size.checked_sub(TRAILER as u64) else {
        return Err(FooterFault::Damaged("it is too short"));
    };
    let mut trailer = [0; TRAILER];
    file.read_exact_at(&mut trailer, end)?;
    let (u32_at, u64_at) = (|at| u32_at(&trailer, at), |at| u64_at(&trailer, at));
    if trailer[..8] != MAGIC || checksum(&trailer[..TRAILER - 4]) != u32_at(TRAILER - 4) {
        return Err(FooterFault::Damaged("its end is damaged"));
    }
    if u32_at(8) != VERSION || u64_at(16) != number {
        return Err(FooterFault::Damaged("it is another segment"));
    }
    let (count, payload) = (u32_at(12) as usize, u64_at(24));
    if payload > size || file_bytes(payload, count) != size {
        return Err(FooterFault::Damaged("its size is wrong"));
    }
    let mut table = vec![0; count * ROW];
    file.read_exact_at(&mut table, payload)?;
    if checksum(&table) != u32_at(32) {
        return Err(FooterFault::Damaged("its table is damaged"));
    }
    let mut rows = RecordRows::default();
    for row in table.as_chunks::<ROW>().0 {
        let (u32_at, u64_at) = (|at| self::u32_at(row, at), |at| self::u64_at(row, at));
        if u64_at(8) != rows.payload() {
            return Err(FooterFault::Damaged("its table has gaps"));
        }
        rows.push(RecordRow::new(u64_at(0), u64_at(8), u32_at(16), u32_at(20), u32_at(24)));
    }
    if rows.payload() != payload {
        return Err(FooterFault::Damaged("its table has gaps"));
    }
    Ok(rows)
}

/// The number at `at`, where there are four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// The number at `at`, where there are eight bytes.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}
