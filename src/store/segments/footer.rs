//! The footer of a segment: a table of its samples, and a trailer with the size of the table. Readers must verify both.
//!
//! ```text
//! payload  the samples' bytes
//! table    a row for each sample
//! trailer  magic · version u32 · rows u32 · extra bytes of the format · file number u64 ·
//!          payload length u64 · CRC-32C of the table u32 · CRC-32C of all earlier bytes of the trailer u32
//! ```
//!
//! All numbers are little-endian.

use super::{u32_at, u64_at};
use base::crc::checksum;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The number of bytes at the end of a file that are read first. They usually contain the whole table.
const TAIL: u64 = 32 << 10;

/// The reason why a segment cannot be used.
#[derive(Debug)]
pub enum SegmentError {
    /// The file is invalid; the text describes the defect.
    Damaged(&'static str),
    /// The file could not be read.
    Io(io::Error),
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A format of segment files. A row of the table has `ROW` bytes, and the trailer has `MORE` bytes for values of this
/// format.
pub struct SegmentFormat<const ROW: usize, const MORE: usize> {
    /// The first bytes of the trailer.
    pub magic: [u8; 8],
    /// The version of the format.
    pub version: u32,
}

/// The values in a trailer, without magic, version and the trailer's own checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentTrailer<const MORE: usize> {
    /// The number of rows (samples) in the table.
    pub rows: u32,
    /// The bytes for values of the format.
    pub more: [u8; MORE],
    /// The file number, which is also in the file's name.
    pub number: u64,
    /// The size in bytes of the samples, which are stored before the table.
    pub payload: u64,
    /// The CRC-32C of the table.
    pub crc: u32,
}

/// The verified footer of a segment.
pub struct SegmentFooter<const ROW: usize, const MORE: usize> {
    /// The content of the trailer.
    pub trailer: SegmentTrailer<MORE>,
    tail: Vec<u8>,
}

impl<const ROW: usize, const MORE: usize> SegmentFooter<ROW, MORE> {
    /// Returns the rows of the table.
    pub fn rows(&self) -> &[[u8; ROW]] {
        let end = self.tail.len() - SegmentFormat::<ROW, MORE>::TRAILER;
        self.tail[..end].as_rchunks().1
    }
}

impl<const ROW: usize, const MORE: usize> SegmentFormat<ROW, MORE> {
    /// The length of a trailer in bytes.
    pub const TRAILER: usize = 40 + MORE;

    /// Returns the size in bytes of table and trailer, for `rows` samples.
    pub const fn footer_bytes(rows: usize) -> u64 {
        (rows * ROW + Self::TRAILER) as u64
    }

    /// Encodes a trailer.
    pub fn encode_trailer(&self, trailer: &SegmentTrailer<MORE>) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend([self.version, trailer.rows].map(u32::to_le_bytes).as_flattened());
        bytes.extend(trailer.more);
        bytes.extend([trailer.number, trailer.payload].map(u64::to_le_bytes).as_flattened());
        bytes.extend(trailer.crc.to_le_bytes());
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes the trailer of file `number`.
    ///
    /// # Errors
    /// A description of the defect.
    pub fn decode_trailer(&self, bytes: &[u8], number: u64) -> Result<SegmentTrailer<MORE>, &'static str> {
        let (body, crc) = bytes.split_last_chunk().expect("a trailer has more than its checksum");
        if bytes[..8] != self.magic || checksum(body) != u32::from_le_bytes(*crc) {
            return Err("its end is damaged");
        }
        if u32_at(bytes, 8) != self.version || u64_at(bytes, 16 + MORE) != number {
            return Err("its number or its format version is wrong");
        }
        Ok(SegmentTrailer {
            rows: u32_at(bytes, 12),
            more: *bytes[16..].first_chunk().expect("the trailer is as long as the format says"),
            number,
            payload: u64_at(bytes, 24 + MORE),
            crc: u32_at(bytes, 32 + MORE),
        })
    }

