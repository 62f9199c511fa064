//! What lies in a cache directory: its datasets, their segments, and when somebody used them.

use super::directory::pages;
use super::segment::{self, DatasetKey};
use super::setup::read_directory;
use base::error::{Error, Result};
use base::node::RangeLocks;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// When a dataset was last opened; `None` while it is in use, or where that cannot be told.
pub(super) fn last_use(path: &Path) -> Option<SystemTime> {
    let file = match File::options().read(true).write(true).open(path.join("used")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(SystemTime::UNIX_EPOCH),
        Err(_) => return None,
    };
    let time = file.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let users = RangeLocks::new(file).of_others(0..1);
    users.is_ok_and(|users| users.is_empty()).then_some(time)
}

/// A dataset's segments and their sizes in pages; sizes in `known` are not asked for again.
pub(super) fn segments(path: &Path, known: Option<&HashMap<u64, u64>>) -> Result<HashMap<u64, u64>> {
    let mut found = HashMap::with_capacity(known.map_or(0, HashMap::len));
    for entry in read_directory(path)? {
        let entry = entry.map_err(|error| Error::io("list", path, error))?;
        let Some(number) = entry.file_name().to_str().and_then(segment::parse_name) else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let size = match known.and_then(|known| known.get(&number)) {
            Some(&pages) => pages,
            None => match entry.metadata() {
                Ok(metadata) => pages(metadata.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::io("look at", entry.path(), error)),
            },
        };
        found.insert(number, size);
    }
    Ok(found)
}

/// The datasets that have a directory here.
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
