//! The reader of a stream's pipeline. It copies samples that are in memory into their slots. For samples in files of
//! the rehearsal buffer it uses a file reader.

use super::live::{LiveBytes, LiveTable};
use base::crc::checksum;
use base::error::{Error, Result};
use base::slot::Slot;
use std::collections::HashMap;
use std::sync::Arc;
use store::io::{Completion, Filled, ReadRequest, ReadStats, Reader, Waker};

type RereadFn = dyn Fn(u64) -> Result<Vec<u8>> + Send;

pub(crate) struct StreamReader {
    live: Arc<LiveTable>,
    stored: Option<Box<dyn Reader>>,
    /// The reads that `stored` has in flight: for each request token, the sample's id and the checksum of its bytes.
    reading: HashMap<u64, (u64, u32)>,
    /// Reads a sample again if its file was replaced, because withdrawing other samples moved it.
    reread: Box<RereadFn>,
    depth: usize,
    copied: Vec<Completion>,
    arrived: Vec<Completion>,
    stats: ReadStats,
    /// Whether `stored` has requests that were submitted since its waker was last called.
    deferred: bool,
}

impl StreamReader {
    pub(super) fn new(
        live: Arc<LiveTable>,
        stored: Option<Box<dyn Reader>>,
        reread: Box<RereadFn>,
        depth: usize,
    ) -> Self {
        Self {
            live,
            stored,
            reading: HashMap::new(),
            reread,
            depth,
            copied: Vec::new(),
            arrived: Vec::new(),
            stats: ReadStats::default(),
            deferred: false,
        }
    }

    fn fill_reread(&self, token: u64, sample: u64, slot: Slot) -> Completion {
        match (self.reread)(sample) {
            Ok(bytes) => into_slot(token, &bytes, slot),
            Err(error) => Completion::failed(token, error, slot),
        }
    }

    /// Checks bytes that were read from a file. Reads the sample again if the read failed or the checksum does not
    /// match.
    fn checked(&mut self, completion: Completion) -> Completion {
        let Some((sample, crc)) = self.reading.remove(&completion.token) else { return completion };
        let token = completion.token;
        let (slot, error) = match completion.result {
            Ok(filled) if checksum(&filled) == crc => {
                return Completion::arrived(token, filled);
            }
            Ok(filled) => {
                (filled.into_slot(), Error::Internal("a slot is shared before it was passed on".into()))
            }
            Err(error) => (completion.slot, error),
        };
        match slot {
            Some(slot) => self.fill_reread(token, sample, slot),
            None => Completion::failed(token, error, None),
        }
    }
}

fn into_slot(token: u64, bytes: &[u8], mut slot: Slot) -> Completion {
    if bytes.len() > slot.capacity() {
        let message =
            format!("a sample of {} bytes was read into a slot of {}", bytes.len(), slot.capacity());
        return Completion::failed(token, Error::Internal(message), slot);
    }
    slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Completion::arrived(token, Filled::new(slot, 0..bytes.len()))
}

impl Reader for StreamReader {
    fn room(&self) -> usize {
        let stored = self.stored.as_ref().map_or(usize::MAX, |stored| stored.room());
        self.depth.saturating_sub(self.copied.len()).min(stored)
    }

    fn in_flight(&self) -> usize {
        self.copied.len() + self.stored.as_ref().map_or(0, |stored| stored.in_flight())
    }

    fn submit(&mut self, ReadRequest { token, extent, slot, .. }: ReadRequest) {
        // Look up the place of the sample now: the sample may have moved since its batch was planned.
        let sample = extent.offset;
        let completion = match (self.live.bytes(sample), &mut self.stored) {
            (Some(LiveBytes::Memory(record)), _) => {
                self.stats.bytes += record.bytes().len() as u64;
                self.stats.reads += 1;
                into_slot(token, record.bytes(), slot)
            }
            (Some(LiveBytes::Stored { extent, crc }), Some(stored)) => {
                self.reading.insert(token, (sample, crc));
                stored.submit(ReadRequest::new(token, extent, slot));
                self.deferred = true;
                return;
            }
            _ => self.fill_reread(token, sample, slot),
        };
        self.copied.push(completion);
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
            // Do not wait for `stored` while copied samples are ready: calling its waker first makes the wait return at
            // once. The wait is still needed, because `stored` may send its requests only in `wait`.
            (stored.waker().0)();
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        let waited = stored.wait(&mut arrived);
        out.extend(arrived.drain(..).map(|completion| self.checked(completion)));
        self.arrived = arrived;
        waited
    }

    fn waker(&self) -> Waker {
        match &self.stored {
            Some(stored) => stored.waker(),
            // Without a file reader this reader never waits.
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
