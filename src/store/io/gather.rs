//! A reader for samples whose bytes are in many places ([`SampleRecord`]).
//!
//! It wraps another reader, and cuts each record into reads of files. The request's slot is split into a slot for each
//! of these reads, which the wrapped reader handles like any other. When the last one has completed, the slots are
//! joined again. So no byte is copied, and each read has its own alignment for O_DIRECT.
//!
//! All pieces of a record come from the same version of each shard: if a changed shard was accepted while the record
//! was read, all pieces are read again. → `tests/load/io/records.rs`

use super::files::{Files, MAX_RESTARTS, ReadFailure};
use super::storage::Storage;
use super::{Completion, Filled, FilledPiece, ReadRequest, ReadStats, Reader, Waker};
use base::error::{Error, Result};
use base::slot::{OVERHEAD, PAGE, Slot, pages_for};
use data::dataset::arrays::record::{RecordRanges, RecordRead, SampleRecord};
use data::dataset::{DatasetIndex, Extent, FileId, Stamp};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum gap between two pieces of a record, in bytes, that is read together with the pieces from servers and
/// network file systems. There, a request takes longer than it takes to transfer this many bytes. The addresses of two
/// blocks are further apart, so that no read covers two blocks.
const NETWORK_GAP: u64 = 64 << 10;

/// Returns the maximum gap between two pieces of a record, in bytes, that is read together with the pieces.
///
/// This is not [`Storage::longest_gap`] on a network: a window of a large array has gaps between its rows that are much
/// longer than the rows. Returns 0 if no sample has a record.
pub fn record_gap(index: &DatasetIndex) -> u64 {
    if !index.has_arrays() {
        return 0;
    }
    let local = index.local_parts().next().filter(|_| !index.has_remote());
    let storage = local.and_then(|(root, sample)| {
        let path = index.path(index.extent(sample).file);
        Storage::near(&path, root).ok()
    });
    storage.map_or(NETWORK_GAP, |storage| NETWORK_GAP.min(storage.longest_gap() as u64))
}

/// Returns the `length` of a slot ([`base::slot::SlotPool::try_take`]) for a read of these ranges of a record, or of
/// the whole record. `gap` must be that of the reader.
pub fn record_room(
    files: &dyn Files,
    record: &SampleRecord,
    ranges: Option<&RecordRanges>,
    gap: u64,
) -> usize {
    (pages_of(&cut(files, record, ranges, gap)) * PAGE).saturating_sub(OVERHEAD)
}

/// Returns the `length` of a slot for a read of `extent`, or of these ranges of the record with this address. `gap`
/// must be that of the reader. A slot for a whole record also has room for a copy of it, which is in one place.
pub fn read_room(files: &dyn Files, extent: Extent, ranges: Option<&RecordRanges>, gap: u64) -> usize {
    let whole = if ranges.is_none() { extent.length as usize } else { 0 };
    files
        .record(extent)
        .map_or(extent.length as usize, |record| whole.max(record_room(files, &record, ranges, gap)))
}

/// Returns the `length` of a slot for any sample of the dataset, read whole. `gap` must be that of the reader.
pub fn largest_room(index: &DatasetIndex, gap: u64) -> usize {
    let record = index.largest_record().map_or(0, |sample| read_room(index, index.extent(sample), None, gap));
    record.max(index.largest() as usize)
}

fn cut(files: &dyn Files, record: &SampleRecord, ranges: Option<&RecordRanges>, gap: u64) -> Vec<RecordRead> {
    record.cut(ranges, gap, |file| files.stamp(file).is_none())
}

/// Returns the reads that fetch these ranges of a record, or the whole record, from a network file system.
pub(super) fn network_reads(
    files: &dyn Files,
    record: &SampleRecord,
    ranges: Option<&RecordRanges>,
) -> Vec<RecordRead> {
    cut(files, record, ranges, NETWORK_GAP)
}

