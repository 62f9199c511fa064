//! Waiting for several readers at once, on one thread.
//!
//! An io_uring ring delivers answers (completions) only to the thread that drives it, and a wait for one reader does
//! not notice answers of another reader. So the thread waits for one reader. Every other reader gets a waker that
//! interrupts this wait at its first answer.

use super::{Completion, ReadRequest, Reader, Waker};
use base::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A reader that another thread drives: its answers arrive while the caller does something else.
pub trait ListeningReader: Reader {
    /// Arms the reader's waker: the next answer calls it. Returns `false` if answers are already available.
    fn listen(&mut self) -> bool;

    /// Appends the available answers to `out`, without waiting.
    ///
    /// # Errors
    /// The error that ended the reader.
    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()>;
}

/// A reader of the group.
pub enum GroupedReader {
    /// Driven by the thread that waits for the group. There can be at most one such reader.
    Waiting(Box<dyn Reader>),
    /// Driven by another thread.
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

/// Wakes the group's thread, no matter which of the readers it waits for.
#[derive(Default)]
pub struct GroupWaker {
    wakers: RwLock<Vec<Waker>>,
    waits_for: AtomicUsize,
}

impl GroupWaker {
    fn set(&self, wakers: Vec<Waker>) {
        *self.wakers.write().unwrap_or_else(PoisonError::into_inner) = wakers;
    }

    /// Returns the waker that a listening reader of the group calls on its first answer.
    pub fn waker(self: &Arc<Self>) -> Waker {
        let group_waker = self.clone();
        Waker(Arc::new(move || {
            let waits_for = group_waker.waits_for.load(Ordering::SeqCst);
            let wakers = group_waker.wakers.read().unwrap_or_else(PoisonError::into_inner);
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
    /// Makes a group. Its listening readers must call the waker of `group_waker`.
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

    /// Waits for the first answer, and appends all available answers to `out`, each with the index of its reader.
    /// Returns at once if `ready` says that something else is available. Returns no answers if a waker was called.
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
            // With its waker called, the reader submits queued requests and returns available answers, but does not
            // block.
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

    /// Makes a wait for any reader return soon.
    pub fn waker(&self) -> Waker {
        let wakers: Vec<Waker> = self.readers.iter().map(|reader| reader.reader().waker()).collect();
        Waker(Arc::new(move || wakers.iter().for_each(|waker| (waker.0)())))
    }
}

/// Clears the list of wakers. Otherwise a reader that holds the group's waker, while the group's waker holds the
/// reader's waker, would be a cycle of references.
impl Drop for ReaderGroup {
    fn drop(&mut self) {
        self.group_waker.set(Vec::new());
    }
}
