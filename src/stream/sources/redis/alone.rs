//! A stream read in order, without a group: this reader alone knows how far it is.
//!
//! Whoever trims a stream does not wait for such a reader. What was trimmed before it was read is counted where the
//! server says how many entries were ever added (Redis 7): the number of an entry among all is known at the stream's
//! first entry and at its last, and the reader counts from there.

use super::RedisOptions;
use super::link::{RedisLink, Trouble};
use super::replies::{EntryId, StreamEntry, StreamFacts, entries_of_stream};
use crate::record::sample_id;
use crate::share::RankShare;
use crate::source::SourcePosition;
use base::error::{Error, Result};
use base::notices::Notices;
use redis::cmd;
use std::time::{Duration, Instant};

/// How often the server is asked whether it trims entries that were not read. The answer has two entries in it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where an ordered reader is.
pub(super) struct OrderedReading {
    stream: String,
    name: String,
    what: String,
    start: String,
    share: RankShare,
    /// Whether this reader trims the stream itself.
    trims: bool,
    notices: Notices,
    /// The entry that was read last, or before all; `None` until the start is known.
    after: Option<EntryId>,
    /// Of each earlier division among ranks, how far these had come, by rank.
    divisions: Vec<Vec<Option<EntryId>>>,
    /// How many entries were added up to the one that was read last, where that is known.
    number: Option<u64>,
    /// How many entries are missing and were not told yet.
    missing: u64,
    looked: Instant,
    /// Whether entries were read since it was seen that there are no more.
    read_since: bool,
    /// Whether the place where reading goes on is that of an entry that was read, now or in a former run.
    has_read: bool,
    told_missing: bool,
    told_anew: bool,
}

impl OrderedReading {
    pub(super) fn new(options: &RedisOptions, what: String, notices: Notices) -> Self {
        Self {
            stream: options.stream.clone(),
            name: options.name().to_owned(),
            what,
            start: options.start.clone(),
            share: options.share,
            trims: options.trim,
            notices,
            after: None,
            divisions: Vec::new(),
            number: None,
            missing: 0,
            looked: Instant::now(),
            read_since: false,
            has_read: false,
            told_missing: false,
            told_anew: false,
        }
    }

    /// Takes up a position.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it is no position in a stream of Redis.
    pub(super) fn go_on_at(&mut self, position: &SourcePosition) -> Result<()> {
        self.after = self.entry(position.after.as_deref())?;
        // A position may be that of the stream's end when it was empty, or where a reader began.
        self.has_read = self.after.is_some_and(|after| after != EntryId::default()) && self.start != "new";
        let division =
            |ranks: &Vec<Option<String>>| ranks.iter().map(|at| self.entry(at.as_deref())).collect();
        self.divisions = position.divisions.iter().map(division).collect::<Result<_>>()?;
        Ok(())
    }

    fn entry(&self, key: Option<&str>) -> Result<Option<EntryId>> {
        let no_id = |key: &str| {
            Error::Unavailable(format!(
                "{}: the state's position {key:?} is no id of an entry; the state is that of another source of this \
                 name",
                self.what
            ))
        };
        key.map(|key| EntryId::parse(key).ok_or_else(|| no_id(key))).transpose()
    }

    /// The position of this rank where other ranks stood at these. It reads on behind the rank that was least far, and
    /// passes over what another had settled that was farther.
    ///
    /// # Errors
    /// Those of [`OrderedReading::go_on_at`].
    pub(super) fn divide_anew(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        let afters: Vec<Option<String>> = former.iter().map(|position| position.after.clone()).collect();
        let entries: Vec<Option<EntryId>> =
            afters.iter().map(|after| self.entry(after.as_deref())).collect::<Result<_>>()?;
        let first = match self.start.as_str() {
            // A rank that never began has missed nothing behind what another read.
            "new" => entries.into_iter().flatten().min(),
            _ => entries.into_iter().min().flatten(),
        };
        let mut divisions = former.first().map(|position| position.divisions.clone()).unwrap_or_default();
        divisions.push(afters);
        // Behind the place where reading goes on, a division that came no farther says nothing.
        let is_behind = |after: &Option<String>| after.as_deref().and_then(EntryId::parse) > first;
        divisions.retain(|ranks| ranks.iter().any(is_behind));
        let mut position = SourcePosition::union(former);
        position.settled.retain(|key| self.share.takes(&self.name, key));
        Ok(SourcePosition { after: first.map(|first| first.to_string()), divisions, ..position })
    }

    /// Where reading began, if that was at the stream's end.
    pub(super) fn begins_behind(&self) -> Option<String> {
        self.after.filter(|_| self.start == "new").map(|after| after.to_string())
    }

    /// Connects, and finds the place to begin at.
    pub(super) fn begin(&mut self, link: &mut RedisLink) -> Result<(), Trouble> {
        let facts = self.facts(link)?;
        if self.after.is_none() {
            (self.after, self.number) = match self.start.as_str() {
                // What was trimmed before anybody wanted it is not missing.
                "first" => (Some(EntryId::default()), facts.gone()),
                "new" => (Some(facts.last), facts.added),
                id => (EntryId::parse(id), None),
            };
        }
        self.compare(&facts);
        Ok(())
    }

