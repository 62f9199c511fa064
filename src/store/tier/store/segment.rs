//! The rows and the trailer of the cache's segments, in the format of [`crate::segments::footer`].
//!
//! ```text
//! row, 64 bytes      sample id u64 · version of its file u64 · offset u32 · bytes u32 · CRC-32C u32 ·
//!                    storage format u16 · storage format of the last attempt to convert it u16 ·
//!                    header summary, 32 bytes
//! trailer, 64 bytes  with the dataset's key and the group u64 as extra bytes
//! ```
//!
//! The header summary (`header_summary`) is that of an image that was packed for the cache; for other copies it is
//! zeros. Segments are not synced to the drive before they are published: after a power cut parts of them may be
//! missing. Checksums detect missing parts: the checksums of table and trailer when a segment is loaded, and the
//! checksum of a sample, or the checksums of its rows, when the sample is read.

use super::super::catalog::SegmentRow;
use super::super::convert::most_bytes;
use crate::segments::footer::{SegmentError, SegmentFormat, SegmentTrailer};
use crate::segments::{numbered, u32_at, u64_at};
use data::dataset::{DatasetIndex, FileVersion};
use pixels::decode::StorageFormat;
use std::fmt;
use std::fs::File;

/// The first bytes of a segment's trailer.
pub(super) const MAGIC: [u8; 8] = *b"FLSEGMNT";
/// The version of segment files and of the lock file; a directory of another version is refused.
pub(super) const VERSION: u32 = 4;
const ROW: usize = 64;
/// The extra bytes of a trailer: the dataset's key and the group's number.
const MORE: usize = 24;
const FORMAT: SegmentFormat<ROW, MORE> = SegmentFormat { magic: MAGIC, version: VERSION };
/// The storage formats. A row stores the index of its format in this list.
const FORMS: [StorageFormat; 3] = [StorageFormat::AsIs, StorageFormat::Indexed, StorageFormat::Packed];

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

pub(super) const EXTENSION: &str = "seg";

pub(super) fn name(number: u64) -> String {
    numbered::name(number, EXTENSION)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footer {
    pub group: u64,
    /// A row for each sample, in the order of their bytes.
    pub rows: Vec<SegmentRow>,
}

/// Returns the number of bytes of the table and the trailer for `samples` samples.
pub(super) fn footer_bytes(samples: usize) -> u64 {
    SegmentFormat::<ROW, MORE>::footer_bytes(samples)
}

impl Footer {
    pub(super) fn encode(&self, key: DatasetKey, number: u64, payload: u64) -> Vec<u8> {
        let mut more = [0; MORE];
        more[..16].copy_from_slice(&key.0);
        more[16..].copy_from_slice(&self.group.to_le_bytes());
        let rows: Vec<_> = self.rows.iter().map(encode).collect();
        FORMAT.encode(number, payload, more, &rows)
    }

    /// Reads and checks the end of segment `number`, a file of `size` bytes, which should be of the given dataset.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`] if anything is invalid, [`SegmentError::Io`] if the file cannot be read.
    pub(super) fn read(
        file: &File,
        size: u64,
        key: DatasetKey,
        number: u64,
        index: &DatasetIndex,
    ) -> Result<Self, SegmentError> {
        let footer = FORMAT.read(file, size, number)?;
        let SegmentTrailer { more, payload, .. } = footer.trailer;
        if more[..16] != key.0 {
            return Err(SegmentError::Damaged("it belongs to another dataset"));
        }
        let rows = footer.rows().iter().map(|row| decode(row, payload, index));
        Ok(Self { group: u64_at(&more, 16), rows: rows.collect::<Result<_, _>>()? })
    }
}

fn encode(row: &SegmentRow) -> [u8; ROW] {
    let mut bytes = Vec::with_capacity(ROW);
    bytes.extend([row.sample, row.version.0].map(u64::to_le_bytes).as_flattened());
    bytes.extend([row.offset, row.length, row.crc].map(u32::to_le_bytes).as_flattened());
    bytes.extend([row.form as u16, row.last_target as u16].map(u16::to_le_bytes).as_flattened());
    bytes.extend(row.header_summary);
    bytes.try_into().expect("all fields of a row together")
}

fn decode(bytes: &[u8; ROW], payload: u64, index: &DatasetIndex) -> Result<SegmentRow, SegmentError> {
    let (sample, version) = (u64_at(bytes, 0), FileVersion(u64_at(bytes, 8)));
    let form_at = |at: usize| FORMS.get(usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])));
    let (Some(&form), Some(&last_target)) = (form_at(28), form_at(30)) else {
        return Err(SegmentError::Damaged("its samples have an unknown storage format"));
    };
    let (offset, length, crc) = (u32_at(bytes, 16), u32_at(bytes, 20), u32_at(bytes, 24));
    let header_summary = *bytes.last_chunk().expect("a row ends with its header summary");
    let row = SegmentRow { sample, version, offset, length, crc, form, last_target, header_summary };
    let inside = u64::from(row.offset) + u64::from(row.length) <= payload;
    if !inside || sample >= index.len() || !is_of(index, &row) {
        return Err(SegmentError::Damaged("its table does not match this dataset"));
    }
    Ok(row)
}

/// Returns whether a row may belong to its sample: the row's length is possible in its storage format, or the row is of
/// another version of the sample's shard. The versions of a dataset have the same images, but their other members may
/// differ.
fn is_of(index: &DatasetIndex, row: &SegmentRow) -> bool {
    let extent = index.extent(row.sample);
    let is_other = || match index.known_version(extent.file) {
        Some(now) => now != row.version,
        // Chunks that are files may have other sizes now.
        None => index.versioned(extent) == extent,
    };
    may_be(index, row) || is_other()
}

/// Returns whether the length of a row is possible for a copy of its sample in its storage format.
pub(super) fn may_be(index: &DatasetIndex, row: &SegmentRow) -> bool {
    let length = index.extent(row.sample).length;
    row.length == length || row.form != StorageFormat::AsIs && row.length <= most_bytes(length)
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
    fn a_row_is_64_bytes_in_this_order() {
        let (form, last_target, header_summary) = (StorageFormat::Indexed, StorageFormat::Packed, [9; 32]);
        let (sample, version, offset, length, crc) = (3, FileVersion(7), 5, 6, 1);
        let row = SegmentRow { sample, version, offset, length, crc, form, last_target, header_summary };
        let bytes = encode(&row);
        let numbers = [3, 0, 7, 0, 5, 6, 1, 0x2_0001].map(u32::to_le_bytes);
        assert_eq!((&bytes[..32], &bytes[32..]), (numbers.as_flattened(), &header_summary[..]));
        let footer = Footer { group: 2, rows: vec![row; 5] }.encode(DatasetKey([1; 16]), 1, 9);
        assert_eq!((footer.len() as u64, footer.len()), (footer_bytes(5), 5 * 64 + 64));
        let trailer = &footer[5 * 64..];
        assert_eq!((u32_at(trailer, 8), u32_at(trailer, 12)), (VERSION, 5));
        assert_eq!((&trailer[16..32], [32, 40, 48].map(|at| u64_at(trailer, at))), (&[1; 16][..], [2, 1, 9]));
    }
}
