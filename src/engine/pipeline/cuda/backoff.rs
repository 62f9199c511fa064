//! Exponential backoff: when a backend that fails is left alone, and for how long.
//!
//! When an engine hangs or another process has taken it, or when memory is short, every call fails, and then both its
//! halves, and theirs, in every batch. But what is lost may come back. So after a few failures in a row the backend
//! gets no images for some pieces, and for twice as many each time: retries soon cost nothing, and the backoff ends by
//! itself. Workers know of it too, so that a backend's images are prepared for the next one. Failures that a file is to
//! blame for do not count.

use base::error::Error;
use pixels::decode::nvjpeg::{ImageOutcome, NvJpegBackend};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of calls in a row that may fail before the first backoff, because what is missing for a moment must keep
/// no image from its decoder.
const TOLERATED: u32 = 3;

/// The largest number of pieces that a backoff lasts; by then a retry costs next to nothing.
pub(crate) const LONGEST_BACKOFF: u32 = 1024;

/// How a GPU's backends have lately done with one loader's images.
#[derive(Default)]
pub(crate) struct BackendBackoff {
    /// Whether some backend has failed. As long as none has, there is nothing to look for.
    any: AtomicBool,
    backends: Mutex<[Backoff; NvJpegBackend::ALL.len()]>,
}

#[derive(Default)]
struct Backoff {
    /// The number of calls in a row in which nothing was decoded.
    failures: u32,
    /// The number of coming pieces from which it gets no images.
    left: u32,
}

impl BackendBackoff {
    /// Which backends are left alone now.
    pub(crate) fn resting(&self) -> [bool; NvJpegBackend::ALL.len()] {
        if !self.any.load(Ordering::Relaxed) {
            return Default::default();
        }
        self.lock().each_ref().map(|pause| pause.left > 0)
    }

    /// Notes that a lane has given its piece's images to backends.
    pub(crate) fn piece_went(&self) {
        if self.any.load(Ordering::Relaxed) {
            for pause in self.lock().iter_mut() {
                pause.left = pause.left.saturating_sub(1);
            }
        }
    }

    /// Learns from the outcomes of a call's images. Returns why a backoff begins, if one does.
    pub(crate) fn learn(&self, backend: NvJpegBackend, outcomes: &[ImageOutcome]) -> Option<String> {
        if outcomes.iter().any(Result::is_ok) {
            if self.any.load(Ordering::Relaxed) {
                self.lock()[backend as usize] = Backoff::default();
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
            // This is another lane's call, which was under way when the backoff began.
            return None;
        }
        pause.failures = pause.failures.saturating_add(1);
        let doublings = pause.failures.checked_sub(TOLERATED)?;
        pause.left =
            1u32.checked_shl(doublings).map_or(LONGEST_BACKOFF, |pieces| pieces.min(LONGEST_BACKOFF));
        Some(why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, [Backoff; NvJpegBackend::ALL.len()]> {
        // The state is valid after every statement, so a panic elsewhere cannot have broken it.
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::DecodeError;

    const BACKEND: NvJpegBackend = NvJpegBackend::Hardware;

    fn failed() -> [ImageOutcome; 2] {
        [Err(DecodeError::Corrupt("its codes".into()).into()), Err(Error::Unavailable("no memory".into()))]
    }

    /// The number of pieces from which the backend gets no images from now on.
    fn refused(backoff: &BackendBackoff) -> u32 {
        let rests = || backoff.resting()[BACKEND as usize];
        (0..).take_while(|_| rests().then(|| backoff.piece_went()).is_some()).count() as u32
    }

    #[test]
    fn pauses_double_and_end_with_a_success() {
        let backoff = BackendBackoff::default();
        for _ in 0..2 {
            assert_eq!(backoff.learn(BACKEND, &failed()), None);
            assert_eq!(refused(&backoff), 0);
        }
        let mut lengths = Vec::new();
        for _ in 0..40 {
            assert_eq!(backoff.learn(BACKEND, &failed()).as_deref(), Some("no memory"));
            assert_eq!(backoff.learn(BACKEND, &failed()), None, "of another lane, at the same time");
            assert_eq!(backoff.resting(), [true, false, false]);
            lengths.push(refused(&backoff));
        }
        assert_eq!(lengths[..12], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert!(lengths[12..].iter().all(|pieces| *pieces == LONGEST_BACKOFF));
        backoff.learn(BACKEND, &[Err(Error::Unavailable("one of two".into())), Ok(())]);
        for _ in 0..2 {
            assert_eq!(backoff.learn(BACKEND, &failed()), None, "all is forgotten");
        }
    }

    #[test]
    fn what_files_are_to_blame_for_counts_neither_way() {
        let backoff = BackendBackoff::default();
        let damaged = || [Err(DecodeError::Corrupt("its codes".into()).into())];
        for _ in 0..3 {
            assert_eq!(backoff.learn(BACKEND, &damaged()), None);
            assert_eq!(backoff.learn(BACKEND, &[]), None);
        }
        assert!(backoff.learn(BACKEND, &failed()).is_none() && backoff.learn(BACKEND, &failed()).is_none());
        assert_eq!(backoff.learn(BACKEND, &damaged()), None);
        assert!(backoff.learn(BACKEND, &failed()).is_some());
    }
}
