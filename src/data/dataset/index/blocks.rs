//! The compressed blocks that hold samples, and the chunks that several samples share.

use super::DatasetIndex;
use crate::dataset::blocks::{BlockContent, CompressedBlock};
use crate::dataset::unpacked::MAX_CACHED_BYTES;
use crate::dataset::{BlockCache, Extent, FileBlock, FileId, NeighbourBlocks, Stamp};

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
    /// Whether any samples are in compressed blocks, or in chunks that several samples share and that must be decoded.
    pub fn has_blocks(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.has_blocks())
    }

    /// The compressed block or the shared chunk that holds the bytes of `extent`; `None` if the bytes are stored
    /// uncompressed.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn block(&self, extent: Extent) -> Option<FileBlock> {
        let (part, own) = self.own_file(extent.file)?;
        let extent_in_part = Extent { file: own, ..extent };
        let row = part.block(extent_in_part).map(BlockContent::Compressed);
        let content = row.or_else(|| Some(BlockContent::Chunk(part.shared_chunk(extent_in_part)?)))?;
        // A file of one chunk has no stamp in the index, only one from when it was last looked at.
        let noted = if part.has_chunk_files() { self.unpacked.noted_stamp(extent.file) } else { None };
        let version = noted.map(Stamp::version).or_else(|| self.shard_version(extent.file));
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
    /// location; for arrays, it is that of their first bytes.
    pub fn place_in_file(&self, extent: Extent) -> Extent {
        if self.is_stream() {
            // The offset only identifies a sample of the stream, so do not show it.
            return Extent { offset: 0, ..extent };
        }
        let first = self.record(extent).and_then(|record| Some(record.pieces.first()?.extent));
        let first = first.unwrap_or(extent);
        self.block(first).map_or(first, |block| block.extent())
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
            for chunk in placed.part.shared_chunks() {
                costs.blocks += 1;
                costs.packed_bytes += chunk.packed;
                costs.unpacked_bytes += chunk.unpacked;
                costs.random_read_bytes += chunk.packed * chunk.samples;
                costs.random_unpacked_bytes += chunk.unpacked * chunk.samples;
                costs.sample_bytes += chunk.sample_bytes;
            }
        }
        if costs.blocks == 0 {
            return None;
        }
        for placed in self.parts.iter().filter(|placed| placed.part.blocks().len() > 0) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::arrays::filters::ChunkFilter;
    use crate::dataset::arrays::{ArrayFacts, ArrayStorage, CHUNKS, ChunkCell, ShardArray};
    use crate::dataset::build::{GroupRows, IndexBuilder, IndexFacts, IndexGroup, ShardRows};
    use crate::dataset::{Contents, Layout, Stamp};
    use pixels::arrays::{MemoryOrder, Number, StoredType};
    use std::path::Path;

    /// An array of compressed chunks of 10 bytes each. The chunks in `absent` are not stored.
    fn array(name: &str, shape: &[u64], chunk: &[u64], absent: &[usize]) -> ShardArray {
        let stored = StoredType { number: Number::Unsigned(4), swapped: false };
        let facts = serde_json::json!({
            "name": name, "stored": stored, "order": MemoryOrder::RowMajor, "filters": [ChunkFilter::Zlib],
        });
        let facts: ArrayFacts = serde_json::from_value(facts).unwrap();
        let count = shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).product::<u64>();
        let cell = |number: u64| ChunkCell { offset: 100 * number, length: 10, ..ChunkCell::absent() };
        let mut cells: Vec<ChunkCell> = (0..count).map(cell).collect();
        absent.iter().for_each(|&number| cells[number] = ChunkCell::absent());
        ShardArray {
            facts,
            shape: shape.to_vec(),
            storage: ArrayStorage::Grid { chunk: chunk.to_vec(), cells },
        }
    }

    fn index(arrays: Vec<ShardArray>) -> DatasetIndex {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("x.index");
        let mut builder = IndexBuilder::new(&target, Layout::Npy, Contents::Images).unwrap();
        let names: Vec<String> = arrays.iter().map(|array| array.facts.name.clone()).collect();
        let rows = GroupRows::Shard(ShardRows { arrays, array_samples: 10, ..ShardRows::default() });
        builder.add(&IndexGroup { path: b"0".to_vec(), stamp: Stamp::default(), rows }).unwrap();
        builder.finish(&IndexFacts { root: "/data".into(), ..IndexFacts::default() }).unwrap();
        let mut index = DatasetIndex::load(Path::new("/data"), &target).unwrap();
        index.parts[0].part.select_arrays(&names).unwrap();
        index
    }

    #[test]
    fn chunks_that_samples_share_are_blocks() {
        // Each sample has parts of two chunks of x, of which one is absent, and of one chunk of y.
        let index = index(vec![array("x", &[10, 4], &[4, 2], &[3]), array("y", &[10], &[3], &[])]);
        assert!(index.has_blocks());
        for sample in 0..10 {
            let extent = index.extent(sample);
            let record = index.record(extent).unwrap();
            assert_eq!(record.pieces.len(), if (4..8).contains(&sample) { 2 } else { 3 });
            for piece in &record.pieces {
                let block = index.block(piece.extent).unwrap();
                let range = block.range(piece.extent).unwrap();
                let is_x = piece.extent.length == 8;
                let (rows, row, bytes) = if is_x { (4, 8, 32) } else { (3, 4, 12) };
                assert_eq!((block.is_compressed(), block.unpacked(), range.len()), (true, bytes, row));
                assert_eq!(range.start, sample as usize % rows * row);
                let number = if is_x { block.extent().offset / 200 } else { block.extent().offset / 100 };
                assert_eq!((number, block.extent().length), (sample / rows as u64, 10));
                assert_eq!(index.samples_in(&block), Vec::<u64>::new());
            }
            assert!(index.place_in_file(extent).offset < 1000);
        }
        let (file, x) = (FileId(0), CHUNKS);
        // After the chunk, in an absent chunk, in another array.
        let step = 32 + crate::dataset::blocks::APART;
        for address in [x - 1, x + 32, x + 3 * step, x + 6 * step, x + (1 << 49)] {
            assert_eq!(index.block(Extent { file, offset: address, length: 4 }), None, "{address}");
        }
        let costs = index.block_costs().unwrap();
        let expected = BlockCosts {
            blocks: 5 + 4,
            packed_bytes: 90,
            unpacked_bytes: 5 * 32 + 4 * 12,
            random_read_bytes: (16 + 10) * 10,
            random_unpacked_bytes: 16 * 32 + 10 * 12,
            sample_bytes: 16 * 8 + 10 * 4,
        };
        assert_eq!((costs, index.total_reads(), index.reads_by_block()), (expected, 26, 9));
    }

    #[test]
    fn the_samples_of_the_largest_chunk_are_neighbours() {
        let all = index(vec![array("x", &[10, 4], &[4, 2], &[3]), array("y", &[10], &[3], &[])]);
        let blocks = NeighbourBlocks::new(&all, 10, |member| member, 1);
        let members: Vec<_> = (0..blocks.len()).map(|number| blocks.members_of(number)).collect();
        let bytes: Vec<_> = (0..blocks.len()).map(|number| blocks.bytes_of(number)).collect();
        assert_eq!((members, bytes), (vec![0..4, 4..8, 8..10], vec![76, 44, 76]));
        assert!(blocks.has_neighbours());
        let one = index(vec![array("y", &[10], &[3], &[1])]);
        // Nothing is stored of the samples of an absent chunk, so they belong to the block before.
        let blocks = NeighbourBlocks::new(&one, 10, |member| member, 1);
        let members: Vec<_> = (0..blocks.len()).map(|number| blocks.members_of(number)).collect();
        assert_eq!(members, [0..6, 6..9, 9..10]);
        let alone = index(vec![array("x", &[10, 4], &[1, 4], &[])]);
        assert!(!alone.has_blocks() && alone.block_costs().is_none());
    }
}
