//! A reader over both tiers: an extent of the dataset is read from the tier that has it. `route.rs` says which that is.

use super::cache::Cache;
use super::revalidate::{Revalidation, VersionAnswer};
use super::route::{Route, RouteLookup};
use super::store::{CopyFault, Location, checksum};
use crate::dataset::Extent;
use crate::error::{Error, Result};
use crate::io::{Completion, OwnThread, ReadRequest, ReadStats, Reader, Tier, Waker};
use crate::slot::Slot;
use std::collections::HashMap;
use std::sync::Arc;

/// Reads samples from the store where it has them, and else from the source; also those that the store has but cannot
/// give.
pub(crate) struct TieredReader {
    cache: Arc<Cache>,
    source: OwnThread,
    nvme: Box<dyn Reader>,
    revalidation: Revalidation,
    /// Samples in flight, by token.
    asked: HashMap<u64, PendingSample>,
    from_source: Vec<Completion>,
    from_nvme: Vec<Completion>,
    looked: Vec<VersionAnswer>,
}

/// A sample in flight.
struct PendingSample {
    /// The extent in the dataset.
    extent: Extent,
    sample: u64,
    state: PendingState,
}

/// How far a sample in flight has come.
enum PendingState {
    /// The version of its file has been asked for; the sample will be read into this slot.
    Look { slot: Slot, copy: Option<Location> },
    /// It is being read.
    Read(Route),
}

impl TieredReader {
    pub(super) fn new(cache: Arc<Cache>, source: OwnThread, nvme: Box<dyn Reader>) -> Result<Self> {
        let depth = source.room().min(nvme.room());
        let rouse = {
            let (source, nvme) = (source.waker(), nvme.waker());
            Waker(Arc::new(move || {
                (source.0)();
                (nvme.0)();
            }))
        };
        let revalidation = Revalidation::new(cache.index(), depth, rouse)?;
        let (asked, looked) = (HashMap::new(), Vec::new());
        let (from_source, from_nvme) = (Vec::new(), Vec::new());
        Ok(Self { cache, source, nvme, revalidation, asked, from_source, from_nvme, looked })
    }

    /// Submits a sample's read by the given route.
    fn read(&mut self, token: u64, (extent, sample): (Extent, u64), slot: Slot, route: Route) {
        match &route {
            Route::Store(location) => {
                self.nvme.submit(ReadRequest { token, extent: location.extent, slot });
            }
            Route::Source { .. } => self.source.submit(ReadRequest { token, extent, slot }),
        }
        self.asked.insert(token, PendingSample { extent, sample, state: PendingState::Read(route) });
    }

    /// Submits the reads of samples whose files' versions have come. Returns whether there were any.
    fn go_on(&mut self) -> bool {
        self.revalidation.take(&mut self.looked);
        let mut looked = std::mem::take(&mut self.looked);
        let any = !looked.is_empty();
        for VersionAnswer { token, version } in looked.drain(..) {
            if let Some(PendingSample { extent, sample, state: PendingState::Look { slot, copy } }) =
                self.asked.remove(&token)
            {
                let route = self.cache.route(sample, version, copy);
                self.read(token, (extent, sample), slot, route);
            }
        }
        self.looked = looked;
        any
    }

    /// Passes samples from the source on, and offers them to the store.
    fn come_from_source(&mut self, out: &mut Vec<Completion>) {
        for completion in self.from_source.drain(..) {
            if let Some(PendingSample {
                sample,
                state: PendingState::Read(Route::Source { version, copy }),
                ..
            }) = self.asked.remove(&completion.token)
                && let Ok(bytes) = &completion.result
            {
                if let Some(location) = copy {
                    self.cache.compare(sample, &location, bytes);
                }
                self.cache.arrived(sample, bytes, Tier::Source, version);
            }
            out.push(completion);
        }
    }

