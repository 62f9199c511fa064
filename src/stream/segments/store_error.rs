//! The errors of a store that is full.

use base::error::Error;
use std::path::PathBuf;

/// The quota has too little free space for a write.
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
    /// The quota has too little free space. Freeing samples or compacting segments can free space.
    Full(StoreFull),
    /// The drive failed. Everything that was appended before is kept, and the call may be repeated.
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
