//! Redis streams as sources: the fields of an entry are the members of a sample, and the entry id is the sample's key.
//!
//! Without a consumer group a stream is read in order, and only the reader stores its position ([`ordered`]). With a
//! group the server distributes entries, and lists the entries that were not acknowledged ([`group`]).

mod group;
mod link;
mod options;
mod ordered;
mod replies;

pub use options::RedisOptions;

use crate::record::{Record, unusable};
use crate::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
use base::error::{Error, Result};
use base::notices::Notices;
use group::GroupReader;
use link::{RedisFailure, RedisLink};
use ordered::OrderedReader;
use redis::cmd;
use replies::{StreamEntry, entries};
use std::time::{Duration, Instant};

/// The target size of a response in bytes. A response is in memory twice for a moment.
const RESPONSE_BYTES: usize = 4 << 20;
const MAX_ENTRIES: usize = 512;
/// The number of entries in the first request, when the size of an entry is not known.
const FIRST_ENTRIES: usize = 8;
/// How long to wait for a server that does not respond at first.
const FIRST_CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for a lost server before a command fails. The server may have to load its data first.
const RECONNECT_WAIT: Duration = Duration::from_secs(20);

enum RedisReading {
    Ordered(OrderedReader),
    Grouped(GroupReader),
}

/// A Redis stream as a source.
pub struct RedisSource {
    options: RedisOptions,
    what: String,
    link: RedisLink,
    reading: RedisReading,
    sizes: EntrySizes,
}

/// The recent size of an entry in bytes.
struct EntrySizes(Option<usize>);

impl EntrySizes {
    fn count(&self, most: usize) -> usize {
        let fit = self.0.map_or(FIRST_ENTRIES, |bytes| RESPONSE_BYTES / bytes.max(1));
        fit.clamp(1, MAX_ENTRIES).min(most.max(1))
    }

    /// Updates the size from the entries of a response. A large entry raises the size at once, so that the next
    /// response has fewer entries.
    fn learn(&mut self, entries: &[StreamEntry]) {
        for bytes in entries.iter().map(StreamEntry::len) {
            let usual = self.0.unwrap_or(bytes);
            self.0 = Some(bytes.max(usual - usual / 8 + bytes / 8));
        }
    }
}

impl RedisSource {
    /// Creates a source, which connects when it is opened.
    ///
    /// # Errors
    /// [`Error::Config`] for `source` if a setting cannot work.
    pub fn new(options: RedisOptions, notices: Notices) -> Result<Self> {
        let (client, place) = options.check()?;
        let mut what = format!("redis stream {:?} at {place}", options.stream);
        if let Some(group) = &options.group {
            what += &format!(", group {group:?}");
        }
        let reading = match &options.group {
            Some(group) => {
                RedisReading::Grouped(GroupReader::new(&options, group, what.clone(), notices.clone()))
            }
            None => RedisReading::Ordered(OrderedReader::new(&options, what.clone(), notices.clone())),
        };
        let link = RedisLink::new(client, what.clone(), notices);
        Ok(Self { options, what, link, reading, sizes: EntrySizes(None) })
    }

    fn begin(&mut self) -> Result<(), RedisFailure> {
        match &mut self.reading {
            RedisReading::Ordered(reading) => reading.begin(&mut self.link),
            RedisReading::Grouped(reading) => reading.begin(&mut self.link),
        }
    }

    fn step(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<(), RedisFailure> {
        let count = self.sizes.count(most);
        let entries = match &mut self.reading {
            RedisReading::Ordered(reading) => reading.read(&mut self.link, count, patience)?,
            RedisReading::Grouped(reading) => reading.read(&mut self.link, count, patience)?,
        };
        self.sizes.learn(&entries);
        for entry in entries {
            let key = entry.id.to_string();
            let gap = match &mut self.reading {
                RedisReading::Ordered(reading) => reading.missing_before(entry.id, &key),
                RedisReading::Grouped(reading) => reading.should_give(&key).then_some(0),
            };
            if let Some(gap) = gap {
                let record = entry.record(self.options.name(), &key, self.options.max_bytes);
                into.push(Arrival { key, record, gap });
            }
        }
        Ok(())
    }

    /// Runs `what`, and repeats it on new connections until `patience` is over.
    fn with_reconnects<T>(
        &mut self,
        patience: Duration,
        what: impl Fn(&mut Self) -> Result<T, RedisFailure>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let failure = match what(self) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            self.link.schedule_reconnect(&failure)?;
            if !self.link.wait_for_retry(deadline) {
                return Err(self.link.failed(&failure));
            }
        }
    }
}

