//! The files that packed images were made of. Only decoders know the packed form: whoever else is handed bytes of a
//! sample gets the file itself, rebuilt and checked.

use super::EpochRun;
use crate::decode::packed::{Restorer, is_packed};
use crate::error::DecodeError;
use std::sync::atomic::Ordering;

/// Scratch memory beyond this many bytes is given back before a file that needs less.
const LARGE: usize = 4 << 20;

/// Rebuilds one file after another, in scratch memory of its own. Each thread has one.
#[derive(Default)]
pub(super) struct OriginalFiles {
    restorer: Restorer,
    file: Vec<u8>,
}

impl OriginalFiles {
    /// The file that `bytes` were packed from, which is counted as rebuilt; `None` for bytes that are not packed and so
    /// are a file already.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged packed image.
    pub(super) fn rebuild(&mut self, run: &EpochRun, bytes: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
        if !is_packed(bytes) {
            return Ok(None);
        }
        if bytes.len() < LARGE {
            self.file.clear();
            self.file.shrink_to(LARGE);
        }
        self.restorer.restore(bytes, &mut self.file)?;
        run.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
        Ok(Some(&self.file))
    }
}
