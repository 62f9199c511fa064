//! Reads copies from memory. Each request is answered at once.

use super::RamShared;
use crate::io::{Completion, Filled, ListeningReader, ReadRequest, ReadStats, Reader, Waker};
use base::error::Result;
use std::sync::Arc;

/// The maximum number of answers that wait to be taken.
const DEPTH: usize = 64;

pub(super) struct RamReader {
    shared: Arc<RamShared>,
    answers: Vec<Completion>,
    stats: ReadStats,
}

impl RamReader {
    pub(super) fn new(shared: Arc<RamShared>) -> Self {
        Self { shared, answers: Vec::new(), stats: ReadStats::default() }
    }
}

impl Reader for RamReader {
    fn room(&self) -> usize {
        DEPTH - self.answers.len()
    }

    fn in_flight(&self) -> usize {
        self.answers.len()
    }

    fn submit(&mut self, ReadRequest { token, extent, mut slot, .. }: ReadRequest) {
        let length = extent.length as usize;
        let read = self.shared.read(&extent, |bytes| slot.bytes_mut()[..length].copy_from_slice(bytes));
        self.answers.push(match read {
            Ok(()) => {
                self.stats.bytes += length as u64;
                self.stats.reads += 1;
                Completion::arrived(token, Filled::new(slot, 0..length))
            }
            Err(error) => Completion::failed(token, error, slot),
        });
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.take(out)
    }

    /// Returns a waker that does nothing: no thread ever blocks in this reader.
    fn waker(&self) -> Waker {
        Waker(Arc::new(|| {}))
    }

    fn stats(&self) -> ReadStats {
        self.stats
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

impl ListeningReader for RamReader {
    fn listen(&mut self) -> bool {
        self.answers.is_empty()
    }

    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.answers);
        Ok(())
    }
}
