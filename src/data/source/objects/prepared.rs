//! Requests that are used more than once. A signature says who asks for which object and when, and stores take it for
//! some minutes; which bytes are asked for need not be signed. So all samples of a shard share one for a while.

use crate::http::HttpTarget;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long a signed request is used. Stores take it for fifteen minutes, by their clock.
const USED: Duration = Duration::from_secs(60);
/// The most that are kept.
const MOST: usize = 4096;

/// The requests that are kept.
#[derive(Default)]
pub(super) struct SignedRequests(Mutex<KeptRequests>);

#[derive(Default)]
struct KeptRequests {
    /// The requests by their keys, and when they were signed.
    signed: HashMap<String, (Instant, HttpTarget)>,
    /// How often credentials were replaced.
    turn: u64,
}

impl SignedRequests {
    fn kept(&self) -> MutexGuard<'_, KeptRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which credentials are current: what is signed with them now is kept only as long as they are.
    pub(super) fn turn(&self) -> u64 {
        self.kept().turn
    }

    /// A request for an object that was signed a moment ago.
    pub(super) fn get(&self, key: &str) -> Option<HttpTarget> {
        let kept = self.kept();
        let (signed, target) = kept.signed.get(key)?;
        (signed.elapsed() < USED).then(|| target.clone())
    }

    /// Keeps a request that was signed now, with the credentials that were current at this turn.
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

    /// Forgets all, because they were signed with credentials that are no longer valid.
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
        // A request may have been signed while credentials were replaced.
        kept.keep("a", &target, old);
        assert!(kept.get("a").is_none());
        kept.keep("a", &target, kept.turn());
        assert!(kept.get("a").is_some());
    }
}
