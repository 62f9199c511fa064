//! A finished packed shard, open for reading.

use crate::dataset::SizedFile;
use crate::dataset::packed::{PackedFooter, PackedManifest, ShardIdentity, shard_name};
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

pub(super) struct OpenPackedShard {
    pub(super) path: PathBuf,
    pub(super) file: SizedFile,
    pub(super) footer: PackedFooter,
}

impl OpenPackedShard {
    /// Opens the shard with index `number` of the packed dataset at `root`, and checks it against the manifest.
    ///
    /// # Errors
    /// [`Error::Io`] if the shard cannot be opened, [`Error::Dataset`] if it is damaged or does not match.
    pub(super) fn open(root: &Path, manifest: &PackedManifest, number: usize) -> Result<Self> {
        let (shard, identity) = Self::read(root.join(shard_name(number)))?;
        let first = manifest.samples_of(number).start;
        let checked = manifest.check_shard(number, first, &shard.footer, &identity);
        checked.map_err(|message| Error::dataset(&shard.path, message))?;
        Ok(shard)
    }

    /// Opens a shard of any dataset. Also returns the shard's identity: its size and footer digest.
    ///
    /// # Errors
    /// [`Error::Io`] if the shard cannot be opened, [`Error::Dataset`] if it is damaged.
    pub(super) fn read(path: PathBuf) -> Result<(Self, ShardIdentity)> {
        let file = SizedFile::open(&path).map_err(|error| Error::io("open", &path, error))?;
        let (footer, identity) =
            PackedFooter::read(&file).map_err(|error| Error::dataset(&path, error.message))?;
        Ok((Self { path, file, footer }, identity))
    }
}
