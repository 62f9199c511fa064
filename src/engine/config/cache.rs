//! The settings of the cache: which tiers keep copies, and how they are verified.

use super::LoaderOptions;
use base::error::{Error, Result};
use store::tier::{CacheOptions, TierName, TierOptions, Verify};

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
        let form = self.cache_ram_form;
        tiers.extend(self.cache_ram.map(|size| TierOptions::Ram { name: TierName::RAM, size, form }));
        match (&self.cache_dir, self.cache_size) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(Error::config(
                    "cache_dir",
                    "is not given, but its size is: where shall the cache be?",
                ));
            }
            (Some(directory), None) => {
                let message = format!("is not given: how many bytes may {} take?", directory.display());
                return Err(Error::config("cache_size", message));
            }
            (Some(directory), Some(size)) => tiers.push(TierOptions::Directory {
                name: TierName::NVME,
                // The working directory may change before the cache is opened.
                path: std::path::absolute(directory)
                    .map_err(|error| Error::io("resolve", directory, error))?,
                size,
                form: self.cache_form,
            }),
        }
        let peers = self.peers(&tiers)?;
        Ok((!tiers.is_empty()).then_some(CacheOptions {
            tiers,
            fill: self.cache_fill,
            verify,
            stage_bandwidth: self.stage_bandwidth,
            local_world_size: self.local_world_size,
            io: self.io,
            direct: self.direct,
            queue_depth,
            peers,
            no_forms: None,
        }))
    }
}
