//! The reader of a stream's pipeline: samples in memory are copied into their slots, and those of the rehearsal buffer's
//! files are read by whatever reads files.

use super::live::{IN_MEMORY, LiveTable};
use crate::error::{Error, Result};
use crate::io::{Completion, Filled, ReadRequest, ReadStats, Reader, Waker};
use crate::slot::Slot;
use crate::tier_name::TierName;
use std::sync::Arc;

/// Reads samples of a stream.
pub(crate) struct StreamReader {
    live: Arc<LiveTable>,
    /// The reader of files, where there are any.
    stored: Option<Box<dyn Reader>>,
    depth: usize,
    copied: Vec<Completion>,
    stats: ReadStats,
    /// Whether the files' reader has requests that it was not told to begin.
    deferred: bool,
}

impl StreamReader {
    pub(super) fn new(live: Arc<LiveTable>, stored: Option<Box<dyn Reader>>, depth: usize) -> Self {
        Self { live, stored, depth, copied: Vec::new(), stats: ReadStats::default(), deferred: false }
    }

    fn copy(&mut self, token: u64, sample: u64, mut slot: Slot) -> Completion {
        let Some(record) = self.live.record(sample) else {
            let gone = Error::Internal(format!("sample {sample} of a stream is read and no longer in use"));
            return Completion::failed(token, gone, slot);
        };
        let bytes = record.bytes();
        slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.stats.bytes += bytes.len() as u64;
        self.stats.reads += 1;
        Completion::arrived(token, Filled::new(slot, 0..bytes.len())).of(TierName::RAM)
    }
}

impl Reader for StreamReader {
    fn room(&self) -> usize {
        let stored = self.stored.as_ref().map_or(usize::MAX, |stored| stored.room());
        self.depth.saturating_sub(self.copied.len()).min(stored)
    }

    fn in_flight(&self) -> usize {
        self.copied.len() + self.stored.as_ref().map_or(0, |stored| stored.in_flight())
    }

    fn submit(&mut self, request: ReadRequest) {
        if request.extent.file == IN_MEMORY {
            let completion = self.copy(request.token, request.extent.offset, request.slot);
            return self.copied.push(completion);
        }
        match &mut self.stored {
            Some(stored) => {
                stored.submit(request);
                self.deferred = true;
            }
            None => {
                let none = Error::Internal("a stream without a directory has a sample in one".into());
                self.copied.push(Completion::failed(request.token, none, request.slot));
            }
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let any = !self.copied.is_empty();
        out.append(&mut self.copied);
        let Some(stored) = self.stored.as_mut().filter(|stored| stored.in_flight() > 0) else {
            return Ok(());
        };
        if any {
            if !std::mem::take(&mut self.deferred) {
                return Ok(());
            }
            // What is there already shall not wait, but the files' reader may only now ask the system.
            (stored.waker().0)();
        }
        stored.wait(out)
    }

    fn waker(&self) -> Waker {
        match &self.stored {
            Some(stored) => stored.waker(),
            // It never waits.
            None => Waker(Arc::new(|| {})),
        }
    }

    fn stats(&self) -> ReadStats {
        self.stats + self.stored.as_ref().map_or_else(ReadStats::default, |stored| stored.stats())
    }

    fn describe(&self) -> String {
        match &self.stored {
            Some(stored) => format!("from memory; rehearsed samples: {}", stored.describe()),
            None => "from memory".to_owned(),
        }
    }
}
