//! The files that images in other forms were made of. Only decoders know those forms: whoever else is handed bytes of a
//! sample gets the file itself, checked.

use super::EpochRun;
use crate::decode::{FileRestorer, RestoredFile};
use crate::error::DecodeError;
use std::sync::atomic::Ordering;

/// Finds or rebuilds one file after another. Each thread has one.
#[derive(Default)]
pub(super) struct OriginalFiles(FileRestorer);

impl OriginalFiles {
    /// Where the file is that `bytes` were made of. One that had to be rebuilt is counted.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged image of another form than the file's own.
    pub(super) fn find(&mut self, run: &EpochRun, bytes: &[u8]) -> Result<RestoredFile<'_>, DecodeError> {
        let found = self.0.find(bytes)?;
        if let RestoredFile::Apart(_) = found {
            run.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// The file that `bytes` were made of, like [`OriginalFiles::find`].
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged image of another form than the file's own.
    pub(super) fn restore<'a>(
        &'a mut self,
        run: &EpochRun,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        Ok(match self.find(run, bytes)? {
            RestoredFile::Within(range) => &bytes[range],
            RestoredFile::Apart(file) => file,
        })
    }
}
