//! Redis streams as sources: the fields of an entry are the members of a sample, and its id is the key.
//!
//! Without a consumer group a stream is read in order, and only this reader has its position ([`alone`]). With a group
//! the server distributes entries, and keeps a list of those that were not acknowledged ([`group`]).

mod alone;
mod group;
mod link;
mod options;
mod replies;

pub use options::RedisOptions;

use crate::record::{Record, unusable};
use crate::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
use alone::OrderedReader;
use base::error::{Error, Result};
use base::notices::Notices;
use group::GroupReader;
use link::{RedisFailure, RedisLink};
use redis::cmd;
use replies::{StreamEntry, entries};
use std::time::{Duration, Instant};

/// The target size of an answer in bytes. An answer is in memory twice for a moment.
const ANSWER: usize = 4 << 20;
/// The most entries of one answer.
const MAX_ENTRIES: usize = 512;
/// The entries of the first answer, when their size is not known.
const FIRST_ENTRIES: usize = 8;
/// How long to wait for a server that does not answer at first.
const FIRST_CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for a lost server before a command fails. It may have to load its data first.
const RECONNECT_WAIT: Duration = Duration::from_secs(20);

/// The two ways of reading a stream.
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
    /// The number of entries to ask for, at most `most`.
    fn count(&self, most: usize) -> usize {
        let fit = self.0.map_or(FIRST_ENTRIES, |bytes| ANSWER / bytes.max(1));
        fit.clamp(1, MAX_ENTRIES).min(most.max(1))
    }

    /// Updates the size from the entries of an answer. A long entry counts at once, so that the next answer has fewer.
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

    /// Begins reading, in the way that was chosen.
    fn begin(&mut self) -> Result<(), RedisFailure> {
        match &mut self.reading {
            RedisReading::Ordered(reading) => reading.begin(&mut self.link),
            RedisReading::Grouped(reading) => reading.begin(&mut self.link),
        }
    }

    /// Asks once for up to `most` samples, and waits up to `patience` for them.
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
                RedisReading::Ordered(reading) => reading.takes(entry.id, &key),
                RedisReading::Grouped(reading) => reading.takes(&key).then_some(0),
            };
            if let Some(gap) = gap {
                let record = entry.record(self.options.name(), &key, self.options.max_bytes);
                into.push(Arrival { key, record, gap });
            }
        }
        Ok(())
    }

    /// Runs `what`, and repeats it on new connections until `patience` is over.
    fn insist<T>(
        &mut self,
        patience: Duration,
        what: impl Fn(&mut Self) -> Result<T, RedisFailure>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let trouble = match what(self) {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            self.link.mend(&trouble)?;
            if !self.link.wait_for_retry(deadline) {
                return Err(self.link.failed(&trouble));
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
            RedisReading::Grouped(_) => Replay::Listed,
        }
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        match &mut self.reading {
            RedisReading::Ordered(reading) => reading.go_on_at(position)?,
            RedisReading::Grouped(reading) => reading.go_on_at(position),
        }
        // A starting server answers that it loads its data. A server that does not answer may be about to start.
        let loading = Instant::now() + Duration::from_secs(60);
        self.insist(FIRST_CONNECT_WAIT, |source| {
            loop {
                match source.begin() {
                    Err(trouble) if trouble.is("LOADING") && Instant::now() < loading => {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    begun => return begun,
                }
            }
        })
    }

    fn begins_behind(&self) -> Option<String> {
        match &self.reading {
            RedisReading::Ordered(reading) => reading.begins_behind(),
            RedisReading::Grouped(_) => None,
        }
    }

    fn divide_anew(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        match &self.reading {
            RedisReading::Ordered(reading) => reading.divide_anew(former),
            // Any of these ranks may get an unacknowledged entry again, so each needs the keys of all settled ones.
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
                // Only show the others in the group that this reader is alive.
                RedisReading::Grouped(reading) if most == 0 => reading.sign_of_life(&mut self.link),
                _ if most == 0 => Ok(()),
                _ => self.step(most, left, into),
            };
            if let Err(trouble) = stepped {
                self.link.mend(&trouble)?;
            }
            if most == 0 || into.len() > before || Instant::now() >= deadline {
                return Ok(Received::More);
            }
        }
    }

    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool> {
        self.insist(RECONNECT_WAIT, |source| match &mut source.reading {
            // For a stream that is read in order, only the list of keys identifies settled entries after the position.
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
        let found = self.insist(RECONNECT_WAIT, |source| {
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
