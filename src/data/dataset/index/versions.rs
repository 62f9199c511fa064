//! Which versions the files are of that an index knows, and whether they are still what it says.

use super::super::{FileId, FileVersion, Stamp, changes, open};
use super::DatasetIndex;
use base::error::{Error, Result};

impl DatasetIndex {
    /// The stamp of a shard when it was indexed, or last accepted; `None` for a sample's own file.
    pub fn shard_stamp(&self, file: FileId) -> Option<Stamp> {
        if self.is_stream() {
            return None;
        }
        let (placed, file) = self.part_of(file);
        placed.part.shard_stamp(file)
    }

    /// Whether a file is a shard that could not be read when its dataset was indexed.
    pub fn is_bad_shard(&self, file: FileId) -> bool {
        let (placed, file) = self.part_of(file);
        let part = &placed.part;
        part.layout().is_sharded() && part.notes.bad_shard(part.group_path(file.0 as usize)).is_some()
    }

    /// The stamp that a file has now, be it a shard or a sample's own. The system is asked, and on a network file
    /// system its server.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no such file any more, or its stamp cannot be read.
    pub fn stat(&self, file: FileId) -> Result<Stamp> {
        let gone = || Error::io("look at", self.path(file), std::io::ErrorKind::NotFound.into());
        let (placed, own) = self.part_of(file);
        let stamp = placed.part.stamp_now(own)?.stamp().ok_or_else(gone)?;
        // Where file systems have no lasting inodes, servers have digests of ETags all the same.
        Ok(if placed.part.remote(own).is_some() { stamp } else { placed.part.known(stamp) })
    }

    /// The version of a shard that was indexed; `None` for a sample's own file, whose version only its stamp tells. No
    /// copy has the version of a shard that holds other samples than the index says.
    pub fn shard_version(&self, file: FileId) -> Option<FileVersion> {
        let (placed, file) = self.part_of(file);
        let stamp = placed.part.shard_stamp(file)?;
        Some(if placed.part.is_as_indexed(file) { stamp.version() } else { FileVersion::NO_COPY })
    }

    /// Checks a shard that has another stamp than [`DatasetIndex::shard_stamp`] says. It is parsed again, and if it
    /// holds the same samples, that is its stamp from now on.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] where it holds others; [`Error::Io`] when it cannot be read.
    pub fn accept_shard(&self, file: FileId) -> Result<()> {
        let (placed, file) = self.part_of(file);
        changes::accept_shard(&placed.part, file.0 as usize)
    }

    /// The part that is compared of a stamp that a file was found to have: all of it, without the inode where inodes do
    /// not last.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn known(&self, file: FileId, found: Stamp) -> Stamp {
        self.part_of(file).0.part.known(found)
    }

    /// Lists every directory and parses every shard again, whatever their stamps say, and compares them with the index,
    /// which takes as long as indexing; and compares shards with the checksums that their layout keeps, which reads all
    /// of them. The index file itself was verified when it was opened.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] that names what differs; [`Error::Io`] for what cannot be read.
    pub fn verify(&self) -> Result<()> {
        self.parts.iter().try_for_each(|placed| open::verify(&placed.part, self.notices()))
    }

    /// Whether a shard has another stamp than when the index was opened, and still holds the same samples.
    pub fn has_moved(&self, file: FileId) -> bool {
        if self.is_stream() {
            return false;
        }
        let (placed, file) = self.part_of(file);
        placed.part.has_moved(file)
    }
}
