//! Reads one sample through the tiers with blocking calls: for substitutes of failed samples, and for single reads.

use super::cache::{Cache, SampleOrigin, TierPlace};
use super::copies::{CopyFault, Location};
use super::reader::fault;
use super::revalidate::version_now;
use super::route::{Route, RouteLookup};
use crate::io::read_blocking;
use base::counting::count;
use base::error::Result;
use base::tier_name::TierName;
use pixels::decode::{FileRestorer, storage_format_of};

impl Cache {
    /// Reads a sample's bytes, and returns the tier that they came from. The bytes are checked, counted and kept like
    /// the bytes of any other sample.
    ///
    /// # Errors
    /// The errors of reading the sample from the source.
    ///
    /// # Panics
    /// Panics if the dataset has no such sample.
    pub fn read_blocking(&self, sample: u64) -> Result<(Vec<u8>, TierName)> {
        let index = &self.index;
        let extent = index.extent(sample);
        let found = |lookup| match lookup {
            RouteLookup::Found(route) => route,
            RouteLookup::NeedsVersion(copy) => {
                count(&self.counted.looks, 1);
                self.route(sample, version_now(index, extent), copy)
            }
        };
        let mut route = found(self.look_up_route(sample, extent.file));
        if let Route::Copy(place, location) = route {
            if let Some(bytes) = self.read_copy(sample, place, location) {
                return Ok((bytes, self.tier(place).name()));
            }
            route = found(self.route_without_copy(extent.file));
        }
        let bytes = read_blocking(&**index, extent)?;
        if let Route::Source { version, copy } = route {
            if let Some((place, location)) = copy {
                self.compare(sample, place, &location, &bytes);
            }
            self.arrived(sample, &bytes, SampleOrigin::Source, version);
        }
        Ok((bytes, TierName::SOURCE))
    }

    fn read_copy(&self, sample: u64, place: TierPlace, location: Location) -> Option<Vec<u8>> {
        // The tier of other nodes has no blocking read: the sample is then read from the source.
        let read = self.tier(place).parts().local.map(|local| local.read_blocking(&location));
        let fault = match read.transpose() {
            Ok(None) => Some(CopyFault::Gone),
            Ok(Some(bytes)) if location.is_copy(&bytes) => {
                self.arrived(sample, &bytes, SampleOrigin::Copy(place), location.version);
                return Some(bytes);
            }
            Ok(Some(_)) => Some(CopyFault::Checksum),
            Err(error) => fault(&error),
        };
        self.count_fallback(sample, place, location, fault);
        None
    }

    /// Returns whether a copy matches these bytes of the source. A copy in another storage format is converted back to
    /// its file.
    pub(super) fn is_copy_of(&self, place: TierPlace, location: &Location, bytes: &[u8]) -> bool {
        if location.extent.length as usize == bytes.len() {
            return location.is_copy(bytes);
        }
        let copy = self.tier(place).parts().local.and_then(|local| local.read_blocking(location).ok());
        let copy = copy.filter(|copy| location.is_copy(copy));
        copy.is_some_and(|copy| {
            FileRestorer::default().restore(storage_format_of(&copy), &copy).is_ok_and(|file| file == bytes)
        })
    }

    pub(super) fn compare(&self, sample: u64, place: TierPlace, location: &Location, bytes: &[u8]) {
        if self.is_copy_of(place, location, bytes) {
            self.tier(place).confirm(sample, location);
        } else {
            self.mismatched(sample, place, location);
        }
    }
}
