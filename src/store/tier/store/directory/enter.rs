//! Opens a cache directory: for writing if possible, otherwise for reading.

use super::super::super::counters::CopyCounters;
use super::super::about::DatasetInfo;
use super::super::segment::DatasetKey;
use super::super::setup::{
    LOCK_LIMIT_AT_START, check_format, enter_dataset, initialise, open_file, open_to_read, wait_for,
};
use super::CacheDirectory;
use base::error::{Error, Result};
use base::node::{LockKind, RangeLocks};
use data::dataset::DatasetIndex;
use std::fs;
use std::path::Path;
use std::sync::Arc;

impl CacheDirectory {
    /// Opens the directory for `index`'s dataset, creates missing files and marks it as in use. If the directory cannot
    /// be written, or its lock is held for too long, its copies are only read, and a warning says so.
    ///
    /// # Errors
    /// The errors of [`crate::tier::store::Store::open`].
    pub(crate) fn open(
        path: &Path,
        quota: u64,
        index: &DatasetIndex,
        counters: Arc<CopyCounters>,
    ) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?;
        let key = DatasetKey::of(index);
        let refusal = match Self::enter_to_write(&path, key, &DatasetInfo::of(index)) {
            Ok((lock, marker)) => {
                let directory = Self::new(path, key, quota, (lock, marker, true), counters);
                directory.shrink()?;
                return Ok(directory);
            }
            Err(refusal) => refusal,
        };
        let Ok((lock, marker)) = Self::enter_to_read(&path, key) else { return Err(refusal) };
        index.notices().warn_once("cache read only", || {
            format!(
                "the cache {} is read-only in this run: {refusal}. Its copies are used, but none are added. For the \
                 next run, free space, allow writing, or end the process that locks it",
                path.display()
            )
        });
        Ok(Self::new(path, key, quota, (lock, marker, false), counters))
    }

    fn enter_to_write(path: &Path, key: DatasetKey, about: &DatasetInfo) -> Result<(RangeLocks, RangeLocks)> {
        fs::create_dir_all(path).map_err(|error| Error::io("create cache directory", path, error))?;
        let lock = RangeLocks::new(open_file(&path.join("lock"), true)?);
        wait_for(&lock, path, LOCK_LIMIT_AT_START)?;
        let own = path.join(key.to_string());
        let entered = initialise(&lock, path).and_then(|()| enter_dataset(&own));
        if entered.is_ok() {
            about.write(&own);
        }
        lock.unlock(0..1).map_err(|error| Error::io("unlock", path.join("lock"), error))?;
        Ok((lock, entered?))
    }

    fn enter_to_read(path: &Path, key: DatasetKey) -> Result<(RangeLocks, RangeLocks)> {
        let lock = open_to_read(&path.join("lock"))?;
        check_format(&lock, path)?;
        let marker = RangeLocks::new(open_to_read(&path.join(key.to_string()).join("used"))?);
        // Processes that evict query this lock. On a file system without locks, no process evicts.
        let _ = marker.try_lock(0..1, LockKind::Shared);
        Ok((RangeLocks::new(lock), marker))
    }
}
