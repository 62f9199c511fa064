//! A reader over all tiers: an extent of the dataset is read from the tier that has it. `route.rs` says which that is.

use super::cache::{Cache, SampleOrigin, TierPlace};
use super::copies::{CopyFault, Location, TierReader};
use super::revalidate::{Revalidation, VersionAnswer};
use super::route::{Route, RouteLookup};
use crate::io::{
    Completion, Filled, GroupBell, GroupedReader, OwnThread, ReadRequest, ReadStats, Reader, ReaderGroup,
    Waker,
};
use base::error::{Error, Result};
use base::parts::{ByteParts, OutlinedBytes};
use base::slot::{OVERHEAD, Slot, SlotPool};
use data::dataset::Extent;
use pixels::decode::packed::PackedOutline;
use std::collections::HashMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Reads samples from the fastest tier that has them, and else from the source; also those that a tier has but cannot
/// give.
pub(crate) struct TieredReader {
    cache: Arc<Cache>,
    /// The source's reader, and behind it that of each tier.
    readers: ReaderGroup,
    revalidation: Revalidation,
    /// Samples in flight, by token.
    asked: HashMap<u64, PendingSample>,
    arrived: Vec<(usize, Completion)>,
    looked: Vec<VersionAnswer>,
}

/// A sample in flight.
struct PendingSample {
    asked: AskedSample,
    state: PendingState,
}

/// A sample that was asked for.
#[derive(Clone, Copy)]
struct AskedSample {
    sample: u64,
    /// The extent in the dataset.
    extent: Extent,
    /// Where it comes from if it is read from the source.
    at_source: SampleOrigin,
    /// The parts that are enough of a copy with this outline.
    parts: Option<(ByteParts, OutlinedBytes)>,
}

impl AskedSample {
    /// Whether what was read of the copy at `location` is what was written there. Of a copy that was read in parts its
    /// own checksums say that, of the head and of the rows; bytes that were not read are not checked.
    fn is_intact(&self, location: &Location, bytes: &Filled) -> bool {
        match (bytes.in_parts(), &self.parts) {
            ((all, None), _) => location.is_copy(all),
            ((bytes, Some(read)), Some((_, chosen_by))) => {
                PackedOutline::is_of_parts(&chosen_by.outline, bytes, read)
            }
            ((_, Some(_)), None) => false,
        }
    }
}

/// How far a sample in flight has come.
enum PendingState {
    /// The version of its file has been asked for; the sample will be read into this slot.
    Look { slot: Slot, copy: Option<(TierPlace, Location)> },
    /// It is being read.
    Read(Route),
}

/// The source's reader in the group.
const SOURCE: usize = 0;

/// A tier's reader in the group.
fn of(place: TierPlace) -> usize {
    place + 1
}

impl TieredReader {
    /// Opens the readers of all tiers. That of the source, which `source` opens, and all but one that wait for their
    /// reads themselves have threads of their own.
    ///
    /// # Errors
    /// The errors of opening any of them.
    pub(super) fn new(
        cache: Arc<Cache>,
        source: impl FnOnce() -> Result<Box<dyn Reader>> + Send + 'static,
        slots: &SlotPool,
    ) -> Result<Self> {
        let bell = Arc::new(GroupBell::default());
        let mut copies = Vec::new();
        let mut driven_here = false;
        for tier in cache.tiers() {
            copies.push(match tier.reader(slots) {
                TierReader::Listening(open) => GroupedReader::Listening(open(bell.waker())?),
                TierReader::Waiting(open) if !std::mem::replace(&mut driven_here, true) => {
                    GroupedReader::Waiting(open()?)
                }
                TierReader::Waiting(open) => {
                    let thread = format!("foreload-{}", tier.name());
                    GroupedReader::Listening(Box::new(OwnThread::new(&thread, open, bell.waker())?))
                }
            });
        }
        let source = OwnThread::new("foreload-source", source, bell.waker())?;
        let source = GroupedReader::Listening(Box::new(source));
        let readers = ReaderGroup::new(std::iter::once(source).chain(copies).collect(), bell);
        let depth = readers.get(SOURCE).room();
        let revalidation = Revalidation::new(cache.index(), depth, readers.waker())?;
        let (asked, arrived, looked) = (HashMap::new(), Vec::new(), Vec::new());
        Ok(Self { cache, readers, revalidation, asked, arrived, looked })
    }

