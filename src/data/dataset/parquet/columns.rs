//! The cells of a Parquet column: the values of its pages, and which cells have no value.

use super::super::gather::{CollectedCells, ColumnFault, TableShard, damaged, little_endian};
use super::super::table::TableCells;
use super::super::unpack::{BlockCodec, BlockSource, LARGEST_BLOCK};
use super::encodings::PackedNumbers;
use super::footer::ColumnChunk;
use super::pages::{ChunkPages, DataPage, PageKind};
use super::schema::{LeafContent, SchemaLeaf};
use super::values::{PLAIN, PageValues, ValueBytes, ValueReader, is_by_dictionary};
use base::crc::crc32;

/// If the values of a page have more bytes than this on average, only their lengths are read.
const LONG_VALUE_BYTES: u64 = 1024;

struct PageBody {
    /// The decompressed page; `None` if the values are not read.
    page_bytes: Option<Vec<u8>>,
    levels: Vec<u8>,
    /// The position of the first value: in `page_bytes`, or without `page_bytes` in the file.
    values: u64,
    /// The offset of `page_bytes` in the file, if the page is not compressed.
    stored_at: Option<u64>,
    /// The compressed block of the page with its compressed bytes, if the column holds bytes.
    packed: Option<(BlockSource, Vec<u8>)>,
}

/// Reads a column: all values in its pages. For long values, reads only the locations.
///
/// # Errors
/// [`ColumnFault`]: the column cannot be used, or the shard is damaged.
pub(super) fn read(
    leaf: &SchemaLeaf,
    content: LeafContent,
    chunks: &[&ColumnChunk],
    shard: &mut TableShard<'_>,
) -> Result<TableCells, ColumnFault> {
    let mut cells = match content {
        LeafContent::Bool => CollectedCells::Bools(Vec::new()),
        LeafContent::Half | LeafContent::Float | LeafContent::Double => CollectedCells::Floats(Vec::new()),
        LeafContent::Text | LeafContent::Json | LeafContent::Bytes | LeafContent::FixedBytes(_) => {
            CollectedCells::Bytes(Vec::new())
        }
        _ => CollectedCells::Integers(Vec::new()),
    };
    shard.limits.begin_column(&leaf.path);
    for chunk in chunks {
        let codec = chunk.codec.clone().map_err(|name| {
            ColumnFault::Refused(format!("its pages are compressed with {name}, which cannot be read"))
        })?;
        read_chunk(ChunkReader { leaf, content, codec, shard }, chunk, &mut cells)?;
    }
    cells.finish(matches!(content, LeafContent::Text | LeafContent::Json), shard)
}

struct ChunkReader<'a, 'f> {
    leaf: &'a SchemaLeaf,
    content: LeafContent,
    codec: Option<BlockCodec>,
    shard: &'a mut TableShard<'f>,
}

fn read_chunk(
    mut reader: ChunkReader<'_, '_>,
    chunk: &ColumnChunk,
    cells: &mut CollectedCells,
) -> Result<(), ColumnFault> {
    let mut pages = ChunkPages::of(chunk);
    let mut dictionary = None;
    while let Some(page) = pages.next(reader.shard)? {
        reader.shard.limits.take_cells(page.values, page.offset)?;
        if page.kind == PageKind::Dictionary {
            dictionary = Some(reader.dictionary(&page)?);
            continue;
        }
        let body = reader.body(&page)?;
        let present = reader.present(&page, &body.levels)?;
        let values = reader.values(&page, &body, present.as_deref(), dictionary.as_ref())?;
        append(cells, values, present);
    }
    Ok(())
}