    /// Waits for entries behind the last, and takes up to `count`.
    pub(super) fn read(
        &mut self,
        link: &mut RedisLink,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<StreamEntry>, Trouble> {
        // What was trimmed while there was no connection is missing too.
        if !link.is_connected() || (self.read_since && self.looked.elapsed() > LOOK_EVERY) {
            let facts = self.facts(link)?;
            self.compare(&facts);
        }
        let after = self.after.unwrap_or_default();
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !patience.is_zero() {
            // 0 would mean for ever.
            command.arg("BLOCK").arg(patience.as_millis().max(1) as u64);
        }
        command.arg("STREAMS").arg(&self.stream).arg(after.to_string());
        let answer = link.ask(&command, patience)?;
        let entries = entries_of_stream(answer).ok_or_else(|| link.not_understood())?;
        if let Some(last) = entries.last() {
            self.after = Some(last.id);
            self.number = self.number.map(|number| number + entries.len() as u64);
            (self.read_since, self.has_read) = (true, true);
        } else if self.read_since {
            let facts = self.facts(link)?;
            self.compare(&facts);
            self.read_since = facts.last > after;
        }
        Ok(entries)
    }

    /// Whether an entry is to be given, and then how many are missing before it.
    pub(super) fn takes(&mut self, id: EntryId, key: &str) -> Option<u64> {
        let sample = sample_id(&self.name, key);
        let settled = |ranks: &Vec<Option<EntryId>>| {
            let owner = RankShare::owner(ranks.len() as u32, sample);
            ranks.get(owner as usize).is_some_and(|after| *after >= Some(id))
        };
        if !self.share.takes_id(sample) || self.divisions.iter().any(settled) {
            return None;
        }
        // Of entries that nobody saw it is not known whose they were: the first rank counts them all.
        let missing = std::mem::take(&mut self.missing);
        Some(if self.share.rank == 0 { missing } else { 0 })
    }

    /// What the server says of the stream. One that is not there yet has had no entries.
    fn facts(&mut self, link: &mut RedisLink) -> Result<StreamFacts, Trouble> {
        self.looked = Instant::now();
        match link.ask(cmd("XINFO").arg("STREAM").arg(&self.stream), Duration::ZERO) {
            Ok(answer) => StreamFacts::of(answer).ok_or_else(|| link.not_understood()),
            Err(trouble) if trouble.is_no_stream() => Ok(StreamFacts::default()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Compares what was read with what the stream is, and finds what is missing behind the last entry that was read.
    fn compare(&mut self, facts: &StreamFacts) {
        let after = self.after.unwrap_or_default();
        // Fewer entries were ever added than were read; or none is gone, and yet the last one read is no more.
        let fewer = facts.added.is_some_and(|added| self.number.is_some_and(|number| added < number));
        let other =
            self.has_read && facts.gone() == Some(0) && facts.first.is_some_and(|first| first > after);
        if facts.last < after || fewer || other {
            self.number = if facts.last < after { None } else { facts.gone() };
            self.tell_anew(after, facts.last);
            return;
        }
        let Some(gone) = facts.gone() else {
            // An older server says nothing but where the stream begins.
            if facts.first.is_some_and(|first| first > after) && after != EntryId::default() {
                self.tell_missing(None);
            }
            return;
        };
        if facts.last == after {
            // All was read: whatever was added and not counted is missing.
            let added = facts.added.unwrap_or_default();
            self.miss(self.number.map_or(0, |number| added.saturating_sub(number)));
            self.number = Some(added);
        } else if facts.first.is_none_or(|first| first > after) {
            // All that is gone lay before the first entry, and so does what was read.
            match self.number {
                Some(number) => self.miss(gone.saturating_sub(number)),
                None if gone > 0 && !self.trims => self.tell_missing(None),
                None => {}
            }
            self.number = Some(self.number.unwrap_or_default().max(gone));
        }
    }

    fn tell_anew(&mut self, after: EntryId, last: EntryId) {
        if std::mem::replace(&mut self.told_anew, true) {
            return;
        }
        let (what, given) = match last < after {
            true => (
                format!(
                    "the last that the server knows of is {last}: it lost some, or the stream was made anew"
                ),
                format!(
                    "entries that are added with ids up to {after} will not be given; to read a new stream from its \
                         beginning, start without the state"
                ),
            ),
            false => (
                "the stream was made anew since".to_owned(),
                "what it had behind that and was not read is lost, and how much that was is not known"
                    .to_owned(),
            ),
        };
        self.notices
            .warn_at_once(format!("{}: entries up to {after} were read, and {what}; {given}", self.what));
    }

    fn miss(&mut self, lost: u64) {
        if lost > 0 {
            self.missing += lost;
            self.tell_missing(Some(lost));
        }
    }

    fn tell_missing(&mut self, lost: Option<u64>) {
        if std::mem::replace(&mut self.told_missing, true) {
            return;
        }
        let behind = self.after.unwrap_or_default();
        let many = lost.map_or_else(
            || format!("the stream no longer has {behind}, up to which it was read: entries behind it may be gone too"),
            |lost| format!("{lost} entries behind {behind} were trimmed or deleted before they were read"),
        );
        self.notices.warn_at_once(format!(
            "{}: {many}; keep a longer stream (MAXLEN of XADD and XTRIM), or read it faster; later ones are only \
             counted",
            self.what,
        ));
    }

    /// Has the server remove all entries that a checkpoint of this position does not need.
    pub(super) fn trim(&mut self, link: &mut RedisLink, position: &SourcePosition) -> Result<(), Trouble> {
        let Some(after) = position.after.as_deref().and_then(EntryId::parse) else { return Ok(()) };
        let mut command = cmd("XTRIM");
        command.arg(&self.stream).arg("MINID").arg("=").arg(after.next().to_string());
        link.ask(&command, Duration::ZERO).map(drop)
    }
}