    /// Submits a sample's read, or asks for the version of its file first.
    fn follow(&mut self, token: u64, asked: AskedSample, slot: Slot, lookup: RouteLookup) {
        match lookup {
            RouteLookup::Found(route) => self.read(token, asked, slot, route),
            RouteLookup::NeedsVersion(copy) => {
                let state = PendingState::Look { slot, copy };
                self.asked.insert(token, PendingSample { asked, state });
                self.revalidation.ask(token, asked.extent.file);
            }
        }
    }

    /// Submits a sample's read by the given route.
    fn read(&mut self, token: u64, asked: AskedSample, slot: Slot, route: Route) {
        if let Route::Copy(place, location) = &route
            && location.extent.length as usize + OVERHEAD > slot.capacity()
        {
            // The slot is as large as any, for a huge sample that another form made a little larger.
            self.cache.fell_back(asked.sample, *place, *location, None);
            let lookup = self.cache.route_without_copy(asked.extent.file);
            return self.follow(token, asked, slot, lookup);
        }
        match &route {
            Route::Copy(place, location) => {
                // The copy may be another than the one that the parts were chosen for.
                let outlined = || self.cache.outline(asked.sample, *place, location);
                let parts = asked.parts.filter(|(_, chosen_by)| outlined() == Some(*chosen_by));
                let parts = parts.map(|(parts, _)| parts);
                let request = ReadRequest::new(token, location.extent, slot);
                let request = ReadRequest { version: location.version, parts, ..request };
                self.readers.submit(of(*place), request);
            }
            Route::Source { .. } => {
                self.readers.submit(SOURCE, ReadRequest::new(token, asked.extent, slot));
            }
        }
        self.asked.insert(token, PendingSample { asked, state: PendingState::Read(route) });
    }

    /// Submits the reads of samples whose files' versions have come. Returns whether there were any.
    fn go_on(&mut self) -> bool {
        self.revalidation.take(&mut self.looked);
        let mut looked = std::mem::take(&mut self.looked);
        let any = !looked.is_empty();
        for VersionAnswer { token, version } in looked.drain(..) {
            if let Some(PendingSample { asked, state: PendingState::Look { slot, copy } }) =
                self.asked.remove(&token)
            {
                let route = self.cache.route(asked.sample, version, copy);
                self.read(token, asked, slot, route);
            }
        }
        self.looked = looked;
        any
    }

    /// Passes on what has come, and has it kept. A copy that is wrong is read from the source.
    fn come(&mut self, out: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for (_, completion) in arrived.drain(..) {
            match self.asked.remove(&completion.token) {
                Some(PendingSample { asked, state: PendingState::Read(Route::Copy(place, at)) }) => {
                    self.come_from_copy(asked, (place, at), completion, out);
                }
                Some(PendingSample {
                    asked: AskedSample { sample, at_source, .. },
                    state: PendingState::Read(Route::Source { version, copy }),
                }) => {
                    if let Ok(bytes) = &completion.result {
                        if let Some((place, location)) = copy {
                            self.cache.compare(sample, place, &location, bytes);
                        }
                        self.cache.arrived(sample, bytes, at_source, version);
                    }
                    out.push(completion);
                }
                // An extent that is no sample.
                _ => out.push(completion),
            }
        }
        self.arrived = arrived;
    }

