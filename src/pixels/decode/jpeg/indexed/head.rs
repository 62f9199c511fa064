//! The head of an indexed image: the points in the file at which decoding can start, and the decoder state there.

use std::ops::Range;

use super::{SIGNATURE, corrupt};
use base::crc::checksum;
use base::error::DecodeError;

/// The size in bytes of the head's fields before the entries.
const FIXED: usize = 28;
const ENTRY: usize = 12;

/// A point in the entropy-coded data at which decoding can start: the beginning of a row of MCUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::decode) struct EntryPoint {
    /// The offset in the file of the byte that contains the row's first bit.
    pub(in crate::decode) byte: u32,
    /// The number of bits of that byte before the first bit, at most 7.
    pub(in crate::decode) skip: u32,
    /// The DC coefficient of each component's last block before this point, in the order of the scan's components.
    pub(in crate::decode) dc: [i16; 3],
}

impl EntryPoint {
    /// The range of the bytes of `file` between this and a later entry point.
    pub(in crate::decode) fn until(&self, next: Self, file: &[u8]) -> Range<usize> {
        let byte = next.byte as usize;
        let end = match next.skip {
            0 => byte,
            // The next entry begins inside this byte. If the byte is FF, the zero after the byte is also needed:
            // without the zero, FF would not be a byte of coded data.
            _ => byte + 1 + usize::from(file.get(byte) == Some(&0xFF)),
        };
        self.byte as usize..end
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.byte.to_le_bytes());
        self.dc.iter().for_each(|dc| out.extend(dc.to_le_bytes()));
        out.extend([self.skip as u8, 0]);
    }

    fn read(bytes: &[u8; ENTRY]) -> Self {
        let [b0, b1, b2, b3, ref dc @ .., skip, _] = *bytes;
        let [d0, d1, d2, d3, d4, d5] = *dc;
        Self {
            byte: u32::from_le_bytes([b0, b1, b2, b3]),
            skip: u32::from(skip & 7),
            dc: [[d0, d1], [d2, d3], [d4, d5]].map(i16::from_le_bytes),
        }
    }
}

/// The head's description of the original file, without the entry points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedFile {
    pub(super) file: u32,
    /// The CRC-32C of the file's bytes.
    pub(super) crc: u32,
    /// The offset in the file of the marker that ends the entropy-coded data.
    pub(super) end: u32,
    /// The number of columns of MCUs, and of rows.
    pub(super) mcus: (u32, u32),
}

impl IndexedFile {
    pub(super) fn write(&self, entries: &[EntryPoint], out: &mut Vec<u8>) {
        let Self { file, crc, end, mcus: (columns, rows) } = *self;
        let start = out.len();
        out.extend(SIGNATURE);
        let length = FIXED + entries.len() * ENTRY + 4;
        [length as u32, file, crc, end].iter().for_each(|value| out.extend(value.to_le_bytes()));
        [columns, rows].iter().for_each(|&value| out.extend((value as u16).to_le_bytes()));
        entries.iter().for_each(|entry| entry.write(out));
        let crc = checksum(&out[start..]);
        out.extend(crc.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy)]
pub(in crate::decode) struct IndexHead<'a> {
    pub(super) facts: IndexedFile,
    entries: &'a [[u8; ENTRY]],
    bytes: &'a [u8],
    length: usize,
}

impl<'a> IndexHead<'a> {
    pub(super) fn read(indexed: &'a [u8]) -> Result<Self, DecodeError> {
        let short = || corrupt("its head is truncated");
        let fixed: &[u8; FIXED] = indexed.first_chunk().ok_or_else(short)?;
        if fixed[..8] != *SIGNATURE {
            return Err(corrupt("it does not begin with the signature of this version"));
        }
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let half = |at: usize| u32::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let length = word(8) as usize;
        let facts = IndexedFile { file: word(12), crc: word(16), end: word(20), mcus: (half(24), half(26)) };
        let head = indexed.get(..length).ok_or_else(short)?;
        let (head, crc) = head.split_last_chunk().ok_or_else(short)?;
        if checksum(head) != u32::from_le_bytes(*crc) {
            return Err(corrupt("the checksum of its head is wrong"));
        }
        let (entries, rest) = head.get(FIXED..).ok_or_else(short)?.as_chunks();
        if !rest.is_empty() || entries.len() != facts.mcus.1 as usize {
            return Err(corrupt("the length in its head does not match the head's contents"));
        }
        let means = length as u64 + u64::from(facts.file);
        if means != indexed.len() as u64 {
            return Err(corrupt(&format!("it has {} bytes, but its head says {means}", indexed.len())));
        }
        Ok(Self { facts, entries, bytes: indexed, length })
    }

    pub(super) fn file(&self) -> Range<usize> {
        self.length..self.length + self.facts.file as usize
    }

    /// The entry point of a row of MCUs, and the row's byte range in the file. `None` if there is no such row.
    pub(super) fn row(&self, row: u32) -> Option<(EntryPoint, Range<usize>)> {
        let entry = |row: usize| self.entries.get(row).map(EntryPoint::read);
        let start = entry(row as usize)?;
        let part = match entry(row as usize + 1) {
            Some(next) => start.until(next, &self.bytes[self.file()]),
            None => start.byte as usize..self.facts.end as usize,
        };
        Some((start, part))
    }
}
