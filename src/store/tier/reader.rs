//! The reader over all tiers: reads each sample from the tier that `route.rs` chooses.
//!
//! A copy that a tier has but cannot give (damaged, evicted, unreadable) is read from the source into the same slot,
//! and counted.
//!
//! Only the wanted parts of a packed copy in a directory are read. If a tier must keep the sample, the whole copy is
//! read, because tiers keep whole samples. The pipeline chooses the parts by a header summary (`header_summary`) before
//! the copy is known. So the request names that summary, and a copy with another summary is read whole. For parts, the
//! summary and the checksums of the head and of the rows are verified. If anything is wrong, the copy is read whole,
//! and the checksum of the whole copy decides. → `tests/load/cached_parts.rs`

use super::cache::{Cache, SampleOrigin, TierPlace};
use super::copies::{CopyFault, Location, TierReader};
use super::revalidate::{Revalidation, VersionAnswer};
use super::route::{Route, RouteLookup};
use crate::io::{
    Completion, Filled, GroupWaker, GroupedReader, OwnThread, ReadRequest, ReadStats, Reader, ReaderGroup,
    Waker,
};
use base::counting::count;
use base::error::{Error, Result};
use base::parts::{SummarizedBytes, WantedBytes};
use base::slot::{OVERHEAD, Slot, SlotPool};
use data::dataset::arrays::record::RecordRanges;
use data::dataset::{Extent, FileVersion};
use pixels::decode::packed::PackedHeaderSummary;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod tests;

pub(crate) struct TieredReader {
    cache: Arc<Cache>,
    /// The source's reader, followed by the reader of each tier.
    readers: ReaderGroup,
    revalidation: Revalidation,
    pending: HashMap<u64, PendingSample>,
    arrived: Vec<(usize, Completion)>,
    versions: Vec<VersionAnswer>,
}

struct PendingSample {
    sample_request: SampleRequest,
    state: PendingState,
}

#[derive(Clone)]
struct SampleRequest {
    sample: u64,
    extent: Extent,
    /// The origin to report if the sample is read from the source.
    at_source: SampleOrigin,
    /// The wanted parts of the sample, with the header summary by which the pipeline chose the parts.
    parts: Option<(WantedBytes, SummarizedBytes)>,
    /// The wanted ranges of the sample's record. They are only read from the source, because copies are verified whole.
    ranges: Option<Arc<RecordRanges>>,
}

impl SampleRequest {
    /// Returns whether the bytes that were read match the copy at `location`. For parts, the copy's own checksums of
    /// the head and of the rows decide; bytes that were not read are not checked.
    fn is_intact(&self, location: &Location, bytes: &Filled) -> bool {
        match (bytes.in_parts(), &self.parts) {
            ((all, None), _) => location.is_copy(all),
            ((bytes, Some(read)), Some((_, chosen_by))) => {
                PackedHeaderSummary::parts_are_intact(&chosen_by.header_summary, bytes, read)
            }
            ((_, Some(_)), None) => false,
        }
    }
}

enum PendingState {
    /// The version of the sample's file was requested. The sample will be read into this slot.
    AwaitingVersion {
        slot: Slot,
        copy: Option<(TierPlace, Location)>,
    },
    Read(Route),
}

/// The index of the source's reader in the group.
const SOURCE: usize = 0;

/// Returns the index of a tier's reader in the group.
fn of(place: TierPlace) -> usize {
    place + 1
}

