//! Remembers the images that decoders of the GPU have refused. An image that failed twice must not be tried again in
//! every epoch, because it can make the call fail for the images that share it.

use base::error::DecodeError;
use base::locks::lock;
use pixels::decode::nvjpeg::NvJpegBackend;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of refusals after which an image is not tried again. One refusal is not enough, because another image of the
/// same call may have been the cause.
const MAX_REFUSALS: u8 = 2;

/// Maximum number of images that are remembered. If more images fail, they are not the cause.
const MAX_IMAGES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ImageId {
    pub sample: u64,
    pub image: u32,
}

#[derive(Default)]
pub(crate) struct RefusedImages {
    any: AtomicBool,
    /// How often each backend refused an image, and the last reason.
    by_image: Mutex<HashMap<ImageId, RefusalRecord>>,
}

#[derive(Clone)]
struct RefusalRecord {
    counts: [u8; NvJpegBackend::ALL.len()],
    why: DecodeError,
}

impl RefusedImages {
    /// Records that `backend` refused an image, and why. Returns whether this backend never gets the image again.
    pub(crate) fn note(&self, id: ImageId, backend: NvJpegBackend, why: &DecodeError) -> bool {
        let mut by_image = lock(&self.by_image);
        if by_image.len() >= MAX_IMAGES && !by_image.contains_key(&id) {
            return false;
        }
        let new = || RefusalRecord { counts: [0; NvJpegBackend::ALL.len()], why: why.clone() };
        let known = by_image.entry(id).or_insert_with(new);
        known.why = why.clone();
        let count = &mut known.counts[backend as usize];
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Relaxed);
        *count == MAX_REFUSALS
    }

    /// Returns a function that says which backends must not get the image.
    pub(crate) fn of(&self, id: ImageId) -> impl Fn(NvJpegBackend) -> bool + use<> {
        // Usually no image was refused, and then the lock is not needed.
        let any = self.any.load(Ordering::Relaxed);
        let known = any.then(|| lock(&self.by_image).get(&id).map(|known| known.counts)).flatten();
        move |backend| known.is_some_and(|counts| counts[backend as usize] >= MAX_REFUSALS)
    }

    pub(crate) fn why(&self, id: ImageId) -> Option<DecodeError> {
        lock(&self.by_image).get(&id).map(|known| known.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_twice_is_not_tried_again() {
        let refused = RefusedImages::default();
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
