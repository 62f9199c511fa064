//! Decompressed blocks that the packing threads hold. If samples are read in order, each block is decompressed once.
//! Memory is bounded.

use super::source::ShardBytes;
use crate::dataset::packed::{PackedColumns, PackingMember};
use crate::dataset::{DatasetIndex, Extent, FileBlock, ReadAt};
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of bytes of decompressed blocks that all threads hold together. If the blocks of one sample are
/// larger, that sample may exceed the limit.
const MAX_HELD: u64 = 1 << 30;

/// The key in [`ColumnBlocks`] for a sample of a tar shard and for a record, which have no columns. All their bytes are
/// in one block.
pub(super) const NO_COLUMN: u32 = 0;

/// Decompressed blocks of a shard that a thread holds: for each column, the block that was read last.
#[derive(Default)]
pub(super) struct ColumnBlocks(BTreeMap<u32, (FileBlock, Arc<Vec<u8>>)>);

impl ColumnBlocks {
    /// Appends the bytes at `extent` to `bytes`, if the block that is held for this column contains them. Returns
    /// whether the block contains them.
    pub(super) fn read(&self, column: u32, extent: Extent, bytes: &mut Vec<u8>) -> bool {
        let held = self.0.get(&column);
        let found = held.and_then(|(block, unpacked)| unpacked.get(block.range(extent)?));
        found.map(|found| bytes.extend_from_slice(found)).is_some()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let blocks: BTreeMap<u64, u64> =
            self.0.values().map(|(block, _)| (block.addresses().start, block.unpacked())).collect();
        blocks.values().sum()
    }

    /// Returns a block's bytes, and holds the block in place of the column's previous block. The block is read from
    /// `source` and decompressed, except if another thread has already done that.
    ///
    /// # Errors
    /// [`Error::Io`] if the block cannot be read; [`Error::DatasetChanged`] if the shard has become shorter since it
    /// was indexed; [`Error::Dataset`] for a damaged block.
    pub(super) fn take(
        &mut self,
        index: &DatasetIndex,
        column: u32,
        block: &FileBlock,
        source: &ShardBytes,
    ) -> Result<Arc<Vec<u8>>> {
        self.0.remove(&column);
        let path = || index.path(block.extent().file);
        let read = |Extent { offset, length, .. }| {
            let mut stored = vec![0; length as usize];
            let got =
                source.read_at(&mut stored, offset).map_err(|error| Error::io("read", path(), error))?;
            if got < stored.len() {
                let message = "is shorter than when it was indexed".to_owned();
                return Err(Error::DatasetChanged { path: path(), message });
            }
            Ok(stored)
        };
        let (unpacked, _) = index.unpacked().get(block, || block.bytes(path, read))?;
        self.0.insert(column, (block.clone(), unpacked.clone()));
        Ok(unpacked)
    }
}

/// Returns how many of `threads` may pack at a time without holding more than [`MAX_HELD`].
pub(super) fn threads(index: &DatasetIndex, table: &PackedColumns, threads: usize) -> usize {
    if index.has_blocks() { fitting(most_held(index, table), threads) } else { threads }
}

fn fitting(held: u64, threads: usize) -> usize {
    let most = usize::try_from(MAX_HELD / held.max(1)).unwrap_or(usize::MAX);
    threads.min(most.max(1))
}

/// Returns the maximum number of bytes that the [`ColumnBlocks`] of one thread hold.
fn most_held(index: &DatasetIndex, table: &PackedColumns) -> u64 {
    let (mut most, mut shard) = (0, None);
    let mut held: BTreeMap<u32, FileBlock> = BTreeMap::new();
    let mut places = Vec::new();
    for sample in 0..index.len() {
        let image = index.extent(sample);
        if shard.replace(image.file) != Some(image.file) {
            held.clear();
        }
        places.clear();
        if index.has_tables() {
            let place = |PackingMember { key, offset, length }| (key, Extent { offset, length, ..image });
            places.extend(index.packing_members(sample, table).into_iter().map(place));
        } else {
            places.push((NO_COLUMN, image));
        }
        let mut is_new = false;
        for &(column, extent) in &places {
            if held.get(&column).is_some_and(|block| block.range(extent).is_some()) {
                continue;
            }
            if let Some(block) = index.block(extent) {
                held.insert(column, block);
                is_new = true;
            }
        }
        if is_new {
            // Several columns may be in the same block.
            let blocks: BTreeMap<u64, u64> =
                held.values().map(|block| (block.addresses().start, block.unpacked())).collect();
            most = most.max(blocks.values().sum());
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::super::source::{PackSource, SampleFiles, SampleReader};
    use super::*;
    use crate::dataset::IndexOptions;
    use std::path::Path;

    #[test]
    fn each_block_is_unpacked_once_and_held_while_it_is_read() {
        for name in [
            "webdataset/gzip",
            "tfrecord/zlib",
            "mds/zstd",
            "parquet/zstd",
            "parquet/page-v2-zstd",
            "arrow/file-lz4",
            "arrow/stream-zstd",
        ] {
            let kept = tempfile::tempdir().unwrap();
            let root =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name).join("files");
            let options = IndexOptions {
                directory: Some(kept.path().to_path_buf()),
                members: Some(Vec::new()),
                without_labels: true,
                ..IndexOptions::default()
            };
            let index = DatasetIndex::open(&root, &options).unwrap();
            let facts = index.packing_facts();
            let most = most_held(&index, &facts.table);
            let source = PackSource::new(&index, &facts, 1);
            let (mut reader, mut files) = (SampleReader::new(&source), SampleFiles::default());
            let mut held = 0;
            for sample in 0..index.len() {
                reader.read(sample, &mut files).unwrap();
                held = held.max(reader.held());
            }
            reader.finish().unwrap();
            assert!(most > 0 && held == most, "{name}: {held} of {most}");
            assert_eq!(index.unpacked().stats().blocks, index.block_costs().unwrap().blocks, "{name}");
        }
    }

    #[test]
    fn as_many_threads_pack_as_blocks_fit_in_memory() {
        assert_eq!([0, 1, MAX_HELD / 64].map(|most| fitting(most, 64)), [64, 64, 64]);
        assert_eq!([MAX_HELD / 3, MAX_HELD, MAX_HELD * 5].map(|most| fitting(most, 64)), [3, 1, 1]);
    }
}
