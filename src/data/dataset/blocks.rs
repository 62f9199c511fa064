//! Compressed blocks of shards: the location of each block, and the addresses of its decompressed bytes.
//!
//! A value in a compressed block has no offset in its shard. So the blocks of a shard get addresses that begin after
//! the last byte of the shard. The location of a value is an address in its block. Code that handles locations in
//! shards needs to know nothing of blocks; only the readers do.

use super::arrays::SharedChunk;
use super::format::{u32_at, u64_at};
use super::table::{CellExtent, ShardTable};
use super::unpack::{BlockCodec, BlockSource, LARGEST_BLOCK};
use super::{Extent, FileId, FileVersion};
use crate::source::{Malformed, ReadAt, Window};
use base::crc::checksum;
use base::error::Error;
use std::ops::Range;
use std::path::PathBuf;

/// Gap in bytes between the addresses of two blocks, and between the shard's end and the first block. It is larger than
/// any gap that is still read in one request, so that no request covers two blocks.
pub(super) const APART: u64 = 128 << 10;

/// Size of a [`CompressedBlock`] in the index, in bytes: shard number (u32), codec (u32), first address (u64), offset
/// in the shard (u64), compressed and decompressed size (u32 each), checksum of the compressed bytes (u32), and four
/// zeros.
pub(super) const BLOCK_ROW: usize = 40;

/// A compressed block that holds values of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedBlock {
    /// The address of the block's first decompressed byte.
    pub(super) start: u64,
    pub(super) offset: u64,
    pub(super) packed: u32,
    pub(super) unpacked: u32,
    /// The CRC-32C of the compressed bytes.
    pub(super) sum: u32,
    /// The id of the codec. An unknown id, from a damaged index, is detected at decompression.
    pub(super) codec: u32,
}

impl CompressedBlock {
    pub(super) fn to_bytes(self, group: u32) -> [u8; BLOCK_ROW] {
        let mut bytes = [0; BLOCK_ROW];
        bytes[..4].copy_from_slice(&group.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.codec.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.packed.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.unpacked.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            start: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            packed: u32_at(bytes, 24),
            unpacked: u32_at(bytes, 28),
            sum: u32_at(bytes, 32),
            codec: u32_at(bytes, 4),
        }
    }

    /// The addresses of the block's decompressed bytes.
    pub(super) fn addresses(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.unpacked))
    }

    fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, String> {
        if checksum(packed) != self.sum {
            return Err(
                "a compressed block is not the one that was indexed: it is damaged or was changed".to_owned()
            );
        }
        let codec = BlockCodec::numbered(self.codec).ok_or("the index has a block with an unknown codec")?;
        let block = BlockSource { offset: self.offset, unpacked: u64::from(self.unpacked), codec };
        block.unpack(packed).map_err(|malformed| malformed.message)
    }
}

pub(super) struct ShardBlocks {
    next: u64,
    rows: Vec<CompressedBlock>,
    /// The block that was decompressed last, with its index in `rows`. Callers often read several values of one block.
    open: Option<(usize, Vec<u8>)>,
}

impl ShardBlocks {
    pub(super) fn of(size: u64) -> Self {
        Self { next: size.saturating_add(APART), rows: Vec::new(), open: None }
    }

    /// Adds a block with the compressed bytes `packed`, and returns the address of the block's first byte.
    ///
    /// # Errors
    /// [`Malformed`] for a block larger than [`LARGEST_BLOCK`], or if all addresses are in use.
    pub(super) fn add(&mut self, block: BlockSource, packed: &[u8]) -> Result<u64, Malformed> {
        let end = self.next.saturating_add(block.unpacked);
        let wrong = |message: String| Malformed { offset: block.offset, message };
        let sizes = u32::try_from(packed.len()).ok().zip(u32::try_from(block.unpacked).ok());
        let Some((packed_size, unpacked)) = sizes.filter(|&(a, b)| u64::from(a.max(b)) <= LARGEST_BLOCK)
        else {
            let most = LARGEST_BLOCK >> 20;
            return Err(wrong(format!("a compressed block exceeds the limit of {most} MiB")));
        };
        if end > super::part::MAX_OFFSET {
            return Err(wrong("more compressed blocks than a shard can have".to_owned()));
        }
        let start = self.next;
        let codec = block.codec.number();
        let sum = checksum(packed);
        self.rows.push(CompressedBlock {
            start,
            offset: block.offset,
            packed: packed_size,
            unpacked,
            sum,
            codec,
        });
        self.next = end.saturating_add(APART);
        Ok(start)
    }

