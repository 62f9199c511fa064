//! Lists a cache directory: its datasets, their segments, and their last use.

use super::segment::{self, DatasetKey};
use super::setup::read_directory;
use crate::segments::{PAGE, numbered, pages};
use base::error::{Error, Result};
use base::node::RangeLocks;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) type SegmentPages = BTreeMap<u64, u64>;

/// Returns when a dataset was last opened; `None` while it is in use, or if that is unknown.
pub(super) fn last_use(path: &Path) -> Option<SystemTime> {
    let file = match File::options().read(true).write(true).open(path.join("used")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(SystemTime::UNIX_EPOCH),
        Err(_) => return None,
    };
    let time = file.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let users = RangeLocks::new(file).locked_by_others(0..1);
    users.is_ok_and(|users| users.is_empty()).then_some(time)
}

/// Returns a dataset's segments and their sizes in pages. Sizes in `known` are not queried again.
pub(super) fn segments(path: &Path, known: Option<&SegmentPages>) -> Result<SegmentPages> {
    let known = |number| Some(known?.get(&number)? * PAGE);
    let found = numbered::files(path, segment::EXTENSION, known)?;
    Ok(found.into_iter().map(|(number, bytes)| (number, pages(bytes))).collect())
}

pub(super) fn datasets(path: &Path) -> Result<Vec<(DatasetKey, PathBuf)>> {
    let mut found = Vec::new();
    for entry in read_directory(path)? {
        let entry = entry.map_err(|error| Error::io("list", path, error))?;
        if let Some(key) = entry.file_name().to_str().and_then(DatasetKey::parse)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            found.push((key, entry.path()));
        }
    }
    Ok(found)
}
