//! The compressed blocks that hold samples.

use super::DatasetIndex;
use crate::dataset::blocks::{BlockContent, CompressedBlock};
use crate::dataset::unpacked::MAX_CACHED_BYTES;
use crate::dataset::{BlockCache, Extent, FileBlock, FileId, NeighbourBlocks};

/// Cost of reading a dataset whose samples are in compressed blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct BlockCosts {
    /// The number of blocks.
    pub blocks: u64,
    /// The total compressed size of all blocks in bytes.
    pub packed_bytes: u64,
    /// The total decompressed size of all blocks in bytes.
    pub unpacked_bytes: u64,
    /// The bytes that an epoch reads if it reads a block again for each sample.
    pub random_read_bytes: u64,
    /// The bytes that an epoch decompresses if it decompresses a block again for each sample.
    pub random_unpacked_bytes: u64,
    /// The total size of the samples in blocks, in bytes.
    pub sample_bytes: u64,
}

impl BlockCosts {
    /// Ratio of decompressed bytes to sample bytes in an epoch that decompresses a block again for each sample.
    pub fn factor(&self) -> f64 {
        self.random_unpacked_bytes as f64 / self.sample_bytes.max(1) as f64
    }

    /// Whether the cache in memory holds all decompressed blocks, so that a random order costs no more than any other
    /// order.
    pub fn fit_in_memory(&self) -> bool {
        self.unpacked_bytes <= MAX_CACHED_BYTES
    }
}

impl DatasetIndex {
    /// Whether any samples are in compressed blocks.
    pub fn has_blocks(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.blocks().len() > 0)
    }

    /// The compressed block that holds the bytes of `extent`; `None` if the bytes are stored uncompressed.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn block(&self, extent: Extent) -> Option<FileBlock> {
        let (part, own) = self.own_file(extent.file)?;
        let row = part.block(Extent { file: own, ..extent })?;
        let (content, version) = (BlockContent::Compressed(row), self.shard_version(extent.file));
        Some(FileBlock { file: extent.file, content, version })
    }

    /// The block of neighbouring samples that contains `extent`; `None` if no block contains it.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn neighbours(&self, neighbour_blocks: &NeighbourBlocks, extent: Extent) -> Option<FileBlock> {
        let Extent { file, offset: start, length } = neighbour_blocks.containing(extent)?;
        let content = BlockContent::Uncompressed { start, length };
        Some(FileBlock { file, content, version: self.shard_version(file) })
    }

    /// The block of a shard that is compressed as a whole. For any other shard, returns the first of its blocks.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn whole_block(&self, file: FileId) -> Option<FileBlock> {
        let (placed, own) = self.dataset_of_file(file);
        let row = placed.part.blocks().of_group(own.0).next()?;
        let content = BlockContent::Compressed(row);
        Some(FileBlock { file, content, version: self.shard_version(file) })
    }

    /// The location of an extent in its file, for messages. For a sample in a compressed block, this is the block's
    /// location.
    pub fn place_in_file(&self, extent: Extent) -> Extent {
        if self.is_stream() {
            // The offset only identifies a sample of the stream, so do not show it.
            return Extent { offset: 0, ..extent };
        }
        self.block(extent).map_or(extent, |block| block.extent())
    }

    /// The samples whose extents are in a block.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn samples_in(&self, block: &FileBlock) -> Vec<u64> {
        let (placed, file) = self.dataset_of_file(block.file);
        let within = placed.part.samples_within(file, block.addresses());
        within.into_iter().map(|sample| placed.sample + sample).collect()
    }

    /// The cache of decompressed blocks of this dataset.
    pub fn unpacked(&self) -> &BlockCache {
        &self.unpacked
    }

    /// The number of reads of all samples, if each compressed block is read once and then cached.
    pub fn reads_by_block(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.reads_by_block()).sum()
    }

    /// The cost of reading the dataset, if samples are in compressed blocks; else `None`.
    pub fn block_costs(&self) -> Option<BlockCosts> {
        let mut costs = BlockCosts::default();
        for placed in &self.parts {
            for row in placed.part.blocks().all() {
                costs.blocks += 1;
                costs.packed_bytes += u64::from(row.packed);
                costs.unpacked_bytes += u64::from(row.unpacked);
            }
        }
        if costs.blocks == 0 {
            return None;
        }
        for placed in &self.parts {
            let mut last: Option<(FileId, CompressedBlock)> = None;
            for sample in 0..placed.part.len() {
                let extent = placed.part.extent(sample);
                // Most samples are in the same block as the previous sample.
                let same = |&(file, row): &(FileId, CompressedBlock)| {
                    file == extent.file && extent.length > 0 && row.addresses().contains(&extent.offset)
                };
                if !last.as_ref().is_some_and(same) {
                    last = placed.part.block(extent).map(|row| (extent.file, row));
                }
                if let Some((_, row)) = last {
                    costs.sample_bytes += u64::from(extent.length);
                    costs.random_read_bytes += u64::from(row.packed);
                    costs.random_unpacked_bytes += u64::from(row.unpacked);
                }
            }
        }
        (costs.sample_bytes > 0).then_some(costs)
    }
}
