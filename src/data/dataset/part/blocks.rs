//! The compressed blocks of a dataset, and the samples in them.

use super::DatasetPart;
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

    /// The samples of a shard whose extents begin in the range `addresses`, sorted by address.
    pub(in crate::dataset) fn samples_within(&self, file: FileId, addresses: Range<u64>) -> Vec<u64> {
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
            return self.total_reads();
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
