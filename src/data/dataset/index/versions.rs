//! The version of each file of an index, and the check whether a file has changed since it was indexed.

use super::super::{Extent, FileId, FileVersion, Stamp, changes, open};
use super::DatasetIndex;
use crate::dataset::part::DatasetPart;
use base::error::{Error, Result};

impl DatasetIndex {
    /// The stamp of a shard when it was indexed or last accepted; `None` for a loose file.
    pub fn shard_stamp(&self, file: FileId) -> Option<Stamp> {
        let (part, file) = self.own_file(file)?;
        part.shard_stamp(file)
    }

    /// Whether a file is a shard that was unreadable when its dataset was indexed.
    pub fn is_bad_shard(&self, file: FileId) -> bool {
        let (placed, file) = self.dataset_of_file(file);
        let part = &placed.part;
        part.layout().is_sharded()
            && part.is_group(file)
            && part.notes.bad_shard(part.group_path(file.0 as usize)).is_some()
    }

    /// Reads the current stamp of a file, which is a shard or a loose file. This is a call to the operating system,
    /// which asks the server of a network file system.
    ///
    /// # Errors
    /// [`Error::Io`] if the file no longer exists, or if its stamp cannot be read.
    pub fn stat(&self, file: FileId) -> Result<Stamp> {
        let gone = || Error::io("look at", self.path(file), std::io::ErrorKind::NotFound.into());
        let (placed, own) = self.dataset_of_file(file);
        let stamp = placed.part.source.stamp(&placed.part.name_in_source(own))?.stamp().ok_or_else(gone)?;
        // For files on servers the inode field is a digest of the ETag, so always compare it.
        Ok(if placed.part.remote(own).is_some() { stamp } else { placed.part.known(stamp) })
    }

    /// The version of a shard when it was indexed; `None` for a loose file, whose version is known only from its stamp.
    /// If the arrays of each sample are in several files, this is the version of all these files.
    /// A shard whose samples differ from the index has [`FileVersion::NO_COPY`], which no cached copy matches.
    pub fn shard_version(&self, file: FileId) -> Option<FileVersion> {
        let (placed, file) = self.dataset_of_file(file);
        if let Some(version) = placed.part.joined_version() {
            return Some(version);
        }
        let stamp = placed.part.shard_stamp(file)?;
        let has_changed = placed.part.changed_shards.contains(&(file.0 as usize));
        Some(if has_changed { FileVersion::NO_COPY } else { stamp.version() })
    }

    /// The version of the copies of a file's samples, if it is known without looking at files. `None` if each sample
    /// has files of its own, which have no stamp in the index: [`DatasetIndex::version_by`] looks at them.
    pub fn known_version(&self, file: FileId) -> Option<FileVersion> {
        if self.dataset_of_file(file).0.part.has_chunk_files() { None } else { self.shard_version(file) }
    }

    /// Whether the versions of some samples are only known from looking at files ([`DatasetIndex::known_version`]).
    pub fn has_unknown_versions(&self) -> bool {
        let mut parts = self.parts.iter().map(|placed| &placed.part);
        parts.any(|part| !part.layout().is_sharded() || part.has_chunk_files())
    }

    /// The unit that has one version: the record of a sample whose chunks are files of their own, or else the file of
    /// an extent.
    pub fn versioned(&self, extent: Extent) -> Extent {
        match self.dataset_of_file(extent.file).0.part.has_chunk_files() {
            true => extent,
            false => Extent { offset: 0, length: 0, ..extent },
        }
    }

