//! The settings of the cache: which tiers keep copies, and how they are verified.

use super::{DirectoryChoice, LoaderOptions, RamChoice};
use base::error::{Error, Result};
use std::path::PathBuf;
use store::tier::{CacheOptions, TierName, TierOptions, Verify};

/// What `cache` asks for: the tiers that keep copies, from the fastest to the slowest.
#[derive(Debug, Clone, Default)]
pub struct CacheChoice {
    /// The tier in memory, which has a size if there is one.
    pub ram: RamChoice,
    /// The tier in a directory, which has a path and a size if there is one.
    pub directory: DirectoryChoice,
}

impl CacheChoice {
    /// A cache of `size` bytes of memory.
    pub fn in_ram(size: u64) -> Self {
        Self { ram: RamChoice { size: Some(size), ..Default::default() }, ..Default::default() }
    }

    /// A cache of `size` bytes in a directory.
    pub fn in_directory(path: impl Into<PathBuf>, size: u64) -> Self {
        let directory = DirectoryChoice { path: Some(path.into()), size: Some(size), ..Default::default() };
        Self { directory, ..Default::default() }
    }
}

impl LoaderOptions {
    /// The tiers that keep copies, from the fastest to the slowest, if there are to be any.
    pub(super) fn cache(&self, queue_depth: usize) -> Result<Option<CacheOptions>> {
        let verify = match (self.immutable, self.verify) {
            (false, verify) => verify,
            (true, Verify::Checksum) => {
                let message =
                    "is true, and verify is checksum: what never changes need not be compared; choose one";
                return Err(Error::config("immutable", message));
            }
            (true, _) => Verify::Never,
        };
        let mut tiers = Vec::new();
        let CacheChoice { ram: RamChoice { size, form }, directory } = &self.cache;
        tiers.extend(size.map(|size| TierOptions::Ram { name: TierName::RAM, size, form: *form }));
        match (&directory.path, directory.size) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(Error::config(
                    "cache_dir",
                    "is not given, but its size is: where shall the cache be?",
                ));
            }
            (Some(path), None) => {
                let message = format!("is not given: how many bytes may {} take?", path.display());
                return Err(Error::config("cache_size", message));
            }
            (Some(path), Some(size)) => tiers.push(TierOptions::Directory {
                name: TierName::NVME,
                // The working directory may change before the cache is opened.
                path: std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?,
                size,
                form: directory.form,
            }),
        }
        let peers = self.peers(&tiers)?;
        Ok((!tiers.is_empty()).then_some(CacheOptions {
            tiers,
            fill: directory.fill,
            verify,
            stage_bandwidth: directory.stage_bandwidth,
            local_world_size: self.local_world_size,
            io: self.io,
            direct: self.direct,
            queue_depth,
            peers,
            no_forms: None,
        }))
    }
}