/// Returns the number of pages of a slot that can be split for these reads.
fn pages_of(reads: &[RecordRead]) -> usize {
    let pages = |read: &RecordRead| pages_for(read.extent.length as usize).map_or(usize::MAX, |n| n as usize);
    reads.iter().map(pages).fold(0, usize::saturating_add)
}

/// The stamps of the shards of a record, taken before the record is read.
pub(super) struct RecordStamps(Vec<(FileId, Option<Stamp>)>);

impl RecordStamps {
    pub(super) fn of(files: &dyn Files, extents: impl Iterator<Item = Extent>) -> Self {
        let mut shards: Vec<FileId> = extents.map(|extent| extent.file).collect();
        shards.dedup();
        Self(shards.into_iter().map(|file| (file, files.stamp(file))).collect())
    }

    /// Returns the error that a shard changed, if one has another stamp now. Reads check the stamp of their shard, but
    /// two reads may have done so before and after a change was accepted.
    pub(super) fn check(&self, files: &dyn Files) -> Result<()> {
        match self.0.iter().find(|(file, stamp)| files.stamp(*file) != *stamp) {
            None => Ok(()),
            Some((file, _)) => {
                let extent = Extent { file: *file, offset: 0, length: 0 };
                Err(ReadFailure::WrittenDuringRead.into_error(&files.path(*file), extent))
            }
        }
    }
}

/// A reader of records, and of all that the wrapped reader reads.
pub struct GatherReader {
    inner: Box<dyn Reader>,
    files: Arc<dyn Files>,
    gap: u64,
    /// Reads for which the wrapped reader had no room yet.
    waiting: VecDeque<WaitingRead>,
    /// The reads in the wrapped reader, by their tokens there.
    submitted: HashMap<u64, ReadTarget>,
    records: HashMap<u64, OpenRecord>,
    ready: Vec<Completion>,
    arrived: Vec<Completion>,
    /// The next number for a record, or for a read in the wrapped reader.
    next: u64,
    in_flight: usize,
    skipped: u64,
    woken: Arc<AtomicBool>,
}

struct WaitingRead {
    target: ReadTarget,
    request: ReadRequest,
}

/// The request to which a read belongs.
#[derive(Clone, Copy)]
enum ReadTarget {
    /// The request with this token, which needs no other read.
    Request(u64),
    /// A read of a record, by its index.
    Record { number: u64, read: usize },
}

/// A record that is being read.
struct OpenRecord {
    token: u64,
    length: u32,
    reads: Vec<RecordRead>,
    /// The slots of the reads. A slot is `None` while its read is in flight, or if the wrapped reader lost it.
    slots: Vec<Option<Slot>>,
    /// The offset of each read's first byte in its slot.
    starts: Vec<usize>,
    left: usize,
    stamps: RecordStamps,
    restarts: u8,
    failure: Option<Error>,
}

