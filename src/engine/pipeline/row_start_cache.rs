//! Remembers where the rows of the dataset's JPEGs begin. If a file has not changed (same checksum), its next decode
//! starts at the first row that is needed.

use pixels::decode::RowStarts;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type ImageOfSample = (u64, usize);

/// The number of parts into which the table is divided. Each part has its own lock, so that threads seldom wait for one
/// another.
const SHARDS: usize = 64;

/// The bytes that an image takes in the table and in the allocator, in addition to its row starts.
const TABLE_ENTRY: usize = 2 * size_of::<(ImageOfSample, RowStarts)>();

/// The row starts of images, up to a limit in bytes. No image is dropped to make space for another image, because
/// usually all images are equally likely to be used again.
pub(crate) struct RowStartCache {
    shards: [Mutex<HashMap<ImageOfSample, RowStarts>>; SHARDS],
    held: AtomicUsize,
    most: usize,
}

impl RowStartCache {
    pub(crate) fn new(most: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), held: AtomicUsize::new(0), most }
    }

    /// Returns whether another image may still fit. If not, its row starts need not be collected.
    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) + TABLE_ENTRY < self.most
    }

    pub(crate) fn take(&self, of: ImageOfSample) -> Option<RowStarts> {
        let rows = self.shard(of).remove(&of)?;
        self.held.fetch_sub(TABLE_ENTRY + rows.held(), Ordering::Relaxed);
        Some(rows)
    }

    pub(crate) fn keep(&self, of: ImageOfSample, rows: RowStarts) {
        let bytes = TABLE_ENTRY + rows.held();
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        // Two threads may decode the same sample at once.
        if let Some(former) = self.shard(of).insert(of, rows) {
            self.held.fetch_sub(TABLE_ENTRY + former.held(), Ordering::Relaxed);
        }
    }

    fn shard(&self, of: ImageOfSample) -> MutexGuard<'_, HashMap<ImageOfSample, RowStarts>> {
        self.shards[of.0 as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pixels::decode::{Decoder, Planes, Region};

    fn rows() -> RowStarts {
        let file = "../../tests/fixtures/folder/images/files/n01440764/n01440764_4.jpeg";
        let file = std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let mut rows = None;
        let choose = |width, height| Region { x: 0, y: height / 2, width, height: 1 };
        Decoder::new(u64::MAX)
            .decode_with_row_starts(&file, &mut rows, choose, &mut Planes::default())
            .unwrap();
        rows.unwrap()
    }

    #[test]
    fn as_many_images_are_kept_as_there_is_room_for() {
        let each = TABLE_ENTRY + rows().held();
        let memory = RowStartCache::new(10 * each);
        (0..20).for_each(|sample| memory.keep((sample, 1), rows()));
        assert_eq!(memory.held.load(Ordering::Relaxed), 10 * each);
        assert!(memory.take((3, 0)).is_none() && memory.take((10, 1)).is_none());
        assert!((0..10).all(|sample| memory.take((sample, 1)).is_some()));
        assert_eq!(memory.held.load(Ordering::Relaxed), 0);
        (0..2).for_each(|_| memory.keep((7, 0), rows()));
        assert_eq!(memory.held.load(Ordering::Relaxed), each, "an image is kept once");
    }
}
