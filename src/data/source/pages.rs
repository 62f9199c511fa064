//! Random access for parsers that jump back and forth in a file: a small cache of aligned blocks.

use super::{Malformed, ReadAt};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;

/// Maximum number of bytes of the blocks in the cache.
const MAX_KEPT: u64 = 4 << 20;
/// Maximum number of bytes that a parser may read between two calls of [`Pages::begin`].
const MAX_READ: u64 = 8 << 30;
/// Maximum number of bytes of one structure, because a file may state any length, and may have holes of any size.
const MAX_STRUCTURE: u64 = 256 << 20;
/// The number of bytes of the first reads. On a parallel file system each read takes a millisecond, however short, and
/// metadata are mostly close together.
const AHEAD: u64 = 64 << 10;
/// The number of reads of [`AHEAD`] bytes. A parser that reads more blocks jumps about in a large index.
const MAX_AHEAD: u32 = 64;

/// Reads ranges of a source through a cache of aligned blocks, and limits how much is read in all. Structures in a file
/// do not overlap, so a parser that reads several times the size of the file is led in circles by damaged bytes.
pub struct Pages<'a> {
    source: &'a dyn ReadAt,
    block: u64,
    kept: RefCell<KeptPages>,
    /// How many bytes may still be read.
    left: Cell<u64>,
}

#[derive(Default)]
struct KeptPages {
    blocks: HashMap<u64, Vec<u8>>,
    /// The numbers of the blocks in the cache, oldest first.
    order: VecDeque<u64>,
    reads: u32,
}

impl<'a> Pages<'a> {
    /// Starts with an empty cache. Blocks have the size that is worth reading from this source.
    pub fn new(source: &'a dyn ReadAt) -> Self {
        let pages = Self {
            source,
            block: source.worth_reading().max(512) as u64,
            kept: RefCell::default(),
            left: Cell::default(),
        };
        pages.begin();
        pages
    }

    /// Resets the limit on the number of bytes to read, at the start of a task.
    pub fn begin(&self) {
        self.left.set(self.size().saturating_mul(4).saturating_add(64 << 10).min(MAX_READ));
    }

    /// Reads exactly `length` bytes at `offset`. Allocates no more than the source holds.
    ///
    /// # Errors
    /// [`Malformed`] if the source has fewer bytes, if it cannot be read, or if the limit is exceeded.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Malformed> {
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(self.truncated(offset, length));
        }
        let malformed = |message: String| Malformed { offset, message };
        if length > MAX_STRUCTURE {
            return Err(malformed(format!(
                "a structure of {length} bytes is too large: the file is damaged"
            )));
        }
        let message = "more metadata is read than the file can have: it is damaged";
        let circles = || malformed(message.to_owned());
        // Each read counts for some bytes more than it has, so that reads of nothing end, too.
        self.left.set(self.left.get().checked_sub(length + 16).ok_or_else(circles)?);
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Fills `bytes` with the bytes at `offset`, which must be in the source.
    fn fill(&self, bytes: &mut [u8], offset: u64) -> Result<(), Malformed> {
        let length = bytes.len() as u64;
        let truncated = || self.truncated(offset, length);
        if length >= 4 * self.block {
            let got = self.source.fill_at(bytes, offset)?;
            return if got == bytes.len() { Ok(()) } else { Err(truncated()) };
        }
        let (mut kept, mut rest, mut at) = (self.kept.borrow_mut(), bytes, offset);
        while !rest.is_empty() {
            let block = kept.block(self.source, at / self.block, self.block)?;
            // The block is too short only if the file shrank while it was read.
            let found = block.get((at % self.block) as usize..).filter(|found| !found.is_empty());
            let found = found.ok_or_else(truncated)?;
            let (now, after) = rest.split_at_mut(found.len().min(rest.len()));
            now.copy_from_slice(&found[..now.len()]);
            (rest, at) = (after, at + now.len() as u64);
        }
        Ok(())
    }

    fn truncated(&self, offset: u64, length: u64) -> Malformed {
        let size = self.size();
        Malformed {
            offset: offset.min(size),
            message: format!(
                "{length} bytes are expected at byte {offset}, but the file ends at byte {size}: it is truncated or \
                 damaged"
            ),
        }
    }
}