    /// Passes samples from the store on if their bytes are right; else reads them from the source.
    fn come_from_nvme(&mut self, out: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.from_nvme);
        for completion in arrived.drain(..) {
            let token = completion.token;
            let Some(PendingSample { extent, sample, state: PendingState::Read(Route::Store(location)) }) =
                self.asked.remove(&token)
            else {
                continue;
            };
            let (slot, fault) = match completion.result {
                Ok(bytes) if checksum(&bytes) == location.crc => {
                    self.cache.arrived(sample, &bytes, Tier::Nvme, Some(location.version));
                    out.push(Completion::arrived(token, bytes).of(Tier::Nvme));
                    continue;
                }
                Ok(bytes) => (bytes.into_slot(), Some(CopyFault::Checksum)),
                Err(error) => (completion.slot, fault(&error)),
            };
            self.cache.fell_back();
            if let Some(fault) = fault {
                self.cache.store().damaged(sample, location, fault);
            }
            match slot {
                Some(slot) => {
                    let route = self.cache.route_without_copy(extent.file);
                    self.read(token, (extent, sample), slot, route);
                }
                // The slot was lost with a thread that panicked: there is nothing to read into.
                None => {
                    let error = Error::Internal("a reader of the cache lost its slot".into());
                    out.push(Completion::failed(token, error, None));
                }
            }
        }
        self.from_nvme = arrived;
    }

    /// Waits for what comes first, on either tier.
    fn wait_once(&mut self) -> Result<()> {
        if self.source.in_flight() + self.nvme.in_flight() == 0 {
            self.revalidation.wait(&mut self.looked);
            return Ok(());
        }
        if self.revalidation.in_flight() > 0 && !self.revalidation.listen() {
            return Ok(());
        }
        self.source.wait_beside(&mut *self.nvme, &mut self.from_nvme, &mut self.from_source)
    }
}

/// What a failed read says about the segment; `None` where it is the process that lacks something.
pub(super) fn fault(error: &Error) -> Option<CopyFault> {
    const OURS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some(CopyFault::Gone),
        Error::Io { source, .. } if source.raw_os_error().is_some_and(|code| OURS.contains(&code)) => None,
        _ => Some(CopyFault::Unreadable),
    }
}

impl Reader for TieredReader {
    fn room(&self) -> usize {
        // A sample that falls back needs a place at the source; one whose version is asked for needs a place at either.
        let revalidation = self.revalidation.in_flight();
        let source = self.source.room().saturating_sub(self.nvme.in_flight() + revalidation);
        self.nvme.room().saturating_sub(revalidation).min(source)
    }

    fn in_flight(&self) -> usize {
        self.source.in_flight() + self.nvme.in_flight() + self.revalidation.in_flight()
    }

    fn submit(&mut self, request: ReadRequest) {
        let ReadRequest { token, extent, slot } = request;
        let Some(sample) = self.cache.index().sample_of(extent) else {
            // An extent that is no sample is not in the store.
            return self.source.submit(ReadRequest { token, extent, slot });
        };
        match self.cache.look_up_route(sample, extent.file) {
            RouteLookup::Found(route) => self.read(token, (extent, sample), slot, route),
            RouteLookup::NeedsVersion(copy) => {
                self.asked.insert(
                    token,
                    PendingSample { extent, sample, state: PendingState::Look { slot, copy } },
                );
                self.revalidation.ask(token, extent.file);
            }
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        self.go_on();
        // With room left, nobody waits for these reads.
        self.cache.note_demand(self.room() == 0 && self.source.in_flight() > 0);
        loop {
            let waited_for = self.in_flight();
            self.wait_once()?;
            let went_on = self.go_on();
            let nothing_came = self.from_nvme.is_empty() && self.from_source.is_empty() && !went_on;
            self.come_from_source(out);
            self.come_from_nvme(out);
            // A sample that falls back is no answer yet. Else, an empty return means that a waker was called.
            if out.len() > before || nothing_came || waited_for == 0 {
                self.cache.note_demand(false);
                self.cache.count_stats(self.revalidation.take_count());
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let (source, nvme, revalidation) =
            (self.source.waker(), self.nvme.waker(), self.revalidation.waker());
        Waker(Arc::new(move || {
            (source.0)();
            (nvme.0)();
            (revalidation.0)();
        }))
    }

    /// The reads from the source; the cache counts those from the store.
    fn stats(&self) -> ReadStats {
        self.source.stats()
    }

    fn describe(&self) -> String {
        let (source, nvme) = (self.source.describe(), self.nvme.describe());
        format!("source: {source}; cache: {nvme}, {}", self.cache.describe())
    }
}
