//! Blocks of neighbouring samples (*stretches*). Each stretch is read at once if an order keeps neighbours together. →
//! `tests/data/neighbour_blocks.rs`

use super::{DatasetIndex, Extent, FileBlock, FileId, MAX_CACHED_BYTES};
use sha2::{Digest, Sha256};

/// Largest number of bytes of a stretch outside of compressed blocks. With so many bytes, the overhead of a request to
/// a server is small.
pub const MAX_NEIGHBOUR_BLOCK_BYTES: u64 = 4 << 20;
/// Largest gap in bytes between two samples of a stretch. It is read along. The gap may hold headers and small fields,
/// or small samples that are not selected.
const MAX_BETWEEN: u64 = 64 << 10;

/// A stretch: its first member, and the bytes that are read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeighbourBlock {
    /// The number of its first sample among the members.
    first: u64,
    file: FileId,
    /// The first byte, and the end (exclusive). For a compressed block these are addresses.
    start: u64,
    end: u64,
    is_compressed: bool,
}

impl NeighbourBlock {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The stretches of the samples that epochs draw from, in the order of the samples.
///
/// A stretch is all samples of a compressed block, or consecutive samples of a shard. The latter have a limited number
/// of bytes, including gaps. Stretches depend on the dataset and on the selected samples, but not on where the dataset
/// is stored.
#[derive(Debug)]
pub struct NeighbourBlocks {
    neighbour_blocks: Vec<NeighbourBlock>,
    members: u64,
    digest: [u8; 32],
    /// The numbers of uncompressed stretches with several samples, sorted by file and offset.
    by_place: Vec<u32>,
}

impl NeighbourBlocks {
    /// The stretches of `members` samples. `member` gives the number of each sample. A stretch outside of compressed
    /// blocks has at most `most` bytes, or a single sample.
    pub fn new(index: &DatasetIndex, members: u64, member: impl Fn(u64) -> u64, most: u64) -> Self {
        let mut neighbour_blocks: Vec<NeighbourBlock> = Vec::new();
        for number in 0..members {
            let extent = index.extent(member(number));
            if let Some(last) = neighbour_blocks.last_mut()
                && last.takes(extent, most)
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

    /// Stretches with these numbers of members and bytes, for a simulated dataset.
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
        let mut by_place: Vec<u32> = (0..neighbour_blocks.len() as u32).filter(plain).collect();
        by_place.sort_by_key(|&number| {
            let NeighbourBlock { file, start, .. } = neighbour_blocks[number as usize];
            (file.0, start)
        });
        Self { neighbour_blocks, members, digest: hash.finalize().into(), by_place }
    }

    /// Whether any samples are read together.
    pub fn has_neighbours(&self) -> bool {
        let is_shared = |number: usize| self.members_of(number).count() > 1 && self.bytes_of(number) > 0;
        (self.neighbour_blocks.len() as u64) < self.members && (0..self.len()).any(is_shared)
    }

    /// The bytes of the largest stretch, if memory holds only a few that large.
    pub fn largest_if_few_fit(&self) -> Option<u64> {
        let largest = (0..self.len()).map(|number| self.bytes_of(number)).max()?;
        (largest > MAX_CACHED_BYTES / 8).then_some(largest)
    }

    /// The number of stretches.
    pub fn len(&self) -> usize {
        self.neighbour_blocks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.neighbour_blocks.is_empty()
    }

    /// The number of samples in all of them.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// The members of a stretch, as a range of their numbers.
    ///
    /// # Panics
    /// Panics if there is no such stretch.
    pub fn members_of(&self, neighbour_block: usize) -> std::ops::Range<u64> {
        let end = self.neighbour_blocks.get(neighbour_block + 1).map_or(self.members, |next| next.first);
        self.neighbour_blocks[neighbour_block].first..end
    }

    /// The stretch that contains a member.
    pub fn with_member(&self, member: u64) -> usize {
        self.neighbour_blocks.partition_point(|neighbour_block| neighbour_block.first <= member) - 1
    }

    /// The bytes of memory that a stretch takes after reading and decompression.
    ///
    /// # Panics
    /// Panics if there is no such stretch.
    pub fn bytes_of(&self, neighbour_block: usize) -> u64 {
        self.neighbour_blocks[neighbour_block].bytes()
    }

    /// The hash of how samples are divided into stretches.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The uncompressed stretch with several samples that contains an extent: its file, its first byte and its length.
    pub fn around(&self, extent: Extent) -> Option<Extent> {
        let at = self.by_place.partition_point(|&number| {
            let NeighbourBlock { file, start, .. } = self.neighbour_blocks[number as usize];
            (file.0, start) <= (extent.file.0, extent.offset)
        });
        let number = *self.by_place.get(at.checked_sub(1)?)? as usize;
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

    /// Whether the sample after those in the stretch belongs to it, too. A sample without an image has no bytes, so its
    /// offset does not count.
    fn takes(&self, extent: Extent, most: u64) -> bool {
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
