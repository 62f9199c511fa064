//! A reader by io_uring: one ring, driven by one thread, with many reads in flight.
//!
//! A file that is one sample is read by a chain of three requests (open, read, close) on a direct descriptor. The read
//! is hard-linked, so that the close runs even after a short read. The ring opens each shard once, and the shard stays
//! open. An [`InFlightRead`] owns the memory to which the kernel writes until its last completion has arrived.

mod in_flight;
mod ring;

pub use ring::RingMode;

use super::files::{
    Files, MAX_RESTARTS, OpenMode, OpenPolicy, OpenShard, OpenShards, ReadAttempt, ReadFailure,
};
use super::transfer::{ShortReads, Transfer};
use super::{Completion, DROP_LIMIT, ReadRequest, ReadStats, Reader, Waker};
use base::error::{Error, Result};
use base::slot::SlotPool;
use data::dataset::FileId;
use in_flight::{InFlightRead, NextStep, RequestTag};
use io_uring::{cqueue, squeue};
use ring::Ring;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a [`UringReader`] reads.
#[derive(Debug, Clone)]
pub struct UringOptions {
    /// Whether to read with O_DIRECT, if the file system allows it.
    pub direct: bool,
    /// Whether a file system that refuses O_DIRECT is an error.
    pub direct_is_required: bool,
    /// Whether to register the slots' memory with the kernel, if the limit of locked memory allows it.
    pub register: bool,
    /// The ring setup to use; `None` for the best setup that the kernel grants.
    pub mode: Option<RingMode>,
    /// Maximum gap between wanted parts of a sample, in bytes, that is read together with the parts in one request.
    pub longest_gap: usize,
    /// The seed of injected [`ShortReads`], for tests.
    pub short_reads: Option<u64>,
    /// Why these options were chosen, for [`Reader::describe`].
    pub why: String,
}

impl Default for UringOptions {
    fn default() -> Self {
        Self {
            direct: false,
            direct_is_required: false,
            register: true,
            mode: None,
            longest_gap: 0,
            short_reads: None,
            why: String::new(),
        }
    }
}

/// A reader that uses io_uring. Any thread may make the reader. The first thread that submits a request drives it from
/// then on. Another thread can take over only while nothing is in flight.
pub struct UringReader {
    ring: Ring,
    files: Arc<dyn Files>,
    slots: SlotPool,
    options: UringOptions,
    policy: OpenPolicy,
    shards: OpenShards,
    opening: HashMap<FileId, OpeningShard>,
    /// The reads in flight. The index of a read is also the index of its direct descriptor.
    reads: Vec<Option<InFlightRead>>,
    free: Vec<u32>,
    ready: Vec<Completion>,
    /// The number of requests that the kernel has, or will have after the next call of `enter`.
    outstanding: usize,
    /// `requests` and `completions` are scratch buffers, kept only to reuse their allocations.
    requests: Vec<squeue::Entry>,
    completions: Vec<cqueue::Entry>,
    short: Option<ShortReads>,
    stats: ReadStats,
    dropping: bool,
}

struct OpeningShard {
    /// The kernel reads the path until the open completes.
    _path: CString,
    mode: OpenMode,
    waiting: Vec<u32>,
}

impl UringReader {
    pub(in crate::io) fn unregistered(&self) -> Option<&str> {
        self.ring.unregistered.as_deref()
    }

