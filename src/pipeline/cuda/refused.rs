//! What decoders of the GPU have refused: an image that failed twice need not fail a third time, in every epoch, and cost the
//! images beside it their call.

use crate::decode::nvjpeg::Rung;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Refused so often, an image is not tried again: once it may have been one beside it that failed.
const ENOUGH: u8 = 2;

/// Most images to remember; where more fail it is not they that are odd.
const MOST: usize = 1 << 16;

/// Samples that decoders refused, for as long as the loader lives.
#[derive(Default)]
pub struct Refused {
    any: AtomicBool,
    /// How often each rung did.
    by_sample: Mutex<HashMap<u64, [u8; Rung::ALL.len()]>>,
}

impl Refused {
    /// `rung` refused a sample: whether it is now known not to take it.
    pub fn note(&self, sample: u64, rung: Rung) -> bool {
        let mut by_sample = self.lock();
        if by_sample.len() >= MOST && !by_sample.contains_key(&sample) {
            return false;
        }
        let count = &mut by_sample.entry(sample).or_default()[rung as usize];
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Relaxed);
        *count == ENOUGH
    }

    /// The rungs that do not take a sample.
    pub fn of(&self, sample: u64) -> impl Fn(Rung) -> bool + use<> {
        // Nearly always there is nothing to look for.
        let known = self.any.load(Ordering::Relaxed).then(|| self.lock().get(&sample).copied()).flatten();
        move |rung| known.is_some_and(|counts| counts[rung as usize] >= ENOUGH)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, [u8; Rung::ALL.len()]>> {
        self.by_sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_twice_is_not_tried_again() {
        let refused = Refused::default();
        assert!(!refused.of(7)(Rung::Hardware));
        assert!(!refused.note(7, Rung::Hardware), "it may have been another");
        assert!(!refused.of(7)(Rung::Hardware));
        assert!(refused.note(7, Rung::Hardware));
        assert!(refused.of(7)(Rung::Hardware));
        assert!(!refused.of(7)(Rung::CudaBatched) && !refused.of(8)(Rung::Hardware));
        assert!(!refused.note(7, Rung::Hardware), "said once");
    }
}
