//! Blocks of neighbouring samples. If the order of an epoch keeps neighbours together, each block is read at once. →
//! `tests/data/neighbour_blocks.rs`

use super::arrays::CHUNKS;
use super::arrays::record::SampleRecord;
use super::{DatasetIndex, Extent, FileId, MAX_CACHED_BYTES};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Maximum size in bytes of a block of uncompressed samples. At this size, the overhead of a request to a server is
/// small.
pub const MAX_NEIGHBOUR_BLOCK_BYTES: u64 = 4 << 20;
/// Maximum gap in bytes between two samples of a block. The gap is read too. A gap can hold headers and small fields,
/// or small samples that are not selected.
const MAX_BETWEEN: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeighbourBlock {
    /// The index of the block's first sample among the selected samples (`members`).
    first: u64,
    file: FileId,
    /// The first byte and the end (exclusive) in `file`. A compressed block has addresses after the file's end
    /// (`blocks.rs`).
    start: u64,
    end: u64,
    is_compressed: bool,
    /// The decoded bytes of all chunks that the samples share; `None` if they share none.
    chunk_bytes: Option<u64>,
}

impl NeighbourBlock {
    fn bytes(&self) -> u64 {
        self.chunk_bytes.unwrap_or(self.end - self.start)
    }
}

/// The blocks of neighbouring samples from which epochs draw, in the order of the samples.
///
/// A block has all samples of a compressed block or of a chunk of an array, or consecutive samples of a shard, up to a
/// limited number of bytes including gaps. If samples share chunks of several arrays, the largest chunk determines the
/// samples of a block. The blocks depend on the dataset and on the selected samples, but not on where the dataset is
/// stored.
#[derive(Debug)]
pub struct NeighbourBlocks {
    neighbour_blocks: Vec<NeighbourBlock>,
    members: u64,
    digest: [u8; 32],
    /// The indices of uncompressed blocks with several samples, sorted by file and offset.
    uncompressed_by_offset: Vec<u32>,
}

impl NeighbourBlocks {
    /// Divides `members` selected samples into blocks. `member` returns the sample id of each. A block of uncompressed
    /// samples has at most `most` bytes, or a single sample.
    pub fn new(index: &DatasetIndex, members: u64, member: impl Fn(u64) -> u64, most: u64) -> Self {
        let mut neighbour_blocks: Vec<NeighbourBlock> = Vec::new();
        for number in 0..members {
            let extent = index.extent(member(number));
            let of_record = index.record(extent).map(|record| extents_of(extent, &record));
            let extents = of_record.as_deref().unwrap_or(std::slice::from_ref(&extent));
            if let Some(last) = neighbour_blocks.last_mut()
                && let Some(extent) = extents.iter().find(|extent| last.accepts(**extent, most))
            {
                if extent.length > 0 {
                    last.end = last.end.max(extent.offset + u64::from(extent.length));
                }
                continue;
            }
            neighbour_blocks.extend(NeighbourBlock::begin(index, number, extents));
        }
        Self::of(neighbour_blocks, members)
    }

    /// Makes the blocks of a simulated dataset. `sizes` has the number of samples and the number of bytes of each
    /// block.
    pub fn simulated(sizes: &[(u64, u64)]) -> Self {
        let (mut neighbour_blocks, mut first, mut start) = (Vec::new(), 0, 0);
        for (members, bytes) in sizes {
            let end = start + bytes;
            neighbour_blocks.push(NeighbourBlock {
                first,
                file: FileId(0),
                start,
                end,
                is_compressed: false,
                chunk_bytes: None,
            });
            (first, start) = (first + members, end);
        }
        Self::of(neighbour_blocks, first)
    }

