//! The pages of a column chunk in order, each with its location and its header.

use super::super::gather::{TableShard, damaged};
use super::footer::ColumnChunk;
use super::thrift::{FALSE, I32, STRUCT, TRUE, Thrift};
use crate::source::Malformed;

/// The number of bytes of a page header that are read first, and the largest size of a header. A header can hold
/// statistics.
const FIRST_READ: u64 = 512;
const LARGEST_HEADER: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct DataPage {
    /// The offset of the page's first byte after the header.
    pub(super) offset: u64,
    /// The size of the page in the file, in bytes.
    pub(super) packed: u64,
    /// The size of the page after decompression, in bytes, if the page is compressed.
    pub(super) unpacked: u64,
    pub(super) crc: Option<u32>,
    /// The number of values, including nulls.
    pub(super) values: u64,
    pub(super) encoding: u64,
    pub(super) kind: PageKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Values to which other pages refer by index.
    Dictionary,
    /// Levels and values, compressed together.
    DataV1,
    /// Levels, which take `levels` bytes and are never compressed, followed by values, which are compressed if
    /// `is_packed`.
    DataV2 { levels: u64, repetition: u64, is_packed: bool },
}

pub(super) struct ChunkPages {
    at: u64,
    end: u64,
    left: u64,
}

impl ChunkPages {
    pub(super) fn of(chunk: &ColumnChunk) -> Self {
        Self { at: chunk.start, end: chunk.end, left: chunk.values }
    }

    /// Returns the next page; `None` after all values that the chunk's metadata states.
    pub(super) fn next(&mut self, shard: &mut TableShard<'_>) -> Result<Option<DataPage>, Malformed> {
        while self.left > 0 {
            let at = self.at;
            if at >= self.end {
                return Err(damaged(at, &format!("{} values of a column are missing", self.left)));
            }
            let (length, page) = self.header(shard)?;
            let offset = at + length;
            let Some(end) = offset.checked_add(page.packed).filter(|&end| end <= self.end) else {
                return Err(damaged(at, "a page extends beyond the end of its column"));
            };
            self.at = end;
            let Some(kind) = page.kind else { continue };
            if kind != PageKind::Dictionary {
                let left = self.left.checked_sub(page.values);
                let wrong = || damaged(at, "a page has more values than its column should have");
                self.left = left.ok_or_else(wrong)?;
            }
            let PageHead { packed, unpacked, crc, values, encoding, .. } = page;
            return Ok(Some(DataPage { offset, packed, unpacked, crc, values, encoding, kind }));
        }
        Ok(None)
    }

    /// Reads the header of the next page, and determines the size of the header. Reads more than [`FIRST_READ`] bytes
    /// only if the header is larger.
    fn header(&self, shard: &mut TableShard<'_>) -> Result<(u64, PageHead), Malformed> {
        let rest = self.end - self.at;
        let mut size = FIRST_READ.min(rest);
        loop {
            shard.limits.take_bytes(size, self.at)?;
            let bytes = shard.file.read(self.at, size)?;
            let mut thrift = Thrift::new(&bytes, self.at);
            match PageHead::parse(&mut thrift) {
                Ok(page) => return Ok((thrift.at as u64, page)),
                Err(_) if thrift.ended && size < rest.min(LARGEST_HEADER) => {
                    size = (size * 8).min(rest).min(LARGEST_HEADER);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Default)]
struct PageHead {
    packed: u64,
    unpacked: u64,
    crc: Option<u32>,
    values: u64,
    encoding: u64,
    kind: Option<PageKind>,
}

impl PageHead {
    fn parse(thrift: &mut Thrift<'_>) -> Result<Self, Malformed> {
        let (mut page, mut last) = (Self::default(), 0);
        let (mut kind, mut packed, mut unpacked) = (None, None, None);
        while let Some(field) = thrift.field(&mut last)? {
            match (field.id, field.kind) {
                (1, I32) => kind = Some(thrift.count()?),
                (2, I32) => unpacked = Some(thrift.count()?),
                (3, I32) => packed = Some(thrift.count()?),
                (4, I32) => page.crc = Some(thrift.number()? as u32),
                (5, STRUCT) if kind == Some(0) => page.details(thrift, PageKind::DataV1)?,
                (7, STRUCT) if kind == Some(2) => page.details(thrift, PageKind::Dictionary)?,
                (8, STRUCT) if kind == Some(3) => page.details_v2(thrift)?,
                (_, kind) => thrift.skip(kind)?,
            }
        }
        let (Some(kind), Some(packed), Some(unpacked)) = (kind, packed, unpacked) else {
            return Err(thrift.wrong("a page header lacks the type or the size of the page"));
        };
        if matches!(kind, 0 | 2 | 3) && page.kind.is_none() {
            return Err(thrift.wrong("a page header lacks the description of its values"));
        }
        (page.packed, page.unpacked) = (packed, unpacked);
        Ok(page)
    }

    fn details(&mut self, thrift: &mut Thrift<'_>, kind: PageKind) -> Result<(), Malformed> {
        let (mut values, mut encoding, mut levels, mut last) = (None, None, 3, 0);
        while let Some(field) = thrift.field(&mut last)? {
            match (field.id, field.kind) {
                (1, I32) => values = Some(thrift.count()?),
                (2, I32) => encoding = Some(thrift.count()?),
                (3, I32) if kind == PageKind::DataV1 => levels = thrift.count()?,
                (_, kind) => thrift.skip(kind)?,
            }
        }
        let (Some(values), Some(encoding), 3) = (values, encoding, levels) else {
            return Err(thrift.wrong("a page header lacks the number of its values, or a valid encoding"));
        };
        (self.values, self.encoding, self.kind) = (values, encoding, Some(kind));
        Ok(())
    }

    fn details_v2(&mut self, thrift: &mut Thrift<'_>) -> Result<(), Malformed> {
        let (mut values, mut encoding, mut levels, mut repetition) = (None, None, None, None);
        let (mut is_packed, mut last) = (true, 0);
        while let Some(field) = thrift.field(&mut last)? {
            match (field.id, field.kind) {
                (1, I32) => values = Some(thrift.count()?),
                (4, I32) => encoding = Some(thrift.count()?),
                (5, I32) => levels = Some(thrift.count()?),
                (6, I32) => repetition = Some(thrift.count()?),
                (7, TRUE | FALSE) => is_packed = field.kind == TRUE,
                (_, kind) => thrift.skip(kind)?,
            }
        }
        let (Some(values), Some(encoding), Some(levels), Some(repetition)) =
            (values, encoding, levels, repetition)
        else {
            return Err(thrift.wrong("a page header lacks the number of its values, or a valid encoding"));
        };
        (self.values, self.encoding) = (values, encoding);
        self.kind = Some(PageKind::DataV2 { levels, repetition, is_packed });
        Ok(())
    }
}
