//! The format of a segment file: samples one after another, a table of them, a trailer that finds it. Never trusted.
//!
//! ```text
//! payload            the samples' bytes
//! table              of each: number u64 · version of its file u64 · offset u32 · bytes u32 · CRC-32C u32 ·
//!                    form u16 · form that it was brought to u16 · outline, 32 bytes
//! trailer, 64 bytes  magic · version u32 · samples u32 · dataset's key · group u64 · segment's number u64 ·
//!                    payload's bytes u64 · CRC of the table u32 · CRC of the trailer before it u32
//! ```
//!
//! All numbers are little-endian. The outline is that of an image that was packed for the cache; of other copies it is
//! zeros. Nothing is synced to the drive before a segment is published: after a power cut parts of it may be missing.
//! The checksums find that: those of table and trailer when it is loaded, a sample's, or those of its rows, when it is
//! read.

use super::super::catalog::SegmentRow;
use super::super::convert::most_bytes;
use crate::io::numbered;
use base::crc::checksum;
use data::dataset::{DatasetIndex, FileVersion};
use pixels::decode::FileForm;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"FLSEGMNT";
/// The version of segment files and of the lock file; a directory of another version is refused.
pub(super) const VERSION: u32 = 4;
const ROW: usize = 64;
const TRAILER: usize = 64;
/// The forms, by their numbers in a table.
const FORMS: [FileForm; 3] = [FileForm::AsIs, FileForm::Indexed, FileForm::Packed];

/// The key of a dataset's segments: the beginnings of its fingerprint and of the identity of its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DatasetKey(pub [u8; 16]);

impl DatasetKey {
    pub(super) fn of(index: &DatasetIndex) -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&index.fingerprint().0[..8]);
        key[8..].copy_from_slice(&index.identity()[..8]);
        Self(key)
    }

    /// The key that a directory is named by.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let key = u128::from_str_radix(name, 16).ok()?.to_be_bytes();
        (Self(key).to_string() == name).then_some(Self(key))
    }
}

impl fmt::Display for DatasetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The name of segment `number`.
pub(super) fn name(number: u64) -> String {
    numbered::name(number, "seg")
}

/// The number of the segment that is called `name`.
pub(super) fn parse_name(found: &str) -> Option<u64> {
    numbered::parse(found, "seg")
}

/// What the end of a segment says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footer {
    /// The group that all its samples belong to.
    pub group: u64,
    /// A row for each sample, in the order of their bytes.
    pub rows: Vec<SegmentRow>,
}

/// Why a segment cannot be used.
#[derive(Debug)]
pub(super) enum SegmentError {
    /// The file is not what it should be, and is to be removed.
    Damaged(&'static str),
    /// The file could not be read.
    Io(io::Error),
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The bytes of the table and the trailer for `samples` samples.
pub(super) fn footer_bytes(samples: usize) -> u64 {
    (samples * ROW + TRAILER) as u64
}

impl Footer {
    /// The table and the trailer of segment `number` of dataset `key`, whose samples take `payload` bytes.
    pub(super) fn encode(&self, key: DatasetKey, number: u64, payload: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.rows.len() * ROW + TRAILER);
        for row in &self.rows {
            bytes.extend(row.sample.to_le_bytes());
            bytes.extend(row.version.0.to_le_bytes());
            for value in [row.offset, row.length, row.crc] {
                bytes.extend(value.to_le_bytes());
            }
            for form in [row.form, row.tried] {
                bytes.extend((form as u16).to_le_bytes());
            }
            bytes.extend(row.outline);
        }
        let table = checksum(&bytes);
        let start = bytes.len();
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.rows.len() as u32).to_le_bytes());
        bytes.extend(key.0);
        for value in [self.group, number, payload] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(table.to_le_bytes());
        let trailer = checksum(&bytes[start..]);
        bytes.extend(trailer.to_le_bytes());
        bytes
    }

    /// Reads and checks the end of segment `number`, a file of `size` bytes, against the dataset it should be of.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`] when anything is not as it must be, [`SegmentError::Io`] when it cannot be read.
    pub(super) fn read(
        file: &File,
        size: u64,
        key: DatasetKey,
        number: u64,
        index: &DatasetIndex,
    ) -> Result<Self, SegmentError> {
        // The last bytes hold the whole table, mostly.
        let guess = size.min(32 << 10);
        if guess < TRAILER as u64 {
            return Err(SegmentError::Damaged("too short"));
        }
        let mut tail = vec![0; guess as usize];
        file.read_exact_at(&mut tail, size - guess)?;
        let trailer = &tail[tail.len() - TRAILER..];
        let u32_at = |at: usize| u32::from_le_bytes(trailer[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().expect("eight bytes"));
        if trailer[..8] != MAGIC || checksum(&trailer[..TRAILER - 4]) != u32_at(60) {
            return Err(SegmentError::Damaged("its end is damaged"));
        }
        if u32_at(8) != VERSION || trailer[16..32] != key.0 || u64_at(40) != number {
            return Err(SegmentError::Damaged("it is another segment"));
        }
        let (count, group, payload, crc) = (u32_at(12) as usize, u64_at(32), u64_at(48), u32_at(56));
        if payload.checked_add(footer_bytes(count)) != Some(size) {
            return Err(SegmentError::Damaged("its size is wrong"));
        }
        let table = count * ROW;
        let rows = match (tail.len() - TRAILER).checked_sub(table) {
            Some(start) => decode(&tail[start..start + table], crc, payload, index)?,
            None => {
                let mut bytes = vec![0; table];
                file.read_exact_at(&mut bytes, payload)?;
                decode(&bytes, crc, payload, index)?
            }
        };
        Ok(Self { group, rows })
    }
}

