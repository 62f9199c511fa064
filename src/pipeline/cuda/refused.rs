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

/// An image of the dataset: its sample, and which of the sample's images it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ImageId {
    pub sample: u64,
    pub image: u32,
}

/// Images that decoders refused, for as long as the loader lives.
#[derive(Default)]
pub(crate) struct Refused {
    any: AtomicBool,
    /// How often each backend did.
    by_image: Mutex<HashMap<ImageId, Known>>,
}

/// What is known of an image.
#[derive(Clone)]
struct Known {
    counts: [u8; NvJpegBackend::ALL.len()],
    /// What the last backend said.
    why: DecodeError,
}

impl Refused {
    /// `backend` refused an image, and said why: whether it is now known not to take it.
    pub(crate) fn note(&self, id: ImageId, backend: NvJpegBackend, why: &DecodeError) -> bool {
        let mut by_image = self.lock();
        if by_image.len() >= MOST && !by_image.contains_key(&id) {
            return false;
        }
        let new = || Known { counts: [0; NvJpegBackend::ALL.len()], why: why.clone() };
        let known = by_image.entry(id).or_insert_with(new);
        known.why = why.clone();
        let count = &mut known.counts[backend as usize];
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Relaxed);
        *count == ENOUGH
    }

    /// The backends that do not take an image.
    pub(crate) fn of(&self, id: ImageId) -> impl Fn(NvJpegBackend) -> bool + use<> {
        // Nearly always there is nothing to look for.
        let any = self.any.load(Ordering::Relaxed);
        let known = any.then(|| self.lock().get(&id).map(|known| known.counts)).flatten();
        move |backend| known.is_some_and(|counts| counts[backend as usize] >= ENOUGH)
    }

    /// Why an image was refused the last time; `None` where it never was.
    pub(crate) fn why(&self, id: ImageId) -> Option<DecodeError> {
        self.lock().get(&id).map(|known| known.why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ImageId, Known>> {
        self.by_image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_twice_is_not_tried_again() {
        let refused = Refused::default();
        let why = DecodeError::Corrupt("its codes".into());
        let [odd, other] = [0, 1].map(|image| ImageId { sample: 7, image });
        assert_eq!(refused.why(odd), None);
        assert!(!refused.of(odd)(NvJpegBackend::Hardware));
        assert!(!refused.note(odd, NvJpegBackend::Hardware, &why), "it may have been another");
        assert!(!refused.of(odd)(NvJpegBackend::Hardware));
        assert!(refused.note(odd, NvJpegBackend::Hardware, &why));
        assert!(refused.of(odd)(NvJpegBackend::Hardware));
        assert!(!refused.of(odd)(NvJpegBackend::CudaBatched) && !refused.of(other)(NvJpegBackend::Hardware));
        assert!(!refused.note(odd, NvJpegBackend::Hardware, &why), "said once");
        assert_eq!((refused.why(odd), refused.why(other)), (Some(why), None));
    }
}
