//! A reader with threads that block in pread. It works everywhere.

use super::files::{
    Files, MAX_RESTARTS, OpenMode, OpenPolicy, OpenShard, OpenShards, ReadAttempt, ReadFailure, open_file,
};
use super::transfer::{ShortReads, Transfer, TransferProgress};
use super::{Completion, DROP_LIMIT, ReadCounters, ReadRequest, ReadStats, Reader, Waker};
use base::counting::count;
use base::error::{Error, Result};
use crossbeam_channel::{Receiver, Sender, unbounded};
use data::dataset::Stamp;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The maximum number of threads. Network storage serves up to hundreds of concurrent reads faster than fewer. A local
/// drive needs far fewer threads; `queue_depth` sets their number.
const MAX_THREADS: usize = 256;

/// The stack size of a thread in bytes. A read needs little stack: paths, a request, and the frames of libc.
const STACK: usize = 256 << 10;

/// A reader with a pool of threads, each in one blocking read at a time.
pub struct PreadReader {
    shared: Arc<PreadShared>,
    jobs: Option<Sender<ReadRequest>>,
    /// A receiver of `jobs`, to discard requests that no thread has begun.
    waiting: Receiver<ReadRequest>,
    answers: Receiver<PreadAnswer>,
    waker: Waker,
    alive: Receiver<()>,
    /// The threads started so far. A new thread starts if more requests are in flight than threads exist.
    threads: Vec<JoinHandle<()>>,
    start: StartThread,
    depth: usize,
    in_flight: usize,
    why: String,
}

type StartThread = Box<dyn Fn(usize) -> std::io::Result<JoinHandle<()>> + Send>;

enum PreadAnswer {
    Completed(Completion),
    Woken,
}

struct PreadShared {
    files: Arc<dyn Files>,
    policy: OpenPolicy,
    shards: Mutex<OpenShards>,
    woken: AtomicBool,
    counters: ReadCounters,
    longest_gap: usize,
}

/// How a [`PreadReader`] reads.
#[derive(Debug, Clone, Default)]
pub struct PreadOptions {
    /// Whether to read with O_DIRECT, if the file system allows it.
    pub direct: bool,
    /// Whether a file system that refuses O_DIRECT is an error.
    pub direct_is_required: bool,
    /// The maximum gap between wanted parts of a sample, in bytes, that is read together with the parts in one request.
    pub longest_gap: usize,
    /// The seed of injected [`ShortReads`], for tests.
    pub short_reads: Option<u64>,
    /// Why these options were chosen, for [`Reader::describe`].
    pub why: String,
}

impl PreadReader {
    /// Makes a reader with up to `depth` requests in flight. It has a thread for each of them, but at most 256. A
    /// thread starts when it is first needed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system refuses a thread.
    pub fn new(files: Arc<dyn Files>, depth: usize, options: PreadOptions) -> Result<Self> {
        let depth = depth.max(1);
        let shared = Arc::new(PreadShared {
            files,
            policy: OpenPolicy::new(options.direct, options.direct_is_required),
            shards: Mutex::new(OpenShards::new()),
            woken: AtomicBool::new(false),
            counters: ReadCounters::default(),
            longest_gap: options.longest_gap,
        });
        let (jobs, waiting) = unbounded::<ReadRequest>();
        let (answer, answers) = unbounded();
        let (living, alive) = unbounded::<()>();
        let start: StartThread = {
            let (shared, waiting, answer) = (shared.clone(), waiting.clone(), answer.clone());
            Box::new(move |lane| {
                let (shared, waiting, answer) = (shared.clone(), waiting.clone(), answer.clone());
                let living = living.clone();
                let mut short = options.short_reads.map(|seed| ShortReads::new(seed, lane as u64));
                let work = move || {
                    let _living = living;
                    for request in waiting {
                        let done = PreadAnswer::Completed(shared.answer(request, short.as_mut()));
                        if answer.send(done).is_err() {
                            break;
                        }
                    }
                };
                let thread = std::thread::Builder::new().name(format!("foreload-read-{lane}"));
                thread.stack_size(STACK).spawn(work)
            })
        };
        let first = start(0).map_err(|error| {
            Error::Unavailable(format!("cannot start a reader thread: {error}; lower queue_depth="))
        })?;
        let waker = {
            let shared = shared.clone();
            Waker(Arc::new(move || {
                // One message is enough, however often the waker is called.
                if !shared.woken.swap(true, Ordering::SeqCst) {
                    let _ = answer.send(PreadAnswer::Woken);
                }
            }))
        };
        let jobs = Some(jobs);
        Ok(Self {
            shared,
            jobs,
            waiting,
            answers,
            waker,
            alive,
            threads: vec![first],
            start,
            depth,
            in_flight: 0,
            why: options.why,
        })
    }

    fn take(&mut self, answer: PreadAnswer, out: &mut Vec<Completion>) {
        match answer {
            PreadAnswer::Completed(completion) => {
                self.in_flight -= 1;
                out.push(completion);
            }
            PreadAnswer::Woken => self.shared.woken.store(false, Ordering::SeqCst),
        }
    }
}