    /// Encodes the footer of segment `number`: a table of `rows`, and a trailer. `payload` is the size of the samples
    /// in bytes.
    pub fn encode(&self, number: u64, payload: u64, more: [u8; MORE], rows: &[[u8; ROW]]) -> Vec<u8> {
        let mut bytes = rows.as_flattened().to_vec();
        let (rows, crc) = (rows.len() as u32, checksum(&bytes));
        bytes.extend(self.encode_trailer(&SegmentTrailer { rows, more, number, payload, crc }));
        bytes
    }

    /// Reads and verifies the footer of segment `number`, a file of `size` bytes. The caller must check the values in
    /// the rows.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`] if anything is invalid, [`SegmentError::Io`] if the file cannot be read.
    pub fn read(
        &self,
        file: &File,
        size: u64,
        number: u64,
    ) -> Result<SegmentFooter<ROW, MORE>, SegmentError> {
        let guess = size.min(TAIL);
        if guess < Self::TRAILER as u64 {
            return Err(SegmentError::Damaged("it is too short"));
        }
        let mut tail = vec![0; guess as usize];
        file.read_exact_at(&mut tail, size - guess)?;
        let trailer = self.decode_trailer(&tail[tail.len() - Self::TRAILER..], number);
        let trailer = trailer.map_err(SegmentError::Damaged)?;
        let footer = Self::footer_bytes(trailer.rows as usize);
        if trailer.payload.checked_add(footer) != Some(size) {
            return Err(SegmentError::Damaged("its size is wrong"));
        }
        match guess.checked_sub(footer) {
            Some(before) => drop(tail.drain(..before as usize)),
            None => {
                tail.resize(footer as usize, 0);
                file.read_exact_at(&mut tail, trailer.payload)?;
            }
        }
        if checksum(&tail[..tail.len() - Self::TRAILER]) != trailer.crc {
            return Err(SegmentError::Damaged("its table is damaged"));
        }
        Ok(SegmentFooter { trailer, tail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const FORMAT: SegmentFormat<16, 5> = SegmentFormat { magic: *b"SEGMENTS", version: 3 };

    fn read(bytes: &[u8], number: u64) -> Result<SegmentFooter<16, 5>, SegmentError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        FORMAT.read(&file, bytes.len() as u64, number)
    }

    #[test]
    fn a_footer_gives_back_its_rows_whatever_their_number() {
        for count in [0, 1, 5, 2045, 2046, 5000] {
            let rows: Vec<[u8; 16]> = (0..count).map(|row: u32| [row as u8; 16]).collect();
            let footer = FORMAT.encode(7, 100, *b"added", &rows);
            assert_eq!(footer.len() as u64, SegmentFormat::<16, 5>::footer_bytes(rows.len()));
            let bytes = [vec![1; 100], footer].concat();
            let found = read(&bytes, 7).unwrap();
            let SegmentTrailer { rows: said, more, payload, .. } = found.trailer;
            assert_eq!((said, &more, payload), (count, b"added", 100));
            assert_eq!(found.rows(), rows);
        }
    }

    #[test]
    fn what_is_damaged_is_no_segment() {
        let whole = [vec![1; 9], FORMAT.encode(7, 9, *b"added", &[[2; 16]; 3])].concat();
        assert!(read(&whole, 7).is_ok() && read(&whole, 8).is_err(), "a segment has its number");
        for cut in 0..whole.len() {
            assert!(matches!(read(&whole[..cut], 7), Err(SegmentError::Damaged(_))), "{cut} bytes");
        }
        for at in 9..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(matches!(read(&bytes, 7), Err(SegmentError::Damaged(_))), "byte {at}");
        }
        let other = SegmentFormat { version: 4, ..FORMAT };
        let bytes = [vec![1; 9], other.encode(7, 9, *b"added", &[[2; 16]; 3])].concat();
        assert!(matches!(read(&bytes, 7), Err(SegmentError::Damaged(what)) if what.contains("version")));
    }
}
