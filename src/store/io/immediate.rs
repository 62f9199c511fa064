//! A reader that copies samples from memory.

use super::{Completion, Filled, ListeningReader, ReadRequest, ReadStats, Reader, Waker};
use base::error::Result;
use base::slot::Slot;
use data::dataset::Extent;
use std::sync::Arc;

/// Copies the bytes at an extent into a slot, and returns their number.
type CopyIntoSlot = dyn Fn(Extent, &mut Slot) -> Result<usize> + Send;

/// A reader whose requests are complete as soon as they are submitted.
pub struct ImmediateReader {
    copy: Box<CopyIntoSlot>,
    depth: usize,
    description: &'static str,
    done: Vec<Completion>,
    stats: ReadStats,
}

impl ImmediateReader {
    pub(crate) fn new(
        depth: usize,
        description: &'static str,
        copy: impl Fn(Extent, &mut Slot) -> Result<usize> + Send + 'static,
    ) -> Self {
        Self { copy: Box::new(copy), depth, description, done: Vec::new(), stats: ReadStats::default() }
    }
}

impl Reader for ImmediateReader {
    fn room(&self) -> usize {
        self.depth - self.done.len()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn submit(&mut self, ReadRequest { token, extent, mut slot, .. }: ReadRequest) {
        self.stats.reads += 1;
        self.done.push(match (self.copy)(extent, &mut slot) {
            Ok(length) => {
                self.stats.bytes += length as u64;
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
        self.description.to_owned()
    }
}

impl ListeningReader for ImmediateReader {
    fn listen(&mut self) -> bool {
        self.done.is_empty()
    }

    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.done);
        Ok(())
    }
}
