//! Names that every dataset skips: hidden files, system files, and shards that are backups or still being written. All
//! code that lists directories or archives must use this module, so that one rule holds in every layout.

use super::Contents;
use super::kind::{ending_among, is_image_file};
use super::layouts::Layout;
use super::left_out::SkipReason;
use super::survey::describes;
use crate::source::{Entry, EntryKind};

/// Names that operating systems, storage servers and tools give to their own files and directories, in lower case.
/// Names that begin with a dot, such as `.ipynb_checkpoints`, need no entry. A name that could be a class has no entry.
const OF_SYSTEMS: &[&str] = &[
    // macOS, and archives that macOS makes.
    "__macosx",
    "icon\r",
    "network trash folder",
    "temporary items",
    // Windows.
    "$recycle.bin",
    "system volume information",
    "desktop.ini",
    "ehthumbs.db",
    "thumbs.db",
    // Synology and QNAP.
    "@eadir",
    "@recently-snapshot",
    "@recycle",
    "@sharebin",
    "@tmp",
    "#recycle",
    "#snapshot",
    // File systems and file servers.
    "lost+found",
    "~snapshot",
    // Python.
    "__pycache__",
];

/// Suffixes that editors and copy programs give to old or unfinished files.
const UNFINISHED: &[&str] = &[
    "~",
    "#",
    ".aria2",
    ".bak",
    ".crdownload",
    ".download",
    ".filepart",
    ".gstmp",
    ".incomplete",
    ".old",
    ".orig",
    ".part",
    ".partial",
    ".swp",
    ".temp",
    ".tmp",
];

/// The number of letters and digits that rsync appends to the name of a file while writing it.
const RSYNC_SUFFIX: usize = 6;

/// Why a file or directory with this name is skipped, anywhere below the root; `None` if it is not skipped.
pub(super) fn ignored(name: &[u8]) -> Option<SkipReason> {
    if name.starts_with(b".") {
        return Some(SkipReason::Hidden);
    }
    let is_own = |own: &&str| own.as_bytes().eq_ignore_ascii_case(name);
    OF_SYSTEMS.iter().any(is_own).then_some(SkipReason::System)
}

/// Whether a file or directory with this name is skipped, anywhere in a dataset or an archive.
pub fn is_ignored(name: &[u8]) -> bool {
    ignored(name).is_some()
}

/// Why an entry is skipped: for the reasons of [`ignored`], or as a shard that is a backup or unfinished.
pub(super) fn ignored_entry(entry: Entry<'_>, contents: Contents) -> Option<SkipReason> {
    let is_unfinished = entry.kind != EntryKind::Directory && is_unfinished_shard(entry.name, contents);
    is_unfinished.then_some(SkipReason::UnfinishedShard).or_else(|| ignored(entry.name))
}

/// Why a member of an archive is skipped: by its own name, or by the name of one of its directories.
pub(super) fn ignored_member(path: &[u8]) -> Option<SkipReason> {
    let is_name = |part: &&[u8]| !part.is_empty() && *part != b"." && *part != b"..";
    path.split(|&byte| byte == b'/').filter(is_name).find_map(ignored)
}

/// Whether a name is that of a shard with an added prefix or suffix, as editors and copy programs mark old or
/// unfinished files.
fn is_unfinished_shard(name: &[u8], contents: Contents) -> bool {
    // Most files are images, so test for images first. Apple's attribute files (`._`) have no contents of their own.
    if is_image_file(name) || name.starts_with(b"._") {
        return false;
    }
    let is_shard = |name: &[u8]| {
        Layout::of_samples(contents)
            .any(|(_, layout_impl)| layout_impl.is_shard(name) || layout_impl.is_compressed(name))
    };
    let plain = plain(name);
    if plain.len() < name.len() && is_shard(plain) {
        return true;
    }
    // A name that continues after the extension of a shard, for example with a number or a date, is not the name of a
    // shard. Such a file is not read.
    let mut ends = (0..name.len()).filter(|&at| !name[at].is_ascii_alphanumeric());
    ends.any(|at| is_shard(&name[..at])) && !is_shard(name) && !describes(name)
}

/// A name without the parts that mark it as a backup or as unfinished.
fn plain(name: &[u8]) -> &[u8] {
    let mut plain = name;
    while let [b'.' | b'#', rest @ ..] = plain {
        plain = rest;
    }
    if name.starts_with(b".")
        && let Some(dot) = plain.len().checked_sub(RSYNC_SUFFIX + 1)
        && plain[dot] == b'.'
        && plain[dot + 1..].iter().all(u8::is_ascii_alphanumeric)
    {
        plain = &plain[..dot];
    }
    while let Some(ending) = ending_among(UNFINISHED, plain) {
        plain = &plain[..plain.len() - ending.len()];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_systems_and_unfinished_shards_are_left_out_and_others_are_not() {
        for name in [
            ".git",
            ".DS_Store",
            "@eaDir",
            "$RECYCLE.BIN",
            "$Recycle.Bin",
            "lost+found",
            "__MACOSX",
            "Thumbs.db",
        ] {
            assert!(ignored(name.as_bytes()).is_some(), "{name}");
        }
        for name in ["cat", "_cat", "#1", "@home", "$", "thumbs", "cat~", "snapshot"] {
            assert_eq!(ignored(name.as_bytes()), None, "{name}");
        }
        for name in [
            ".a.tar",
            ".a.tar.gz",
            "a.tar~",
            "a.tar.bak",
            "a.tar.tmp",
            "a.tar.gz.part",
            "#a.tar#",
            ".a.parquet.AbC123",
            "x.tfrecord~",
            "x.tfrecord-00000-of-00010.gstmp",
            ".x.tfrecord.AbC123",
            "a.tar.bak~",
            "a.arrow.PART",
            "a.tar.tmp.12345",
            "a.tar.1",
            "a.tar (copy)",
            "a.tar._COPYING_",
            "x.tfrecord.6eF8a1B2",
            "x.tfrecord_bak",
            "x.tfrecords.backup",
        ] {
            assert!(is_unfinished_shard(name.as_bytes(), Contents::Images), "{name}");
        }
        for name in [
            "a.tar",
            "a.bak.tar",
            "x.tfrecord-00000-of-00010",
            "x.tfrecord.bz2",
            "x.tfrecord.1",
            "x.tfrecord-00001.gz",
            "x.tfrecord.md5",
            "a.tar.idx",
            "a.tar.gz",
            "a.target",
            "a.tar.jpg",
            "._a.tar",
            "notes~",
            ".a.jpg",
        ] {
            assert!(!is_unfinished_shard(name.as_bytes(), Contents::Images), "{name}");
        }
        let members =
            [("./cat/0.jpg", false), ("__MACOSX/cat/0.jpg", true), ("cat/.ipynb_checkpoints/0.jpg", true)];
        for (path, left_out) in members {
            assert_eq!(ignored_member(path.as_bytes()).is_some(), left_out, "{path}");
        }
    }
}