impl<'f> ChunkReader<'_, 'f> {
    fn is_bytes(&self) -> bool {
        matches!(self.content, LeafContent::Bytes | LeafContent::FixedBytes(_))
    }

    /// Reads the dictionary page of a chunk. The other pages refer to its values by index.
    fn dictionary(&mut self, page: &DataPage) -> Result<PageValues, ColumnFault> {
        let body = self.body(page)?;
        // In a dictionary page, PLAIN_DICTIONARY is an old name of PLAIN.
        let encoding = if is_by_dictionary(page.encoding) { PLAIN } else { page.encoding };
        self.decode(page, &body, page.values, encoding)
    }

    fn values(
        &mut self,
        page: &DataPage,
        body: &PageBody,
        present: Option<&[bool]>,
        dictionary: Option<&PageValues>,
    ) -> Result<PageValues, ColumnFault> {
        let count =
            present.map_or(page.values, |present| present.iter().filter(|&&there| there).count() as u64);
        if !is_by_dictionary(page.encoding) {
            return self.decode(page, body, count, page.encoding);
        }
        let page_bytes =
            body.page_bytes.as_deref().and_then(|page_bytes| page_bytes.get(body.values as usize..));
        let (Some(page_bytes), Some(dictionary)) = (page_bytes, dictionary) else {
            return Err(damaged(page.offset, "a page refers to a dictionary that does not exist").into());
        };
        self.reader(page, count).by_dictionary(page_bytes, dictionary)
    }

    fn decode(
        &mut self,
        page: &DataPage,
        body: &PageBody,
        count: u64,
        encoding: u64,
    ) -> Result<PageValues, ColumnFault> {
        let bytes = match &body.page_bytes {
            None => ValueBytes::InFile { offset: body.values, end: page.offset + page.packed },
            Some(page_bytes) => {
                // Byte values can be too long to copy, so they stay in the compressed block and get addresses in it.
                let stored_at = match (&body.packed, count) {
                    (Some((block, packed)), 1..) => Some(self.shard.blocks.add(*block, packed)?),
                    _ => body.stored_at,
                };
                let stored_at = stored_at.map(|stored_at| stored_at + body.values);
                ValueBytes::Loaded {
                    bytes: page_bytes.get(body.values as usize..).unwrap_or_default(),
                    stored_at,
                }
            }
        };
        let mut reader = self.reader(page, count);
        let values = reader.read(encoding, bytes)?;
        let left = reader.left;
        // If definition levels were wrongly parsed as values, bytes are left at the end of the page. There is one
        // exception: a page of strings with exactly one null leaves no bytes, because all its levels are parsed as one
        // value.
        let may_be_levels = left > 0 || matches!(self.content, LeafContent::Text | LeafContent::Json);
        if may_be_levels && encoding == PLAIN && page.kind == PageKind::DataV1 && self.leaf.present == 0 {
            self.check_for_levels(page, body, left)?;
        }
        Ok(values)
    }

    /// Refuses a page that begins with definition levels although the schema says that the column has no nulls. Without
    /// this check, a damaged schema would turn levels into values. `left` is the number of bytes after the values.
    /// Eight zero bytes at the end come from fastparquet and are allowed.
    fn check_for_levels(&mut self, page: &DataPage, body: &PageBody, left: u64) -> Result<(), ColumnFault> {
        let mut part = |from: u64, count: u64| match &body.page_bytes {
            Some(page_bytes) => Ok(page_bytes[from as usize..(from + count) as usize].to_vec()),
            None => self.shard.file.read(page.offset + from, count),
        };
        let size = body.page_bytes.as_ref().map_or(page.packed, |page_bytes| page_bytes.len() as u64);
        if size < 4 || left == 8 && part(size - 8, 8)? == [0; 8] {
            return Ok(());
        }
        let length = little_endian(&part(0, 4)?);
        // Definition levels take at most one bit per value, and the header of their run takes a few bytes.
        if length == 0 || length > (size - 4).min(page.values / 8 + 16) {
            return Ok(());
        }
        match (PackedNumbers { rest: &part(4, length)? }).are_bits(page.values) {
            true => {
                Err(damaged(page.offset, "a page begins with levels that its column does not have").into())
            }
            false => Ok(()),
        }
    }

    fn reader(&mut self, page: &DataPage, count: u64) -> ValueReader<'_, 'f> {
        ValueReader {
            content: self.content,
            count: count as usize,
            page: page.offset,
            shard: self.shard,
            left: 0,
        }
    }

    /// Which values of a page are present; `None` if the column has no nulls.
    fn present(&self, page: &DataPage, levels: &[u8]) -> Result<Option<Vec<bool>>, ColumnFault> {
        let most = self.leaf.present;
        if most == 0 {
            return Ok(None);
        }
        let width = u32::BITS - most.leading_zeros();
        let mut packed = PackedNumbers { rest: levels };
        let levels = packed.runs(width, page.values as usize);
        let levels =
            levels.map_err(|_| damaged(page.offset, "the definition levels of a page are damaged"))?;
        // No checksum covers the page header, so check the size of the levels that it states.
        if matches!(page.kind, PageKind::DataV2 { .. }) && !packed.rest.is_empty() {
            return Err(damaged(page.offset, "the levels of a page have more bytes than they need").into());
        }
        if levels.iter().any(|&level| level > most) {
            return Err(damaged(page.offset, "a page has levels above the maximum of its column").into());
        }
        Ok(Some(levels.into_iter().map(|level| level == most).collect()))
    }

    fn body(&mut self, page: &DataPage) -> Result<PageBody, ColumnFault> {
        let (packed_levels, codec) = match page.kind {
            PageKind::DataV2 { repetition: 1.., .. } => {
                return Err(damaged(
                    page.offset,
                    "a page has repetition levels, but its column is not repeated",
                )
                .into());
            }
            PageKind::DataV2 { levels, is_packed, .. } => (levels, self.codec.filter(|_| is_packed)),
            _ => (0, self.codec),
        };
        if packed_levels > page.packed || codec.is_some() && packed_levels > page.unpacked {
            return Err(damaged(page.offset, "the levels of a page extend beyond its end").into());
        }
        let is_array = matches!(self.content, LeafContent::Bytes | LeafContent::Json | LeafContent::Text);
        let long = page.packed > page.values.saturating_mul(LONG_VALUE_BYTES) || page.packed > LARGEST_BLOCK;
        if codec.is_none() && is_array && page.encoding == PLAIN && long {
            return self.body_in_file(page, packed_levels);
        }
        let largest = if codec.is_some() { page.unpacked.max(page.packed) } else { page.packed };
        if largest > LARGEST_BLOCK {
            let (bytes, most) = (largest, LARGEST_BLOCK >> 20);
            return Err(ColumnFault::Refused(format!(
                "one of its pages has {bytes} bytes, the limit is {most} MiB: write smaller pages"
            )));
        }
        self.shard.limits.take_bytes(page.packed, page.offset)?;
        let mut bytes = self.shard.file.read(page.offset, page.packed)?;
        if page.crc.is_some_and(|crc| crc != crc32(&bytes)) {
            return Err(damaged(page.offset, "the checksum of a page differs").into());
        }
        let mut stored_at = Some(page.offset);
        let mut levels = bytes[..packed_levels as usize].to_vec();
        let (mut values, mut packed) = (packed_levels, None);
        if let Some(codec) = codec {
            let unpacked = page.unpacked - packed_levels;
            self.shard.limits.take_bytes(unpacked, page.offset)?;
            let block = BlockSource { offset: page.offset + packed_levels, unpacked, codec };
            bytes.drain(..packed_levels as usize);
            let unpacked = block.unpack(&bytes)?;
            let in_file = std::mem::replace(&mut bytes, unpacked);
            packed = self.is_bytes().then_some((block, in_file));
            (stored_at, values) = (None, 0);
        }
        if page.kind == PageKind::DataV1 && self.leaf.present > 0 {
            let beyond = || damaged(page.offset, "the levels of a page extend beyond its end");
            let (length, rest) = bytes.split_at_checked(4).ok_or_else(beyond)?;
            let length = little_endian(length) as usize;
            levels = rest.get(..length).ok_or_else(beyond)?.to_vec();
            values = 4 + length as u64;
        }
        Ok(PageBody { page_bytes: Some(bytes), levels, values, stored_at, packed })
    }

    fn body_in_file(&mut self, page: &DataPage, stated: u64) -> Result<PageBody, ColumnFault> {
        let (mut offset, mut length) = (page.offset, stated);
        if page.kind == PageKind::DataV1 && self.leaf.present > 0 {
            let beyond = || damaged(page.offset, "the levels of a page extend beyond its end");
            let rest = page.packed.checked_sub(4).ok_or_else(beyond)?;
            length = little_endian(&self.shard.file.read(offset, 4)?);
            if length > rest {
                return Err(beyond().into());
            }
            offset += 4;
        }
        if length > LARGEST_BLOCK {
            return Err(damaged(page.offset, "the levels of a page exceed the limit").into());
        }
        self.shard.limits.take_bytes(length, page.offset)?;
        let levels = self.shard.file.read(offset, length)?;
        Ok(PageBody { page_bytes: None, levels, values: offset + length, stored_at: None, packed: None })
    }
}

fn append(cells: &mut CollectedCells, values: PageValues, present: Option<Vec<bool>>) {
    match (cells, values) {
        (CollectedCells::Bools(cells), PageValues::Bools(values)) => spread(cells, values, present),
        (CollectedCells::Integers(cells), PageValues::Integers(values)) => spread(cells, values, present),
        (CollectedCells::Floats(cells), PageValues::Floats(values)) => spread(cells, values, present),
        (CollectedCells::Bytes(cells), PageValues::Bytes(values)) => spread(cells, values, present),
        _ => unreachable!("the type of the column determines both its values and its cells"),
    }
}

fn spread<T>(cells: &mut Vec<Option<T>>, values: Vec<T>, present: Option<Vec<bool>>) {
    let mut values = values.into_iter();
    match present {
        None => cells.extend(values.map(Some)),
        Some(present) => {
            cells.extend(present.into_iter().map(|there| if there { values.next() } else { None }))
        }
    }
}
