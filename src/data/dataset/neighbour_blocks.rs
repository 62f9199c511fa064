//! Blocks of neighbouring samples. If the order of an epoch keeps neighbours together, each block is read at once. →
//! `tests/data/neighbour_blocks.rs`

use super::{DatasetIndex, Extent, FileBlock, FileId, MAX_CACHED_BYTES};
use sha2::{Digest, Sha256};

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
}

impl NeighbourBlock {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The blocks of neighbouring samples from which epochs draw, in the order of the samples.
///
/// A block has all samples of a compressed block, or consecutive samples of a shard, up to a limited number of bytes
/// including gaps. The blocks depend on the dataset and on the selected samples, but not on where the dataset is
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
            if let Some(last) = neighbour_blocks.last_mut()
                && last.accepts(extent, most)
            {
                if extent.length > 0 {
                    last.end = last.end.max(extent.offset + u64::from(extent.length));
                }
                continue;
            }
            neighbour_blocks.push(NeighbourBlock::begin(index, number, extent));
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
    pub fn members_of(&self, neighbour_block: usize) -> std::ops::Range<u64> {
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

impl NeighbourBlock {
    fn begin(index: &DatasetIndex, first: u64, extent: Extent) -> Self {
        let Extent { file, offset, length } = extent;
        match index.block(extent).map(|block: FileBlock| block.addresses()) {
            Some(addresses) => {
                Self { first, file, start: addresses.start, end: addresses.end, is_compressed: true }
            }
            None => {
                Self { first, file, start: offset, end: offset + u64::from(length), is_compressed: false }
            }
        }
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
            && self.end <= offset
            && offset - self.end <= MAX_BETWEEN
            && end - self.start <= most
    }
}
