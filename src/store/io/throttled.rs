//! A reader as slow as a parallel file system: it delays the completions of another reader as [`ParallelFsModel`]
//! computes.

use super::gather::network_reads;
use super::own_thread::OwnThread;
use super::pfs::ParallelFsModel;
use super::{Completion, Files, ReadRequest, ReadStats, Reader, Waker};
use base::error::Result;
use data::dataset::FileId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// A reader with added delays. The wrapped reader runs on its own thread, because a wait must also end when a delay
/// ends.
pub struct DelayedReader {
    inner: OwnThread,
    files: Arc<dyn Files>,
    pfs: Arc<ParallelFsModel>,
    open: HashSet<FileId>,
    /// The requests in the wrapped reader, by their number there: the caller's token, and the time at which to return
    /// the completion.
    due: HashMap<u64, (u64, Instant)>,
    /// Completions that the wrapped reader has returned and that are still delayed, by (time at which to return them,
    /// request number).
    delayed_answers: BTreeMap<(Instant, u64), Completion>,
    arrived: Vec<Completion>,
    next: u64,
}

impl DelayedReader {
    /// Wraps `inner`, which reads `files`, and delays its completions as `pfs` computes. All readers with the same
    /// `pfs` share its queues.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if the system refuses a thread.
    pub fn new(inner: Box<dyn Reader>, files: Arc<dyn Files>, pfs: Arc<ParallelFsModel>) -> Result<Self> {
        let waker = Waker(Arc::new(|| {}));
        let inner = OwnThread::new("foreload-pfs", move || Ok(inner), waker)?;
        Ok(Self {
            inner,
            files,
            pfs,
            open: HashSet::new(),
            due: HashMap::new(),
            delayed_answers: BTreeMap::new(),
            arrived: Vec::new(),
            next: 0,
        })
    }

    /// Returns the time at which a read of `bytes` of a file, requested now, is answered.
    fn request(&mut self, file: FileId, bytes: u32) -> Instant {
        let opens = self.files.stamp(file).is_none() || self.open.insert(file);
        self.pfs.read(opens, bytes.into())
    }

    fn release(&mut self, out: &mut Vec<Completion>) {
        let now = Instant::now();
        while let Some(first) = self.delayed_answers.first_entry().filter(|first| first.key().0 <= now) {
            out.push(first.remove());
        }
    }

    fn hold(&mut self) {
        for mut completion in self.arrived.drain(..) {
            let number = completion.token;
            if let Some((token, due)) = self.due.remove(&number) {
                completion.token = token;
                self.delayed_answers.insert((due, number), completion);
            }
        }
    }
}

impl Reader for DelayedReader {
    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.delayed_answers.len())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.delayed_answers.len()
    }

    fn submit(&mut self, request: ReadRequest) {
        let due = match self.files.record(request.extent) {
            // The reads of a record are in flight at the same time.
            Some(record) => {
                let reads = network_reads(&*self.files, &record, request.ranges.as_deref());
                let answers = reads.iter().map(|read| self.request(read.extent.file, read.extent.length));
                answers.max().unwrap_or_else(Instant::now)
            }
            // Network storage reads from the start of the sample to the end of the last wanted part.
            None => self.request(request.extent.file, request.wanted()),
        };
        self.due.insert(self.next, (request.token, due));
        self.inner.submit(ReadRequest { token: self.next, ..request });
        self.next += 1;
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        loop {
            self.release(out);
            if self.in_flight() == 0 {
                return Ok(());
            }
            let limit = match out.len() > before {
                true => Some(Instant::now()),
                false => self.delayed_answers.first_key_value().map(|((due, _), _)| *due),
            };
            let woken = self.inner.wait_until(limit, &mut self.arrived)?;
            self.hold();
            if woken || out.len() > before {
                self.release(out);
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn stats(&self) -> ReadStats {
        self.inner.stats()
    }

    fn describe(&self) -> String {
        format!("{}, slowed to {}", self.inner.describe(), self.pfs.rates())
    }
}