impl GatherReader {
    /// Makes a reader of the records of `files`. Reads up to `gap` bytes between two pieces of a record, together with
    /// the pieces.
    pub fn new(files: Arc<dyn Files>, inner: Box<dyn Reader>, gap: u64) -> Self {
        Self {
            inner,
            files,
            gap,
            waiting: VecDeque::new(),
            submitted: HashMap::new(),
            records: HashMap::new(),
            ready: Vec::new(),
            arrived: Vec::new(),
            next: 0,
            in_flight: 0,
            skipped: 0,
            woken: Arc::default(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn open(&mut self, record: &SampleRecord, request: ReadRequest) {
        let ReadRequest { token, slot, ranges, .. } = request;
        let reads = cut(&*self.files, record, ranges.as_deref(), self.gap);
        let slots = match split(slot, &reads) {
            Ok(slots) => slots,
            Err(slot) => {
                let (needed, capacity) = (pages_of(&reads).saturating_mul(PAGE), slot.capacity());
                let message = format!("a slot of {capacity} bytes for a record that needs {needed}");
                self.ready.push(Completion::failed(token, Error::Internal(message), slot));
                return;
            }
        };
        let number = self.number();
        let open = OpenRecord {
            token,
            length: record.length,
            slots: slots.into_iter().map(Some).collect(),
            starts: vec![0; reads.len()],
            left: 0,
            stamps: RecordStamps::of(&*self.files, reads.iter().map(|read| read.extent)),
            restarts: 0,
            failure: None,
            reads,
        };
        self.queue(number, open);
    }

    /// Queues all reads of a record. Completes it if there are none.
    fn queue(&mut self, number: u64, mut record: OpenRecord) {
        let OpenRecord { reads, slots, .. } = &mut record;
        for (read, (RecordRead { extent, .. }, slot)) in reads.iter().zip(slots).enumerate() {
            if let Some(slot) = slot.take() {
                let target = ReadTarget::Record { number, read };
                let request = ReadRequest::new(0, *extent, slot);
                self.waiting.push_back(WaitingRead { target, request });
            }
        }
        record.left = record.reads.len();
        if record.left == 0 {
            return self.ready.push(record.complete(&mut self.skipped));
        }
        self.records.insert(number, record);
    }

    /// Submits waiting reads while the wrapped reader has room. Reads of a record that has failed are left out.
    fn submit_waiting(&mut self) {
        while self.inner.room() > 0
            && let Some(WaitingRead { target, request }) = self.waiting.pop_front()
        {
            if let ReadTarget::Record { number, read } = target
                && let Some(record) = self.records.get_mut(&number)
                && record.failure.is_some()
            {
                record.slots[read] = Some(request.slot);
                self.finish_read(number);
                continue;
            }
            let number = self.number();
            self.submitted.insert(number, target);
            self.inner.submit(ReadRequest { token: number, ..request });
        }
    }

    fn take(&mut self, completion: Completion) {
        match self.submitted.remove(&completion.token) {
            None => {}
            Some(ReadTarget::Request(token)) => self.ready.push(Completion { token, ..completion }),
            Some(ReadTarget::Record { number, read }) => {
                if let Some(record) = self.records.get_mut(&number) {
                    record.take(read, completion);
                    self.finish_read(number);
                }
            }
        }
    }

    /// Notes that one more read of a record is over. After the last one, the record is complete, or is read again if a
    /// shard changed.
    fn finish_read(&mut self, number: u64) {
        let Some(record) = self.records.get_mut(&number) else { return };
        record.left -= 1;
        if record.left > 0 {
            return;
        }
        let Some(mut record) = self.records.remove(&number) else { return };
        // The bytes of a single read are of one version.
        if record.failure.is_none() && record.reads.len() > 1 {
            record.failure = record.stamps.check(&*self.files).err();
            if record.failure.is_some() && record.restarts < MAX_RESTARTS {
                let extents = record.reads.iter().map(|read| read.extent);
                record.stamps = RecordStamps::of(&*self.files, extents);
                record.failure = None;
                record.restarts += 1;
                return self.queue(number, record);
            }
        }
        self.ready.push(record.complete(&mut self.skipped));
    }
}

/// Splits a slot for these reads, or returns it if it is too small.
fn split(slot: Slot, reads: &[RecordRead]) -> Result<Vec<Slot>, Slot> {
    if pages_of(reads) > slot.capacity() / PAGE {
        return Err(slot);
    }
    let mut slots = Vec::with_capacity(reads.len().max(1));
    let mut rest = slot;
    for read in reads.split_last().map_or(reads, |(_, before)| before) {
        let (own, after) = rest.split(pages_for(read.extent.length as usize).unwrap_or(0))?;
        slots.push(own);
        rest = after;
    }
    slots.push(rest);
    Ok(slots)
}

impl OpenRecord {
    fn take(&mut self, read: usize, Completion { result, slot, .. }: Completion) {
        let length = self.reads[read].extent.length as usize;
        let failure = match result {
            Ok(filled) if filled.data.len() == length && filled.parts.is_none() => {
                self.starts[read] = filled.data.start;
                self.slots[read] = filled.into_slot();
                let lost = || Error::Internal("a reader lost the slot of a record".to_owned());
                self.slots[read].is_none().then(lost)
            }
            Ok(filled) => {
                let message = format!("a reader answered {} of {length} bytes", filled.data.len());
                self.slots[read] = filled.into_slot();
                Some(Error::Internal(message))
            }
            Err(error) => {
                self.slots[read] = slot;
                Some(error)
            }
        };
        self.failure = self.failure.take().or(failure);
    }

    fn complete(self, skipped: &mut u64) -> Completion {
        let Self { token, length, reads, slots, starts, failure, .. } = self;
        let (mut pieces, mut first) = (Vec::new(), 0);
        for ((read, slot), start) in reads.iter().zip(&slots).zip(starts) {
            pieces.extend(read.pieces.iter().map(|piece| {
                let start = first + start + (piece.extent.offset - read.extent.offset) as usize;
                FilledPiece { at: piece.at, data: start..start + piece.extent.length as usize }
            }));
            first += slot.as_ref().map_or(0, Slot::capacity);
        }
        let mut slots = slots.into_iter();
        let whole = slots.next().flatten();
        let whole = whole.and_then(|first| slots.try_fold(first, |before, slot| before.join(slot?).ok()));
        let slot = match (failure, whole) {
            (None, Some(slot)) => slot,
            (failure, slot) => {
                let lost = || Error::Internal("the slot of a record is in parts".to_owned());
                return Completion::failed(token, failure.unwrap_or_else(lost), slot);
            }
        };
        pieces.sort_unstable_by_key(|piece| piece.at);
        let arrived = pieces.iter().map(|piece| piece.data.len() as u64).sum();
        *skipped += u64::from(length).saturating_sub(arrived);
        let filled = match &pieces[..] {
            [FilledPiece { at: 0, data }] if data.len() == length as usize => Filled::new(slot, data.clone()),
            [] if length == 0 => Filled::new(slot, 0..0),
            _ => Filled { pieces: Some(pieces.into()), ..Filled::new(slot, 0..0) },
        };
        Completion::arrived(token, filled)
    }
}

impl Reader for GatherReader {
    /// Returns the room of the wrapped reader. A record may take more of it than one request, so its further reads
    /// wait, and there is no room until they are submitted.
    fn room(&self) -> usize {
        if self.waiting.is_empty() { self.inner.room() } else { 0 }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Accepts a request even without room, because the caller may count requests, not reads.
    fn submit(&mut self, request: ReadRequest) {
        self.in_flight += 1;
        match self.files.record(request.extent) {
            Some(record) => self.open(&record, request),
            None => {
                let target = ReadTarget::Request(request.token);
                self.waiting.push_back(WaitingRead { target, request });
            }
        }
        self.submit_waiting();
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        loop {
            let mut arrived = std::mem::take(&mut self.arrived);
            if self.ready.is_empty() {
                self.inner.wait(&mut arrived)?;
            }
            let nothing_came = arrived.is_empty();
            arrived.drain(..).for_each(|completion| self.take(completion));
            self.arrived = arrived;
            self.submit_waiting();
            // The wrapped reader may return both because of a read and because of the waker. So a flag notes the waker.
            // If only some reads of a record have arrived, wait again: callers take a return without completions to
            // mean that the waker was called.
            let woken = self.woken.swap(false, Ordering::SeqCst);
            if woken || nothing_came || !self.ready.is_empty() {
                self.in_flight -= self.ready.len();
                out.append(&mut self.ready);
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let (woken, inner) = (self.woken.clone(), self.inner.waker());
        Waker(Arc::new(move || {
            woken.store(true, Ordering::SeqCst);
            (inner.0)();
        }))
    }

    fn stats(&self) -> ReadStats {
        let stats = self.inner.stats();
        ReadStats { skipped: stats.skipped + self.skipped, ..stats }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
