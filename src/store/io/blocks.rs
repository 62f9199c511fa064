//! A reader for samples in compressed blocks, for chunks of arrays that several samples share, and for samples that
//! are read together with their neighbours.
//!
//! It wraps another reader. Its threads read each requested block, decompress it if necessary, and copy the samples out
//! of it. All other requests go to the wrapped reader.
//!
//! Threads read blocks by blocking calls, while other threads decompress. Asynchronous reads would gain little, because
//! a block is large and takes far longer to decompress than to request.

use super::files::Files;
use super::mixed::MixedReader;
use super::read_blocking::read_in_file;
use super::{Completion, DROP_LIMIT, Filled, ReadCounters, ReadRequest, ReadStats, Reader, Waker};
use base::counting::count;
use base::error::{Error, Result};
use base::locks::lock;
use base::threads::{caught, start_thread};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use data::dataset::{Extent, FileBlock, FileId, FileVersion};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const MAX_THREADS: usize = 4;
/// The maximum number of threads that read and decompress blocks of files on servers, where each read waits longer.
pub const MAX_REMOTE_THREADS: usize = 8;

/// Returns the decompressed bytes of a block. If the cache of decompressed blocks does not have them, this thread reads
/// and decompresses the block, and the second value is `true`. Adds the number of retried requests to `again`.
///
/// # Errors
/// The errors of reading; [`Error::Dataset`] for a block that is damaged.
fn unpacked(files: &dyn Files, block: &FileBlock, again: &AtomicU64) -> Result<(Arc<Vec<u8>>, bool)> {
    let Some(all) = files.unpacked() else {
        return Err(Error::Internal("a reader of compressed blocks has no block cache".into()));
    };
    let file = block.extent().file;
    all.get(block, || block.bytes(|| files.path(file), |extent| read_in_file(files, extent, again)))
}

fn offer(files: &dyn Files, block: &FileBlock, bytes: &[u8]) {
    if let Some(all) = files.unpacked() {
        all.notify(block, bytes);
    }
}

fn past_block_end(files: &dyn Files, block: &FileBlock) -> Error {
    let extent = block.extent();
    let what =
        if block.is_compressed() { "the compressed block" } else { "the block of neighbouring samples" };
    let message = format!(
        "its index has a sample that ends after {what} at byte {}: run `foreload index --rebuild-index`",
        extent.offset
    );
    Error::dataset(files.path(extent.file), message)
}

/// Reads a sample that is in a block, by blocking calls.
///
/// # Errors
/// The errors of [`unpacked`].
pub(super) fn read_in_block(files: &dyn Files, block: &FileBlock, extent: Extent) -> Result<Vec<u8>> {
    let (bytes, is_new) = unpacked(files, block, &AtomicU64::new(0))?;
    let range = block.range(extent).filter(|range| range.end <= bytes.len());
    let found = range.map(|range| bytes[range].to_vec()).ok_or_else(|| past_block_end(files, block));
    if is_new {
        offer(files, block, &bytes);
    }
    found
}

/// Makes a reader for extents inside and outside of blocks. Extents outside of blocks go to `in_file`. For extents in
/// blocks, the reader accepts up to `depth` requests.
///
/// # Errors
/// [`Error::Unavailable`] if the system refuses a thread.
pub fn unpacking(
    files: Arc<dyn Files>,
    in_file: Box<dyn Reader>,
    depth: usize,
    remote: bool,
) -> Result<Box<dyn Reader>> {
    let own = files.clone();
    let open = move || BlockReader::new(own, depth, remote).map(|reader| Box::new(reader) as Box<dyn Reader>);
    Ok(Box::new(MixedReader::new(files, in_file, "foreload-blocks", open, is_in_block)?))
}

fn is_in_block(files: &dyn Files, request: &mut ReadRequest) -> bool {
    let is_in_block = files.block(request.extent).is_some();
    if !is_in_block && request.extent.length == 0 {
        // An empty sample needs no bytes. In a file of compressed blocks, offsets are addresses of decompressed bytes,
        // which can exceed the file's size. So set the offset to 0.
        request.extent.offset = 0;
    }
    is_in_block
}

/// The answers to the requests for a block. A waker sends an empty list.
type BlockAnswers = Vec<Completion>;

/// Identifies a block: its file, the address of its first decompressed byte, and the version of the file. A request for
/// a later version must not get the bytes of a block that is being decompressed, because a record has one version.
type BlockStart = (FileId, u64, Option<FileVersion>);

fn start_of(block: &FileBlock) -> BlockStart {
    (block.extent().file, block.addresses().start, block.version())
}

struct BlockReader {
    shared: Arc<BlockWork>,
    jobs: Option<Sender<FileBlock>>,
    done: Sender<BlockAnswers>,
    answers: Receiver<BlockAnswers>,
    depth: usize,
    in_flight: usize,
    threads: usize,
    alive: Receiver<()>,
}

struct BlockWork {
    files: Arc<dyn Files>,
    /// The waiting requests of each block that is queued or in progress.
    waiting_requests: Mutex<HashMap<BlockStart, Vec<ReadRequest>>>,
    closed: AtomicBool,
    remote: bool,
    counters: ReadCounters,
}

