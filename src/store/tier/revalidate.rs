//! Queries the current versions of the source's files. A query is fast on a local file system. On other file systems it
//! takes about a millisecond, and several threads query many files at once.

use crate::io::Waker;
use crate::io::storage::{Storage, StorageKind};
use base::error::Result;
use base::threads::start_thread;
use crossbeam_channel::{Receiver, Sender, unbounded};
use data::dataset::{DatasetIndex, Extent, FileVersion, Stamp, TICK};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The maximum number of threads that query a file system.
const MAX_THREADS: usize = 16;
/// The maximum number of threads if each query is a request to a server.
const MAX_REMOTE_THREADS: usize = 64;

pub(super) struct VersionAnswer {
    pub token: u64,
    /// The version of the file; `None` if it is unknown, or cannot be distinguished from a later version.
    pub version: Option<FileVersion>,
}

/// The queries for versions of files that one reader has in flight.
pub(super) struct Revalidation {
    index: Arc<DatasetIndex>,
    in_flight: usize,
    /// Answers that needed no thread.
    ready: VecDeque<VersionAnswer>,
    threads: Option<RevalidationThreads>,
    count: u64,
}

struct RevalidationThreads {
    queries: Option<Sender<(u64, Extent)>>,
    answers: Receiver<ThreadAnswer>,
    shared: Arc<RevalidationShared>,
    handles: Vec<JoinHandle<()>>,
}

enum ThreadAnswer {
    VersionAnswer(VersionAnswer),
    Woken,
}

struct RevalidationShared {
    /// Whether the querying thread waits for something else, so that the next answer must wake it.
    listening: AtomicBool,
    woken: AtomicBool,
    on_answer: Waker,
    answer: Sender<ThreadAnswer>,
}

impl Revalidation {
    /// Prepares queries for files of `index`, about `depth` at a time. `on_answer` is called when an answer arrives
    /// while the caller [listens](Revalidation::listen).
    ///
    /// # Errors
    /// [`Error::Unavailable`](base::error::Error::Unavailable) if no thread can be started.
    pub(super) fn new(index: &Arc<DatasetIndex>, depth: usize, on_answer: Waker) -> Result<Self> {
        let near = |root: &std::path::Path| {
            let kind = Storage::of(root).map(|storage| storage.kind);
            matches!(kind, Ok(StorageKind::Local | StorageKind::Memory))
        };
        let is_near = !index.has_remote() && index.local_parts().all(|(root, _)| near(root));
        let threads = if !index.has_unknown_versions() || is_near {
            None
        } else {
            Some({
                let most = if index.has_remote() { MAX_REMOTE_THREADS } else { MAX_THREADS };
                RevalidationThreads::start(index, depth.min(most), on_answer)?
            })
        };
        Ok(Self { index: index.clone(), in_flight: 0, ready: VecDeque::new(), threads, count: 0 })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }

    pub(super) fn ask(&mut self, token: u64, extent: Extent) {
        self.in_flight += 1;
        self.count += 1;
        match &self.threads {
            // If the threads have died, this thread queries the file system itself.
            Some(RevalidationThreads { queries: Some(queries), .. })
                if queries.send((token, extent)).is_ok() => {}
            _ => self.ready.push_back(VersionAnswer { token, version: version_now(&self.index, extent) }),
        }
    }

    pub(super) fn take(&mut self, out: &mut Vec<VersionAnswer>) {
        let before = out.len();
        out.extend(self.ready.drain(..));
        if let Some(threads) = &self.threads {
            threads.shared.listening.store(false, Ordering::SeqCst);
            while let Ok(answer) = threads.answers.try_recv() {
                threads.take(answer, out);
            }
        }
        self.in_flight -= out.len() - before;
    }

    pub(super) fn wait(&mut self, out: &mut Vec<VersionAnswer>) {
        if self.ready.is_empty()
            && self.in_flight > 0
            && let Some(threads) = &self.threads
            && let Ok(answer) = threads.answers.recv()
        {
            let before = out.len();
            threads.take(answer, out);
            self.in_flight -= out.len() - before;
        }
        self.take(out);
    }

    /// Makes the next answer call `on_answer`. Returns `false` if answers are already available.
    pub(super) fn listen(&self) -> bool {
        let Some(threads) = &self.threads else { return self.ready.is_empty() };
        threads.shared.listening.store(true, Ordering::SeqCst);
        // An answer that arrived before the flag was set did not call `on_answer`, so check for it.
        threads.answers.is_empty()
    }

    pub(super) fn waker(&self) -> Waker {
        let shared = self.threads.as_ref().map(|threads| threads.shared.clone());
        Waker(Arc::new(move || {
            if let Some(shared) = &shared
                && !shared.woken.swap(true, Ordering::SeqCst)
            {
                let _ = shared.answer.send(ThreadAnswer::Woken);
            }
        }))
    }
}

impl RevalidationThreads {
    fn start(index: &Arc<DatasetIndex>, count: usize, on_answer: Waker) -> Result<Self> {
        let (queries, questions) = unbounded::<(u64, Extent)>();
        let (answer, answers) = unbounded();
        let (listening, woken) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(RevalidationShared { listening, woken, on_answer, answer });
        let mut handles = Vec::new();
        for i in 0..count.max(1) {
            let (index, questions, shared) = (index.clone(), questions.clone(), shared.clone());
            let work = move || {
                for (token, extent) in questions {
                    let looked = VersionAnswer { token, version: version_now(&index, extent) };
                    if shared.answer.send(ThreadAnswer::VersionAnswer(looked)).is_err() {
                        break;
                    }
                    if shared.listening.swap(false, Ordering::SeqCst) {
                        (shared.on_answer.0)();
                    }
                }
            };
            handles.push(start_thread(format!("foreload-look-{i}"), "a thread of the cache", work)?);
        }
        Ok(Self { queries: Some(queries), answers, shared, handles })
    }

    fn take(&self, answer: ThreadAnswer, out: &mut Vec<VersionAnswer>) {
        match answer {
            ThreadAnswer::VersionAnswer(looked) => out.push(looked),
            ThreadAnswer::Woken => self.shared.woken.store(false, Ordering::SeqCst),
        }
    }
}

impl Drop for RevalidationThreads {
    /// Detaches threads that a dead file system blocks. The threads own nothing but the index.
    fn drop(&mut self) {
        self.queries = None;
        for handle in self.handles.drain(..).filter(JoinHandle::is_finished) {
            let _ = handle.join();
        }
    }
}

/// Returns the version of the files of a sample. If one of them has just changed, waits briefly, because another change
/// within the same clock tick would not show. Returns `None` if the version is still not reliable, or cannot be read.
pub(super) fn version_now(index: &DatasetIndex, extent: Extent) -> Option<FileVersion> {
    let mut is_stable = true;
    let version = index.version_by(extent, |file| {
        let stamp = Stamp::stable(TICK, || index.stat(file))?;
        is_stable &= stamp.is_stable();
        Ok(stamp)
    });
    version.ok().filter(|_| is_stable)
}
