//! The progress of one read: which bytes to request next, and when enough bytes have arrived. All readers use this
//! module.

use super::files::{OpenMode, ReadFailure};
use super::{Completion, Filled, ReadRequest};
use base::error::{Error, Result};
use base::parts::WantedBytes;
use base::rng::{RandomKey, RandomStream, Use};
use base::slot::{OVERHEAD, Slot};
use data::dataset::Extent;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadChunk {
    pub offset: u64,
    pub at: usize,
    pub length: usize,
    run: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferProgress {
    Done,
    More,
    End,
}

/// A request and its progress. A transfer owns the slot until the completion is made.
pub(super) struct Transfer {
    pub token: u64,
    pub extent: Extent,
    pub slot: Slot,
    parts: Option<WantedBytes>,
    /// Maximum gap between wanted parts, in bytes, that is read together with the parts in one request.
    longest_gap: usize,
    /// If the extent is the whole file, one byte more is requested, to detect that the file has grown.
    is_whole_file: bool,
    alignment: usize,
    /// Bytes from the aligned start to the extent's first byte.
    padding: usize,
    /// The ranges to read. Usually there is only one, and the second run is `ReadRun::none()`.
    runs: [ReadRun; 2],
}

/// A contiguous range to read, and its progress. All positions are offsets in the slot.
#[derive(Debug, Clone, Copy, Default)]
struct ReadRun {
    start: usize,
    needed_end: usize,
    /// The end of the requested bytes: `needed_end`, plus bytes for alignment or to detect that the file has grown.
    requested_end: usize,
    done: usize,
    is_over: bool,
}

impl ReadRun {
    fn new(start: usize, needed_end: usize, requested_end: usize) -> Self {
        Self { start, needed_end, requested_end, done: start, is_over: false }
    }

    fn none() -> Self {
        Self { is_over: true, ..Self::default() }
    }
}

impl Transfer {
    /// Makes the transfer that fills the slot of `request`. If `is_whole_file`, the extent is the whole file and is
    /// read without a gap. Otherwise, a gap of more than `longest_gap` bytes between two wanted parts is not read.
    pub(super) fn new(
        request: ReadRequest,
        is_whole_file: bool,
        longest_gap: usize,
    ) -> Result<Self, Completion> {
        let ReadRequest { token, extent, slot, parts, .. } = request;
        let parts = parts.filter(|parts| !is_whole_file && parts.end <= extent.length);
        let runs = [ReadRun::none(); 2];
        let mut transfer =
            Self { token, extent, slot, parts, longest_gap, is_whole_file, alignment: 1, padding: 0, runs };
        transfer.start(OpenMode { direct: false, noatime: false });
        // Check for the worst case (O_DIRECT), so that the slot is large enough in every mode.
        if transfer.slot.capacity() < extent.length as usize + OVERHEAD {
            let (length, capacity) = (extent.length, transfer.slot.capacity());
            let error = Error::Internal(format!("a slot of {capacity} bytes for a read of {length}"));
            return Err(Completion::failed(token, error, transfer.slot));
        }
        Ok(transfer)
    }

    /// Begins the transfer at the first byte, in `mode`. Discards earlier progress.
    pub(super) fn start(&mut self, mode: OpenMode) {
        self.alignment = mode.alignment();
        self.padding = (self.extent.offset % self.alignment as u64) as usize;
        let up = |place: usize| place.next_multiple_of(self.alignment);
        let [head, start, end] = match self.parts {
            None => [self.extent.length; 3],
            Some(WantedBytes { head, start, end }) => [head, start, end],
        }
        .map(|place| self.padding + place as usize);
        let second = start - start % self.alignment;
        self.runs = if second.saturating_sub(up(head)) > self.longest_gap {
            [ReadRun::new(0, head, up(head)), ReadRun::new(second, end, up(end))]
        } else {
            [ReadRun::new(0, end, up(end + usize::from(self.is_whole_file))), ReadRun::none()]
        };
    }

    pub(super) fn chunks(&self, mut short: Option<&mut ShortReads>) -> [Option<ReadChunk>; 2] {
        std::array::from_fn(|run| {
            let ReadRun { requested_end, done, is_over, .. } = self.runs[run];
            let left = requested_end - done;
            (!is_over).then(|| ReadChunk {
                offset: self.extent.offset - self.padding as u64 + done as u64,
                at: done,
                length: short.as_deref_mut().map_or(left, |short| short.limit(left, self.alignment)),
                run,
            })
        })
    }

    pub(super) fn advance(&mut self, chunk: ReadChunk, arrived: usize) -> TransferProgress {
        let (is_whole_file, alignment) = (self.is_whole_file, self.alignment);
        let run = &mut self.runs[chunk.run];
        let reached = chunk.at + arrived;
        // O_DIRECT must resume at an aligned offset, so the bytes after that offset are read again.
        let next = reached - reached % alignment;
        // If all needed bytes arrived, but fewer bytes than requested, the file ends there. This needs no further read.
        let read_past_end = !is_whole_file || arrived < chunk.length || reached >= run.requested_end;
        run.is_over = reached >= run.needed_end && read_past_end || arrived == 0 || next <= run.done;
        run.done = if run.is_over { reached } else { next };
        match self.runs {
            runs if runs.iter().any(|run| !run.is_over) => TransferProgress::More,
            runs if runs.iter().all(|run| run.done >= run.needed_end) => TransferProgress::Done,
            _ => TransferProgress::End,
        }
    }

    pub(super) fn skipped(&self) -> u64 {
        let (start, end) = (self.padding, self.padding + self.extent.length as usize);
        let read = |run: &ReadRun| run.requested_end.min(end).saturating_sub(run.start.max(start));
        (end - start - self.runs.iter().map(read).sum::<usize>()) as u64
    }

    fn read_parts(&self) -> Option<WantedBytes> {
        let has_gap = self.runs[1].needed_end > 0;
        let read = self.parts.map(|parts| if has_gap { parts } else { WantedBytes::until(parts.end) });
        read.filter(|parts| parts.bytes() < self.extent.length)
    }

    pub(super) fn finish(self, path: impl FnOnce() -> std::path::PathBuf) -> Completion {
        let parts = self.read_parts();
        let Self { token, extent, slot, is_whole_file, padding, runs, .. } = self;
        let cut = runs.into_iter().find(|run| run.done < run.needed_end);
        let ReadRun { needed_end, done, .. } = cut.unwrap_or(runs[0]);
        let changed = |message| Error::DatasetChanged { path: path(), message };
        if done < needed_end {
            let error = changed(match is_whole_file {
                true => format!("is {done} bytes, was {} when indexed", extent.length),
                false => {
                    let end = extent.offset - padding as u64 + done as u64;
                    format!("ends at byte {end}, a sample is at {}+{}", extent.offset, extent.length)
                }
            });
            Completion::failed(token, error, slot)
        } else if is_whole_file && done > needed_end {
            let error = changed(format!("is longer than the {} bytes it was when indexed", extent.length));
            Completion::failed(token, error, slot)
        } else {
            let filled = Filled::new(slot, padding..padding + extent.length as usize);
            Completion::arrived(token, Filled { parts, ..filled })
        }
    }

    pub(super) fn fail(self, path: &Path, failure: ReadFailure) -> Completion {
        Completion::failed(self.token, failure.into_error(path, self.extent), self.slot)
    }
}

/// For tests: shortens requests of the readers at random, so that readers must request the missing bytes.
pub(crate) struct ShortReads {
    random: RandomStream,
}

impl ShortReads {
    pub(crate) fn new(seed: u64, lane: u64) -> Self {
        Self { random: RandomKey::new(b"short reads", seed, 0, Use::Order).stream(lane) }
    }

    /// Returns `left` in half of the cases, otherwise a random multiple of `alignment`, at most `left` rounded up.
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
    use base::slot::SlotPool;
    use data::dataset::FileId;

    fn transfer(offset: u64, length: u32, is_whole_file: bool, direct: bool) -> Transfer {
        let pool = SlotPool::new(1 << 21).unwrap();
        let slot = pool.try_take(length as usize).unwrap();
        let request = ReadRequest::new(1, Extent { file: FileId(0), offset, length }, slot);
        let mut transfer = Transfer::new(request, is_whole_file, 0).ok().unwrap();
        transfer.start(OpenMode { direct, noatime: false });
        transfer
    }

    fn play(mut transfer: Transfer, size: u64, mut short: Option<ShortReads>) -> (Result<usize>, u32) {
        for reads in 1.. {
            let [first, second] = transfer.chunks(short.as_mut());
            let chunk = first.or(second).unwrap();
            assert!(chunk.at + chunk.length <= transfer.slot.capacity());
            let left = size.saturating_sub(chunk.offset) as usize;
            match transfer.advance(chunk, left.min(chunk.length)) {
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
        assert!(Transfer::new(ReadRequest::new(1, extent, slot), true, 0).is_err());
    }

    /// Even with short reads, the wanted parts of an extent arrive at the right offsets of the slot. The bytes between
    /// them are skipped only if they are more than the longest gap.
    #[test]
    fn parts_arrive_and_long_gaps_are_not_read() {
        for seed in 0..2000 {
            let mut random = RandomKey::new(b"parts", seed, 0, Use::Order).stream(0);
            let mut below = |limit: u32| random.below(limit.into()) as u32;
            let length = 3 + below(60_000);
            let head = 1 + below(length - 2);
            let start = head + below(length - 1 - head);
            let parts = WantedBytes::new(head, start..start + 1 + below(length - start - 1));
            let (offset, gap, direct) = (u64::from(below(9000)), below(20_000) as usize, below(2) == 0);
            let extent = Extent { file: FileId(0), offset, length };
            let slot = SlotPool::new(1 << 21).unwrap().try_take(length as usize).unwrap();
            let request = ReadRequest { parts: Some(parts), ..ReadRequest::new(1, extent, slot) };
            let mut transfer = Transfer::new(request, false, gap).ok().unwrap();
            transfer.start(OpenMode { direct, noatime: false });
            let (mut short, mut read, mut requests) = (ShortReads::new(seed, 0), vec![false; 200_000], 0);
            let capacity = transfer.slot.capacity();
            let shown = format!("seed {seed}: {parts:?} of {extent:?}, direct {direct}, gap {gap}");
            'reading: loop {
                for chunk in transfer.chunks(Some(&mut short)).into_iter().flatten() {
                    assert!(chunk.at + chunk.length <= capacity, "{shown}");
                    let first = extent.offset - transfer.padding as u64;
                    assert_eq!(chunk.offset - first, chunk.at as u64, "{shown}");
                    read[chunk.offset as usize..][..chunk.length].fill(true);
                    requests += 1;
                    if transfer.advance(chunk, chunk.length) != TransferProgress::More {
                        break 'reading;
                    }
                }
            }
            let is_read = |range: std::ops::Range<u32>| {
                let at = |place: u32| (offset + u64::from(place)) as usize;
                read[at(range.start)..at(range.end)].iter().filter(|&&is| is).count() as u32
            };
            assert_eq!(is_read(0..head), head, "{shown}");
            assert_eq!(is_read(parts.start..parts.end), parts.end - parts.start, "{shown}");
            assert_eq!(transfer.skipped(), u64::from(length - is_read(0..length)), "{shown}");
            let left = is_read(head..parts.start);
            assert!(left == start - head || (start - head) as usize > gap, "{shown}: {requests} reads");
            let filled = transfer.finish(|| "f".into()).result.unwrap();
            let (bytes, arrived) = filled.in_parts();
            assert_eq!(bytes.len(), length as usize, "{shown}");
            let holds = |range: std::ops::Range<u32>| {
                let range = range.start as usize..range.end as usize;
                arrived.is_none_or(|arrived| arrived.holds(&range))
            };
            assert!(holds(0..head) && holds(start..parts.end), "{shown}: {arrived:?}");
            assert_eq!(holds(0..parts.end), left == start - head, "{shown}: {arrived:?}");
        }
    }
}
