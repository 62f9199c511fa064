//! Chooses the route of a sample, so that no bytes are used whose file has changed since they were copied.
//!
//! ```text
//! copy, verified in this run    ──────────────────────► its tier
//! copy of another run, loose    ─► stat the file ─┬► its tier, if the copy is of the file's current version
//! no copy, loose file           ─► stat the file ─┴► source, offered to the tiers as of that version
//! no copy, no tier takes more   ──────────────────────► source
//! sample of a shard             ─► the same without a stat: the shard's version was read when the index was opened
//! record of chunk files         ─► like a loose file, with a stat of each chunk file of the record
//! ```
//!
//! If there are several copies, the copy in the fastest tier is used. With [`Verify::Checksum`], samples that would be
//! read from a copy are read from the source once a run, and compared.
//!
//! The *fingerprint* identifies the dataset: names, extents and labels, but no time or place. The *stamp* identifies
//! the version of a file: size, times and inode, but no device number, because that differs by mount and node. A copy
//! carries the version that its file had *before* it was read. The writer checks the stamp again before it publishes,
//! so that no copy mixes two versions. If a file has changed, its samples are read from the source and their copies are
//! dropped. A segment that is mostly out of date is removed.

use super::cache::{Cache, TierPlace};
use super::copies::Location;
use super::store::Verify;
use data::dataset::{FileId, FileVersion};

pub(super) enum Route {
    Copy(TierPlace, Location),
    /// The sample is read from the source. If `version` is known, the tiers may keep the sample as of this version. If
    /// there is a `copy`, the bytes that were read are compared with it.
    Source {
        version: Option<FileVersion>,
        copy: Option<(TierPlace, Location)>,
    },
}

/// The route of a sample, if it can be known without the current version of the sample's file.
pub(super) enum RouteLookup {
    Found(Route),
    /// The route depends on the file's version. The value is the sample's copy, if a tier has one.
    NeedsVersion(Option<(TierPlace, Location)>),
}

impl Cache {
    pub(super) fn look_up_route(&self, sample: u64, file: FileId) -> RouteLookup {
        match (self.locate(sample), self.index.known_version(file)) {
            (Some((place, location)), _) if location.checked => {
                RouteLookup::Found(Route::Copy(place, location))
            }
            (copy, Some(version)) => RouteLookup::Found(self.route(sample, Some(version), copy)),
            // No tier would keep the sample, so its version does not matter.
            (None, None) if !self.wants(sample) => {
                RouteLookup::Found(Route::Source { version: None, copy: None })
            }
            (copy, None) => RouteLookup::NeedsVersion(copy),
        }
    }

    /// Returns the route of a sample whose file now has `version`, which is `None` if the version is unknown.
    pub(super) fn route(
        &self,
        sample: u64,
        version: Option<FileVersion>,
        copy: Option<(TierPlace, Location)>,
    ) -> Route {
        let (Some((place, location)), Some(now)) = (copy, version) else {
            // If the file was removed, reading it reports that. If the version is unknown, the copy may be right, but
            // nothing confirms the copy.
            return Route::Source { version, copy: None };
        };
        if location.version.is_some_and(|copied| copied != now) {
            self.tier(place).drop_stale(sample, &location);
            // A slower tier may have a copy of the current version.
            return self.route(sample, version, self.locate(sample));
        }
        if self.options.verify == Verify::Checksum {
            // A copy on another node can be compared only there, when the source's bytes are pushed.
            return Route::Source { version, copy: copy.filter(|(_, location)| location.crc.is_some()) };
        }
        // The version of a copy on another node is not known before the copy is read: request exactly the file's
        // version.
        let location = Location { version, ..location };
        self.tier(place).confirm(sample, &location);
        Route::Copy(place, location)
    }

    /// Returns the route of a sample in `file` whose copy could not be used. The file may have changed since the copy
    /// was verified.
    pub(super) fn route_without_copy(&self, file: FileId) -> RouteLookup {
        match self.index.known_version(file) {
            Some(version) => RouteLookup::Found(Route::Source { version: Some(version), copy: None }),
            None => RouteLookup::NeedsVersion(None),
        }
    }
}
