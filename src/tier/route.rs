//! Which way a sample comes, so that no bytes are used whose file has changed since they were copied.
//!
//! ```text
//! copy, checked in this run    ──────────────────────► store
//! copy of another run, loose   ─► look at the file ─┬► store, where the copy is of the version that is there now
//! no copy, loose file          ─► look at the file ─┴► source, offered to the store as of that version
//! no copy, store takes no more ──────────────────────► source
//! sample of a shard            ─► likewise, without a look: its version was looked at when the index was opened
//! ```
//!
//! With [`Verify::Checksum`] what would come from the store comes from the source, once a run, and is compared.

use super::cache::Cache;
use super::store::{Location, Verify};
use crate::dataset::{FileId, FileVersion};

/// How a sample comes.
pub(super) enum Route {
    /// From the store.
    Store(Location),
    /// From the source: of this version, if it may be kept; to be compared with a copy, if there is one.
    Source { version: Option<FileVersion>, copy: Option<Location> },
}

/// What is known of that without a look at the sample's file.
pub(super) enum RouteLookup {
    Found(Route),
    /// It depends on the file's version; the copy, if there is one.
    NeedsVersion(Option<Location>),
}

impl Cache {
    /// How a sample of `file` comes.
    pub(super) fn look_up_route(&self, sample: u64, file: FileId) -> RouteLookup {
        match (self.store().locate(sample), self.index().shard_version(file)) {
            (Some(location), _) if location.checked => RouteLookup::Found(Route::Store(location)),
            (copy, Some(version)) => RouteLookup::Found(self.route(sample, Some(version), copy)),
            // It would not be kept, so it does not matter of which version it is.
            (None, None) if !self.store().is_open() => {
                RouteLookup::Found(Route::Source { version: None, copy: None })
            }
            (copy, None) => RouteLookup::NeedsVersion(copy),
        }
    }

    /// How a sample comes whose file is of `version` now, `None` where that cannot be told.
    pub(super) fn route(&self, sample: u64, version: Option<FileVersion>, copy: Option<Location>) -> Route {
        let (Some(location), Some(now)) = (copy, version) else {
            // A file that is gone says so when it is read; the copy of one that could not be looked at may be right.
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

    /// How a sample of `file` comes whose copy could not be used: what the file was when the copy was checked it may be
    /// no more.
    pub(super) fn route_without_copy(&self, file: FileId) -> Route {
        Route::Source { version: self.index().shard_version(file), copy: None }
    }
}