impl Reader for PreadReader {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.room() > 0, "submit without room");
        let jobs = self.jobs.as_ref().expect("jobs are closed only by drop");
        jobs.send(request).expect("a receiver is in self");
        self.in_flight += 1;
        let started = self.threads.len();
        if self.in_flight > started && started < MAX_THREADS {
            // If the system refuses a thread, the existing threads serve one request after another.
            self.threads.extend((self.start)(started));
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        let first = self.answers.recv().expect("the waker in self keeps a sender");
        self.take(first, out);
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, out);
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn stats(&self) -> ReadStats {
        self.shared.counters.read()
    }

    fn describe(&self) -> String {
        let mode = if self.shared.policy.mode().direct { "O_DIRECT" } else { "buffered" };
        let why = if self.why.is_empty() { String::new() } else { format!(" ({})", self.why) };
        format!("pread with {} threads, {mode}{why}", self.depth.min(MAX_THREADS))
    }
}

impl Drop for PreadReader {
    /// Waits up to [`DROP_LIMIT`] for reads in flight. A thread that blocks for longer is detached. It owns its slot,
    /// which returns to the pool when the read ends.
    fn drop(&mut self) {
        self.jobs = None;
        // `start` holds a sender of the channel `alive`, which must disconnect when the last thread has ended.
        self.start = Box::new(|_| Err(std::io::Error::other("the reader has ended")));
        while self.waiting.try_recv().is_ok() {}
        if let Err(crossbeam_channel::RecvTimeoutError::Disconnected) = self.alive.recv_timeout(DROP_LIMIT) {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl PreadShared {
    /// Reads one request. Turns a panic into a failed completion, because a lost request would make `wait` block for
    /// ever.
    fn answer(&self, request: ReadRequest, short: Option<&mut ShortReads>) -> Completion {
        let token = request.token;
        catch_unwind(AssertUnwindSafe(|| self.read(request, short))).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Completion::failed(token, Error::Internal(format!("a reader thread panicked: {said}")), None)
        })
    }

    fn read(&self, request: ReadRequest, mut short: Option<&mut ShortReads>) -> Completion {
        let file = request.extent.file;
        let path = self.files.path(file);
        let is_loose = self.files.stamp(file).is_none();
        let mut transfer = match Transfer::new(request, is_loose, self.longest_gap) {
            Ok(transfer) => transfer,
            Err(refused) => return refused,
        };
        let (mut mode, mut restarts) = (self.policy.mode(), 0);
        loop {
            let attempt = match self.files.stamp(file) {
                Some(stamp) => self.read_shard(&mut transfer, &path, stamp, mode, short.as_deref_mut()),
                None => self.read_loose(&mut transfer, &path, mode, restarts, short.as_deref_mut()),
            };
            match attempt {
                Ok(used) => {
                    self.policy.worked(used);
                    count(&self.counters.skipped, transfer.skipped());
                    return transfer.finish(|| path);
                }
                Err(ReadFailure::VersionChanged(difference)) if restarts < MAX_RESTARTS => {
                    restarts += 1;
                    if let Err(error) = self.files.accept(file, difference) {
                        return transfer.fail(&path, error.into());
                    }
                    self.shards.lock().expect("no panic under the lock").forget(file);
                }
                Err(ReadFailure::WrittenDuringRead) if restarts < MAX_RESTARTS => restarts += 1,
                Err(failure) => match self.policy.weaker(mode, &failure) {
                    Some(weaker) => mode = weaker,
                    None => return transfer.fail(&path, failure),
                },
            }
        }
    }

    fn read_shard(
        &self,
        transfer: &mut Transfer,
        path: &Path,
        stamp: Stamp,
        mode: OpenMode,
        short: Option<&mut ShortReads>,
    ) -> Result<OpenMode, ReadFailure> {
        let shard = {
            let mut shards = self.shards.lock().expect("no panic under the lock");
            let cell = shards.cell(transfer.extent.file, &*self.files);
            drop(shards);
            // The first thread opens the shard. Only threads that need the same shard wait for it.
            let mut place = cell.lock().expect("no panic under the lock");
            match &*place {
                Some(shard) if shard.serves(mode) => shard.clone(),
                _ => {
                    let shard = Arc::new(OpenShard::open(path, stamp, mode)?);
                    count(&self.counters.opens, 1);
                    place.insert(shard).clone()
                }
            }
        };
        let used = self.fill(transfer, shard.fd.as_fd(), shard.mode, short)?;
        if !self.files.never_change() {
            shard.check_again()?;
        }
        Ok(used)
    }

    fn read_loose(
        &self,
        transfer: &mut Transfer,
        path: &Path,
        mode: OpenMode,
        former: u8,
        short: Option<&mut ShortReads>,
    ) -> Result<OpenMode, ReadFailure> {
        let fd = open_file(path, mode)?;
        let attempt = ReadAttempt::of_open(&fd, former);
        count(&self.counters.opens, 1);
        let used = self.fill(transfer, fd.as_fd(), mode, short)?;
        attempt.check_open(&fd)?;
        Ok(used)
    }

    fn fill(
        &self,
        transfer: &mut Transfer,
        fd: BorrowedFd<'_>,
        mode: OpenMode,
        mut short: Option<&mut ShortReads>,
    ) -> Result<OpenMode, ReadFailure> {
        transfer.start(mode);
        loop {
            for chunk in transfer.chunks(short.as_deref_mut()).into_iter().flatten() {
                let place = &mut transfer.slot.bytes_mut()[chunk.at..chunk.at + chunk.length];
                count(&self.counters.reads, 1);
                let arrived = rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *place, chunk.offset))
                    .map_err(ReadFailure::Read)?;
                count(&self.counters.bytes, arrived as u64);
                if transfer.advance(chunk, arrived) != TransferProgress::More {
                    return Ok(mode);
                }
            }
        }
    }
}
