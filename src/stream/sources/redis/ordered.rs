//! A Redis stream that is read in order, without a consumer group. Only this reader stores the position, not the
//! server.
//!
//! The server may trim entries that this reader has not read. Such entries are counted if the server reports how many
//! entries were ever added (Redis 7). From this number the reader computes the ordinals of the stream's first and last
//! entries among all entries ever added, and it counts on from there.

use super::RedisOptions;
use super::link::{RedisFailure, RedisLink};
use super::replies::{EntryId, StreamEntry, StreamInfo, entries_of_stream};
use crate::record::sample_id;
use crate::share::RankShare;
use crate::source::SourcePosition;
use base::error::{Error, Result};
use base::notices::Notices;
use redis::cmd;
use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// How often to ask the server whether it has trimmed unread entries. Each response contains two whole entries.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct OrderedReader {
    options: RedisOptions,
    what: String,
    notices: Notices,
    /// The id of the entry that was read last, or 0-0 before the first. `None` until the start is known.
    after: Option<EntryId>,
    /// For each earlier number of ranks that divided the stream: the position of each rank, in order of rank.
    divisions: Vec<Vec<Option<EntryId>>>,
    /// The ordinal of the last read entry among all entries ever added, if known.
    number: Option<u64>,
    /// The number of missing entries that were not reported yet.
    missing: u64,
    last_check: Instant,
    /// Whether entries were read since the reader last reached the end of the stream.
    read_since: bool,
    /// Whether `after` is the id of an entry that was read, now or in a former run.
    has_read: bool,
    warned_missing: bool,
    warned_recreated: bool,
}

impl OrderedReader {
    pub(super) fn new(options: &RedisOptions, what: String, notices: Notices) -> Self {
        Self {
            options: options.clone(),
            what,
            notices,
            after: None,
            divisions: Vec::new(),
            number: None,
            missing: 0,
            last_check: Instant::now(),
            read_since: false,
            has_read: false,
            warned_missing: false,
            warned_recreated: false,
        }
    }

    /// Resumes at a position.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a key in the position is not an entry id.
    pub(super) fn resume_at(&mut self, position: &SourcePosition) -> Result<()> {
        self.after = self.entry(position.after.as_deref())?;
        // The position may also be the end of an empty stream, or the entry after which a reader began.
        self.has_read =
            self.after.is_some_and(|after| after != EntryId::default()) && self.options.start != "new";
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

    /// Computes the position of this rank from the positions of the former ranks. This rank resumes after the slowest
    /// former rank, and skips entries that faster ranks had settled.
    ///
    /// # Errors
    /// The errors of [`OrderedReader::resume_at`].
    pub(super) fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        let afters: Vec<Option<String>> = former.iter().map(|position| position.after.clone()).collect();
        let entries: Vec<Option<EntryId>> =
            afters.iter().map(|after| self.entry(after.as_deref())).collect::<Result<_>>()?;
        let first = match self.options.start.as_str() {
            // A rank that never began needs no entries from before the positions of the other ranks.
            "new" => entries.into_iter().flatten().min(),
            _ => entries.into_iter().min().flatten(),
        };
        let mut divisions = former.first().map(|position| position.divisions.clone()).unwrap_or_default();
        divisions.push(afters);
        // Drop the positions of earlier numbers of ranks if none of these positions is after the new position.
        let is_behind = |after: &Option<String>| after.as_deref().and_then(EntryId::parse) > first;
        divisions.retain(|ranks| ranks.iter().any(is_behind));
        let mut position = SourcePosition::union(former);
        position.settled.retain(|key| self.options.share.owns(self.options.name(), key));
        Ok(SourcePosition { after: first.map(|first| first.to_string()), divisions, ..position })
    }

    /// The id after which reading began, if it began at the stream's end.
    pub(super) fn starts_after(&self) -> Option<String> {
        self.after.filter(|_| self.options.start == "new").map(|after| after.to_string())
    }

    pub(super) fn begin(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        let info = self.stream_info(link)?;
        if self.after.is_none() {
            (self.after, self.number) = match self.options.start.as_str() {
                // Entries that were trimmed before this reader existed do not count as missing.
                "first" => (Some(EntryId::default()), info.removed()),
                "new" => (Some(info.last), info.added),
                id => (EntryId::parse(id), None),
            };
        }
        self.compare(&info);
        Ok(())
    }

