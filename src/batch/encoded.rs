//! Encoded files as a batch keeps them: the bytes stay where they were read to.

use super::memory::{Base, BatchStorage};
use super::{Batch, Element, Tensor};
use crate::io::Filled;
use std::collections::BTreeMap;

/// The encoded bytes of one sample, and what keeps them.
pub(crate) enum Encoded {
    /// The bytes are in a slot of the reader's arena.
    Slot(Filled),
    /// The bytes are a substitute's, which is read outside of the arena.
    Owned(Vec<u8>),
}

impl std::ops::Deref for Encoded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Slot(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The encoded files of a batch by place. A place without a file has no bytes.
#[derive(Default)]
pub(super) struct EncodedFiles(BTreeMap<u32, EncodedFile>);

struct EncodedFile {
    /// The address of the first byte. All access goes through it from now on, because consumers may write the bytes.
    base: Base,
    len: usize,
    #[expect(dead_code, reason = "held, not used")]
    owner: Encoded,
}

impl EncodedFiles {
    pub(super) fn insert(&mut self, index: u32, mut owner: Encoded) {
        let len = owner.len();
        let base = Base(match &mut owner {
            Encoded::Slot(bytes) => bytes.as_mut_ptr(),
            Encoded::Owned(bytes) => bytes.as_mut_ptr(),
        });
        self.0.insert(index, EncodedFile { base, len, owner });
    }
}

impl Batch {
    /// Whether the batch holds encoded files instead of images.
    pub fn is_encoded(&self) -> bool {
        matches!(self.buffer.storage(), BatchStorage::Slots)
    }

    /// The files of the samples, each `uint8 [bytes]`; a failed sample with `on_error = zero` has no bytes. A file
    /// begins wherever the reader put it, at no particular alignment.
    pub fn encoded(&self) -> Vec<Tensor> {
        let tensor = |index: u32| {
            let place = self.buffer.encoded.0.get(&index);
            let (data, len) = place.map_or((self.buffer.memory().base(), 0), |place| (place.base, place.len));
            Tensor::in_host_memory(&self.buffer, data, vec![len as i64], Element::U8)
        };
        (0..self.len).map(tensor).collect()
    }
}
