//! Where the files of an index are stored: on file systems or on servers.

use super::super::{FileId, Layout};
use super::DatasetIndex;
use crate::source::{OpenFile, RangeSource};
use base::error::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl DatasetIndex {
    /// The path and the first local sample of each dataset that has files on a local or mounted file system. Files on
    /// servers are not included.
    pub fn local_parts(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.parts.iter().filter_map(|placed| {
            let first = placed.part.first_local()?;
            Some((placed.part.base.as_path(), placed.sample + first))
        })
    }

    /// The directories that contain local files: the directories of the datasets, and the directories of files that
    /// manifests name.
    pub fn local_directories(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for placed in &self.parts {
            if placed.part.layout() == Layout::Manifest {
                let files = (0..placed.part.len()).map(|sample| placed.part.extent(sample).file);
                let local = files.filter(|&file| placed.part.remote(file).is_none());
                found.extend(local.filter_map(|file| Some(placed.part.path(file).parent()?.to_path_buf())));
            } else if !placed.part.is_remote() {
                found.insert(placed.part.base.clone());
            }
        }
        found
    }

    /// Whether any file is read by requests to a server.
    pub fn has_remote(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.has_remote)
    }

    /// Whether the provider bills the requests for any file.
    pub fn is_charged(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.is_charged())
    }

    /// Whether all samples are in shards that `foreload pack` made.
    pub fn is_packed(&self) -> bool {
        !self.is_stream() && self.parts.iter().all(|placed| placed.part.layout() == Layout::Packed)
    }

    /// Whether any samples are in shards that `foreload pack` made.
    pub fn has_packed(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.layout() == Layout::Packed)
    }

    /// Opens a file of a dataset on a server, for reads in any order; `None` for a file that is read by path.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the file cannot be opened.
    pub fn open_remote(&self, file: FileId) -> Result<Option<OpenFile>> {
        let (placed, file) = self.dataset_of_file(file);
        placed.part.open_remote(file)
    }

    /// The source that serves a file by range requests, and the file's name in that source; `None` if the file is read
    /// by path.
    pub fn remote(&self, file: FileId) -> Option<(Arc<dyn RangeSource>, Vec<u8>)> {
        let (part, file) = self.own_file(file)?;
        part.remote(file)
    }
}