    /// Waits for entries after the last read entry, and reads up to `count` of them.
    pub(super) fn read(
        &mut self,
        link: &mut RedisLink,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<StreamEntry>, RedisFailure> {
        // Entries that were trimmed while the connection was lost are missing too.
        if !link.is_connected() || (self.read_since && self.last_check.elapsed() > CHECK_INTERVAL) {
            let info = self.stream_info(link)?;
            self.compare(&info);
        }
        let after = self.after.unwrap_or_default();
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !patience.is_zero() {
            // A timeout of 0 means that Redis waits without limit.
            command.arg("BLOCK").arg(patience.as_millis().max(1) as u64);
        }
        command.arg("STREAMS").arg(&self.options.stream).arg(after.to_string());
        let answer = link.ask(&command, patience)?;
        let entries = entries_of_stream(answer).ok_or_else(|| link.not_understood())?;
        if let Some(last) = entries.last() {
            self.after = Some(last.id);
            self.number = self.number.map(|number| number + entries.len() as u64);
            (self.read_since, self.has_read) = (true, true);
        } else if self.read_since {
            let info = self.stream_info(link)?;
            self.compare(&info);
            self.read_since = info.last > after;
        }
        Ok(entries)
    }

    /// Returns how many entries are missing before this entry, or `None` if this rank skips the entry.
    pub(super) fn missing_before(&mut self, id: EntryId, key: &str) -> Option<u64> {
        let sample = sample_id(self.options.name(), key);
        let settled = |ranks: &Vec<Option<EntryId>>| {
            let owner = RankShare::owner(ranks.len() as u32, sample);
            ranks.get(owner as usize).is_some_and(|after| *after >= Some(id))
        };
        if !self.options.share.owns_id(sample) || self.divisions.iter().any(settled) {
            return None;
        }
        // The owner of an entry that was never read is unknown, so rank 0 counts all missing entries.
        let missing = std::mem::take(&mut self.missing);
        Some(if self.options.share.rank == 0 { missing } else { 0 })
    }

    /// Asks the server for information about the stream. A stream that does not exist yet counts as empty.
    fn stream_info(&mut self, link: &mut RedisLink) -> Result<StreamInfo, RedisFailure> {
        self.last_check = Instant::now();
        match link.ask(cmd("XINFO").arg("STREAM").arg(&self.options.stream), Duration::ZERO) {
            Ok(answer) => StreamInfo::of(answer).ok_or_else(|| link.not_understood()),
            Err(failure) if failure.is_missing_stream() => Ok(StreamInfo::default()),
            Err(failure) => Err(failure),
        }
    }

    /// Compares `info` with the entries that were read, and counts the missing entries after the last read entry.
    fn compare(&mut self, info: &StreamInfo) {
        let after = self.after.unwrap_or_default();
        // The stream was recreated if fewer entries were ever added than were read. It was also recreated if no entry
        // was removed, but the last read entry does not exist.
        let fewer = info.added.is_some_and(|added| self.number.is_some_and(|number| added < number));
        let other =
            self.has_read && info.removed() == Some(0) && info.first.is_some_and(|first| first > after);
        if info.last < after || fewer || other {
            let is_unread = info.first.is_none_or(|first| first > after);
            self.number = match info.last.cmp(&after) {
                Ordering::Less => None,
                Ordering::Equal => info.added,
                Ordering::Greater if is_unread => info.removed(),
                // Some of the new entries were read before this comparison, and their number is unknown.
                Ordering::Greater => None,
            };
            self.warn_recreated(after, info.last);
            return;
        }
        let Some(removed) = info.removed() else {
            // An older server only reports where the stream begins.
            if info.first.is_some_and(|first| first > after) && after != EntryId::default() {
                self.warn_missing(None);
            }
            return;
        };
        if info.last == after {
            // All existing entries were read. Entries that were added and not counted are missing.
            let added = info.added.unwrap_or_default();
            self.miss(self.number.map_or(0, |number| added.saturating_sub(number)));
            self.number = Some(added);
        } else if info.first.is_none_or(|first| first > after) {
            // All removed entries and all read entries come before the first existing entry.
            match self.number {
                Some(number) => self.miss(removed.saturating_sub(number)),
                None if removed > 0 && !self.options.trim => self.warn_missing(None),
                None => {}
            }
            self.number = Some(self.number.unwrap_or_default().max(removed));
        }
    }

    fn warn_recreated(&mut self, after: EntryId, last: EntryId) {
        if std::mem::replace(&mut self.warned_recreated, true) {
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
            self.warn_missing(Some(lost));
        }
    }

    fn warn_missing(&mut self, lost: Option<u64>) {
        if std::mem::replace(&mut self.warned_missing, true) {
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

    /// Makes the server remove all entries that a checkpoint of this position does not need.
    pub(super) fn trim(
        &mut self,
        link: &mut RedisLink,
        position: &SourcePosition,
    ) -> Result<(), RedisFailure> {
        let Some(after) = position.after.as_deref().and_then(EntryId::parse) else { return Ok(()) };
        let mut command = cmd("XTRIM");
        command.arg(&self.options.stream).arg("MINID").arg("=").arg(after.next().to_string());
        link.ask(&command, Duration::ZERO).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reader that has read up to the entry `1-after`, which was entry number `number`.
    fn reader(after: u64, number: u64) -> OrderedReader {
        let options = RedisOptions::new("redis://localhost", "images");
        let mut reader = OrderedReader::new(&options, "redis".into(), Notices::default());
        reader.after = EntryId::parse(&format!("1-{after}"));
        (reader.number, reader.has_read) = (Some(number), true);
        reader
    }

    fn info(first: u64, last: u64, added: u64) -> StreamInfo {
        let id = |number| EntryId::parse(&format!("1-{number}")).unwrap();
        StreamInfo { length: last - first + 1, first: Some(id(first)), last: id(last), added: Some(added) }
    }

    #[test]
    fn entries_that_were_read_of_a_recreated_stream_are_not_missing() {
        // 40 entries of the former stream were read, then 170 of the 200 entries of the new stream.
        let mut reader = reader(370, 210);
        reader.compare(&info(201, 400, 200));
        assert!(reader.warned_recreated);
        reader.after = EntryId::parse("1-400");
        reader.number = reader.number.map(|number| number + 30);
        reader.compare(&info(201, 400, 200));
        assert_eq!((reader.number, reader.missing), (Some(200), 0));
        // Ten more are added, and the server trims all but the last two before they are read.
        reader.compare(&info(409, 410, 210));
        assert_eq!((reader.number, reader.missing), (Some(208), 8));
    }

    #[test]
    fn a_stream_that_was_recreated_and_read_to_its_end_counts_from_there() {
        let mut reader = reader(400, 240);
        reader.compare(&info(201, 400, 200));
        assert_eq!((reader.number, reader.missing, reader.warned_recreated), (Some(200), 0, true));
    }
}
