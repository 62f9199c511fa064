//! The files of directories.

use std::path::{Path, PathBuf};

/// All files below a directory, in order.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}