impl BlockReader {
    fn new(files: Arc<dyn Files>, depth: usize, remote: bool) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let most = if remote { MAX_REMOTE_THREADS } else { MAX_THREADS.min(processors.max(2)) };
        let threads = depth.clamp(1, most);
        let shared = Arc::new(BlockWork {
            files,
            waiting_requests: Mutex::default(),
            closed: AtomicBool::default(),
            remote,
            counters: ReadCounters::default(),
        });
        let (jobs, to_do) = unbounded::<FileBlock>();
        let (done, answers) = unbounded();
        let (living, alive) = bounded::<()>(0);
        for _ in 0..threads {
            let (shared, to_do, done, living) = (shared.clone(), to_do.clone(), done.clone(), living.clone());
            let work = move || {
                let _living = living;
                to_do.iter().for_each(|block| shared.answer(&block, &done));
            };
            start_thread("foreload-unpack", "a decompression thread", work)?;
        }
        Ok(Self { shared, jobs: Some(jobs), done, answers, depth, in_flight: 0, threads, alive })
    }
}

impl BlockWork {
    fn answer(&self, block: &FileBlock, done: &Sender<BlockAnswers>) {
        if self.closed.load(Relaxed) {
            return;
        }
        let found = caught("unpacking", || unpacked(&*self.files, block, &self.counters.retries));
        let requests = lock(&self.waiting_requests).remove(&start_of(block));
        let mut requests = requests.unwrap_or_default();
        let mut answers = Vec::with_capacity(requests.len());
        let (bytes, is_new) = match found {
            Ok(found) => found,
            Err(error) => {
                let last = requests.pop();
                let failed =
                    |request: ReadRequest| Completion::failed(request.token, again(&error), request.slot);
                answers.extend(requests.into_iter().map(failed));
                answers.extend(last.map(|request| Completion::failed(request.token, error, request.slot)));
                let _ = done.send(answers);
                return;
            }
        };
        if is_new {
            count(&self.counters.reads, 1);
            count(&self.counters.bytes, block.extent().length.into());
        }
        answers.extend(requests.into_iter().map(|request| self.copy(block, &bytes, request)));
        let _ = done.send(answers);
        if is_new {
            // Offer the block to the cache tiers, which may keep the other samples of the block. All requests for the
            // block are answered already, so no request waits for this.
            let _ = catch_unwind(AssertUnwindSafe(|| offer(&*self.files, block, &bytes)));
        }
    }

    fn copy(&self, block: &FileBlock, bytes: &[u8], request: ReadRequest) -> Completion {
        let ReadRequest { token, extent, mut slot, .. } = request;
        let range = block.range(extent).filter(|range| range.end <= bytes.len());
        let Some(range) = range else {
            return Completion::failed(token, past_block_end(&*self.files, block), slot);
        };
        let length = range.len();
        slot.bytes_mut()[..length].copy_from_slice(&bytes[range]);
        Completion::arrived(token, Filled::new(slot, 0..length))
    }
}

fn again(error: &Error) -> Error {
    match error {
        Error::Dataset { path, message } => Error::Dataset { path: path.clone(), message: message.clone() },
        Error::DatasetChanged { path, message } => {
            Error::DatasetChanged { path: path.clone(), message: message.clone() }
        }
        other => Error::Unavailable(other.to_string()),
    }
}

impl Reader for BlockReader {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.room() > 0, "submit without room");
        self.in_flight += 1;
        let Some(block) = self.shared.files.block(request.extent) else {
            let error =
                Error::Internal("the block reader got a request for a sample outside of blocks".into());
            let answer = Completion::failed(request.token, error, request.slot);
            let _ = self.done.send(vec![answer]);
            return;
        };
        let mut waiting_requests = lock(&self.shared.waiting_requests);
        let waiting = waiting_requests.entry(start_of(&block)).or_default();
        waiting.push(request);
        if let (1, Some(jobs)) = (waiting.len(), &self.jobs) {
            let _ = jobs.send(block);
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        let gone = |_| Error::Internal("the decompression threads have ended".into());
        let first = self.answers.recv().map_err(gone)?;
        for answers in std::iter::once(first).chain(self.answers.try_iter()) {
            self.in_flight -= answers.len();
            out.extend(answers);
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        let done = self.done.clone();
        Waker(Arc::new(move || drop(done.send(BlockAnswers::new()))))
    }

    fn stats(&self) -> ReadStats {
        let stats = self.shared.counters.read();
        let requests = if self.shared.remote { stats.reads + stats.retries } else { 0 };
        ReadStats { requests, ..stats }
    }

    fn describe(&self) -> String {
        let threads = if self.threads == 1 { "thread reads" } else { "threads read" };
        format!("{} {threads} blocks, with decompression if needed", self.threads)
    }
}

impl Drop for BlockReader {
    /// Waits briefly for blocks in progress. Threads that take longer are detached.
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
        self.jobs = None;
        lock(&self.shared.waiting_requests).clear();
        let _ = self.alive.recv_deadline(Instant::now() + DROP_LIMIT);
    }
}
