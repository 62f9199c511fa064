//! A limit on the bytes in memory that wait for peers or come from peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Clone)]
pub(super) struct ByteBudget {
    taken: Arc<AtomicUsize>,
    bound: usize,
}

pub(super) struct ReservedBytes {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl ByteBudget {
    pub(super) fn new(bound: usize) -> Self {
        Self { taken: Arc::default(), bound }
    }

    /// Reserves `bytes`; `None` if the limit would be exceeded. If nothing else is reserved, any number of bytes can be
    /// reserved, so that a very large sample is still possible.
    pub(super) fn reserve(&self, bytes: usize) -> Option<ReservedBytes> {
        let fits = |taken: usize| (taken == 0 || taken + bytes <= self.bound).then_some(taken + bytes);
        let reserved = self.taken.fetch_update(Relaxed, Relaxed, fits).is_ok();
        reserved.then(|| ReservedBytes { taken: self.taken.clone(), bytes })
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_is_held_but_for_one_alone() {
        let bound = ByteBudget::new(100);
        let first = bound.reserve(60).unwrap();
        assert!(bound.reserve(41).is_none() && bound.reserve(40).is_some());
        drop(first);
        let large = bound.reserve(1000).expect("alone, any sample passes");
        assert!(bound.reserve(1).is_none());
        drop(large);
        assert!(bound.reserve(1).is_some());
    }
}
