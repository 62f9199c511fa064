//! A Redis stream that is read in a consumer group. The server distributes the entries, and lists the entries that were
//! delivered but not acknowledged (the pending entries).
//!
//! Entries are acknowledged when a checkpoint no longer needs them, perhaps an hour after they were delivered. So a
//! long pending time does not mean that the consumer is dead. A consumer counts as dead if it is silent for
//! `claim_after`. Then other consumers take over its pending entries. This reader gives a sign of life whenever it asks
//! for entries, and also while it needs no entries.

use super::RedisOptions;
use super::link::{RedisFailure, RedisLink};
use super::replies::{EntryId, NamedValues, StreamEntry, entries, entries_of_stream, list, text};
use crate::source::SourcePosition;
use base::notices::Notices;
use redis::{Cmd, Value, cmd};
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// The maximum number of ids in one command or response.
const MAX_IDS: usize = 500;

/// An entry that was delivered before, to this consumer or to a dead one, and that must be fetched.
struct PendingEntry {
    id: String,
    /// The entry is taken over only if it was idle for this many milliseconds; 0 for this consumer's own entries.
    idle: u64,
}

pub(super) struct GroupReader {
    options: RedisOptions,
    group: String,
    consumer: String,
    what: String,
    notices: Notices,
    joined: bool,
    /// The connection number (`RedisLink::connections_made`) for which this consumer's own pending entries were listed.
    /// A response on an earlier connection may have been lost.
    listed_for: u64,
    backlog: VecDeque<PendingEntry>,
    /// The keys of the entries that were given and are not acknowledged.
    given: HashSet<String>,
    /// The keys of the entries that were settled before a restart and are not acknowledged.
    settled: HashSet<String>,
    check_at: Instant,
    next_sign_of_life: Instant,
    warned_dead: bool,
    warned_recreated: bool,
}

impl GroupReader {
    pub(super) fn new(options: &RedisOptions, group: &str, what: String, notices: Notices) -> Self {
        Self {
            options: options.clone(),
            group: group.to_owned(),
            consumer: options.consumer(),
            what,
            notices,
            joined: false,
            listed_for: 0,
            backlog: VecDeque::new(),
            given: HashSet::new(),
            settled: HashSet::new(),
            // Other consumers that were stopped at the same time need time to restart.
            check_at: Instant::now() + options.claim_after,
            next_sign_of_life: Instant::now(),
            warned_dead: false,
            warned_recreated: false,
        }
    }

    pub(super) fn resume_at(&mut self, position: &SourcePosition) {
        self.settled = position.settled.iter().cloned().collect();
        self.check_at = Instant::now() + self.options.claim_after;
    }

    /// Joins the group. Creates the group and the stream if they are missing.
    pub(super) fn begin(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        let start = match self.options.start.as_str() {
            "first" => "0",
            "new" => "$",
            id => id,
        };
        let mut command = cmd("XGROUP");
        command.arg("CREATE").arg(&self.options.stream).arg(&self.group).arg(start).arg("MKSTREAM");
        match link.ask(&command, Duration::ZERO) {
            Err(failure) if !failure.is("BUSYGROUP") => return Err(failure),
            _ => self.joined = true,
        }
        Ok(())
    }

