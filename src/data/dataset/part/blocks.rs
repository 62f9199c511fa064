//! The compressed blocks of a dataset, and the samples in them.

use super::DatasetPart;
use crate::dataset::arrays::{CHUNKS, ChunkUse, RECORDS, SharedChunk};
use crate::dataset::blocks::{BlockTable, CompressedBlock};
use crate::dataset::format::Section;
use crate::dataset::{Extent, FileId};
use std::collections::HashSet;
use std::ops::Range;

impl DatasetPart {
    pub(in crate::dataset) fn blocks(&self) -> BlockTable<'_> {
        BlockTable(self.file.section(Section::Blocks))
    }

    /// The block that holds the bytes of `extent`; `None` if the bytes are stored uncompressed, or if `extent` is
    /// empty.
    pub(in crate::dataset) fn block(&self, extent: Extent) -> Option<CompressedBlock> {
        if extent.length == 0 || !self.layout().is_sharded() {
            return None;
        }
        self.blocks().at(extent.file.0, extent.offset)
    }

    /// The chunk that several samples share and that has the bytes of `extent`; `None` if the bytes are in a file.
    pub(in crate::dataset) fn shared_chunk(&self, extent: Extent) -> Option<SharedChunk> {
        let selection = self.arrays.as_ref().filter(|_| extent.length > 0 && extent.offset < RECORDS)?;
        let address = extent.offset.checked_sub(CHUNKS)?;
        selection.shared_chunk(self.file.arrays(), extent.file.0, address)
    }

    /// All chunks that several samples share and that must be decoded.
    pub(in crate::dataset) fn shared_chunks(&self) -> impl Iterator<Item = ChunkUse> {
        let selection = self.arrays.as_ref().filter(|selection| selection.shares_chunks);
        selection.into_iter().flat_map(|selection| selection.shared_chunks(self.file.arrays()))
    }

    /// Whether samples are in compressed blocks, or in chunks that several samples share and that must be decoded.
    pub(in crate::dataset) fn has_blocks(&self) -> bool {
        self.blocks().len() > 0 || self.arrays.as_ref().is_some_and(|selection| selection.shares_chunks)
    }

    /// The samples of a shard whose extents begin in the range `addresses`, sorted by address. Samples of arrays may
    /// have only parts there, so there are none of these.
    pub(in crate::dataset) fn samples_within(&self, file: FileId, addresses: Range<u64>) -> Vec<u64> {
        if self.layout().is_array() {
            return Vec::new();
        }
        let Range { start, end } = self.samples_of(file);
        let orders = self.members.as_ref().map_or(&self.image_order, |members| &members.sorted);
        let order = orders.get(&file.0);
        let sample = |number: u64| start + order.map_or(number, |order| u64::from(order[number as usize]));
        let offset = |number: u64| self.extent(sample(number)).offset;
        let first = super::search(0, end - start, |number| offset(number) < addresses.start);
        let within = (first..end - start).take_while(|&number| offset(number) < addresses.end);
        within.map(sample).collect()
    }

    /// The number of reads that fetch all samples, if every compressed block is read only once.
    pub(in crate::dataset) fn reads_by_block(&self) -> u64 {
        if self.blocks().len() == 0 {
            let again: u64 = self.shared_chunks().map(|chunk| chunk.samples.saturating_sub(1)).sum();
            return self.total_reads().saturating_sub(again);
        }
        let (mut blocks, mut others) = (HashSet::new(), 0);
        for sample in 0..self.len() {
            for extent in std::iter::once(self.extent(sample)).chain(self.separate_extents(sample)) {
                match self.block(extent) {
                    Some(row) => drop(blocks.insert((extent.file.0, row.start))),
                    None => others += 1,
                }
            }
        }
        blocks.len() as u64 + others
    }
}