    fn of(neighbour_blocks: Vec<NeighbourBlock>, members: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"foreload stretches");
        for neighbour_block in &neighbour_blocks {
            hash.update(neighbour_block.first.to_le_bytes());
            hash.update(neighbour_block.bytes().to_le_bytes());
        }
        let end_of = |number: usize| neighbour_blocks.get(number + 1).map_or(members, |next| next.first);
        let plain = |number: &u32| {
            let neighbour_block = &neighbour_blocks[*number as usize];
            !neighbour_block.is_compressed && end_of(*number as usize) - neighbour_block.first > 1
        };
        let mut uncompressed_by_offset: Vec<u32> = (0..neighbour_blocks.len() as u32).filter(plain).collect();
        uncompressed_by_offset.sort_by_key(|&number| {
            let NeighbourBlock { file, start, .. } = neighbour_blocks[number as usize];
            (file.0, start)
        });
        Self { neighbour_blocks, members, digest: hash.finalize().into(), uncompressed_by_offset }
    }

    /// Whether any block has several samples.
    pub fn has_neighbours(&self) -> bool {
        let is_shared = |number: usize| self.members_of(number).count() > 1 && self.bytes_of(number) > 0;
        (self.neighbour_blocks.len() as u64) < self.members && (0..self.len()).any(is_shared)
    }

    /// The size of the largest block in bytes, if memory can hold only a few blocks of this size; else `None`.
    pub fn largest_if_few_fit(&self) -> Option<u64> {
        let largest = (0..self.len()).map(|number| self.bytes_of(number)).max()?;
        (largest > MAX_CACHED_BYTES / 8).then_some(largest)
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.neighbour_blocks.len()
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.neighbour_blocks.is_empty()
    }

    /// The number of samples in all blocks.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// The samples of a block, as a range of indices among the selected samples.
    ///
    /// # Panics
    /// Panics if the block does not exist.
    pub fn members_of(&self, neighbour_block: usize) -> Range<u64> {
        let end = self.neighbour_blocks.get(neighbour_block + 1).map_or(self.members, |next| next.first);
        self.neighbour_blocks[neighbour_block].first..end
    }

    /// The index of the block that contains the selected sample at index `member`.
    pub fn with_member(&self, member: u64) -> usize {
        self.neighbour_blocks.partition_point(|neighbour_block| neighbour_block.first <= member) - 1
    }

    /// The size in memory of a block after reading and decompression, in bytes.
    ///
    /// # Panics
    /// Panics if the block does not exist.
    pub fn bytes_of(&self, neighbour_block: usize) -> u64 {
        self.neighbour_blocks[neighbour_block].bytes()
    }

    /// The digest of how samples are divided into blocks.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The extent of the uncompressed block with several samples that contains `extent`; `None` if no such block
    /// contains it.
    pub fn containing(&self, extent: Extent) -> Option<Extent> {
        let at = self.uncompressed_by_offset.partition_point(|&number| {
            let NeighbourBlock { file, start, .. } = self.neighbour_blocks[number as usize];
            (file.0, start) <= (extent.file.0, extent.offset)
        });
        let number = *self.uncompressed_by_offset.get(at.checked_sub(1)?)? as usize;
        let NeighbourBlock { file, start, end, .. } = self.neighbour_blocks[number];
        let inside = file == extent.file && extent.offset.checked_add(extent.length.into())? <= end;
        let length = u32::try_from(end - start).ok()?;
        inside.then_some(Extent { file, offset: start, length })
    }
}

/// The extents of which the block of a sample with this record must contain one: its parts of chunks that samples
/// share, or a record in one piece, which can be read with its neighbours. Any other record keeps its address `extent`,
/// so that it is a block of its own.
fn extents_of(extent: Extent, record: &SampleRecord) -> Vec<Extent> {
    let is_chunk = |extent: &Extent| extent.offset >= CHUNKS;
    let pieces: Vec<Extent> = record.pieces.iter().map(|piece| piece.extent).collect();
    match &pieces[..] {
        [_] => pieces,
        _ if pieces.iter().any(is_chunk) => pieces.into_iter().filter(is_chunk).collect(),
        _ => vec![extent],
    }
}

impl NeighbourBlock {
    fn begin(index: &DatasetIndex, first: u64, extents: &[Extent]) -> Option<Self> {
        let blocks = extents.iter().filter_map(|&extent| Some((extent, index.block(extent)?)));
        let blocks: Vec<_> = blocks.collect();
        let Some((extent, largest)) = blocks.iter().rev().max_by_key(|(_, block)| block.unpacked()) else {
            let Extent { file, offset, length } = *extents.first()?;
            let end = offset + u64::from(length);
            return Some(Self { first, file, start: offset, end, is_compressed: false, chunk_bytes: None });
        };
        let (file, Range { start, end }) = (extent.file, largest.addresses());
        let bytes = blocks.iter().map(|(_, block)| block.unpacked()).sum();
        let chunk_bytes = (extent.offset >= CHUNKS).then_some(bytes);
        Some(Self { first, file, start, end, is_compressed: true, chunk_bytes })
    }

    /// Whether the next sample, at `extent`, also belongs to the block. A sample without an image has no bytes, so its
    /// offset is ignored.
    fn accepts(&self, extent: Extent, most: u64) -> bool {
        let Extent { file, offset, length } = extent;
        if file == self.file && length == 0 {
            return true;
        }
        let end = offset + u64::from(length);
        if self.is_compressed {
            return file == self.file && self.start <= offset && end <= self.end;
        }
        file == self.file
            && offset < CHUNKS
            && self.end <= offset
            && offset - self.end <= MAX_BETWEEN
            && end - self.start <= most
    }
}
