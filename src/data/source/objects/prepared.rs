//! A cache of signed requests. A signature covers the requester, the object and the time, and stores accept it for some
//! minutes. The range need not be signed, so all samples of a shard share a signed request for a while.

use crate::http::HttpTarget;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a signed request is used. Stores accept it for fifteen minutes, by their clock.
const USED: Duration = Duration::from_secs(60);
/// Maximum number of cached requests.
const MOST: usize = 4096;

/// The cached requests.
#[derive(Default)]
pub(super) struct SignedRequests(Mutex<KeptRequests>);

#[derive(Default)]
struct KeptRequests {
    /// Requests by key, with the time of signing.
    signed: HashMap<String, (Instant, HttpTarget)>,
    /// Number of times that credentials were replaced.
    turn: u64,
}

impl SignedRequests {
    fn kept(&self) -> MutexGuard<'_, KeptRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the current credentials, for [`SignedRequests::keep`].
    pub(super) fn turn(&self) -> u64 {
        self.kept().turn
    }

    /// Returns a request for an object, if one was signed a moment ago.
    pub(super) fn get(&self, key: &str) -> Option<HttpTarget> {
        let kept = self.kept();
        let (signed, target) = kept.signed.get(key)?;
        (signed.elapsed() < USED).then(|| target.clone())
    }

    /// Caches a request that was signed just now, unless credentials were replaced since `turn` was read.
    pub(super) fn keep(&self, key: &str, target: &HttpTarget, turn: u64) {
        let KeptRequests { signed, turn: current } = &mut *self.kept();
        if turn != *current {
            return;
        }
        if signed.len() >= MOST {
            signed.retain(|_, (signed, _)| signed.elapsed() < USED);
        }
        if signed.len() < MOST {
            signed.insert(key.to_owned(), (Instant::now(), target.clone()));
        }
    }

    /// Drops all requests, because their credentials are no longer valid.
    pub(super) fn clear(&self) {
        let mut kept = self.kept();
        kept.signed.clear();
        kept.turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpUrl;

    #[test]
    fn what_was_signed_with_old_credentials_is_not_kept_beside_new_ones() {
        let target = HttpTarget::of(HttpUrl::parse("https://h/a").unwrap());
        let kept = SignedRequests::default();
        let old = kept.turn();
        kept.keep("a", &target, old);
        assert!(kept.get("a").is_some());
        kept.clear();
        assert!(kept.get("a").is_none());
        // Credentials may be replaced while a request is being signed.
        kept.keep("a", &target, old);
        assert!(kept.get("a").is_none());
        kept.keep("a", &target, kept.turn());
        assert!(kept.get("a").is_some());
    }
}