impl TieredReader {
    /// Opens the readers of all tiers. The source's reader, which `source` opens, has its own thread. The readers of
    /// some tiers block while they wait ([`TierReader::Waiting`]): the calling thread drives the first of these
    /// readers, and each other one gets its own thread.
    ///
    /// # Errors
    /// The errors of opening any reader.
    pub(super) fn new(
        cache: Arc<Cache>,
        source: impl FnOnce() -> Result<Box<dyn Reader>> + Send + 'static,
        slots: &SlotPool,
    ) -> Result<Self> {
        let group_waker = Arc::new(GroupWaker::default());
        let mut copies = Vec::new();
        let mut driven_here = false;
        for tier in cache.tiers() {
            copies.push(match tier.reader(slots) {
                TierReader::Listening(open) => GroupedReader::Listening(open(group_waker.waker())?),
                TierReader::Waiting(open) if !std::mem::replace(&mut driven_here, true) => {
                    GroupedReader::Waiting(open()?)
                }
                TierReader::Waiting(open) => {
                    let thread = format!("foreload-{}", tier.name());
                    GroupedReader::Listening(Box::new(OwnThread::new(&thread, open, group_waker.waker())?))
                }
            });
        }
        let source = OwnThread::new("foreload-source", source, group_waker.waker())?;
        let source = GroupedReader::Listening(Box::new(source));
        let readers = ReaderGroup::new(std::iter::once(source).chain(copies).collect(), group_waker);
        let depth = readers.get(SOURCE).room();
        let revalidation = Revalidation::new(&cache.index, depth, readers.waker())?;
        let (pending, arrived, versions) = (HashMap::new(), Vec::new(), Vec::new());
        Ok(Self { cache, readers, revalidation, pending, arrived, versions })
    }

    fn submit_or_query(
        &mut self,
        token: u64,
        sample_request: SampleRequest,
        slot: Slot,
        lookup: RouteLookup,
    ) {
        match lookup {
            RouteLookup::Found(route) => self.read(token, sample_request, slot, route),
            RouteLookup::NeedsVersion(copy) => {
                self.revalidation.ask(token, sample_request.extent);
                let state = PendingState::AwaitingVersion { slot, copy };
                self.pending.insert(token, PendingSample { sample_request, state });
            }
        }
    }

    fn read(&mut self, token: u64, sample_request: SampleRequest, slot: Slot, route: Route) {
        if let Route::Copy(place, location) = &route
            && location.extent.length as usize + OVERHEAD > slot.capacity()
        {
            // The slot is as large as a slot can be, but this huge copy is slightly larger, because of its storage
            // format.
            self.cache.count_fallback(sample_request.sample, *place, *location, None);
            let lookup = self.cache.route_without_copy(sample_request.extent.file);
            return self.submit_or_query(token, sample_request, slot, lookup);
        }
        match &route {
            Route::Copy(place, location) => {
                // The pipeline may have chosen the parts by the header summary of another copy.
                let summarized = || self.cache.header_summary(sample_request.sample, *place, location);
                let parts = sample_request.parts.filter(|(_, chosen_by)| summarized() == Some(*chosen_by));
                let parts = parts.map(|(parts, _)| parts);
                let request = ReadRequest::new(token, location.extent, slot);
                let request = ReadRequest { version: location.version, parts, ..request };
                self.readers.submit(of(*place), request);
            }
            Route::Source { .. } => {
                let request = ReadRequest::new(token, sample_request.extent, slot);
                let ranges = sample_request.ranges.clone();
                self.readers.submit(SOURCE, ReadRequest { ranges, ..request });
            }
        }
        self.pending.insert(token, PendingSample { sample_request, state: PendingState::Read(route) });
    }

    fn resume_after_version(&mut self) -> bool {
        self.revalidation.take(&mut self.versions);
        let mut versions = std::mem::take(&mut self.versions);
        let any = !versions.is_empty();
        for VersionAnswer { token, version } in versions.drain(..) {
            if let Some(PendingSample {
                sample_request,
                state: PendingState::AwaitingVersion { slot, copy },
            }) = self.pending.remove(&token)
            {
                let route = self.cache.route(sample_request.sample, version, copy);
                self.read(token, sample_request, slot, route);
            }
        }
        self.versions = versions;
        any
    }

    fn complete_reads(&mut self, out: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for (_, completion) in arrived.drain(..) {
            match self.pending.remove(&completion.token) {
                Some(PendingSample { sample_request, state: PendingState::Read(Route::Copy(place, at)) }) => {
                    self.complete_copy(sample_request, (place, at), completion, out);
                }
                Some(PendingSample {
                    sample_request,
                    state: PendingState::Read(Route::Source { version, copy }),
                }) => {
                    if let Ok(filled) = &completion.result {
                        self.keep(&sample_request, filled, version, copy);
                    }
                    out.push(completion);
                }
                // The extent is not a sample.
                _ => out.push(completion),
            }
        }
        self.arrived = arrived;
    }