    /// Gets up to `count` entries: pending entries first, then new entries. Waits up to `patience` for new entries.
    pub(super) fn read(
        &mut self,
        link: &mut RedisLink,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<StreamEntry>, RedisFailure> {
        let read = self.read_once(link, count, patience);
        if let Err(failure) = &read
            && (failure.is("NOGROUP") || failure.is_missing_stream())
        {
            // The stream was deleted, or the server restarted without it.
            self.joined = false;
            if !std::mem::replace(&mut self.warned_recreated, true) {
                self.notices.warn_at_once(format!(
                    "{}: the stream or the group no longer exists, and is created again; its unread entries are lost; \
                     make the server persistent (appendonly yes)",
                    self.what
                ));
            }
            return Ok(Vec::new());
        }
        read
    }

    fn read_once(
        &mut self,
        link: &mut RedisLink,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<StreamEntry>, RedisFailure> {
        if !self.joined {
            self.begin(link)?;
        }
        if !link.is_connected() || self.listed_for != link.connections_made() {
            self.list_own(link)?;
        }
        if self.backlog.is_empty() && self.check_at <= Instant::now() {
            self.list_dead(link)?;
        }
        if !self.backlog.is_empty() {
            return self.get_pending(link, count);
        }
        self.sign_of_life(link)?;
        let until = self.check_at.min(self.next_sign_of_life);
        let patience = patience.min(until.saturating_duration_since(Instant::now()));
        let mut command = self.read_group(count, patience);
        command.arg("STREAMS").arg(&self.options.stream).arg(">");
        let answer = link.ask(&command, patience)?;
        entries_of_stream(answer).ok_or_else(|| link.not_understood())
    }

    fn read_group(&self, count: usize, patience: Duration) -> Cmd {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(count);
        if !patience.is_zero() {
            // A timeout of 0 means that Redis waits without limit.
            command.arg("BLOCK").arg(patience.as_millis().max(1) as u64);
        }
        command
    }

    /// Gives a sign of life. Before Redis 7.2 a read that returns no new entries does not count as a sign of life.
    pub(super) fn sign_of_life(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        if !self.joined || self.next_sign_of_life > Instant::now() {
            return Ok(());
        }
        let mut command = self.read_group(1, Duration::ZERO);
        // No entry is pending after this id. The highest possible id cannot be used, because it means `>` (new
        // entries).
        command.arg("STREAMS").arg(&self.options.stream).arg(EntryId(u64::MAX, u64::MAX - 1).to_string());
        link.ask(&command, Duration::ZERO)?;
        self.next_sign_of_life = Instant::now() + self.check_interval();
        Ok(())
    }

    pub(super) fn should_give(&mut self, key: &str) -> bool {
        !self.settled.contains(key) && self.given.insert(key.to_owned())
    }

    fn list_own(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        self.backlog.clear();
        let mut from = "-".to_owned();
        loop {
            let ids = self.pending_of(link, &self.consumer, &from)?;
            let Some(last) = ids.last() else { break };
            from = format!("({last}");
            let own = ids.into_iter().filter(|id| !self.given.contains(id) && !self.settled.contains(id));
            self.backlog.extend(own.map(|id| PendingEntry { id, idle: 0 }));
        }
        self.listed_for = link.connections_made();
        Ok(())
    }

    /// Lists the pending entries of a consumer that was silent for too long.
    fn list_dead(&mut self, link: &mut RedisLink) -> Result<(), RedisFailure> {
        let allowed = self.options.claim_after.as_millis() as u64;
        let mut command = cmd("XINFO");
        command.arg("CONSUMERS").arg(&self.options.stream).arg(&self.group);
        let answer = link.ask(&command, Duration::ZERO)?;
        for consumer in list(answer).ok_or_else(|| link.not_understood())? {
            let info = NamedValues::of(consumer).ok_or_else(|| link.not_understood())?;
            let (Some(name), Some(pending), Some(idle)) =
                (info.text("name"), info.number("pending"), info.number("idle"))
            else {
                continue;
            };
            if name == self.consumer || pending == 0 || idle < allowed {
                continue;
            }
            let ids = self.pending_of(link, name, "-")?;
            if !std::mem::replace(&mut self.warned_dead, true) {
                self.notices.warn_at_once(format!(
                    "{}: consumer {name:?} was silent for {} s, so its {pending} pending entries are taken over; if it \
                     was only stalled, raise claim_after= (now {} s); further takeovers are not reported",
                    self.what,
                    idle / 1000,
                    self.options.claim_after.as_secs_f64(),
                ));
            }
            self.backlog.extend(ids.into_iter().map(|id| PendingEntry { id, idle: allowed }));
            break;
        }
        if self.backlog.is_empty() {
            self.check_at = Instant::now() + self.check_interval();
        }
        Ok(())
    }

    fn check_interval(&self) -> Duration {
        (self.options.claim_after / 4).min(Duration::from_secs(15))
    }

    /// The next pending ids of a consumer, beginning with the id `from`.
    fn pending_of(
        &self,
        link: &mut RedisLink,
        consumer: &str,
        from: &str,
    ) -> Result<Vec<String>, RedisFailure> {
        let mut command = cmd("XPENDING");
        command.arg(&self.options.stream).arg(&self.group).arg(from).arg("+").arg(MAX_IDS).arg(consumer);
        let answer = link.ask(&command, Duration::ZERO)?;
        let id = |pending| text(list(pending)?.first()?).map(str::to_owned);
        let ids = list(answer).and_then(|all| all.into_iter().map(id).collect());
        ids.ok_or_else(|| link.not_understood())
    }

    /// Fetches the next pending entries. An entry of this consumer that is not in the response was deleted, and counts
    /// as failed.
    fn get_pending(&mut self, link: &mut RedisLink, count: usize) -> Result<Vec<StreamEntry>, RedisFailure> {
        let idle = self.backlog.front().map_or(0, |first| first.idle);
        let next = self.backlog.iter().take(count).take_while(|pending| pending.idle == idle);
        let ids: Vec<&str> = next.map(|pending| pending.id.as_str()).collect();
        let mut command = cmd("XCLAIM");
        command.arg(&self.options.stream).arg(&self.group).arg(&self.consumer).arg(idle).arg(&ids);
        let answer = link.ask(&command, Duration::ZERO)?;
        let mut found = entries(answer).ok_or_else(|| link.not_understood())?;
        if idle == 0 {
            let deleted = |id: &&str| EntryId::parse(id).filter(|id| !found.iter().any(|of| of.id == *id));
            let deleted: Vec<EntryId> = ids.iter().filter_map(deleted).collect();
            found.extend(deleted.into_iter().map(StreamEntry::deleted));
        }
        self.backlog.drain(..ids.len());
        if idle > 0 && found.is_empty() {
            // Another consumer was faster, and may be about to take over the remaining entries.
            self.check_at = Instant::now() + self.check_interval();
        }
        Ok(found)
    }

    pub(super) fn acknowledge(
        &mut self,
        link: &mut RedisLink,
        position: &SourcePosition,
    ) -> Result<(), RedisFailure> {
        for ids in position.settled.chunks(MAX_IDS) {
            let mut command = cmd("XACK");
            command.arg(&self.options.stream).arg(&self.group).arg(ids);
            match link.ask(&command, Duration::ZERO)? {
                Value::Int(_) => {}
                _ => return Err(link.not_understood()),
            }
            for id in ids {
                self.given.remove(id);
                self.settled.remove(id);
            }
        }
        Ok(())
    }
}