/// Parsers read small values through the same cache as the metadata around them. The limit is only for metadata.
impl ReadAt for Pages<'_> {
    fn size(&self) -> u64 {
        self.source.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fill_at(buffer, offset).map_err(|Malformed { message, .. }| io::Error::other(message))
    }
    fn fill_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Malformed> {
        let length = self.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.fill(&mut buffer[..length], offset)?;
        Ok(length)
    }
    fn worth_reading(&self) -> usize {
        self.source.worth_reading()
    }
}

impl KeptPages {
    fn block(&mut self, source: &dyn ReadAt, number: u64, size: u64) -> Result<&[u8], Malformed> {
        if !self.blocks.contains_key(&number) {
            let ahead = if self.reads < MAX_AHEAD { (AHEAD / size).max(1) } else { 1 };
            self.reads = self.reads.saturating_add(1);
            while self.order.len() as u64 + ahead > (MAX_KEPT / size).max(ahead + 1) {
                self.order.pop_front().map(|oldest| self.blocks.remove(&oldest));
            }
            let mut bytes = vec![0; (ahead * size).min(source.size() - number * size) as usize];
            let got = source.fill_at(&mut bytes, number * size)?;
            bytes.truncate(got);
            for (number, block) in (number..).zip(bytes.chunks(size as usize)) {
                if self.blocks.insert(number, block.to_vec()).is_none() {
                    self.order.push_back(number);
                }
            }
        }
        Ok(self.blocks.get(&number).map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::WINDOW;

    /// Bytes that count how often they are read.
    struct CountedReads(Vec<u8>, Cell<u32>);

    impl ReadAt for CountedReads {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read_at(buffer, offset)
        }
    }

    #[test]
    fn ranges_are_read_and_limited() {
        let source = CountedReads((0..300_000_u32).map(|n| (n * 7 % 251) as u8).collect(), Cell::new(0));
        let pages = Pages::new(&source);
        let ranges = [
            (0, 1),
            (4000, 200),
            (1, 16000),
            (70_000, 1),
            (65_000, 9000),
            (0, 300_000),
            (299_999, 1),
            (300_000, 0),
        ];
        for (offset, length) in ranges {
            let found = pages.read(offset, length).expect("bytes");
            assert_eq!(found, source.0[offset as usize..][..length as usize], "{length} at {offset}");
        }
        // The beginning, two after it, all, and the end.
        assert_eq!(source.1.get(), 5);
        for (offset, length) in [(300_000, 1), (0, 300_001), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(pages.read(offset, length).is_err(), "{length} at {offset}");
        }
        let mut rest = [0; 4];
        assert_eq!(
            (pages.fill_at(&mut rest, 299_998).expect("bytes"), rest[..2] == source.0[299_998..]),
            (2, true)
        );
        let reads = (0..).take_while(|_| pages.read(0, 300_000).is_ok()).count();
        assert!(reads < 8, "{reads}");
        pages.begin();
        assert!(pages.read(0, 300_000).is_ok());
    }

    #[test]
    fn blocks_are_dropped_and_read_again() {
        let source = CountedReads((0..9 << 20_u32).map(|n| (n % 251) as u8).collect(), Cell::new(0));
        let pages = Pages::new(&source);
        for offset in (0..source.size() - 100).step_by(30_000).chain((0..source.size() - 100).step_by(70_000))
        {
            let found = pages.read(offset, 100).expect("bytes");
            assert_eq!(found, source.0[offset as usize..][..100], "{offset}");
            let kept = pages.kept.borrow();
            assert!(
                kept.order.len() == kept.blocks.len() && kept.order.len() as u64 <= MAX_KEPT / WINDOW as u64
            );
        }
        assert!(source.1.get() > MAX_AHEAD);
    }
}
