//! Files on servers whose neighbouring samples are read together. As with [compressed blocks](super::blocks), a read of
//! one sample reads its whole block of neighbouring samples ([`Stretches`]).

use super::files::{Files, RemoteFile};
use base::error::Result;
use data::dataset::{DatasetIndex, Extent, FileBlock, FileId, Stamp, Stretches, UnpackedBlocks};
use std::path::PathBuf;
use std::sync::Arc;

/// The files of a dataset, with its blocks of neighbouring samples.
pub(super) struct NearFiles {
    index: Arc<DatasetIndex>,
    stretches: Arc<Stretches>,
}

impl NearFiles {
    pub(super) fn new(index: &Arc<DatasetIndex>, stretches: &Arc<Stretches>) -> Self {
        Self { index: index.clone(), stretches: stretches.clone() }
    }
}

impl Files for NearFiles {
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
            let stretch = self.index.neighbours(&self.stretches, extent)?;
            Files::remote(self, extent.file).map(|_| stretch)
        };
        self.index.block(extent).or_else(near)
    }
    fn unpacked(&self) -> Option<&UnpackedBlocks> {
        Files::unpacked(&*self.index)
    }
}
