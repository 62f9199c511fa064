//! A read on its way: which bytes to ask for next, and when enough have come. All readers share it.

use super::files::{OpenMode, ReadFailure};
use super::{Completion, Filled, ReadRequest};
use crate::dataset::Extent;
use crate::error::{Error, Result};
use crate::rng::{RandomKey, RandomStream, Use};
use crate::slot::{OVERHEAD, Slot};
use std::path::Path;

/// The next bytes to ask the system for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadPiece {
    /// The offset in the file.
    pub offset: u64,
    /// The offset in the slot.
    pub at: usize,
    /// The number of bytes.
    pub length: usize,
}

/// What an answer of the system means for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferProgress {
    /// All bytes that were wanted are there.
    Done,
    /// The next piece must be asked for.
    More,
    /// The file ends before the extent does.
    End,
}

/// A request and how far it has come. It owns the slot until the answer is given.
pub(super) struct Transfer {
    pub token: u64,
    pub extent: Extent,
    pub slot: Slot,
    /// Whether the extent is the whole file: then a byte more is asked for, to see that the file has not grown.
    whole: bool,
    alignment: usize,
    /// Bytes from the aligned start to the extent's first byte.
    head: usize,
    need: usize,
    want: usize,
    done: usize,
}

impl Transfer {
    pub(super) fn new(request: ReadRequest, whole: bool) -> Result<Self, Completion> {
        let ReadRequest { token, extent, slot, .. } = request;
        let mut transfer =
            Self { token, extent, slot, whole, alignment: 1, head: 0, need: 0, want: 0, done: 0 };
        transfer.start(OpenMode { direct: false, noatime: false });
        // This is the worst case of the direct mode, so that a slot never turns out too small later.
        if transfer.slot.capacity() < transfer.need + OVERHEAD {
            let (length, capacity) = (extent.length, transfer.slot.capacity());
            let error = Error::Internal(format!("a slot of {capacity} bytes for a read of {length}"));
            return Err(Completion::failed(token, error, transfer.slot));
        }
        Ok(transfer)
    }

    /// Starts from the first byte, or starts again, in `mode`.
    pub(super) fn start(&mut self, mode: OpenMode) {
        self.alignment = mode.alignment();
        self.head = (self.extent.offset % self.alignment as u64) as usize;
        self.need = self.head + self.extent.length as usize;
        self.want = (self.need + usize::from(self.whole)).next_multiple_of(self.alignment);
        self.done = 0;
    }

    /// The piece to ask for now.
    pub(super) fn next(&self, short: Option<&mut ShortReads>) -> ReadPiece {
        let left = self.want - self.done;
        let length = short.map_or(left, |short| short.limit(left, self.alignment));
        ReadPiece { offset: self.extent.offset - self.head as u64 + self.done as u64, at: self.done, length }
    }

    /// Notes that `arrived` bytes of `piece` came.
    pub(super) fn advance(&mut self, piece: ReadPiece, arrived: usize) -> TransferProgress {
        let reached = piece.at + arrived;
        // Fewer bytes than asked for, with all that are needed, show the end of the file without another read.
        let looked_past_end = !self.whole || arrived < piece.length || reached >= self.want;
        if reached >= self.need && looked_past_end {
            self.done = reached;
            return TransferProgress::Done;
        }
        // O_DIRECT goes on from an aligned offset: the bytes beyond it come again.
        let next = reached - reached % self.alignment;
        if arrived == 0 || next <= self.done {
            self.done = reached;
            return if reached >= self.need { TransferProgress::Done } else { TransferProgress::End };
        }
        self.done = next;
        TransferProgress::More
    }

    /// The completion, once `advance` said that no more bytes are to come.
    pub(super) fn finish(self, path: impl FnOnce() -> std::path::PathBuf) -> Completion {
        let Self { token, extent, slot, whole, head, need, done, .. } = self;
        let changed = |message| Error::DatasetChanged { path: path(), message };
        if done < need {
            let error = changed(match whole {
                true => format!("is {done} bytes, was {} when indexed", extent.length),
                false => {
                    let end = extent.offset - head as u64 + done as u64;
                    format!("ends at byte {end}, a sample is at {}+{}", extent.offset, extent.length)
                }
            });
            Completion::failed(token, error, slot)
        } else if whole && done > need {
            let error = changed(format!("is longer than the {} bytes it was when indexed", extent.length));
            Completion::failed(token, error, slot)
        } else {
            Completion::arrived(token, Filled::new(slot, head..need))
        }
    }

