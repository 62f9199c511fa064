//! A Redis stream read in order without a group: only this reader has its position.
//!
//! The server does not wait for such a reader before it trims the stream. Entries that were trimmed before they were
//! read are counted if the server reports how many entries were ever added (Redis 7). Then the numbers of the stream's
//! first and last entries among all entries are known, and the reader counts from there.

use super::RedisOptions;
use super::link::{RedisFailure, RedisLink};
use super::replies::{EntryId, StreamEntry, StreamInfo, entries_of_stream};
use crate::record::sample_id;
use crate::share::RankShare;
use crate::source::SourcePosition;
use base::error::{Error, Result};
use base::notices::Notices;
use redis::cmd;
use std::time::{Duration, Instant};

/// How often the server is asked whether it has trimmed unread entries. The answer contains two entries.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The progress of an ordered reader.
pub(super) struct OrderedReader {
    stream: String,
    name: String,
    what: String,
    start: String,
    share: RankShare,
    /// Whether this reader trims the stream itself.
    trims: bool,
    notices: Notices,
    /// The id of the entry that was read last, or 0-0 before the first. `None` until the start is known.
    after: Option<EntryId>,
    /// For each earlier division among ranks, the position of each rank, in order of rank.
    divisions: Vec<Vec<Option<EntryId>>>,
    /// The number of entries that were added up to the last one read, if known.
    number: Option<u64>,
    /// The number of missing entries that were not reported yet.
    missing: u64,
    looked: Instant,
    /// Whether entries were read since the stream was last seen at its end.
    read_since: bool,
    /// Whether `after` is the id of an entry that was read, now or in a former run.
    has_read: bool,
    told_missing: bool,
    told_anew: bool,
}

impl OrderedReader {
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

    /// Resumes at a position.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not a position in a Redis stream.
    pub(super) fn go_on_at(&mut self, position: &SourcePosition) -> Result<()> {
        self.after = self.entry(position.after.as_deref())?;
        // The position may also be that of an empty stream's end, or where a reader began.
        self.has_read = self.after.is_some_and(|after| after != EntryId::default()) && self.start != "new";
        let division =
            |ranks: &Vec<Option<String>>| ranks.iter().map(|at| self.entry(at.as_deref())).collect();
        self.divisions = position.divisions.iter().map(division).collect::<Result<_>>()?;
        Ok(())
    }

    fn entry(&self, key: Option<&str>) -> Result<Option<EntryId>> {
        let no_id = |key: &str| {
            Error::Unavailable(format!(
                "{}: the state's position {key:?} is not an entry id: the state belongs to another source with this \
                 name",
                self.what
            ))
        };
        key.map(|key| EntryId::parse(key).ok_or_else(|| no_id(key))).transpose()
    }

    /// The position of this rank, from those of the former ranks. It resumes after the slowest former rank, and skips
    /// entries that faster ranks had settled.
    ///
    /// # Errors
    /// The errors of [`OrderedReader::go_on_at`].
    pub(super) fn divide_anew(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        let afters: Vec<Option<String>> = former.iter().map(|position| position.after.clone()).collect();
        let entries: Vec<Option<EntryId>> =
            afters.iter().map(|after| self.entry(after.as_deref())).collect::<Result<_>>()?;
        let first = match self.start.as_str() {
            // A rank that never began needs no entries from before the positions of the others.
            "new" => entries.into_iter().flatten().min(),
            _ => entries.into_iter().min().flatten(),
        };
        let mut divisions = former.first().map(|position| position.divisions.clone()).unwrap_or_default();
        divisions.push(afters);
        // A division in which no rank got farther than the new position has no more use.
        let is_behind = |after: &Option<String>| after.as_deref().and_then(EntryId::parse) > first;
        divisions.retain(|ranks| ranks.iter().any(is_behind));
        let mut position = SourcePosition::union(former);
        position.settled.retain(|key| self.share.takes(&self.name, key));
        Ok(SourcePosition { after: first.map(|first| first.to_string()), divisions, ..position })
    }

    /// Where reading began, if it began at the stream's end.
    pub(super) fn begins_behind(&self) -> Option<String> {
        self.after.filter(|_| self.start == "new").map(|after| after.to_string())
    }

    /// Connects, and finds where to begin.
    pub(super) fn begin(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        let facts = self.facts(link)?;
        if self.after.is_none() {
            (self.after, self.number) = match self.start.as_str() {
                // Entries that were trimmed before this reader existed do not count as missing.
                "first" => (Some(EntryId::default()), facts.gone()),
                "new" => (Some(facts.last), facts.added),
                id => (EntryId::parse(id), None),
            };
        }
        self.compare(&facts);
        Ok(())
    }