    /// The first `most` bytes of a value, or the whole value if it is shorter. `None` if the value is not in a block.
    /// Decompresses the block, unless it is the block that was decompressed last.
    ///
    /// # Errors
    /// [`Malformed`] if the block cannot be read.
    pub(super) fn head<S: ReadAt + ?Sized>(
        &mut self,
        file: &mut Window<'_, S>,
        value: Range<u64>,
        most: usize,
    ) -> Result<Option<Vec<u8>>, Malformed> {
        let at = self.rows.partition_point(|row| row.start <= value.start);
        let Some(number) = at.checked_sub(1) else { return Ok(None) };
        let row = self.rows[number];
        if !row.addresses().contains(&value.start) || value.end > row.addresses().end {
            return Ok(None);
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            let wrong = |message| Malformed { offset: row.offset, message };
            let packed = file.read(row.offset, u64::from(row.packed))?;
            self.open = Some((number, row.unpack(&packed).map_err(wrong)?));
        }
        let bytes = self.open.as_ref().map(|(_, bytes)| &bytes[..]).unwrap_or_default();
        let range = (value.start - row.start) as usize..(value.end - row.start) as usize;
        let found = bytes.get(range).unwrap_or_default();
        Ok(Some(found[..found.len().min(most)].to_vec()))
    }

    pub(super) fn into_rows(self) -> Vec<CompressedBlock> {
        self.rows
    }
}

/// A byte range of a file that is read at once and cached, for readers of samples in this range. It is a compressed
/// block, a chunk of an array that several samples share, or a block of neighbouring samples that are stored
/// uncompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBlock {
    pub(super) file: FileId,
    pub(super) content: BlockContent,
    /// The version of the file, taken when the block was requested and before it is read.
    pub(super) version: Option<FileVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlockContent {
    Compressed(CompressedBlock),
    /// A chunk whose filters must be undone. It has no checksum in the index, because many filters have one.
    Chunk(SharedChunk),
    /// Uncompressed bytes: the offset of the first byte, and the number of bytes.
    Uncompressed {
        start: u64,
        length: u32,
    },
}

impl FileBlock {
    /// The block that a chunk is. It is stored in `file`, whose version is `version`.
    pub fn of_chunk(file: FileId, chunk: SharedChunk, version: Option<FileVersion>) -> Self {
        Self { file, content: BlockContent::Chunk(chunk), version }
    }

    /// The location of the block in its file.
    pub fn extent(&self) -> Extent {
        let (offset, length) = match &self.content {
            BlockContent::Compressed(row) => (row.offset, row.packed),
            BlockContent::Chunk(chunk) => (chunk.cell.offset, chunk.cell.length),
            BlockContent::Uncompressed { start, length } => (*start, *length),
        };
        Extent { file: self.file, offset, length }
    }

    /// Whether the block must be decompressed.
    pub fn is_compressed(&self) -> bool {
        !matches!(self.content, BlockContent::Uncompressed { .. })
    }

    /// The addresses of the block's decompressed bytes. For an uncompressed block, these are offsets in the file.
    pub fn addresses(&self) -> Range<u64> {
        let (start, length) = match &self.content {
            BlockContent::Compressed(row) => return row.addresses(),
            BlockContent::Chunk(chunk) => (chunk.start, chunk.bytes),
            BlockContent::Uncompressed { start, length } => (*start, *length),
        };
        start..start.saturating_add(u64::from(length))
    }

    /// The size of the block in bytes after decompression.
    pub fn unpacked(&self) -> u64 {
        let addresses = self.addresses();
        addresses.end - addresses.start
    }

    /// The version of the block's file, taken before the block was read.
    pub fn version(&self) -> Option<FileVersion> {
        self.version
    }

    /// The range of `extent` in the decompressed block; `None` if `extent` is not inside the block, which only a
    /// damaged index causes.
    pub fn range(&self, extent: Extent) -> Option<Range<usize>> {
        let end = extent.offset.checked_add(u64::from(extent.length))?;
        let addresses = self.addresses();
        let inside = extent.file == self.file && addresses.start <= extent.offset && end <= addresses.end;
        let start = addresses.start;
        inside.then(|| (extent.offset - start) as usize..(end - start) as usize)
    }

    /// Reads the block and returns its decompressed bytes. `read` reads an extent of the file at `path`.
    ///
    /// # Errors
    /// The errors of `read`; [`Error::Dataset`] if the bytes are damaged, or changed since they were indexed.
    pub fn bytes(
        &self,
        path: impl FnOnce() -> PathBuf,
        read: impl FnOnce(Extent) -> base::error::Result<Vec<u8>>,
    ) -> base::error::Result<Vec<u8>> {
        let stored = read(self.extent())?;
        let unpacked = match &self.content {
            BlockContent::Compressed(row) => row.unpack(&stored),
            BlockContent::Chunk(chunk) => chunk.unpack(&stored),
            BlockContent::Uncompressed { .. } => Ok(stored),
        };
        let offset = self.extent().offset;
        unpacked.map_err(|message| Error::dataset(path(), format!("at byte {offset}: {message}")))
    }
}