    /// The completion of a transfer that failed.
    pub(super) fn fail(self, path: &Path, failure: ReadFailure) -> Completion {
        Completion::failed(self.token, failure.into_error(path, self.extent), self.slot)
    }
}

/// A test hook beneath the readers: it asks for random parts, so that reads come short and the rest is asked for again.
pub(crate) struct ShortReads {
    random: RandomStream,
}

impl ShortReads {
    /// Lengths drawn from `seed`; readers with several threads give each thread its own `lane`.
    pub(crate) fn new(seed: u64, lane: u64) -> Self {
        Self { random: RandomKey::new(b"short reads", seed, 0, Use::Order).stream(lane) }
    }

    /// A length of 1 to all units of `alignment` that `left` has; half the time it is `left`.
    fn limit(&mut self, left: usize, alignment: usize) -> usize {
        let units = left.div_ceil(alignment) as u64;
        if units <= 1 || self.random.below(2) == 0 {
            return left;
        }
        (1 + self.random.below(units) as usize) * alignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::FileId;
    use crate::slot::SlotPool;

    fn transfer(offset: u64, length: u32, whole: bool, direct: bool) -> Transfer {
        let pool = SlotPool::new(1 << 21).unwrap();
        let slot = pool.try_take(length as usize).unwrap();
        let request = ReadRequest::new(1, Extent { file: FileId(0), offset, length }, slot);
        let mut transfer = Transfer::new(request, whole).ok().unwrap();
        transfer.start(OpenMode { direct, noatime: false });
        transfer
    }

    /// Plays a file of `size` bytes and answers whether the extent arrived; counts reads.
    fn play(mut transfer: Transfer, size: u64, mut short: Option<ShortReads>) -> (Result<usize>, u32) {
        for reads in 1.. {
            let piece = transfer.next(short.as_mut());
            assert!(piece.at + piece.length <= transfer.slot.capacity());
            let left = size.saturating_sub(piece.offset) as usize;
            match transfer.advance(piece, left.min(piece.length)) {
                TransferProgress::More => continue,
                TransferProgress::Done | TransferProgress::End => {
                    let completion = transfer.finish(|| "f".into());
                    return (completion.result.map(|filled| filled.len()), reads);
                }
            }
        }
        unreachable!("a read ends")
    }

    #[test]
    fn one_read_is_enough_for_a_file_of_the_expected_size() {
        for direct in [false, true] {
            for length in [0, 1, 4095, 4096, 4097, 100_000] {
                let (result, reads) = play(transfer(0, length, true, direct), length.into(), None);
                assert_eq!((result.unwrap(), reads), (length as usize, 1), "{length} {direct}");
            }
        }
    }

    #[test]
    fn grown_and_shrunk_files_are_noticed() {
        for seed in 0..200 {
            for direct in [false, true] {
                for (length, size) in
                    [(5000, 5001), (5000, 20_000), (5000, 4999), (5000, 0), (4096, 4097), (0, 1)]
                {
                    for short in [None, Some(ShortReads::new(seed, 0))] {
                        let (result, _) = play(transfer(0, length, true, direct), size, short);
                        let error = result.unwrap_err().to_string();
                        assert!(error.starts_with("dataset changed: f: is "), "{error}");
                    }
                }
                let (result, _) = play(transfer(5001, 9000, false, direct), 14_000, None);
                let error = result.unwrap_err().to_string();
                assert!(error.contains("ends at byte 14000, a sample is at 5001+9000"), "{error}");
            }
        }
    }

    #[test]
    fn extents_arrive_whole_however_short_the_reads() {
        for seed in 0..200 {
            for direct in [false, true] {
                for (offset, length) in [(0, 1), (4095, 2), (5001, 90_000), (8192, 4096), (99_999, 1)] {
                    let short = Some(ShortReads::new(seed, 0));
                    let (result, _) = play(transfer(offset, length, false, direct), 100_000, short);
                    assert_eq!(
                        result.unwrap(),
                        length as usize,
                        "seed {seed}, {offset}+{length}, direct {direct}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_slot_that_is_too_small_is_refused() {
        let pool = SlotPool::new(1 << 21).unwrap();
        let slot = pool.try_take(10).unwrap();
        let extent = Extent { file: FileId(0), offset: 0, length: 10_000 };
        assert!(Transfer::new(ReadRequest::new(1, extent, slot), true).is_err());
    }
}
