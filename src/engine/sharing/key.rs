//! The key: a digest of everything that loaders must have in common to share batches.

use super::start::ProducerLauncher;
use crate::config::{GivenSettings, LoaderConfig, LoaderOptions};
use base::error::Result;
use data::dataset::DatasetIndex;
use data::state::OrderIdentity;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The parameters by which a loader shares its batches.
pub struct Sharing {
    /// Digest of what the loaders have in common, except for the rank and the stamps of shards.
    common: [u8; 32],
    /// Digest of the stamps of shards. A stamp (size, times, inode) changes with a file.
    stamps: [u8; 32],
    /// The parameters to start a producer of these batches.
    pub order: ProducerLauncher,
    /// When the dataset was opened. Shared batches contain only samples that were read after this time.
    pub since: Instant,
}

impl Sharing {
    /// Returns the sharing parameters of loaders for the datasets at `roots`; `None` without `shared`. The loaders have
    /// these `settings`, and `config` is the result of their checks.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for settings that do not fit; a loader would have refused them.
    pub fn new(
        roots: &[PathBuf],
        settings: &GivenSettings,
        options: &LoaderOptions,
        (index, identity, config): (&DatasetIndex, &OrderIdentity, &LoaderConfig),
        command: Vec<std::ffi::OsString>,
    ) -> Result<Option<Self>> {
        let Some(name) = &options.shared else { return Ok(None) };
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(base::version::get().as_bytes());
        add(name.as_bytes());
        for root in roots {
            add(whole(root).as_os_str().as_encoded_bytes());
        }
        for (name, value) in identity.values() {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        // Digest the labels that were read, not the setting `labels`: the file may change, and a relative path may mean
        // another file.
        for column in &*config.label_columns {
            column.digest(&mut add);
        }
        // The class decides only what images without `transforms` are, so `foreload serve` can serve all others.
        if options.transforms.is_none() && !config.images.list().is_empty() {
            add(options.kind.name().as_bytes());
        }
        for (name, value) in settings.deciding(options.kind)? {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        add(&index.len().to_le_bytes());
        let mut stamps = Sha256::new();
        for version in index.files().filter_map(|file| index.shard_version(file)) {
            stamps.update(version.0.to_le_bytes());
        }
        let order = ProducerLauncher {
            command,
            // If the working directory no longer exists, any directory will do.
            directory: std::env::current_dir().ok(),
            roots: roots.to_vec(),
            kind: options.kind,
            settings: settings.clone(),
            consumers: options.shared_consumers,
        };
        let (common, stamps) = (digest.finalize().into(), stamps.finalize().into());
        Ok(Some(Self { common, stamps, order, since: Instant::now() }))
    }

    /// Returns the key of a rank's batches, under which their producers are found. A producer reads the shards that it
    /// has opened, so loaders that opened changed shards have another key.
    pub fn key(&self, rank: u32, world_size: u32) -> SharedKey {
        let mut digest = Sha256::new();
        digest.update(self.dataset_key(rank, world_size).0);
        digest.update(self.stamps);
        SharedKey(digest.finalize().into())
    }

    /// Returns the key of a rank's batches without the stamps of shards: stamps may change while the samples stay the
    /// same.
    pub fn dataset_key(&self, rank: u32, world_size: u32) -> SharedKey {
        let mut digest = Sha256::new();
        digest.update(self.common);
        digest.update(rank.to_le_bytes());
        digest.update(world_size.to_le_bytes());
        SharedKey(digest.finalize().into())
    }
}

/// Returns the absolute path without links, so that different names of one dataset give one key; a URL is unchanged.
fn whole(root: &Path) -> PathBuf {
    std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned())
}

/// Identifies compatible loaders: same dataset, order, fields, transforms, rank and version of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    #[cfg(test)]
    pub(super) fn of(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Returns the offset in the lock file of the first of the 256 bytes that belong to this key.
    pub fn first_lock(self) -> u64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(&self.0[..8]);
        // Offsets of locked bytes are signed and must be positive.
        (u64::from_le_bytes(raw) >> 2) & !0xFF
    }
}

impl std::fmt::Display for SharedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..16].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
