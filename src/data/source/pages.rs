//! Random access for parsers that jump back and forth in a file: a small cache of aligned blocks.

use super::{Malformed, ReadAt};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

/// Maximum number of bytes of the blocks in the cache.
const MAX_KEPT: u64 = 4 << 20;
/// Maximum number of bytes that a parser may read between two calls of [`Pages::begin`].
const MAX_READ: u64 = 8 << 30;

/// Reads ranges of a source through a cache of aligned blocks, and limits how much is read in all. Structures in a file
/// do not overlap, so a parser that reads several times the size of the file is led in circles by damaged bytes.
pub struct Pages<'a> {
    source: &'a dyn ReadAt,
    block: u64,
    kept: RefCell<KeptPages>,
}

#[derive(Default)]
struct KeptPages {
    blocks: HashMap<u64, Vec<u8>>,
    /// The numbers of the blocks in the cache, oldest first.
    order: VecDeque<u64>,
    left: u64,
}

impl<'a> Pages<'a> {
    /// Starts with an empty cache. Blocks have the size that is worth reading from this source.
    pub fn new(source: &'a dyn ReadAt) -> Self {
        let pages = Self { source, block: source.worth_reading().max(512) as u64, kept: RefCell::default() };
        pages.begin();
        pages
    }

    /// Returns the number of bytes of the source.
    pub fn size(&self) -> u64 {
        self.source.size()
    }

    /// Resets the limit on the number of bytes to read, at the start of a task.
    pub fn begin(&self) {
        self.kept.borrow_mut().left = self.size().saturating_mul(4).saturating_add(64 << 10).min(MAX_READ);
    }

    /// Reads exactly `length` bytes at `offset`. Allocates no more than the source holds.
    ///
    /// # Errors
    /// [`Malformed`] if the source has fewer bytes, if it cannot be read, or if the limit is exceeded.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Malformed> {
        let truncated = || {
            let size = self.size();
            Malformed {
                offset: offset.min(size),
                message: format!(
                    "{length} bytes are expected at byte {offset}, but the file ends at byte {size}: it is \
                     truncated or damaged"
                ),
            }
        };
        let end = offset.checked_add(length).filter(|&end| end <= self.size()).ok_or_else(truncated)?;
        let mut kept = self.kept.borrow_mut();
        let message = "more metadata is read than the file can have: it is damaged";
        let circles = || Malformed { offset, message: message.to_owned() };
        // Each read counts for some bytes more than it has, so that reads of nothing end, too.
        kept.left = kept.left.checked_sub(length.saturating_add(16)).ok_or_else(circles)?;
        let mut bytes = Vec::new();
        if length >= 4 * self.block {
            bytes.resize(usize::try_from(length).map_err(|_| truncated())?, 0);
            let got = self.source.fill_at(&mut bytes, offset)?;
            return if got == bytes.len() { Ok(bytes) } else { Err(truncated()) };
        }
        while offset + (bytes.len() as u64) < end {
            let at = offset + bytes.len() as u64;
            let block = kept.block(self.source, at / self.block, self.block)?;
            let wanted = (at % self.block, (end - at).min(self.block - at % self.block));
            // The block is too short only if the file shrank while it was read.
            let found = block.get(wanted.0 as usize..(wanted.0 + wanted.1) as usize);
            bytes.extend_from_slice(found.ok_or_else(truncated)?);
        }
        Ok(bytes)
    }
}

impl KeptPages {
    fn block(&mut self, source: &dyn ReadAt, number: u64, size: u64) -> Result<&[u8], Malformed> {
        if !self.blocks.contains_key(&number) {
            let most = (MAX_KEPT / size).max(2) as usize;
            while self.order.len() >= most {
                self.order.pop_front().map(|oldest| self.blocks.remove(&oldest));
            }
            let mut block = vec![0; size.min(source.size() - number * size) as usize];
            let got = source.fill_at(&mut block, number * size)?;
            block.truncate(got);
            self.blocks.insert(number, block);
            self.order.push_back(number);
        }
        Ok(self.blocks.get(&number).map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_limited() {
        let bytes: Vec<u8> = (0..30_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        let source = bytes.as_slice();
        let pages = Pages::new(&source);
        for (offset, length) in [(0, 1), (4000, 200), (1, 16000), (0, 30_000), (29_999, 1), (30_000, 0)] {
            let found = pages.read(offset, length).expect("bytes");
            assert_eq!(found, bytes[offset as usize..][..length as usize], "{length} at {offset}");
        }
        for (offset, length) in [(30_000, 1), (0, 30_001), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(pages.read(offset, length).is_err(), "{length} at {offset}");
        }
        let reads = (0..).take_while(|_| pages.read(0, 30_000).is_ok()).count();
        assert!(reads < 8, "{reads}");
        pages.begin();
        assert!(pages.read(0, 30_000).is_ok());
    }
}
