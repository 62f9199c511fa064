//! A cache of signed requests. A signature covers the requester, the object and the time, and stores accept it for some
//! minutes. It need not cover the range, so all samples of a shard share one signed request for a while.

use crate::http::HttpTarget;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a signed request is used. Stores accept it for fifteen minutes, measured by their own clock.
const MAX_AGE: Duration = Duration::from_secs(60);
const MAX_CACHED: usize = 4096;

#[derive(Default)]
pub(super) struct SignedRequests(Mutex<KeptRequests>);

#[derive(Default)]
struct KeptRequests {
    signed: HashMap<String, (Instant, HttpTarget)>,
    generation: u64,
}

impl SignedRequests {
    fn kept(&self) -> MutexGuard<'_, KeptRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often credentials have been replaced. Read the number before signing, and pass it to
    /// [`SignedRequests::keep`].
    pub(super) fn generation(&self) -> u64 {
        self.kept().generation
    }

    pub(super) fn get(&self, key: &str) -> Option<HttpTarget> {
        let kept = self.kept();
        let (signed, target) = kept.signed.get(key)?;
        (signed.elapsed() < MAX_AGE).then(|| target.clone())
    }

    /// Caches a request that was just signed, except if credentials were replaced after `generation` was read.
    pub(super) fn keep(&self, key: &str, target: &HttpTarget, generation: u64) {
        let KeptRequests { signed, generation: current } = &mut *self.kept();
        if generation != *current {
            return;
        }
        if signed.len() >= MAX_CACHED {
            signed.retain(|_, (signed, _)| signed.elapsed() < MAX_AGE);
        }
        if signed.len() < MAX_CACHED {
            signed.insert(key.to_owned(), (Instant::now(), target.clone()));
        }
    }

    pub(super) fn clear(&self) {
        let mut kept = self.kept();
        kept.signed.clear();
        kept.generation += 1;
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
        let old = kept.generation();
        kept.keep("a", &target, old);
        assert!(kept.get("a").is_some());
        kept.clear();
        assert!(kept.get("a").is_none());
        // The credentials were replaced while this request was being signed.
        kept.keep("a", &target, old);
        assert!(kept.get("a").is_none());
        kept.keep("a", &target, kept.generation());
        assert!(kept.get("a").is_some());
    }
}
