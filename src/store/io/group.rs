//! Waiting for several readers at once, on one thread.
//!
//! An io_uring ring delivers completions only to the thread that drives it, and a wait for one reader does not notice
//! completions of another reader. So the thread waits for one reader, and every other reader interrupts this wait
//! through a waker when its first completion arrives.

use super::{Completion, ReadRequest, Reader, Waker};
use base::error::Result;
use base::locks::{read_lock, write_lock};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// A reader that another thread drives: its answers arrive while the caller does something else.
pub trait ListeningReader: Reader {
    /// Requests that the next completion calls the reader's waker. Returns `false` if completions are already
    /// available.
    fn listen(&mut self) -> bool;

    /// Appends the available completions to `out`, without waiting.
    ///
    /// # Errors
    /// The error that ended the reader.
    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()>;
}

/// A reader of the group.
pub enum GroupedReader {
    /// A reader that the thread that waits for the group must drive. A group can have at most one.
    Waiting(Box<dyn Reader>),
    /// A reader that another thread drives.
    Listening(Box<dyn ListeningReader>),
}

impl GroupedReader {
    fn reader(&self) -> &dyn Reader {
        match self {
            Self::Waiting(reader) => &**reader,
            Self::Listening(reader) => &**reader,
        }
    }

    fn reader_mut(&mut self) -> &mut dyn Reader {
        match self {
            Self::Waiting(reader) => &mut **reader,
            Self::Listening(reader) => &mut **reader,
        }
    }
}

/// Wakes the thread that waits for the group, in whichever reader it waits.
#[derive(Default)]
pub struct GroupWaker {
    wakers: RwLock<Vec<Waker>>,
    waits_for: AtomicUsize,
}

impl GroupWaker {
    fn set(&self, wakers: Vec<Waker>) {
        *write_lock(&self.wakers) = wakers;
    }

    /// Returns the waker that a [`GroupedReader::Listening`] reader calls when its first completion arrives.
    pub fn waker(self: &Arc<Self>) -> Waker {
        let group_waker = self.clone();
        Waker(Arc::new(move || {
            let waits_for = group_waker.waits_for.load(Ordering::SeqCst);
            let wakers = read_lock(&group_waker.wakers);
            if let Some(waker) = wakers.get(waits_for) {
                (waker.0)();
            }
        }))
    }
}

/// Readers that one thread waits for together.
pub struct ReaderGroup {
    readers: Vec<GroupedReader>,
    group_waker: Arc<GroupWaker>,
}

impl ReaderGroup {
    /// Makes a group. Each [`GroupedReader::Listening`] reader must have been opened with the waker of `group_waker`.
    pub fn new(readers: Vec<GroupedReader>, group_waker: Arc<GroupWaker>) -> Self {
        group_waker.set(readers.iter().map(|reader| reader.reader().waker()).collect());
        Self { readers, group_waker }
    }

    /// Returns the reader at index `place`.
    pub fn get(&self, place: usize) -> &dyn Reader {
        self.readers[place].reader()
    }

    /// Submits a read to the reader at index `place`.
    pub fn submit(&mut self, place: usize, request: ReadRequest) {
        self.readers[place].reader_mut().submit(request);
    }

    /// Returns the number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.readers.iter().map(|reader| reader.reader().in_flight()).sum()
    }

    /// Waits for the first completion, and appends all available completions to `out`, each with the index of its
    /// reader. Does not block if `ready` is true (the caller has other work). Appends nothing if a waker was called.
    ///
    /// # Errors
    /// The errors of any reader.
    pub fn wait(&mut self, mut ready: bool, out: &mut Vec<(usize, Completion)>) -> Result<()> {
        let busy = |reader: &GroupedReader| reader.reader().in_flight() > 0;
        let waiting = |reader: &GroupedReader| busy(reader) && matches!(reader, GroupedReader::Waiting(_));
        let waits_for = self.readers.iter().position(waiting).or_else(|| self.readers.iter().position(busy));
        let Some(waits_for) = waits_for else { return Ok(()) };
        self.group_waker.waits_for.store(waits_for, Ordering::SeqCst);
        for (place, reader) in self.readers.iter_mut().enumerate() {
            if let GroupedReader::Listening(reader) = reader
                && place != waits_for
                && reader.in_flight() > 0
            {
                ready |= !reader.listen();
            }
        }
        if ready {
            // A called waker keeps the reader's `wait` from blocking: it only submits queued requests and returns
            // available completions.
            (self.readers[waits_for].reader().waker().0)();
        }
        let mut arrived = Vec::new();
        self.readers[waits_for].reader_mut().wait(&mut arrived)?;
        out.extend(arrived.drain(..).map(|completion| (waits_for, completion)));
        for (place, reader) in self.readers.iter_mut().enumerate() {
            if let GroupedReader::Listening(reader) = reader
                && place != waits_for
                && reader.in_flight() > 0
            {
                reader.take(&mut arrived)?;
                out.extend(arrived.drain(..).map(|completion| (place, completion)));
            }
        }
        Ok(())
    }

    /// Returns a waker that makes a wait for any of the readers return soon.
    pub fn waker(&self) -> Waker {
        let wakers: Vec<Waker> = self.readers.iter().map(|reader| reader.reader().waker()).collect();
        Waker(Arc::new(move || wakers.iter().for_each(|waker| (waker.0)())))
    }
}

/// Breaks the cycle of references between a reader, which holds the group's waker, and the group's waker, which holds
/// the reader's waker.
impl Drop for ReaderGroup {
    fn drop(&mut self) {
        self.group_waker.set(Vec::new());
    }
}
