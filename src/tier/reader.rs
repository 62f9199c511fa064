//! A reader over both tiers: whoever asks for an extent of the dataset gets its bytes from wherever they are.

use super::cache::Cache;
use super::store::{Fault, Location, checksum};
use crate::dataset::Extent;
use crate::error::{Error, Result};
use crate::io::{Completion, OwnThread, ReadRequest, ReadStats, Reader, Tier, Waker};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads from the store what is there, and the rest from the source; what the store has but cannot give, too.
pub struct TieredReader {
    cache: Arc<Cache>,
    source: OwnThread,
    nvme: Box<dyn Reader>,
    /// Reads in flight by token.
    asked: HashMap<u64, Asked>,
    from_source: Vec<Completion>,
    from_nvme: Vec<Completion>,
}

/// A read in flight.
struct Asked {
    /// The source's.
    extent: Extent,
    sample: u64,
    /// Where in the store, if there.
    location: Option<Location>,
}

impl TieredReader {
    pub(super) fn new(cache: Arc<Cache>, source: OwnThread, nvme: Box<dyn Reader>) -> Self {
        let (asked, from_source, from_nvme) = (HashMap::new(), Vec::new(), Vec::new());
        Self { cache, source, nvme, asked, from_source, from_nvme }
    }

    /// Bytes from the source are right, as far as anybody knows, and may be kept.
    fn come_from_source(&mut self, out: &mut Vec<Completion>) {
        for completion in self.from_source.drain(..) {
            if let Some(asked) = self.asked.remove(&completion.token)
                && let Ok(bytes) = &completion.result
            {
                self.cache.arrived(asked.sample, bytes, Tier::Source);
            }
            out.push(completion);
        }
    }

    /// Bytes from the store are right, or they are asked of the source.
    fn come_from_nvme(&mut self, out: &mut Vec<Completion>) {
        for completion in self.from_nvme.drain(..) {
            let token = completion.token;
            let Some(asked) = self.asked.get_mut(&token) else { continue };
            let Some(location) = asked.location.take() else { continue };
            let (slot, fault) = match completion.result {
                Ok(bytes) if checksum(&bytes) == location.crc => {
                    self.cache.arrived(asked.sample, &bytes, Tier::Nvme);
                    self.asked.remove(&token);
                    out.push(Completion::arrived(token, bytes).of(Tier::Nvme));
                    continue;
                }
                Ok(bytes) => (Some(bytes.into_slot()), Some(Fault::Checksum)),
                Err(error) => (completion.slot, fault(&error)),
            };
            self.cache.fell_back();
            let (sample, extent) = (asked.sample, asked.extent);
            if let Some(fault) = fault {
                self.cache.store().damaged(sample, location, fault);
            }
            match slot {
                Some(slot) => self.source.submit(ReadRequest { token, extent, slot }),
                // Lost with a thread that panicked: there is nothing to read into.
                None => {
                    self.asked.remove(&token);
                    let error = Error::Internal("a reader of the cache lost its slot".into());
                    out.push(Completion::failed(token, error, None));
                }
            }
        }
    }
}

/// What a failed read says of the segment; nothing where it is the process that lacks something.
fn fault(error: &Error) -> Option<Fault> {
    const OURS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some(Fault::Gone),
        Error::Io { source, .. } if source.raw_os_error().is_some_and(|code| OURS.contains(&code)) => None,
        _ => Some(Fault::Unreadable),
    }
}

impl Reader for TieredReader {
    fn room(&self) -> usize {
        // What falls back needs a place at the source.
        self.nvme.room().min(self.source.room().saturating_sub(self.nvme.in_flight()))
    }

    fn in_flight(&self) -> usize {
        self.source.in_flight() + self.nvme.in_flight()
    }

    fn submit(&mut self, request: ReadRequest) {
        let ReadRequest { token, extent, slot } = request;
        let Some(sample) = self.cache.index().sample_of(extent) else {
            // No sample's, so it is not in the store.
            return self.source.submit(ReadRequest { token, extent, slot });
        };
        let location = self.cache.store().locate(sample);
        let copy = location.as_ref().map(|location| location.extent);
        self.asked.insert(token, Asked { extent, sample, location });
        match copy {
            Some(extent) => self.nvme.submit(ReadRequest { token, extent, slot }),
            None => self.source.submit(ReadRequest { token, extent, slot }),
        }
        self.cache.asked();
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        // With room left there is nobody to wait for these reads.
        self.cache.note_demand(self.room() == 0 && self.source.in_flight() > 0);
        loop {
            let waited_for = self.in_flight();
            self.source.wait_beside(&mut *self.nvme, &mut self.from_nvme, &mut self.from_source)?;
            let nothing_came = self.from_nvme.is_empty() && self.from_source.is_empty();
            self.come_from_source(out);
            self.come_from_nvme(out);
            // What falls back is no answer yet; an empty return otherwise means that a waker was called.
            if out.len() > before || nothing_came || waited_for == 0 {
                self.cache.note_demand(false);
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let (source, nvme) = (self.source.waker(), self.nvme.waker());
        Waker(Arc::new(move || {
            (source.0)();
            (nvme.0)();
        }))
    }

    /// Of reads from the source; those from the store are the cache's to count.
    fn stats(&self) -> ReadStats {
        self.source.stats()
    }

    fn describe(&self) -> String {
        let (source, nvme) = (self.source.describe(), self.nvme.describe());
        format!("source: {source}; cache: {nvme}, {}", self.cache.describe())
    }
}
