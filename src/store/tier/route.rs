//! Which route a sample comes by, so that no bytes are used whose file has changed since they were copied.
//!
//! ```text
//! copy, checked in this run    ──────────────────────► its tier
//! copy of another run, loose   ─► look at the file ─┬► its tier, where the copy is of the version that is there now
//! no copy, loose file          ─► look at the file ─┴► source, offered to the tiers as of that version
//! no copy, no tier takes more  ──────────────────────► source
//! sample of a shard            ─► likewise, without a look: its version was looked at when the index was opened
//! ```
//!
//! Of several copies the fastest tier's counts. With [`Verify::Checksum`], samples that would come from a copy come
//! from the source once a run, and are compared.

use super::cache::{Cache, TierPlace};
use super::copies::Location;
use super::store::Verify;
use data::dataset::{FileId, FileVersion};

/// Where a sample is read from.
pub(super) enum Route {
    /// It is read from its copy in this tier.
    Copy(TierPlace, Location),
    /// It is read from the source. It may be kept as this version, if there is one, and is compared with the copy, if
    /// there is one.
    Source { version: Option<FileVersion>, copy: Option<(TierPlace, Location)> },
}

/// What is known of a route without asking for the version of the sample's file.
pub(super) enum RouteLookup {
    Found(Route),
    /// The route depends on the file's version; the copy, if there is one, is here.
    NeedsVersion(Option<(TierPlace, Location)>),
}

impl Cache {
    /// Finds the route of a sample in `file`.
    pub(super) fn look_up_route(&self, sample: u64, file: FileId) -> RouteLookup {
        match (self.locate(sample), self.index().shard_version(file)) {
            (Some((place, location)), _) if location.checked => {
                RouteLookup::Found(Route::Copy(place, location))
            }
            (copy, Some(version)) => RouteLookup::Found(self.route(sample, Some(version), copy)),
            // The sample would not be kept, so that its version does not matter.
            (None, None) if !self.wants(sample) => {
                RouteLookup::Found(Route::Source { version: None, copy: None })
            }
            (copy, None) => RouteLookup::NeedsVersion(copy),
        }
    }

    /// The route of a sample whose file has `version` now; `None` where the version cannot be told.
    pub(super) fn route(
        &self,
        sample: u64,
        version: Option<FileVersion>,
        copy: Option<(TierPlace, Location)>,
    ) -> Route {
        let (Some((place, location)), Some(now)) = (copy, version) else {
            // A file that is gone says so when it is read. Where the version is unknown the copy may be right, but
            // nothing says so.
            return Route::Source { version, copy: None };
        };
        if location.version.is_some_and(|copied| copied != now) {
            self.tier(place).outdate(sample, &location);
            // A slower tier may have the version that is there now.
            return self.route(sample, version, self.locate(sample));
        }
        if self.verify() == Verify::Checksum {
            // Only the node that has a copy can compare it, when it is pushed what the source has.
            return Route::Source { version, copy: copy.filter(|(_, location)| location.crc.is_some()) };
        }
        // Where only reading tells the copy's version, no other one is taken.
        let location = Location { version, ..location };
        self.tier(place).confirm(sample, &location);
        Route::Copy(place, location)
    }

    /// The route of a sample in `file` whose copy could not be used. Its file may have changed since the copy was
    /// checked.
    pub(super) fn route_without_copy(&self, file: FileId) -> RouteLookup {
        match self.index().shard_version(file) {
            Some(version) => RouteLookup::Found(Route::Source { version: Some(version), copy: None }),
            None => RouteLookup::NeedsVersion(None),
        }
    }
}