    /// Waits for entries after the last one, and reads up to `count`.
    pub(super) fn read(
        &mut self,
        link: &mut RedisLink,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<StreamEntry>, RedisFailure> {
        // Entries that were trimmed while the connection was lost are missing too.
        if !link.is_connected() || (self.read_since && self.looked.elapsed() > LOOK_EVERY) {
            let facts = self.facts(link)?;
            self.compare(&facts);
        }
        let after = self.after.unwrap_or_default();
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !patience.is_zero() {
            // Redis waits without limit for 0.
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

    /// Returns how many entries are missing before this one, or `None` if this rank skips the entry.
    pub(super) fn takes(&mut self, id: EntryId, key: &str) -> Option<u64> {
        let sample = sample_id(&self.name, key);
        let settled = |ranks: &Vec<Option<EntryId>>| {
            let owner = RankShare::owner(ranks.len() as u32, sample);
            ranks.get(owner as usize).is_some_and(|after| *after >= Some(id))
        };
        if !self.share.takes_id(sample) || self.divisions.iter().any(settled) {
            return None;
        }
        // The owner of an entry that was never read is unknown, so the first rank counts all of them.
        let missing = std::mem::take(&mut self.missing);
        Some(if self.share.rank == 0 { missing } else { 0 })
    }

    /// The server's facts about the stream. A stream that does not exist yet has had no entries.
    fn facts(&mut self, link: &mut RedisLink) -> Result<StreamInfo, RedisFailure> {
        self.looked = Instant::now();
        match link.ask(cmd("XINFO").arg("STREAM").arg(&self.stream), Duration::ZERO) {
            Ok(answer) => StreamInfo::of(answer).ok_or_else(|| link.not_understood()),
            Err(trouble) if trouble.is_missing_stream() => Ok(StreamInfo::default()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Compares the facts with what was read, and counts the missing entries after the last one read.
    fn compare(&mut self, facts: &StreamInfo) {
        let after = self.after.unwrap_or_default();
        // Either fewer entries were ever added than were read, or none was removed and yet the last one read does not
        // exist.
        let fewer = facts.added.is_some_and(|added| self.number.is_some_and(|number| added < number));
        let other =
            self.has_read && facts.gone() == Some(0) && facts.first.is_some_and(|first| first > after);
        if facts.last < after || fewer || other {
            self.number = if facts.last < after { None } else { facts.gone() };
            self.warn_recreated(after, facts.last);
            return;
        }
        let Some(gone) = facts.gone() else {
            // An older server only reports where the stream begins.
            if facts.first.is_some_and(|first| first > after) && after != EntryId::default() {
                self.tell_missing(None);
            }
            return;
        };
        if facts.last == after {
            // Everything was read. Entries that were added and not counted are missing.
            let added = facts.added.unwrap_or_default();
            self.miss(self.number.map_or(0, |number| added.saturating_sub(number)));
            self.number = Some(added);
        } else if facts.first.is_none_or(|first| first > after) {
            // All removed entries were before the first existing one, and so were those that were read.
            match self.number {
                Some(number) => self.miss(gone.saturating_sub(number)),
                None if gone > 0 && !self.trims => self.tell_missing(None),
                None => {}
            }
            self.number = Some(self.number.unwrap_or_default().max(gone));
        }
    }

    fn warn_recreated(&mut self, after: EntryId, last: EntryId) {
        if std::mem::replace(&mut self.told_anew, true) {
            return;
        }
        let (what, given) = match last < after {
            true => (
                format!("the server's last entry is {last}: entries were lost, or the stream was recreated"),
                format!(
                    "new entries with ids up to {after} are skipped; to read a recreated stream from its \
                         beginning, start without the state"
                ),
            ),
            false => (
                "the stream was recreated since".to_owned(),
                "unread entries of the former stream are lost, and their number is unknown".to_owned(),
            ),
        };
        self.notices
            .warn_at_once(format!("{}: entries up to {after} were read, but {what}; {given}", self.what));
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
            || {
                format!(
                    "the stream no longer has {behind}, the last entry read: later ones may be missing too"
                )
            },
            |lost| format!("{lost} entries after {behind} were trimmed or deleted before they were read"),
        );
        self.notices.warn_at_once(format!(
            "{}: {many}; keep a longer stream (MAXLEN of XADD and XTRIM), or read it faster; further losses are only \
             counted",
            self.what,
        ));
    }

    /// Has the server remove all entries that a checkpoint of this position does not need.
    pub(super) fn trim(
        &mut self,
        link: &mut RedisLink,
        position: &SourcePosition,
    ) -> Result<(), RedisFailure> {
        let Some(after) = position.after.as_deref().and_then(EntryId::parse) else { return Ok(()) };
        let mut command = cmd("XTRIM");
        command.arg(&self.stream).arg("MINID").arg("=").arg(after.next().to_string());
        link.ask(&command, Duration::ZERO).map(drop)
    }
}
