//! The served cache: gives the copies in this node's own tiers to other nodes, and takes samples that they push.

use super::super::cache::{Cache, TierPlace};
use super::super::copies::{CopyFault, Location, Offer};
use crate::peers::{Accepted, Found, ServedCache};
use base::locks::lock;
use data::dataset::FileVersion;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// How long samples that other nodes push wait to be published together, so that not every sample gets a separate
/// segment. After this time, the next request for a sample that is not found publishes them.
const PUBLISH_AFTER: Duration = Duration::from_secs(1);

/// Serves the copies of a cache to other nodes. It does not keep the cache alive.
pub(in crate::tier) struct ServedTiers {
    cache: Weak<Cache>,
    /// The time of the first push since pushed samples were last published; `None` if there was none.
    waiting: Mutex<Option<Instant>>,
}

impl ServedTiers {
    pub(in crate::tier) fn new(cache: &Arc<Cache>) -> Self {
        Self { cache: Arc::downgrade(cache), waiting: Mutex::default() }
    }

    fn publish(&self, cache: &Cache) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_some_and(|since| since.elapsed() >= PUBLISH_AFTER) {
            *waiting = None;
            cache.publish();
        }
    }
}

fn copies(cache: &Cache, sample: u64) -> impl Iterator<Item = (TierPlace, Location)> {
    let local = cache.local_tiers().map(|(place, _)| place);
    local.filter_map(move |place| Some((place, cache.tier(place).locate(sample)?)))
}

impl ServedCache for ServedTiers {
    fn find(&self, sample: u64, version: Option<FileVersion>) -> Found {
        let Some(cache) = self.cache.upgrade().filter(|cache| sample < cache.index.len()) else {
            return Found::Absent;
        };
        let mut answer = Found::Absent;
        for (place, location) in copies(&cache, sample) {
            let tier = cache.tier(place);
            let (Some(crc), Some(copied)) = (location.crc, location.version) else { continue };
            match version {
                Some(version) if version != copied => {
                    // A copy that this run has verified stays until the next run, as it would in a job without peers.
                    if !location.checked {
                        tier.drop_stale(sample, &location);
                    }
                    answer = Found::Stale;
                    continue;
                }
                Some(_) if !location.checked => tier.confirm(sample, &location),
                None if !location.checked => {
                    answer = Found::Unconfirmed;
                    continue;
                }
                _ => {}
            }
            let Some(local) = tier.parts().local else { continue };
            match local.bytes_of(&location) {
                Ok(bytes) => return Found::Copy { bytes, crc, version: copied },
                Err(Some(fault)) => tier.damaged(sample, location, fault),
                Err(None) => {}
            }
        }
        self.publish(&cache);
        answer
    }

    fn length(&self, sample: u64) -> Option<u32> {
        let cache = self.cache.upgrade().filter(|cache| sample < cache.index.len())?;
        Some(cache.index.extent(sample).length)
    }

    fn accepts_at_once(&self, sample: u64) -> bool {
        let cache = self.cache.upgrade().filter(|cache| cache.owns(sample));
        cache.is_none_or(|cache| cache.keeps_at_once(sample))
    }

    fn accept(&self, sample: u64, version: FileVersion, crc: u32, bytes: &[u8]) -> Accepted {
        let Some(cache) = self.cache.upgrade().filter(|cache| cache.owns(sample)) else {
            return Accepted::Off;
        };
        for (place, location) in copies(&cache, sample) {
            let is_same = || location.crc == Some(crc) || cache.is_copy_of(place, &location, bytes);
            if location.version == Some(version) && is_same() {
                cache.tier(place).confirm(sample, &location);
                return Accepted::Present;
            }
            if location.version == Some(version) {
                cache.mismatched(sample, place, &location);
            } else if location.checked {
                return Accepted::Present;
            } else {
                cache.tier(place).drop_stale(sample, &location);
            }
        }
        match cache.accept_push(sample, version, bytes) {
            Offer::Taken => {
                lock(&self.waiting).get_or_insert_with(Instant::now);
                Accepted::Taken
            }
            Offer::Present => Accepted::Present,
            Offer::Full => Accepted::Full,
            Offer::Busy => Accepted::Busy,
            Offer::Off => Accepted::Off,
        }
    }

    fn damaged(&self, sample: u64, crc: u32) {
        let Some(cache) = self.cache.upgrade() else { return };
        let wrong =
            copies(&cache, sample).filter(|(_, location)| location.crc == Some(crc)).collect::<Vec<_>>();
        for (place, location) in wrong {
            cache.tier(place).damaged(sample, location, CopyFault::Checksum);
        }
    }
}
