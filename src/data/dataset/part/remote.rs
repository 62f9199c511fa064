//! Which files of a dataset are read by requests to a server, and from which source.

use super::DatasetPart;
use crate::dataset::FileId;
use crate::source::{OpenFile, RangeSource};
use base::error::Result;
use std::sync::Arc;

impl DatasetPart {
    /// Opens a file on a server for parsers; `None` for a file that is read by path.
    pub(in crate::dataset) fn open_remote(&self, file: FileId) -> Result<Option<OpenFile>> {
        if self.remote(file).is_none() {
            return Ok(None);
        }
        self.source.open(&self.name_in_source(file)).map(Some)
    }

    /// The source that serves a file by range requests, and the file's name in that source; `None` if the file is read
    /// by path.
    pub(in crate::dataset) fn remote(&self, file: FileId) -> Option<(Arc<dyn RangeSource>, Vec<u8>)> {
        if !self.has_remote {
            return None;
        }
        self.source.range_of(&self.name_in_source(file))
    }

    /// Whether files are read by requests and not by path. For a manifest, whether the manifest itself is read by
    /// requests.
    pub(in crate::dataset) fn is_remote(&self) -> bool {
        self.source.is_remote()
    }

    /// The first sample whose file is read by path; `None` if all files are read by requests.
    pub(in crate::dataset) fn first_local(&self) -> Option<u64> {
        if !self.has_remote {
            return Some(0);
        }
        let mut samples = 0..if self.is_remote() { 0 } else { self.len() };
        samples.find(|&sample| self.remote(self.image(sample).file).is_none())
    }

    /// Whether the provider bills each request for files of the dataset.
    pub(in crate::dataset) fn is_charged(&self) -> bool {
        self.source.ranges().is_some_and(|ranges| ranges.charges())
    }
}
