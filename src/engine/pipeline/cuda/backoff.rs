//! Exponential backoff for a failing decoder backend of the GPU: when the backend is skipped, and for how long.
//!
//! If an engine hangs, another process holds it, or memory is short, every call fails. A failed call is split in
//! halves, which also fail, and so on in every batch. But the cause may pass. So after a few failures in a row, the
//! backend gets no images for some sub-batches, and for twice as many after each further failure. Soon the retries cost
//! next to nothing. A success ends the backoff. Workers also check the backoff, and prepare the images of a skipped
//! backend for the next backend. Failures that are caused by a file do not count.

use base::error::Error;
use base::locks::lock;
use pixels::decode::nvjpeg::{ImageOutcome, NvJpegBackend};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of failed calls in a row that starts the first backoff. A brief shortage makes fewer calls fail.
const TOLERATED: u32 = 3;

/// Maximum backoff, in sub-batches, with which retries cost next to nothing.
pub(crate) const LONGEST_BACKOFF: u32 = 1024;

#[derive(Default)]
pub(crate) struct BackendBackoff {
    /// Whether any backend has ever failed. While this is false, no call needs the lock.
    any: AtomicBool,
    // Valid after every statement, so a panic elsewhere cannot break it.
    backends: Mutex<[Backoff; NvJpegBackend::ALL.len()]>,
}

#[derive(Default)]
struct Backoff {
    failures: u32,
    /// Number of further sub-batches from which the backend gets no images.
    left: u32,
}

impl BackendBackoff {
    pub(crate) fn skipped(&self) -> [bool; NvJpegBackend::ALL.len()] {
        if !self.any.load(Ordering::Relaxed) {
            return Default::default();
        }
        lock(&self.backends).each_ref().map(|pause| pause.left > 0)
    }

    pub(crate) fn sub_batch_started(&self) {
        if self.any.load(Ordering::Relaxed) {
            for pause in lock(&self.backends).iter_mut() {
                pause.left = pause.left.saturating_sub(1);
            }
        }
    }

    /// Updates the backoff from the outcomes of one call. Returns the reason of the failures if a backoff begins.
    pub(crate) fn record_outcomes(
        &self,
        backend: NvJpegBackend,
        outcomes: &[ImageOutcome],
    ) -> Option<String> {
        if outcomes.iter().any(Result::is_ok) {
            if self.any.load(Ordering::Relaxed) {
                lock(&self.backends)[backend as usize] = Backoff::default();
            }
            return None;
        }
        let why = outcomes.iter().find_map(|outcome| match outcome {
            Err(Error::Unavailable(why)) => Some(why),
            _ => None,
        })?;
        self.any.store(true, Ordering::Relaxed);
        let pause = &mut lock(&self.backends)[backend as usize];
        if pause.left > 0 {
            // Another lane made this call before the backoff began.
            return None;
        }
        pause.failures = pause.failures.saturating_add(1);
        let doublings = pause.failures.checked_sub(TOLERATED)?;
        pause.left =
            1u32.checked_shl(doublings).map_or(LONGEST_BACKOFF, |pieces| pieces.min(LONGEST_BACKOFF));
        Some(why.clone())
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

    fn refused(backoff: &BackendBackoff) -> u32 {
        let rests = || backoff.skipped()[BACKEND as usize];
        (0..).take_while(|_| rests().then(|| backoff.sub_batch_started()).is_some()).count() as u32
    }

    #[test]
    fn pauses_double_and_end_with_a_success() {
        let backoff = BackendBackoff::default();
        for _ in 0..2 {
            assert_eq!(backoff.record_outcomes(BACKEND, &failed()), None);
            assert_eq!(refused(&backoff), 0);
        }
        let mut lengths = Vec::new();
        for _ in 0..40 {
            assert_eq!(backoff.record_outcomes(BACKEND, &failed()).as_deref(), Some("no memory"));
            assert_eq!(
                backoff.record_outcomes(BACKEND, &failed()),
                None,
                "of another lane, at the same time"
            );
            assert_eq!(backoff.skipped(), [true, false, false]);
            lengths.push(refused(&backoff));
        }
        assert_eq!(lengths[..12], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert!(lengths[12..].iter().all(|pieces| *pieces == LONGEST_BACKOFF));
        backoff.record_outcomes(BACKEND, &[Err(Error::Unavailable("one of two".into())), Ok(())]);
        for _ in 0..2 {
            assert_eq!(backoff.record_outcomes(BACKEND, &failed()), None, "all is forgotten");
        }
    }

    #[test]
    fn what_files_are_to_blame_for_counts_neither_way() {
        let backoff = BackendBackoff::default();
        let damaged = || [Err(DecodeError::Corrupt("its codes".into()).into())];
        for _ in 0..3 {
            assert_eq!(backoff.record_outcomes(BACKEND, &damaged()), None);
            assert_eq!(backoff.record_outcomes(BACKEND, &[]), None);
        }
        assert_eq!(backoff.record_outcomes(BACKEND, &failed()), None);
        assert_eq!(backoff.record_outcomes(BACKEND, &failed()), None);
        assert_eq!(backoff.record_outcomes(BACKEND, &damaged()), None);
        assert!(backoff.record_outcomes(BACKEND, &failed()).is_some());
    }
}