    /// Makes a reader that reads into slots of `slots`, with up to `depth` requests in flight.
    ///
    /// # Errors
    /// The kernel's error if it refuses to make the ring.
    pub fn new(
        files: Arc<dyn Files>,
        slots: &SlotPool,
        depth: usize,
        options: UringOptions,
    ) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096);
        let ring = make_ring(slots, depth, &options)?;
        Ok(Self {
            ring,
            files,
            slots: slots.clone(),
            policy: OpenPolicy::new(options.direct, options.direct_is_required),
            shards: OpenShards::new(),
            opening: HashMap::new(),
            reads: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            ready: Vec::new(),
            outstanding: 0,
            requests: Vec::new(),
            completions: Vec::new(),
            short: options.short_reads.map(|seed| ShortReads::new(seed, 0)),
            stats: ReadStats::default(),
            dropping: false,
            options,
        })
    }

    /// Makes the ring usable by this thread. If another thread owns the ring, makes a new ring. This fails if a read is
    /// in flight.
    fn bind_to_thread(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::Internal(format!("io_uring: {error}"));
        if self.ring.bind_to_thread().map_err(failed)? {
            return Ok(());
        }
        if self.outstanding > 0 {
            return Err(Error::Internal("an io_uring reader changed threads with reads in flight".into()));
        }
        let mut ring = make_ring(&self.slots, self.reads.len(), &self.options).map_err(failed)?;
        // Existing wakers write to the eventfd of the earlier ring.
        ring.wake = self.ring.wake.clone();
        ring.bind_to_thread().map_err(failed)?;
        self.ring = ring;
        Ok(())
    }

    fn advance(&mut self, number: u32) {
        let Some(read) = &mut self.reads[number as usize] else { return };
        match read.shard.clone() {
            None if read.path.is_some() => self.queue(number),
            Some(shard) if shard.serves(read.mode) => self.queue(number),
            _ => {
                let file = read.transfer.extent.file;
                let mode = read.mode;
                match self.shard(file, mode) {
                    Some(shard) => {
                        self.take_shard(number, shard);
                        self.queue(number);
                    }
                    None => self.open_shard(file, mode, number),
                }
            }
        }
    }

    fn shard(&mut self, file: FileId, mode: OpenMode) -> Option<Arc<OpenShard>> {
        let cell = self.shards.cell(file, &*self.files);
        let place = cell.lock().expect("no panic under the lock");
        place.as_ref().filter(|shard| shard.serves(mode)).cloned()
    }

    fn take_shard(&mut self, number: u32, shard: Arc<OpenShard>) {
        if let Some(read) = &mut self.reads[number as usize] {
            read.transfer.start(shard.mode);
            read.shard = Some(shard);
        }
    }

    fn queue(&mut self, number: u32) {
        let Some(read) = &mut self.reads[number as usize] else { return };
        self.requests.clear();
        let (reads, opens) = read.requests(number, &self.ring, self.short.as_mut(), &mut self.requests);
        // SAFETY: the in-flight read owns its slot, path and shard, and stays in the table until `pending` is zero
        // again. `Drop` leaks the reads that the kernel still holds.
        match unsafe { self.ring.push(&self.requests) } {
            Ok(()) => {
                read.pending = self.requests.len() as u8;
                self.outstanding += self.requests.len();
                self.stats.reads += reads;
                self.stats.opens += opens;
            }
            Err(error) => {
                self.fail(number, ReadFailure::Other(Error::Internal(format!("io_uring: {error}"))))
            }
        }
    }

    fn open_shard(&mut self, file: FileId, mode: OpenMode, number: u32) {
        if let Some(opening) = self.opening.get_mut(&file) {
            opening.waiting.push(number);
            return;
        }
        let path = match in_flight::c_path(&self.files.path(file)) {
            Ok(path) => path,
            Err(error) => return self.fail(number, ReadFailure::Other(error)),
        };
        let entry = in_flight::open_request(&path, mode, None).user_data(RequestTag::OpenShard.with(file.0));
        // SAFETY: `opening` owns the path until the completion has arrived. `Drop` leaks the paths that the kernel
        // still holds.
        match unsafe { self.ring.push(&[entry]) } {
            Ok(()) => {
                self.outstanding += 1;
                self.opening.insert(file, OpeningShard { _path: path, mode, waiting: vec![number] });
            }
            Err(error) => {
                self.fail(number, ReadFailure::Other(Error::Internal(format!("io_uring: {error}"))))
            }
        }
    }

    fn shard_opened(&mut self, file: FileId, result: i32) {
        let Some(OpeningShard { mode, waiting, .. }) = self.opening.remove(&file) else { return };
        let opened = match in_flight::errno(result) {
            Some(error) => Err(ReadFailure::Open(error)),
            None => {
                self.stats.opens += 1;
                // SAFETY: the descriptor is new, and nothing else owns it.
                let fd = unsafe { OwnedFd::from_raw_fd(result) };
                let path = self.files.path(file);
                let stamp = self.files.stamp(file).unwrap_or_default();
                OpenShard::check(fd, mode, &path, stamp).map(Arc::new)
            }
        };
        match opened {
            Ok(shard) => {
                self.policy.worked(shard.mode);
                *self.shards.cell(file, &*self.files).lock().expect("no panic under the lock") =
                    Some(shard.clone());
                for number in waiting {
                    self.take_shard(number, shard.clone());
                    self.queue(number);
                }
            }
            Err(failure) => {
                let failure = self.accept(file, failure);
                for number in waiting {
                    match &failure {
                        None => self.restart_read(number),
                        Some(failure) => self.retry_or_fail(number, failure.again()),
                    }
                }
            }
        }
    }

    fn completed(&mut self, tag: RequestTag, number: u32, result: i32) {
        let Some(read) = self.reads.get_mut(number as usize).and_then(Option::as_mut) else { return };
        read.answers.note(tag, result);
        read.pending -= 1;
        if read.pending > 0 {
            return;
        }
        self.stats.bytes += read.answers.bytes();
        match read.step() {
            NextStep::Again if !self.dropping => self.advance(number),
            NextStep::Again => self.fail(number, ReadFailure::Read(Errno::CANCELED)),
            NextStep::Done => {
                if let Err(failure) = self.check_after_read(number) {
                    return self.handle_change(number, failure);
                }
                if let Some(read) = self.retire(number) {
                    self.policy.worked(read.used_mode());
                    let (files, file) = (&self.files, read.transfer.extent.file);
                    self.stats.skipped += read.transfer.skipped();
                    self.ready.push(read.transfer.finish(|| files.path(file)));
                }
            }
            NextStep::Failed(failure) => self.retry_or_fail(number, failure),
        }
    }

    fn check_after_read(&self, number: u32) -> Result<(), ReadFailure> {
        match &self.reads[number as usize] {
            _ if self.files.never_change() || self.dropping => Ok(()),
            Some(InFlightRead { shard: Some(shard), .. }) => shard.check_again(),
            Some(InFlightRead { path: Some(path), attempt, .. }) => attempt.check_path(path),
            _ => Ok(()),
        }
    }

    fn handle_change(&mut self, number: u32, failure: ReadFailure) {
        let Some(read) = &self.reads[number as usize] else { return };
        let file = read.transfer.extent.file;
        match self.accept(file, failure) {
            None | Some(ReadFailure::WrittenDuringRead) => self.restart_read(number),
            Some(failure) => self.retry_or_fail(number, failure),
        }
    }

    /// If a changed shard still holds the indexed samples, accepts the change and closes the old descriptor. Returns
    /// `failure` if it is not a change of version, and a failure if the shard holds other samples.
    fn accept(&mut self, file: FileId, failure: ReadFailure) -> Option<ReadFailure> {
        let ReadFailure::VersionChanged(difference) = failure else { return Some(failure) };
        match self.files.accept(file, difference) {
            Ok(()) => {
                self.shards.forget(file);
                None
            }
            Err(error) => Some(error.into()),
        }
    }

    fn restart_read(&mut self, number: u32) {
        let Some(read) = &mut self.reads[number as usize] else { return };
        read.restarts += 1;
        if read.restarts > MAX_RESTARTS {
            return self.fail(number, ReadFailure::WrittenDuringRead);
        }
        read.attempt = ReadAttempt::begin(read.restarts);
        read.shard = None;
        read.restart(read.mode);
        self.advance(number);
    }

    fn retry_or_fail(&mut self, number: u32, failure: ReadFailure) {
        let Some(read) = &mut self.reads[number as usize] else { return };
        match self.policy.weaker(read.mode, &failure) {
            Some(weaker) if !self.dropping => {
                read.restart(weaker);
                self.advance(number);
            }
            _ => self.fail(number, failure),
        }
    }

    fn fail(&mut self, number: u32, failure: ReadFailure) {
        if let Some(read) = self.retire(number) {
            let path = self.files.path(read.transfer.extent.file);
            self.ready.push(read.transfer.fail(&path, failure));
        }
    }

    fn retire(&mut self, number: u32) -> Option<InFlightRead> {
        let read = self.reads[number as usize].take()?;
        self.free.push(number);
        Some(read)
    }

    fn reap(&mut self) -> bool {
        let mut entries = std::mem::take(&mut self.completions);
        let woken = self.ring.reap(&mut entries);
        for entry in entries.drain(..) {
            self.outstanding -= 1;
            match RequestTag::of(entry.user_data()) {
                (RequestTag::OpenShard, file) => self.shard_opened(FileId(file), entry.result()),
                (tag, number) => self.completed(tag, number, entry.result()),
            }
        }
        self.completions = entries;
        woken
    }
}

