//! When a backend that fails is left alone, and for how long.
//!
//! An engine that hangs or that another process has taken, and memory that is not there, fail every call, and each
//! costs its halves, and theirs, in every batch. But what went may come back. So after a few failures in a row come
//! pauses that double: they soon cost nothing, and end by themselves. Workers know of them too, so that a backend's
//! images are soon prepared for the next one. What a file is to blame for is none of this.

use crate::decode::nvjpeg::{ImageOutcome, NvJpegBackend};
use crate::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls in a row that may fail before the first pause: what lacks for a moment shall keep no image from its decoder.
const TOLERATED: u32 = 3;

/// Most pieces of batches that a pause lasts, so that a trial costs next to nothing.
pub(crate) const LONGEST_PAUSE: u32 = 1024;

/// How a GPU's backends have fared of late, with one loader's images.
#[derive(Default)]
pub(crate) struct Pauses {
    /// Some backend has failed: as long as none has there is nothing to look for.
    any: AtomicBool,
    backends: Mutex<[Pause; NvJpegBackend::ALL.len()]>,
}

#[derive(Default)]
struct Pause {
    /// Calls in a row in which nothing was decoded.
    failures: u32,
    /// Pieces to come that it has no part in.
    left: u32,
}

impl Pauses {
    /// Which backends are left alone now.
    pub(crate) fn resting(&self) -> [bool; NvJpegBackend::ALL.len()] {
        if !self.any.load(Ordering::Relaxed) {
            return Default::default();
        }
        self.lock().each_ref().map(|pause| pause.left > 0)
    }

    /// A lane has given its piece's images to backends.
    pub(crate) fn piece_went(&self) {
        if self.any.load(Ordering::Relaxed) {
            for pause in self.lock().iter_mut() {
                pause.left = pause.left.saturating_sub(1);
            }
        }
    }

    /// Learns from what became of a call's images; why a pause begins, if one does.
    pub(crate) fn learn(&self, backend: NvJpegBackend, outcomes: &[ImageOutcome]) -> Option<String> {
        if outcomes.iter().any(Result::is_ok) {
            if self.any.load(Ordering::Relaxed) {
                self.lock()[backend as usize] = Pause::default();
            }
            return None;
        }
        let why = outcomes.iter().find_map(|outcome| match outcome {
            Err(Error::Unavailable(why)) => Some(why),
            _ => None,
        })?;
        self.any.store(true, Ordering::Relaxed);
        let pause = &mut self.lock()[backend as usize];
        if pause.left > 0 {
            // Another lane's call, which was under way when the pause began.
            return None;
        }
        pause.failures = pause.failures.saturating_add(1);
        let doublings = pause.failures.checked_sub(TOLERATED)?;
        pause.left = 1u32.checked_shl(doublings).map_or(LONGEST_PAUSE, |pieces| pieces.min(LONGEST_PAUSE));
        Some(why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, [Pause; NvJpegBackend::ALL.len()]> {
        // Valid after every statement: a panic elsewhere cannot have broken it.
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DecodeError;

    const BACKEND: NvJpegBackend = NvJpegBackend::Hardware;

    fn failed() -> [ImageOutcome; 2] {
        [Err(DecodeError::Corrupt("its codes".into()).into()), Err(Error::Unavailable("no memory".into()))]
    }

    /// Pieces that the backend has no part in from now on.
    fn refused(pauses: &Pauses) -> u32 {
        let rests = || pauses.resting()[BACKEND as usize];
        (0..).take_while(|_| rests().then(|| pauses.piece_went()).is_some()).count() as u32
    }

    #[test]
    fn pauses_double_and_end_with_a_success() {
        let pauses = Pauses::default();
        for _ in 0..2 {
            assert_eq!(pauses.learn(BACKEND, &failed()), None);
            assert_eq!(refused(&pauses), 0);
        }
        let mut lengths = Vec::new();
        for _ in 0..40 {
            assert_eq!(pauses.learn(BACKEND, &failed()).as_deref(), Some("no memory"));
            assert_eq!(pauses.learn(BACKEND, &failed()), None, "of another lane, at the same time");
            assert_eq!(pauses.resting(), [true, false, false]);
            lengths.push(refused(&pauses));
        }
        assert_eq!(lengths[..12], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert!(lengths[12..].iter().all(|pieces| *pieces == LONGEST_PAUSE));
        pauses.learn(BACKEND, &[Err(Error::Unavailable("one of two".into())), Ok(())]);
        for _ in 0..2 {
            assert_eq!(pauses.learn(BACKEND, &failed()), None, "all is forgotten");
        }
    }

    #[test]
    fn what_files_are_to_blame_for_counts_neither_way() {
        let pauses = Pauses::default();
        let damaged = || [Err(DecodeError::Corrupt("its codes".into()).into())];
        for _ in 0..3 {
            assert_eq!(pauses.learn(BACKEND, &damaged()), None);
            assert_eq!(pauses.learn(BACKEND, &[]), None);
        }
        assert!(pauses.learn(BACKEND, &failed()).is_none() && pauses.learn(BACKEND, &failed()).is_none());
        assert_eq!(pauses.learn(BACKEND, &damaged()), None);
        assert!(pauses.learn(BACKEND, &failed()).is_some());
    }
}