    /// Counts a sample that was read from the source, and offers it to the tiers. A record in several places of the
    /// slot is copied into one place, but only if a tier wants it.
    fn keep(
        &self,
        SampleRequest { sample, extent, at_source, .. }: &SampleRequest,
        filled: &Filled,
        version: Option<FileVersion>,
        copy: Option<(TierPlace, Location)>,
    ) {
        let is_wanted = || copy.is_some() || version.is_some() && self.cache.wants(*sample);
        let is_in_one_place = filled.piece(0..extent.length).is_some();
        let bytes = (is_in_one_place || is_wanted()).then(|| filled.whole(extent.length)).flatten();
        let Some(bytes) = bytes else { return self.cache.count_source_read(filled.arrived()) };
        if let Some((place, location)) = copy {
            self.cache.compare(*sample, place, &location, &bytes);
        }
        self.cache.arrived(*sample, &bytes, *at_source, version);
    }

    fn complete_copy(
        &mut self,
        sample_request: SampleRequest,
        (place, location): (TierPlace, Location),
        completion: Completion,
        out: &mut Vec<Completion>,
    ) {
        let (token, SampleRequest { sample, extent, .. }) = (completion.token, &sample_request);
        let (sample, extent) = (*sample, *extent);
        let (slot, fault) = match completion.result {
            Ok(bytes) if sample_request.is_intact(&location, &bytes) => {
                match bytes.in_parts() {
                    (_, Some(_)) => self.cache.count_hit(place, bytes.arrived()),
                    (all, None) => {
                        let version = completion.version.or(location.version);
                        self.cache.arrived(sample, all, SampleOrigin::Copy(place), version);
                    }
                }
                out.push(Completion::arrived(token, bytes).of(self.cache.tier(place).name()));
                return;
            }
            Ok(bytes) if bytes.in_parts().1.is_some() => match bytes.into_slot() {
                // The checksum of the whole copy decides whether the copy is damaged or its header summary is wrong.
                Some(slot) => {
                    let sample_request = SampleRequest { parts: None, ..sample_request };
                    return self.read(token, sample_request, slot, Route::Copy(place, location));
                }
                None => (None, Some(CopyFault::Checksum)),
            },
            Ok(bytes) => (bytes.into_slot(), Some(CopyFault::Checksum)),
            Err(error) => (completion.slot, fault(&error)),
        };
        let unconfirmed = fault == Some(CopyFault::Unconfirmed) && location.version.is_none();
        if !unconfirmed {
            self.cache.count_fallback(sample, place, location, fault);
        }
        match slot {
            // The node gives its copy only if the request has the version of the sample's file: query the version, and
            // request the copy again.
            Some(slot) if unconfirmed => {
                let lookup = RouteLookup::NeedsVersion(Some((place, location)));
                self.submit_or_query(token, sample_request, slot, lookup);
            }
            Some(slot) => {
                // The sample is pushed to the node that owns it if that node has no copy. A node that may have a copy
                // was only late, and a push would delay it further.
                let may_have_it = self.cache.is_of_nodes(place) && fault != Some(CopyFault::Gone);
                let at_source = if may_have_it { SampleOrigin::SourceUnpushed } else { SampleOrigin::Source };
                let lookup = self.cache.route_without_copy(extent.file);
                self.submit_or_query(token, SampleRequest { at_source, ..sample_request }, slot, lookup);
            }
            // The slot was lost with a thread that panicked, so there is nothing to read into.
            None => {
                let error = Error::Internal("a reader of the cache lost its slot".into());
                out.push(Completion::failed(token, error, None));
            }
        }
    }

    fn wait_once(&mut self) -> Result<()> {
        if self.readers.in_flight() == 0 {
            self.revalidation.wait(&mut self.versions);
            return Ok(());
        }
        let answered = self.revalidation.in_flight() > 0 && !self.revalidation.listen();
        self.readers.wait(answered, &mut self.arrived)
    }

    fn own_copies_in_flight(&self) -> bool {
        self.cache.local_tiers().any(|(place, _)| self.readers.get(of(place)).in_flight() > 0)
    }

