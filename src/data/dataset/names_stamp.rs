//! The combined stamp of a dataset's names: of its root, of directories with shards, and of files that describe shards.

use super::Stamp;
use crate::source::{DatasetSource, EntryState};
use base::error::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// A stamp (a summary of file metadata) that changes if shards are added or removed, or if a file that describes shards
/// changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamesStamp {
    /// The stamp of the root. Its size is replaced by two digests of 32 bits each. The high half is a digest of the
    /// stamps of directories with shards below the root. The low half is a digest of the stamps of files that describe
    /// shards. If there are no such directories and files, the size is kept.
    pub(super) stamp: Stamp,
    /// Whether the root has a real stamp (`EntryState::Stamped`), so that the combined stamp shows changes.
    is_stamped: bool,
}

impl NamesStamp {
    pub(super) fn seen(self) -> EntryState {
        if self.is_stamped { EntryState::Stamped(self.stamp) } else { EntryState::Unstamped }
    }

    /// Whether the files that describe shards still have the stamps that they had in the combined stamp `then`.
    pub(super) fn same_descriptions(self, then: Stamp) -> bool {
        self.stamp.size as u32 == then.size as u32
    }
}

/// Reads the combined stamp of the root, of the directories with shards below it, and of the files that describe
/// shards; `None` if the root does not exist.
pub(super) fn stamp_of_names<'a>(
    source: &dyn DatasetSource,
    shards: impl Iterator<Item = &'a [u8]>,
    described: &[&str],
    inodes: bool,
) -> Result<Option<NamesStamp>> {
    let root = source.stamp(&[])?;
    let Some(stamp) = root.stamp() else { return Ok(None) };
    let slashes = |name: &'a [u8]| (0..name.len()).filter(|&at| name[at] == b'/').map(|at| &name[..at]);
    let directories: BTreeSet<&[u8]> = shards.flat_map(slashes).collect();
    let is_stamped = matches!(root, EntryState::Stamped(_));
    if directories.is_empty() && described.is_empty() {
        return Ok(Some(NamesStamp { stamp, is_stamped }));
    }
    let digest = |names: &mut dyn Iterator<Item = &[u8]>| -> Result<u32> {
        let mut hash = Sha256::new();
        for name in names {
            let found = source.stamp(name)?.stamp().unwrap_or_default();
            hash.update(if inodes { found } else { found.without_inode() }.to_bytes());
        }
        Ok(hash.finalize().first_chunk().map_or(0, |digest| u32::from_le_bytes(*digest)))
    };
    let directories = digest(&mut directories.into_iter())?;
    let described = digest(&mut described.iter().map(|name| name.as_bytes()))?;
    let size = u64::from(directories) << 32 | u64::from(described);
    Ok(Some(NamesStamp { stamp: Stamp { size, ..stamp }, is_stamped }))
}
