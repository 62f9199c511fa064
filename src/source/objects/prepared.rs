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

/// The requests by their keys, and when they were signed.
#[derive(Default)]
pub(super) struct SignedRequests(Mutex<HashMap<String, (Instant, HttpTarget)>>);

impl SignedRequests {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, (Instant, HttpTarget)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request for an object that was signed a moment ago.
    pub(super) fn get(&self, key: &str) -> Option<HttpTarget> {
        let kept = self.kept();
        let (signed, target) = kept.get(key)?;
        (signed.elapsed() < USED).then(|| target.clone())
    }

    /// Keeps a request that was signed now.
    pub(super) fn keep(&self, key: &str, target: &HttpTarget) {
        let mut kept = self.kept();
        if kept.len() >= MOST {
            kept.retain(|_, (signed, _)| signed.elapsed() < USED);
        }
        if kept.len() < MOST {
            kept.insert(key.to_owned(), (Instant::now(), target.clone()));
        }
    }

    /// Forgets all, because they were signed with credentials that are no longer valid.
    pub(super) fn clear(&self) {
        self.kept().clear();
    }
}