    /// Returns the number of copies that are being read. Each of these reads may fail and be repeated from the source.
    fn copies_in_flight(&self) -> usize {
        self.readers.in_flight() - self.readers.get(SOURCE).in_flight()
    }
}

/// The error of a tier that gives a copy only for a request with the version of the sample's file.
#[derive(Debug)]
pub(super) struct Unconfirmed;

impl std::fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is sent only for a request with the version of its file")
    }
}

impl std::error::Error for Unconfirmed {}

/// Returns the fault of a copy that could not be read with this error; `None` if this process lacks a resource.
pub(super) fn fault(error: &Error) -> Option<CopyFault> {
    const OURS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some(CopyFault::Gone),
        Error::Io { source, .. } if source.get_ref().is_some_and(|inner| inner.is::<Unconfirmed>()) => {
            Some(CopyFault::Unconfirmed)
        }
        Error::Io { source, .. } if source.raw_os_error().is_some_and(|code| OURS.contains(&code)) => None,
        _ => Some(CopyFault::Unreadable),
    }
}

impl Reader for TieredReader {
    fn room(&self) -> usize {
        // Keep a place in the source's reader for each copy in flight, which may fail, and a place in every reader for
        // each sample that waits for a version.
        let revalidation = self.revalidation.in_flight();
        let source = self.readers.get(SOURCE).room().saturating_sub(self.copies_in_flight());
        let copies = (0..self.cache.tiers().len()).map(|place| self.readers.get(of(place)).room());
        copies.chain([source]).min().unwrap_or(source).saturating_sub(revalidation)
    }

    fn in_flight(&self) -> usize {
        self.readers.in_flight() + self.revalidation.in_flight()
    }

    fn submit(&mut self, request: ReadRequest) {
        let Some(sample) = self.cache.index.sample_of(request.extent) else {
            // An extent that is not a sample has no copies.
            return self.readers.submit(SOURCE, ReadRequest { parts: None, ..request });
        };
        let ReadRequest { token, extent, slot, parts, ranges, chosen_by, .. } = request;
        let lookup = self.cache.look_up_route(sample, extent.file);
        let (at_source, parts) = (SampleOrigin::Source, parts.zip(chosen_by));
        let sample_request = SampleRequest { sample, extent, at_source, parts, ranges };
        self.submit_or_query(token, sample_request, slot, lookup);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        self.resume_after_version();
        // While there is room for more reads, the pipeline does not wait for the reads in flight.
        let full = self.room() == 0;
        self.cache.demand_waits.store(full && self.readers.get(SOURCE).in_flight() > 0, Relaxed);
        self.cache.own_reads_wait.store(full && self.own_copies_in_flight(), Relaxed);
        loop {
            let waited_for = self.in_flight();
            self.wait_once()?;
            let went_on = self.resume_after_version();
            let nothing_came = self.arrived.is_empty() && !went_on;
            self.complete_reads(out);
            // Return if a read was completed, if a waker ended the wait, or if nothing was in flight. If only a bad
            // copy arrived, wait again: its sample is now read from the source, and the caller takes a return without
            // completions to mean that a waker was called.
            if out.len() > before || nothing_came || waited_for == 0 {
                self.cache.demand_waits.store(false, Relaxed);
                self.cache.own_reads_wait.store(false, Relaxed);
                count(&self.cache.counted.looks, self.revalidation.take_count());
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let (readers, revalidation) = (self.readers.waker(), self.revalidation.waker());
        Waker(Arc::new(move || {
            (readers.0)();
            (revalidation.0)();
        }))
    }

    /// Returns the counters of reads from the source. The cache counts the reads of copies.
    fn stats(&self) -> ReadStats {
        self.readers.get(SOURCE).stats()
    }

    fn describe(&self) -> String {
        let names = std::iter::once("source".to_owned())
            .chain(self.cache.tiers().map(|tier| tier.name().to_string()));
        let by_tier = names
            .enumerate()
            .map(|(place, name)| format!("{name}: {}", self.readers.get(place).describe()))
            .collect::<Vec<_>>();
        format!("{}; {}", by_tier.join("; "), self.cache.describe())
    }
}