    fn come_from_copy(
        &mut self,
        asked: AskedSample,
        (place, location): (TierPlace, Location),
        completion: Completion,
        out: &mut Vec<Completion>,
    ) {
        let (token, AskedSample { sample, extent, .. }) = (completion.token, asked);
        let (slot, fault) = match completion.result {
            Ok(bytes) if asked.is_intact(&location, &bytes) => {
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
                // The checksum of the whole copy says whether it is damaged, or was outlined wrongly.
                Some(slot) => {
                    let asked = AskedSample { parts: None, ..asked };
                    return self.read(token, asked, slot, Route::Copy(place, location));
                }
                None => (None, Some(CopyFault::Checksum)),
            },
            Ok(bytes) => (bytes.into_slot(), Some(CopyFault::Checksum)),
            Err(error) => (completion.slot, fault(&error)),
        };
        let unconfirmed = fault == Some(CopyFault::Unconfirmed) && location.version.is_none();
        if !unconfirmed {
            self.cache.fell_back(sample, place, location, fault);
        }
        match slot {
            // It is asked for once more, with the version that its file has.
            Some(slot) if unconfirmed => {
                let lookup = RouteLookup::NeedsVersion(Some((place, location)));
                self.follow(token, asked, slot, lookup);
            }
            Some(slot) => {
                // Another node that has nothing is pushed the sample. If it did not give it in time, that would only
                // make it later.
                let may_have_it = self.cache.is_of_nodes(place) && fault != Some(CopyFault::Gone);
                let at_source = if may_have_it { SampleOrigin::SourceUnpushed } else { SampleOrigin::Source };
                let lookup = self.cache.route_without_copy(extent.file);
                self.follow(token, AskedSample { at_source, ..asked }, slot, lookup);
            }
            // The slot was lost with a thread that panicked: there is nothing to read into.
            None => {
                let error = Error::Internal("a reader of the cache lost its slot".into());
                out.push(Completion::failed(token, error, None));
            }
        }
    }

    /// Waits for what comes first, from any tier.
    fn wait_once(&mut self) -> Result<()> {
        if self.readers.in_flight() == 0 {
            self.revalidation.wait(&mut self.looked);
            return Ok(());
        }
        let looked = self.revalidation.in_flight() > 0 && !self.revalidation.listen();
        self.readers.wait(looked, &mut self.arrived)
    }

    /// Whether there are reads in flight from copies of this node's own.
    fn own_copies_in_flight(&self) -> bool {
        self.cache.local_tiers().any(|(place, _)| self.readers.get(of(place)).in_flight() > 0)
    }

    /// The reads in flight from copies, each of which may have to be read from the source instead.
    fn copies_in_flight(&self) -> usize {
        self.readers.in_flight() - self.readers.get(SOURCE).in_flight()
    }
}

/// The error by which a tier says that it gives a copy only to who knows the version of its file.
#[derive(Debug)]
pub(super) struct Unconfirmed;

impl std::fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is given only to who knows the version of its file")
    }
}

impl std::error::Error for Unconfirmed {}

/// What a failed read says about the copy; `None` where it is the process that lacks something.
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
        // A sample that falls back needs a place at the source; one whose version is asked for needs a place anywhere.
        let revalidation = self.revalidation.in_flight();
        let source = self.readers.get(SOURCE).room().saturating_sub(self.copies_in_flight());
        let copies = (0..self.cache.tiers().len()).map(|place| self.readers.get(of(place)).room());
        copies.chain([source]).min().unwrap_or(source).saturating_sub(revalidation)
    }

    fn in_flight(&self) -> usize {
        self.readers.in_flight() + self.revalidation.in_flight()
    }

    fn submit(&mut self, request: ReadRequest) {
        let Some(sample) = self.cache.index().sample_of(request.extent) else {
            // An extent that is no sample is kept nowhere.
            return self.readers.submit(SOURCE, ReadRequest { parts: None, ..request });
        };
        let ReadRequest { token, extent, slot, parts, chosen_by, .. } = request;
        let lookup = self.cache.look_up_route(sample, extent.file);
        let asked =
            AskedSample { sample, extent, at_source: SampleOrigin::Source, parts: parts.zip(chosen_by) };
        self.follow(token, asked, slot, lookup);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        self.go_on();
        // With room left, nobody waits for these reads.
        let full = self.room() == 0;
        self.cache.note_demand(full && self.readers.get(SOURCE).in_flight() > 0);
        self.cache.note_own_reads(full && self.own_copies_in_flight());
        loop {
            let waited_for = self.in_flight();
            self.wait_once()?;
            let went_on = self.go_on();
            let nothing_came = self.arrived.is_empty() && !went_on;
            self.come(out);
            // A sample that falls back is no answer yet. Else, an empty return means that a waker was called.
            if out.len() > before || nothing_came || waited_for == 0 {
                self.cache.note_demand(false);
                self.cache.note_own_reads(false);
                self.cache.count_stats(self.revalidation.take_count());
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

    /// The reads from the source; the cache counts those of copies.
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