fn decode(
    table: &[u8],
    crc: u32,
    payload: u64,
    index: &DatasetIndex,
) -> Result<Vec<SegmentRow>, SegmentError> {
    if checksum(table) != crc {
        return Err(SegmentError::Damaged("its table is damaged"));
    }
    let mut rows = Vec::with_capacity(table.len() / ROW);
    for bytes in table.as_chunks::<ROW>().0 {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (sample, version) = (u64_at(0), FileVersion(u64_at(8)));
        let form_at = |at: usize| FORMS.get(usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])));
        let (Some(&form), Some(&tried)) = (form_at(28), form_at(30)) else {
            return Err(SegmentError::Damaged("its samples are of an unknown form"));
        };
        let (offset, length, crc) = (u32_at(16), u32_at(20), u32_at(24));
        let outline = *bytes.last_chunk().expect("a row ends with its outline");
        let row = SegmentRow { sample, version, offset, length, crc, form, tried, outline };
        let inside = u64::from(row.offset) + u64::from(row.length) <= payload;
        if !inside || sample >= index.len() || !is_of(index, &row) {
            return Err(SegmentError::Damaged("its table is not of this dataset"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Whether a row can be of its sample: it is as long as its form may be, or of another version of its shard. The
/// versions of a dataset have the same images, but their other members may differ.
fn is_of(index: &DatasetIndex, row: &SegmentRow) -> bool {
    let file = index.extent(row.sample).file;
    may_be(index, row) || index.shard_version(file).is_some_and(|now| now != row.version)
}

/// Whether a row is as long as a copy of its sample may be in its form.
pub(super) fn may_be(index: &DatasetIndex, row: &SegmentRow) -> bool {
    let length = index.extent(row.sample).length;
    row.length == length || row.form != FileForm::AsIs && row.length <= most_bytes(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_only_as_they_are_written() {
        let key = DatasetKey(*b"0123456789abcdef");
        assert_eq!(DatasetKey::parse(&key.to_string()), Some(key));
        for foreign in
            ["lost+found", "30", "+0123456789012345678901234567890", "3031323334353637383961626364656F"]
        {
            assert_eq!(DatasetKey::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_footer_is_as_long_as_it_is_said_to_be() {
        let (form, tried, outline) = (FileForm::Indexed, FileForm::Packed, [0; 32]);
        let (sample, version, offset, length, crc) = (3, FileVersion(7), 0, 9, 1);
        let row = SegmentRow { sample, version, offset, length, crc, form, tried, outline };
        for rows in [&[][..], &[row], &[row; 5]] {
            let footer = Footer { group: 2, rows: rows.to_vec() }.encode(DatasetKey([1; 16]), 1, 9);
            assert_eq!(footer.len() as u64, footer_bytes(rows.len()));
        }
    }
}
