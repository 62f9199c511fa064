//! Numbered files, such as segments: their names, and their listing.

use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Returns the name of the file with this number and extension.
pub fn name(number: u64, extension: &str) -> String {
    format!("{number:08}.{extension}")
}

/// Returns the number in a file name; `None` if [`name`] would not return the same file name.
pub fn parse(found: &str, extension: &str) -> Option<u64> {
    let digits = found.strip_suffix(extension)?.strip_suffix('.')?;
    let as_written = digits.len() == 8 || digits.len() > 8 && !digits.starts_with('0');
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    if as_written && only_digits { digits.parse().ok() } else { None }
}

/// Lists the numbers of a directory's files with this extension, and their sizes in bytes. If `known` returns the size
/// of a file, the file system is not asked for it.
///
/// # Errors
/// [`Error::Io`] if the directory cannot be listed, or the size of a file cannot be queried.
pub fn files(
    directory: &Path,
    extension: &str,
    known: impl Fn(u64) -> Option<u64>,
) -> Result<BTreeMap<u64, u64>> {
    let failed = |error| Error::io("list", directory, error);
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(number) = entry.file_name().to_str().and_then(|name| parse(name, extension)) else {
            continue;
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let bytes = known(number).map_or_else(|| entry.metadata().map(|found| found.len()), Ok);
        match bytes {
            Ok(bytes) => drop(found.insert(number, bytes)),
            // The file was removed after it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("look at", entry.path(), error)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_only_as_they_are_written() {
        assert_eq!(parse(&name(7, "seg"), "seg"), Some(7));
        assert_eq!(parse(&name(123_456_789_012, "seg"), "seg"), Some(123_456_789_012));
        for foreign in
            ["7.seg", "+0000007.seg", "00000007.seg~", "00000007", "0000000x.seg", ".seg", "000000007.seg"]
        {
            assert_eq!(parse(foreign, "seg"), None, "{foreign}");
        }
        assert_eq!(parse(&name(7, "seg"), "snap"), None);
    }
}
