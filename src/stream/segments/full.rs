//! What a store answers that has no room.

use base::error::Error;
use std::path::PathBuf;

/// There is no room for something within the quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFull {
    /// The store's directory.
    pub path: PathBuf,
    /// The bytes that are missing room, in whole pages.
    pub wanted: u64,
    /// The bytes that are free for it.
    pub free: u64,
    /// The quota.
    pub quota: u64,
}

impl From<StoreFull> for Error {
    fn from(full: StoreFull) -> Self {
        let StoreFull { path, wanted, free, quota } = full;
        Self::Unavailable(format!(
            "{} is full: {wanted} more bytes are needed and {free} of its {quota} are free: give it more, or keep less",
            path.display()
        ))
    }
}

/// Why a sample was not appended.
#[derive(Debug)]
pub enum AppendError {
    /// There is no room for it. When samples have been freed or segments compacted, there may be.
    Full(StoreFull),
    /// The drive failed. Everything that was appended before is still there, and it may be tried again.
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