impl StreamSource for RedisSource {
    fn name(&self) -> &str {
        self.options.name()
    }

    fn replay(&self) -> Replay {
        match self.reading {
            RedisReading::Ordered(_) => Replay::Ordered,
            RedisReading::Grouped(_) => Replay::Unordered,
        }
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        match &mut self.reading {
            RedisReading::Ordered(reading) => reading.resume_at(position)?,
            RedisReading::Grouped(reading) => reading.resume_at(position),
        }
        // A starting server responds that it loads its data. A server that does not respond may be about to start.
        let loading = Instant::now() + Duration::from_secs(60);
        self.with_reconnects(FIRST_CONNECT_WAIT, |source| {
            loop {
                match source.begin() {
                    Err(failure) if failure.is("LOADING") && Instant::now() < loading => {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    begun => return begun,
                }
            }
        })
    }

    fn starts_after(&self) -> Option<String> {
        match &self.reading {
            RedisReading::Ordered(reading) => reading.starts_after(),
            RedisReading::Grouped(_) => None,
        }
    }

    fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        match &self.reading {
            RedisReading::Ordered(reading) => reading.redistribute(former),
            // Any rank may get an unacknowledged entry again, so each rank needs the keys of all settled entries.
            RedisReading::Grouped(_) => Ok(SourcePosition::union(former)),
        }
    }

    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received> {
        let (deadline, before) = (Instant::now() + patience, into.len());
        loop {
            if !self.link.wait_for_retry(deadline) {
                return Ok(Received::More);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let stepped = match &mut self.reading {
                // Only show the other consumers of the group that this reader is alive.
                RedisReading::Grouped(reading) if most == 0 => reading.sign_of_life(&mut self.link),
                _ if most == 0 => Ok(()),
                _ => self.step(most, left, into),
            };
            if let Err(failure) = stepped {
                self.link.schedule_reconnect(&failure)?;
            }
            if most == 0 || into.len() > before || Instant::now() >= deadline {
                return Ok(Received::More);
            }
        }
    }

    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool> {
        self.with_reconnects(RECONNECT_WAIT, |source| match &mut source.reading {
            // Return `false`, so that the keys are kept: if the stream is read in order, settled entries after the
            // position are known only by their keys.
            RedisReading::Ordered(reading) if source.options.trim => {
                reading.trim(&mut source.link, position).map(|()| false)
            }
            RedisReading::Ordered(_) => Ok(false),
            RedisReading::Grouped(reading) => reading.acknowledge(&mut source.link, position).map(|()| true),
        })
    }

    fn fetch(&mut self, key: &str) -> Result<Record> {
        let mut command = cmd("XRANGE");
        command.arg(&self.options.stream).arg(key).arg(key);
        let found = self.with_reconnects(RECONNECT_WAIT, |source| {
            let answer = source.link.ask(&command, Duration::ZERO)?;
            entries(answer).ok_or_else(|| source.link.not_understood())
        })?;
        let Some(entry) = found.first() else {
            return Err(Error::Unavailable(format!(
                "{}: the entry {key} no longer exists (trimmed or deleted): replay a journal while its entries are \
                 still in the stream",
                self.what
            )));
        };
        let name = self.options.name();
        entry.record(name, key, self.options.max_bytes).map_err(|what| unusable(name, key, &what))
    }

    fn describe(&self) -> String {
        self.what.clone()
    }
}
