//! The settings of the cache: the tiers that keep copies, and how copies are verified.

use super::LoaderOptions;
use base::error::{Error, Result};
use store::tier::{CacheOptions, Verify};

impl LoaderOptions {
    pub(super) fn cache(&self, queue_depth: usize) -> Result<Option<CacheOptions>> {
        let verify = match (self.immutable, self.verify) {
            (false, verify) => verify,
            (true, Verify::Checksum) => {
                let message = "is True, but verify=\"checksum\" checks for changes: remove one of the two";
                return Err(Error::config("immutable", message));
            }
            (true, _) => Verify::Never,
        };
        let tiers = self.cache.tiers()?;
        let peers = self.peers(&tiers)?;
        Ok((!tiers.is_empty()).then_some(CacheOptions {
            tiers,
            fill: self.cache.directory.fill,
            verify,
            stage_bandwidth: self.cache.directory.stage_bandwidth,
            local_world_size: self.local_world_size,
            io: self.io,
            direct: self.direct,
            queue_depth,
            peers,
            no_forms: None,
        }))
    }
}
