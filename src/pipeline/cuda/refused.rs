//! What decoders of the GPU have refused: an image that failed twice need not fail a third time, in every epoch, and
//! cost the images beside it their call.

use crate::decode::nvjpeg::NvJpegBackend;
use crate::error::DecodeError;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Refused so often, an image is not tried again: once it may have been one beside it that failed.
const ENOUGH: u8 = 2;

/// Most images to remember; where more fail it is not they that are odd.
const MOST: usize = 1 << 16;

/// Samples that decoders refused, for as long as the loader lives.
#[derive(Default)]
pub(crate) struct Refused {
    any: AtomicBool,
    /// How often each backend did.
    by_sample: Mutex<HashMap<u64, Known>>,
}

/// What is known of a sample.
#[derive(Clone)]
struct Known {
    counts: [u8; NvJpegBackend::ALL.len()],
    /// What the last backend said.
    why: DecodeError,
}

impl Refused {
    /// `backend` refused a sample, and said why: whether it is now known not to take it.
    pub(crate) fn note(&self, sample: u64, backend: NvJpegBackend, why: &DecodeError) -> bool {
        let mut by_sample = self.lock();
        if by_sample.len() >= MOST && !by_sample.contains_key(&sample) {
            return false;
        }
        let new = || Known { counts: [0; NvJpegBackend::ALL.len()], why: why.clone() };
        let known = by_sample.entry(sample).or_insert_with(new);
        known.why = why.clone();
        let count = &mut known.counts[backend as usize];
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Relaxed);
        *count == ENOUGH
    }

    /// The backends that do not take a sample.
    pub(crate) fn of(&self, sample: u64) -> impl Fn(NvJpegBackend) -> bool + use<> {
        // Nearly always there is nothing to look for.
        let any = self.any.load(Ordering::Relaxed);
        let known = any.then(|| self.lock().get(&sample).map(|known| known.counts)).flatten();
        move |backend| known.is_some_and(|counts| counts[backend as usize] >= ENOUGH)
    }

    /// Why a sample was refused the last time; `None` where it never was.
    pub(crate) fn why(&self, sample: u64) -> Option<DecodeError> {
        self.lock().get(&sample).map(|known| known.why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.by_sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_twice_is_not_tried_again() {
        let refused = Refused::default();
        let why = DecodeError::Corrupt("its codes".into());
        assert_eq!(refused.why(7), None);
        assert!(!refused.of(7)(NvJpegBackend::Hardware));
        assert!(!refused.note(7, NvJpegBackend::Hardware, &why), "it may have been another");
        assert!(!refused.of(7)(NvJpegBackend::Hardware));
        assert!(refused.note(7, NvJpegBackend::Hardware, &why));
        assert!(refused.of(7)(NvJpegBackend::Hardware));
        assert!(!refused.of(7)(NvJpegBackend::CudaBatched) && !refused.of(8)(NvJpegBackend::Hardware));
        assert!(!refused.note(7, NvJpegBackend::Hardware, &why), "said once");
        assert_eq!((refused.why(7), refused.why(8)), (Some(why), None));
    }
}
