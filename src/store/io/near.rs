//! Files on servers whose neighbouring samples are read together. As with [compressed blocks](super::blocks), a read of
//! one sample reads its whole block of neighbouring samples ([`NeighbourBlocks`]).

use super::files::{Files, RemoteFile};
use base::error::Result;
use data::dataset::arrays::record::SampleRecord;
use data::dataset::{BlockCache, DatasetIndex, Extent, FileBlock, FileId, NeighbourBlocks, Stamp};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct NeighbourFiles {
    index: Arc<DatasetIndex>,
    neighbour_blocks: Arc<NeighbourBlocks>,
}

impl NeighbourFiles {
    pub(super) fn new(index: &Arc<DatasetIndex>, neighbour_blocks: &Arc<NeighbourBlocks>) -> Self {
        Self { index: index.clone(), neighbour_blocks: neighbour_blocks.clone() }
    }
}

impl Files for NeighbourFiles {
    fn path(&self, file: FileId) -> PathBuf {
        self.index.path(file)
    }
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        Files::stamp(&*self.index, file)
    }
    fn accept(&self, file: FileId, difference: String) -> Result<()> {
        Files::accept(&*self.index, file, difference)
    }
    fn remote(&self, file: FileId) -> Option<RemoteFile> {
        Files::remote(&*self.index, file)
    }
    fn block(&self, extent: Extent) -> Option<FileBlock> {
        let near = || {
            let neighbour_block = self.index.neighbours(&self.neighbour_blocks, extent)?;
            Files::remote(self, extent.file).map(|_| neighbour_block)
        };
        self.index.block(extent).or_else(near)
    }
    fn record(&self, extent: Extent) -> Option<SampleRecord> {
        Files::record(&*self.index, extent)
    }
    fn unpacked(&self) -> Option<&BlockCache> {
        Files::unpacked(&*self.index)
    }
}