    /// The version of all files whose bytes are in a sample, from the stamps that `look` returns of them. If nothing
    /// changed, it is the [known version](DatasetIndex::known_version). If each chunk of a sample is a file, the
    /// documents of its arrays count with their versions in the index.
    ///
    /// # Errors
    /// The errors of `look`; [`Error::DatasetChanged`] if these documents differ from the index.
    pub fn version_by(
        &self,
        extent: Extent,
        mut look: impl FnMut(FileId) -> Result<Stamp>,
    ) -> Result<FileVersion> {
        let placed = self.dataset_of_file(extent.file).0;
        let part = &placed.part;
        if !part.has_chunk_files() {
            let Some(shards) = part.joined_shards() else { return Ok(look(extent.file)?.version()) };
            let now = shards.into_iter().map(|shard| look(placed.global_file(FileId(shard as u32))));
            return Ok(DatasetPart::version_of_all(now.collect::<Result<Vec<_>>>()?));
        }
        let Some(documents) = part.joined_version().filter(|version| *version != FileVersion::NO_COPY) else {
            let message = "has other arrays than its index".to_owned();
            return Err(Error::DatasetChanged { path: self.path(extent.file), message });
        };
        let pieces = self.record(extent).map_or_else(Vec::new, |record| record.pieces);
        let mut files: Vec<FileId> = pieces.iter().map(|piece| piece.extent.file).collect();
        files.dedup();
        let now: Vec<Stamp> = files.iter().map(|&file| look(file)).collect::<Result<_>>()?;
        if self.has_blocks() {
            files.into_iter().zip(&now).for_each(|(file, stamp)| self.unpacked.note_stamp(file, *stamp));
        }
        Ok(DatasetPart::version_with(documents, now))
    }

    /// Reads the current version of the files whose bytes are in a sample.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::stat`] and [`DatasetIndex::version_by`].
    pub fn current_version(&self, extent: Extent) -> Result<FileVersion> {
        self.version_by(extent, |file| self.stat(file))
    }

    /// Checks a shard whose stamp differs from [`DatasetIndex::shard_stamp`]. The shard is parsed again. If it holds
    /// the same samples, its current stamp is accepted for the rest of the run.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] if the shard holds other samples; [`Error::Io`] if the shard cannot be read.
    pub fn accept_shard(&self, file: FileId) -> Result<()> {
        let (placed, file) = self.dataset_of_file(file);
        changes::accept_shard(&placed.part, file.0 as usize)
    }

    /// Checks files of arrays whose changes reads would not notice: the documents of arrays in several files, the files
    /// of columns, directories of chunks, and files with chunks that stay decompressed in memory. Of files on servers,
    /// only documents are checked, because each check is a request. Also forgets decompressed chunks of files that have
    /// no stamp.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::accept_shard`].
    pub fn check_arrays(&self) -> Result<()> {
        let parts = || self.parts.iter().map(|placed| &placed.part);
        if parts().any(|part| part.has_chunk_files() && !part.is_remote()) {
            self.unpacked.clear();
        }
        parts().filter(|part| part.has_unnoticed_changes()).try_for_each(changes::accept_shards)
    }

    /// The part of a file's stamp that is compared: the whole stamp, or the stamp without its inode on file systems
    /// where inodes are not stable.
    ///
    /// # Panics
    /// Panics if the index has no such file.
    pub fn known(&self, file: FileId, found: Stamp) -> Stamp {
        self.dataset_of_file(file).0.part.known(found)
    }

    /// Compares the whole dataset with the index. Lists every directory and parses every shard again, whatever their
    /// stamps are, which takes as long as indexing. Also compares shards with the checksums that their layout stores,
    /// for which all shards are read completely. The index file itself was verified when it was opened.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] that names what differs; [`Error::Dataset`] for wrong checksums; [`Error::Io`] for a
    /// file or directory that cannot be read.
    pub fn verify(&self) -> Result<()> {
        self.parts.iter().try_for_each(|placed| open::verify(&placed.part, self.notices()))
    }

    /// Whether the stamp of a shard changed since the index was opened, while its samples stayed the same.
    pub fn has_moved(&self, file: FileId) -> bool {
        self.own_file(file).is_some_and(|(part, file)| part.has_moved(file))
    }
}
