//! The encoded files of a batch. The bytes of a file stay in the slot that the reader filled. A file that is rebuilt
//! from a packed image is written to the slot of that packed image if it fits there.

use super::memory::{BatchStorage, BufferAddress};
use super::{Batch, Element, Tensor};
use base::parts::WantedBytes;
use std::collections::BTreeMap;
use std::ops::Range;
use store::io::Filled;

/// The encoded bytes of one sample, with their owner.
pub enum Encoded {
    /// The bytes are in a slot of the reader's arena.
    Slot(Filled),
    /// The bytes are in their own allocation: they are a substitute sample, or a rebuilt file that does not fit into
    /// its slot.
    Owned(Vec<u8>),
}

impl Encoded {
    /// Replaces the bytes by those of `file`: in the same slot if it is large enough, else in new memory. Nearly every
    /// rebuilt file fits, because it is smaller than its packed image.
    pub fn replaced(self, file: &[u8]) -> Self {
        match self {
            Self::Slot(bytes) if file.len() <= bytes.room() => Self::Slot(bytes.replaced(file)),
            _ => Self::Owned(file.to_vec()),
        }
    }

    /// Narrows the bytes to `range`.
    ///
    /// # Panics
    /// Panics if there are fewer bytes.
    pub fn narrowed(self, range: Range<usize>) -> Self {
        match self {
            Self::Slot(bytes) => Self::Slot(bytes.narrowed(range)),
            Self::Owned(mut bytes) => {
                bytes.truncate(range.end);
                bytes.drain(..range.start);
                Self::Owned(bytes)
            }
        }
    }
}

impl Encoded {
    /// Returns the bytes. If only parts of the file were read, also returns the ranges of these parts; all other bytes
    /// are undefined.
    pub fn in_parts(&self) -> (&[u8], Option<WantedBytes>) {
        match self {
            Self::Slot(bytes) => bytes.in_parts(),
            Self::Owned(bytes) => (bytes, None),
        }
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self
    }
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

/// The encoded files of a batch, by the index of the sample in the batch. A missing entry gives an empty file.
#[derive(Default)]
pub(super) struct EncodedFiles(BTreeMap<u32, EncodedFile>);

struct EncodedFile {
    /// The first byte. Every access goes through this pointer, because consumers may write to the bytes.
    base: BufferAddress,
    len: usize,
    #[expect(dead_code, reason = "held, not used")]
    owner: Encoded,
}

impl EncodedFiles {
    pub(super) fn insert(&mut self, index: u32, mut owner: Encoded) {
        let len = owner.len();
        let base = BufferAddress(match &mut owner {
            Encoded::Slot(bytes) => bytes.as_mut_ptr(),
            Encoded::Owned(bytes) => bytes.as_mut_ptr(),
        });
        self.0.insert(index, EncodedFile { base, len, owner });
    }
}

impl Batch {
    /// Returns whether the batch holds encoded files instead of images.
    pub fn is_encoded(&self) -> bool {
        matches!(self.buffer.storage(), BatchStorage::Slots)
    }

    /// Returns the files of the samples, each `uint8 [bytes]`; a failed sample with `on_error = zero` has no bytes. A
    /// file begins where the reader put it, at no particular alignment.
    pub fn encoded(&self) -> Vec<Tensor> {
        let tensor = |index: u32| {
            let place = self.buffer.encoded.0.get(&index);
            let (data, len) = place.map_or((self.buffer.memory().base(), 0), |place| (place.base, place.len));
            Tensor::in_host_memory(&self.buffer, data, vec![len as i64], Element::U8)
        };
        (0..self.len).map(tensor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::slot::{PAGE, SlotPool};

    #[test]
    fn a_file_is_rebuilt_in_its_slot_where_that_has_the_room() {
        let pool = SlotPool::new(1 << 20).unwrap();
        for (length, in_slot) in
            [(0, true), (100, true), (1000, true), (2 * PAGE, true), (2 * PAGE + 1, false)]
        {
            let slot = pool.try_take(1000).unwrap();
            assert_eq!(slot.capacity(), 2 * PAGE);
            // With direct reads, the bytes may begin near the end of the first page.
            let read = Encoded::Slot(Filled::new(slot, PAGE - 1..PAGE + 999));
            let file: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let rebuilt = read.replaced(&file);
            assert!(*rebuilt == file, "{length}");
            assert_eq!(matches!(rebuilt, Encoded::Slot(_)), in_slot, "{length}");
            assert_eq!(pool.usage().in_use > 0, in_slot, "{length}: a slot without use comes free");
        }
    }
}
