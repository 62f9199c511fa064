//! Which route a sample comes by, so that no bytes are used whose file has changed since they were copied.
//!
//! ```text
//! copy, checked in this run    ──────────────────────► store
//! copy of another run, loose   ─► look at the file ─┬► store, where the copy is of the version that is there now
//! no copy, loose file          ─► look at the file ─┴► source, offered to the store as of that version
//! no copy, store takes no more ──────────────────────► source
//! sample of a shard            ─► likewise, without a look: its version was looked at when the index was opened
//! ```
//!
//! With [`Verify::Checksum`], samples that would come from the store come from the source once a run, and are compared.

use super::cache::Cache;
use super::store::{Location, Verify};
use crate::dataset::{FileId, FileVersion};

/// Where a sample is read from.
pub(super) enum Route {
    /// It is read from its copy in the store.
    Store(Location),
    /// It is read from the source. It may be kept as this version, if there is one, and is compared with the copy, if
    /// there is one.
    Source { version: Option<FileVersion>, copy: Option<Location> },
}

/// What is known of a route without asking for the version of the sample's file.
pub(super) enum RouteLookup {
    Found(Route),
    /// The route depends on the file's version; the copy, if there is one, is here.
    NeedsVersion(Option<Location>),
}

impl Cache {
    /// Finds the route of a sample in `file`.
    pub(super) fn look_up_route(&self, sample: u64, file: FileId) -> RouteLookup {
        match (self.store().locate(sample), self.index().shard_version(file)) {
            (Some(location), _) if location.checked => RouteLookup::Found(Route::Store(location)),
            (copy, Some(version)) => RouteLookup::Found(self.route(sample, Some(version), copy)),
            // The sample would not be kept, so that its version does not matter.
            (None, None) if !self.store().is_open() => {
                RouteLookup::Found(Route::Source { version: None, copy: None })
            }
            (copy, None) => RouteLookup::NeedsVersion(copy),
        }
    }

    /// The route of a sample whose file has `version` now; `None` where the version cannot be told.
    pub(super) fn route(&self, sample: u64, version: Option<FileVersion>, copy: Option<Location>) -> Route {
        let (Some(location), Some(now)) = (copy, version) else {
            // A file that is gone says so when it is read. Where the version is unknown the copy may be right, but
            // nothing says so.
            return Route::Source { version, copy: None };
        };
        if now != location.version {
            self.store().outdate(sample, &location);
            return Route::Source { version, copy: None };
        }
        if self.verify() == Verify::Checksum {
            return Route::Source { version, copy };
        }
        self.store().confirm(sample, &location);
        Route::Store(location)
    }

    /// The route of a sample in `file` whose copy could not be used. Its file may have changed since the copy was
    /// checked.
    pub(super) fn route_without_copy(&self, file: FileId) -> Route {
        Route::Source { version: self.index().shard_version(file), copy: None }
    }
}
