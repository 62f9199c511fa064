//! The errors of a store that has no room.

use base::error::Error;
use std::path::PathBuf;

/// The quota has no room for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFull {
    /// The store's directory.
    pub path: PathBuf,
    /// The bytes that are needed, in whole pages.
    pub wanted: u64,
    /// The bytes that are free for the write.
    pub free: u64,
    /// The quota.
    pub quota: u64,
}

impl From<StoreFull> for Error {
    fn from(full: StoreFull) -> Self {
        let StoreFull { path, wanted, free, quota } = full;
        Self::Unavailable(format!(
            "{} is full: {wanted} more bytes are needed, {free} of {quota} are free: raise its size, or keep less",
            path.display()
        ))
    }
}

/// Why a sample was not appended.
#[derive(Debug)]
pub enum AppendError {
    /// There is no room for it. Freeing samples or compacting segments may make room.
    Full(StoreFull),
    /// The drive failed. Everything that was appended before is still stored, and the call may be repeated.
    Failed(Error),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full(full) => full.into(),
            AppendError::Failed(error) => error,
        }
    }
}