/// Returns the best ring setup that the kernel grants. If buffers like `slots` cannot be registered with the ring, the
/// second value is the reason.
pub(super) fn granted(slots: &SlotPool) -> std::io::Result<(RingMode, Option<String>)> {
    let ring = make_ring(slots, 32, &UringOptions::default())?;
    Ok((ring.mode, ring.unregistered))
}

fn make_ring(slots: &SlotPool, depth: usize, options: &UringOptions) -> std::io::Result<Ring> {
    // A read of a file that is one sample needs three requests. The waker and a cancellation need one request each.
    Ring::new(3 * depth as u32 + 2, depth as u32, options.mode, slots, options.register)
}

impl Reader for UringReader {
    fn room(&self) -> usize {
        self.reads.len() - self.in_flight()
    }

    fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len() + self.ready.len()
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.room() > 0, "submit without room");
        if let Err(error) = self.bind_to_thread() {
            return self.ready.push(Completion::failed(request.token, error, request.slot));
        }
        let file = request.extent.file;
        let is_loose = self.files.stamp(file).is_none();
        let mode = self.policy.mode();
        let mut transfer = match Transfer::new(request, is_loose, self.options.longest_gap) {
            Ok(transfer) => transfer,
            Err(refused) => return self.ready.push(refused),
        };
        let mut path = None;
        if is_loose {
            let full = self.files.path(file);
            match in_flight::c_path(&full) {
                Ok(name) => path = Some(name),
                Err(error) => return self.ready.push(transfer.fail(&full, ReadFailure::Other(error))),
            }
        }
        transfer.start(mode);
        let number = self.free.pop().expect("there is room");
        self.reads[number as usize] = Some(InFlightRead::new(transfer, mode, path));
        self.advance(number);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        if self.in_flight() == 0 {
            return Ok(());
        }
        self.bind_to_thread()?;
        loop {
            let want = usize::from(self.ready.is_empty());
            self.ring
                .enter(want, None)
                .map_err(|error| Error::Internal(format!("io_uring_enter: {error}")))?;
            let woken = self.reap();
            if woken || !self.ready.is_empty() {
                out.append(&mut self.ready);
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let wake = self.ring.wake.clone();
        Waker(Arc::new(move || {
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }))
    }

    fn stats(&self) -> ReadStats {
        self.stats
    }

    fn describe(&self) -> String {
        let mode = if self.policy.mode().direct { "O_DIRECT" } else { "buffered" };
        let buffers = match &self.ring.unregistered {
            None => "registered buffers".to_owned(),
            Some(why) => format!("buffers not registered: {why}"),
        };
        let why =
            if self.options.why.is_empty() { String::new() } else { format!(" ({})", self.options.why) };
        format!("io_uring, {}, {buffers}, {mode}{why}", self.ring.mode.describe())
    }
}

impl Drop for UringReader {
    /// Cancels the reads in flight and waits for them, up to [`DROP_LIMIT`]. Leaks the slots of reads that do not
    /// complete in this time, because the kernel may still write to them.
    fn drop(&mut self) {
        if self.outstanding == 0 {
            return;
        }
        self.dropping = true;
        let deadline = Instant::now() + DROP_LIMIT;
        let ours = self.ring.bind_to_thread().unwrap_or(false);
        while self.outstanding > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if ours {
                // Cancel repeatedly, because the next request of a chain may begin just after the last cancellation.
                self.ring.cancel_all();
                // Wait for two completions, because the first may be that of the cancellation request.
                if self.ring.enter(2, Some(left.min(Duration::from_millis(10)))).is_err() {
                    break;
                }
            } else {
                // Only the thread that owns the ring may enter it. The completions still arrive when that thread has
                // ended.
                std::thread::sleep(left.min(Duration::from_millis(1)));
            }
            self.reap();
            self.ready.clear();
        }
        for read in self.reads.iter_mut().filter_map(Option::take).filter(|read| read.pending > 0) {
            std::mem::forget(read);
        }
        std::mem::forget(std::mem::take(&mut self.opening));
    }
}