impl ShardTable {
    /// The bytes of a cell in a compressed block of `shard`; `None` if the cell is stored uncompressed.
    ///
    /// # Errors
    /// A description of what is wrong with the block.
    pub fn in_block(&self, shard: &[u8], cell: CellExtent) -> Option<Result<Vec<u8>, String>> {
        let CellExtent { offset, length } = cell;
        let row = self.blocks.iter().find(|row| length > 0 && row.addresses().contains(&offset))?;
        let packed = &shard[row.offset as usize..][..row.packed as usize];
        let value = |bytes: Vec<u8>| {
            let start = (offset - row.start) as usize;
            bytes
                .get(start..start + length as usize)
                .map(<[u8]>::to_vec)
                .ok_or("a value extends beyond its block".to_owned())
        };
        Some(row.unpack(packed).and_then(value))
    }
}

/// The blocks of a dataset in the index file: rows sorted by shard and address.
#[derive(Clone, Copy)]
pub(super) struct BlockTable<'a>(pub(super) &'a [u8]);

impl BlockTable<'_> {
    fn rows(&self) -> &[[u8; BLOCK_ROW]] {
        self.0.as_chunks().0
    }

    pub(super) fn len(&self) -> usize {
        self.rows().len()
    }

    /// The block of shard `group` that contains this address; `None` if the address is an offset in the shard.
    pub(super) fn at(&self, group: u32, address: u64) -> Option<CompressedBlock> {
        let rows = self.rows();
        let before = rows.partition_point(|row| (u32_at(row, 0), u64_at(row, 8)) <= (group, address));
        let row = rows.get(before.checked_sub(1)?)?;
        let found = CompressedBlock::from_bytes(row);
        // Never allocate memory by the sizes in a damaged index.
        let is_block = u64::from(found.packed.max(found.unpacked)) <= LARGEST_BLOCK;
        (is_block && u32_at(row, 0) == group && found.addresses().contains(&address)).then_some(found)
    }

    pub(super) fn of_group(&self, group: u32) -> impl Iterator<Item = CompressedBlock> + '_ {
        let rows = self.rows();
        let start = rows.partition_point(|row| u32_at(row, 0) < group);
        let own = rows[start..].iter().take_while(move |row| u32_at(&row[..], 0) == group);
        own.map(|row| CompressedBlock::from_bytes(row))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = CompressedBlock> + '_ {
        self.rows().iter().map(|row| CompressedBlock::from_bytes(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_their_block_and_nowhere_else() {
        let text = b"one and the same, one and the same, one and the same".as_slice();
        let packed = snap::raw::Encoder::new().compress_vec(text).unwrap();
        let shard = [&b"head"[..], &packed, &packed].concat();
        let mut blocks = ShardBlocks::of(shard.len() as u64);
        let block = |offset| BlockSource { offset, unpacked: text.len() as u64, codec: BlockCodec::Snappy };
        let first = blocks.add(block(4), &packed).unwrap();
        let second = blocks.add(block(4 + packed.len() as u64), &packed).unwrap();
        assert!(first >= shard.len() as u64 + APART && second >= first + text.len() as u64 + APART);
        let head =
            |blocks: &mut ShardBlocks, range| blocks.head(&mut Window::new(&shard[..]), range, 5).unwrap();
        assert_eq!(head(&mut blocks, second + 4..second + 16), Some(b"and t".to_vec()));
        assert_eq!(head(&mut blocks, first + 4..first + 7), Some(b"and".to_vec()));
        assert_eq!(head(&mut blocks, 4..10), None);
        let end = first + text.len() as u64;
        assert_eq!(head(&mut blocks, end - 1..end + 1), None);
        let rows = blocks.into_rows();
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.to_bytes(7)).collect();
        let table = BlockTable(&bytes);
        assert_eq!((table.at(7, first), table.at(7, end - 1)), (Some(rows[0]), Some(rows[0])));
        assert_eq!(
            (table.at(7, second + 1), table.at(7, end), table.at(6, first)),
            (Some(rows[1]), None, None)
        );
        assert_eq!(table.at(8, first), None);
        let huge = CompressedBlock { packed: u32::MAX, ..rows[0] }.to_bytes(7);
        assert_eq!(BlockTable(&huge).at(7, first), None);
        assert_eq!(table.of_group(7).collect::<Vec<_>>(), rows);
        assert_eq!((table.of_group(6).count(), table.of_group(8).count()), (0, 0));
        let mut damaged = packed.clone();
        damaged[3] ^= 1;
        assert!(rows[0].unpack(&damaged).unwrap_err().contains("is not the one"));
        assert_eq!(rows[0].unpack(&packed).unwrap(), text);
    }

    #[test]
    fn no_block_is_too_large() {
        let mut blocks = ShardBlocks::of(10);
        let block = |unpacked| BlockSource { offset: 3, unpacked, codec: BlockCodec::Zstd };
        assert_eq!(blocks.add(block(LARGEST_BLOCK + 1), b"").unwrap_err().offset, 3);
        let mut blocks = ShardBlocks::of(u64::MAX - 5);
        assert!(blocks.add(block(1), b"").is_err());
    }
}
