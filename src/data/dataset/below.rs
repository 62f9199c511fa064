//! Searches directories for the first sample and the first shards, to detect the kind of a dataset.

use super::Contents;
use super::cancel::Cancel;
use super::ignored::ignored_entry;
use super::kind::is_image_file;
use super::layouts::Layout;
use super::survey::below;
use crate::source::{DatasetSource, Entry, EntryKind};
use base::error::Result;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// A dataset that is searched, what its samples are, and the flag that cancels the search.
#[derive(Clone, Copy)]
pub(super) struct DatasetSearch<'a> {
    pub(super) source: &'a dyn DatasetSource,
    pub(super) contents: Contents,
    pub(super) cancel: &'a Cancel,
}

impl DatasetSearch<'_> {
    /// Passes the entries of a directory to `show`, until `show` returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if listing fails; [`base::error::Error::Dataset`] after cancellation; the errors of
    /// `show`.
    pub(super) fn entries(
        self,
        directory: &[u8],
        mut show: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let root = self.source.path(&[]);
        self.source.directory(directory)?.entries(&mut |entry| {
            self.cancel.check(&root)?;
            show(entry)
        })
    }
}

#[derive(Default)]
pub(super) struct FirstFound {
    /// The first image, or with [`Contents::Files`] the first file. The path is relative to the root.
    pub(super) sample: Option<Vec<u8>>,
    /// The first shard of each layout that was found before the sample: a path relative to the root.
    pub(super) shards: Vec<(Layout, Vec<u8>)>,
}

impl FirstFound {
    /// The first shard whose layout does not assign shards to splits (by file names and READMEs).
    pub(super) fn plain_shard(&self) -> Option<&[u8]> {
        let is_plain = |layout: Layout| layout.shards().is_some_and(|layout_impl| !layout_impl.has_splits());
        self.shards.iter().find(|(layout, _)| is_plain(*layout)).map(|(_, path)| path.as_slice())
    }

    fn take(&mut self, directory: &[u8], name: &[u8], contents: Contents) -> bool {
        // Arrays are often stored next to the samples of another dataset.
        if let Some(layout) = shard_layout(name, contents).filter(|layout| !layout.is_array()) {
            if self.shards.iter().all(|(known, _)| *known != layout) {
                self.shards.push((layout, below(directory, name)));
            }
        } else if is_sample(name, contents) {
            self.sample = Some(below(directory, name));
        }
        self.sample.is_some()
    }
}

pub(super) fn shard_layout(name: &[u8], contents: Contents) -> Option<Layout> {
    Layout::of_samples(contents).find(|(_, layout_impl)| layout_impl.is_shard(name)).map(|(layout, _)| layout)
}

/// Whether a file with this name is a sample. The file must not be a shard.
pub(super) fn is_sample(name: &[u8], contents: Contents) -> bool {
    contents == Contents::Files || is_image_file(name)
}

/// Walks these directories and everything below them, until a sample is found.
///
/// # Errors
/// [`base::error::Error::Io`] for a directory that cannot be listed.
pub(super) fn search_directories(search: DatasetSearch<'_>, directories: &[Vec<u8>]) -> Result<FirstFound> {
    let DatasetSearch { source, contents, .. } = search;
    let mut found = FirstFound::default();
    let mut waiting: Vec<Vec<u8>> = directories.iter().rev().cloned().collect();
    // Never visit a directory twice: symbolic links can form cycles. A link can also point to the root, whose own files
    // belong to no class.
    let mut seen = HashSet::from([source.identity(&[])?]);
    while let Some(directory) = waiting.pop() {
        let identity = source.identity(&directory)?;
        if identity.is_some() && !seen.insert(identity) {
            continue;
        }
        search.entries(&directory, |entry| {
            match entry.kind {
                _ if ignored_entry(entry, contents).is_some() => {}
                EntryKind::Directory => waiting.push(below(&directory, entry.name)),
                EntryKind::File if found.take(&directory, entry.name, contents) => {
                    return Ok(ControlFlow::Break(()));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if found.sample.is_some() {
            break;
        }
    }
    Ok(found)
}
