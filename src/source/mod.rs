//! Where datasets lie: a place with files that can be listed, looked at and read in parts, by their names below a root.
//!
//! [`DatasetSource`] is all that indexing asks of such a place, and [`at`] the only function that knows which kinds of
//! places there are: for another kind, implement the trait and name it there. Samples are read by [`crate::io`], whose
//! readers take bytes into slots.

mod file_system;
mod read_at;
mod stamp;

use file_system::FileSystem;
pub(crate) use file_system::is_gone;
pub(crate) use read_at::{Malformed, ReadAt, SizedFile, WINDOW, Window};
pub(crate) use stamp::COARSE_TICK;
pub use stamp::{FileVersion, Stamp, TICK};

use crate::error::Result;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place where the files of a dataset are. Names are paths below its root, of bytes, with slashes between their
/// parts; the empty name is the root itself, which may be a single file.
pub(crate) trait DatasetSource: Send + Sync {
    /// The path or URL of what has this name, for messages and for readers.
    fn path(&self, name: &[u8]) -> PathBuf;

    /// What the place is called for good, whichever links led to it: what is kept of a dataset is kept under this name.
    ///
    /// # Errors
    /// [`crate::Error::Dataset`] where there is nothing; [`crate::Error::Io`] where that cannot be told.
    fn canonical(&self) -> Result<PathBuf>;

    /// Whether inode numbers last, so that they tell one file from another.
    fn has_lasting_inodes(&self) -> bool;

    /// Whether the root is a directory, and not a single file.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where it cannot be looked at.
    fn is_directory(&self) -> Result<bool>;

    /// Opens a directory to list it.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for what is no directory or cannot be listed.
    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>>;

    /// What tells a directory from all others, where links may lead to one in circles; else `None`.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where it cannot be looked at.
    fn identity(&self, name: &[u8]) -> Result<Option<Identity>>;

    /// The stamp that a file or directory has now, and not what was remembered of it; `None` for nothing.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for what exists and cannot be looked at.
    fn stamp(&self, name: &[u8]) -> Result<Option<Stamp>>;

    /// Opens a file to read parts of it in any order.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for what cannot be opened; [`crate::Error::Dataset`] for what is no regular file.
    fn open(&self, name: &[u8]) -> Result<OpenFile>;
}

/// The place that the user named `root`.
pub(crate) fn at(root: &Path) -> Arc<dyn DatasetSource> {
    Arc::new(FileSystem::at(root))
}

/// The device and the inode of a directory.
pub(crate) type Identity = (u64, u64);

/// A file that is open for its parsers.
pub(crate) struct OpenFile {
    /// Its bytes.
    pub(crate) bytes: Box<dyn ReadAt + Send + Sync>,
    /// Its stamp from before anything of it was read.
    pub(crate) stamp: Stamp,
}

/// A directory that can be listed.
pub(crate) trait SourceDirectory: Send + Sync {
    /// Its stamp from before its names are read, so that what is added meanwhile shows as a change.
    fn stamp(&self) -> Stamp;

    /// What tells it from all other directories, where links may lead to one in circles; else `None`.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where it cannot be looked at.
    fn identity(&self) -> Result<Option<Identity>>;

    /// Shows the entries, in no order, until `show` breaks it off.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where listing fails, and the errors of `show`, which end it.
    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()>;

    /// The number of bytes of the file with this name; `None` where there is no regular file any more.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where it cannot be looked at.
    fn size(&self, name: &[u8]) -> Result<Option<u64>>;
}

/// What a directory has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Its name in the directory.
    pub(crate) name: &'a [u8],
    /// What it is, links followed.
    pub(crate) kind: EntryKind,
    /// What it leads to, if it is a link.
    pub(crate) target: Option<Identity>,
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Directory,
    File,
    /// A pipe, a socket or a device.
    Special,
    /// A link that leads to nothing, or in a circle.
    BrokenLink,
    /// What cannot be looked at: [`SourceDirectory::size`] says why.
    Unseen,
}
