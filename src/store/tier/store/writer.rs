//! The writer: the only thread that writes, publishes and evicts, so that no other thread waits for the drive.

use super::super::catalog::{SegmentIndex, SegmentRow};
use super::StoreOptions;
use super::open_segment::OpenSegment;
use super::segment::footer_bytes;
use super::shared::{StoreShared, StoreState};
use super::verify::{Verify, versions_now};
use super::write_buffer::WriteBuffer;
use crate::segments::drive::Drive;
use crate::segments::{PAGE, pages};
use base::counting::count;
use base::error::{Error, Result};
use base::tier_name::TierName;
use base::trace::{Gauge, Stage, StageWork, TraceLane};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use data::dataset::Stamp;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often the writer checks whether other processes have published or evicted segments.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// How long a superseded segment (later segments have all its samples) stays, so that all processes have loaded the
/// later segments, even if they refresh late.
const KEEP_SUPERSEDED: Duration = Duration::from_secs(1);
/// How long nothing is written after a failed write (a [`WriterCommand::PublishAtEnd`] ends this pause early), and how
/// long the directory is not listed after a failed listing.
const PAUSE: Duration = Duration::from_secs(5);
/// How often the writer checks whether there is space again.
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// The maximum number of segments that are filled at once. Each segment has the samples of one group.
const OPEN_AT_ONCE: usize = 64;

pub(super) enum WriterCommand {
    Write(WriteBuffer),
    Publish,
    /// Publish all open segments, and take samples again.
    PublishAtEnd,
    EvictGroup(u64),
    Remove(u64),
    /// Remove a segment that is mostly out of date.
    RemoveStale(SegmentIndex),
    /// Drop the sender, which signals that all earlier commands are done.
    Signal(Sender<()>),
    Stop,
}

pub(super) struct SegmentWriter {
    shared: Arc<StoreShared>,
    commands: Receiver<WriterCommand>,
    empty: Sender<WriteBuffer>,
    open: HashMap<u64, OpenSegment>,
    /// The maximum number of bytes of a segment, unless one buffer is larger.
    segment_bytes: u64,
    drive: Drive,
    lane: TraceLane,
    name: TierName,
    paused: Option<Instant>,
    /// Superseded segments, and the time at which each was found superseded.
    superseded: HashMap<SegmentIndex, Instant>,
    refresh_next: Instant,
    room_next: Instant,
}

fn file_bytes(payload: u64, rows: usize) -> u64 {
    payload + footer_bytes(rows)
}

impl SegmentWriter {
    pub(super) fn new(
        shared: Arc<StoreShared>,
        commands: Receiver<WriterCommand>,
        empty: Sender<WriteBuffer>,
        segment_bytes: u64,
        options: &StoreOptions,
    ) -> Self {
        let now = Instant::now();
        let (open, drive) = (HashMap::new(), Drive::new(options.faults));
        let lane = options.trace.lane("cache");
        Self {
            shared,
            commands,
            empty,
            open,
            segment_bytes,
            drive,
            lane,
            name: options.name,
            paused: None,
            superseded: HashMap::new(),
            refresh_next: now,
            room_next: now,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.commands.recv_timeout(REFRESH_EVERY) {
                Ok(WriterCommand::Write(buffer)) => self.write(buffer),
                Ok(WriterCommand::Publish) => self.publish_all(),
                Ok(WriterCommand::PublishAtEnd) => {
                    self.publish_all();
                    self.paused = None;
                    self.shared.set_state(StoreState::Open);
                }
                Ok(WriterCommand::EvictGroup(group)) => self.evict_group(group),
                Ok(WriterCommand::Remove(number)) => drop(self.remove(number)),
                Ok(WriterCommand::RemoveStale(segment_index)) => self.shared.remove_stale(segment_index),
                Ok(WriterCommand::Signal(done)) => drop(done),
                Ok(WriterCommand::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.run_timers();
        }
        self.publish_all();
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        if now >= self.refresh_next {
            self.refresh_next = now + REFRESH_EVERY;
            if let Err(error) = self.shared.refresh() {
                self.shared.failed(error.to_string());
                self.refresh_next = now + PAUSE;
            }
        }
        if self.paused.is_some_and(|since| now - since >= PAUSE) {
            self.paused = None;
            self.shared.set_state(StoreState::Open);
        }
        self.remove_superseded(now);
        if self.shared.store_state() == StoreState::Full && now >= self.room_next {
            self.room_next = now + ROOM_EVERY;
            let enough = pages(file_bytes(self.shared.index.largest().into(), 1));
            if self.shared.directory.free().is_ok_and(|free| free >= enough) {
                self.shared.set_state(StoreState::Open);
            }
        }
    }

    fn remove_superseded(&mut self, now: Instant) {
        let superseded: Vec<SegmentIndex> = self.shared.catalog().superseded().collect();
        self.superseded.retain(|segment, _| superseded.contains(segment));
        for segment in superseded {
            let since = *self.superseded.entry(segment).or_insert(now);
            if now - since >= KEEP_SUPERSEDED {
                self.shared.remove_superseded(segment);
            }
        }
    }

    fn write(&mut self, mut buffer: WriteBuffer) {
        if self.paused.is_some() || self.shared.abandoned.load(Relaxed) {
            self.count_lost(&buffer.rows);
        } else {
            {
                // Another process may have published some of the samples while the buffer waited.
                let catalog = self.shared.catalog();
                buffer.keep(|row| catalog.is_pending(row.sample));
            }
            let (start, samples, bytes) =
                (Instant::now(), buffer.rows.len() as u64, buffer.bytes.len() as u64);
            buffer.compute_checksums();
            buffer.record_summaries(&self.shared.index);
            if let Err(error) = self.append(&mut buffer) {
                self.count_lost(&buffer.rows);
                self.pause(&error);
            }
            self.log(start, samples, bytes);
        }
        buffer.clear();
        let _ = self.empty.send(buffer);
    }

    fn log(&mut self, start: Instant, samples: u64, bytes: u64) {
        if self.lane.is_on() {
            let (now, held) = (Instant::now(), self.shared.catalog().held().1);
            self.lane.record(
                Stage::Write(self.name),
                start,
                now,
                StageWork { bytes, samples, ..StageWork::default() },
            );
            self.lane.gauge(Gauge::Held(self.name), now, held);
        }
    }

    /// Writes a buffer, or the part of it that fits into the quota, to its group's segment.
    fn append(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        let group = buffer.group;
        let mut full = false;
        while !buffer.rows.is_empty() {
            let (payload, rows) =
                self.open.get(&group).map_or((0, 0), |open| (open.payload, open.footer.rows.len()));
            let wanted = file_bytes(payload + buffer.bytes.len() as u64, rows + buffer.rows.len());
            if rows > 0 && wanted > self.segment_bytes {
                self.publish(group)?;
                continue;
            }
            match self.reserve(group, pages(wanted))? {
                Ok(()) => {
                    self.write_buffer(buffer)?;
                    break;
                }
                Err(available) => {
                    let others = fit(buffer, payload, rows, available * PAGE);
                    self.shared.cancel_pending(&others);
                    count(&self.shared.counters.dropped_full, others.len() as u64);
                    self.shared.set_state(StoreState::Full);
                    full = true;
                }
            }
        }
        // No samples will follow soon, so there is no gain in waiting.
        if full { self.publish(group) } else { Ok(()) }
    }

    /// Reserves `pages` pages in total for the group's segment, or for a new segment if there is none. If fewer pages
    /// are free, returns the number of pages that the segment could have.
    fn reserve(&mut self, group: u64, pages: u64) -> Result<Result<(), u64>> {
        if let Some(open) = self.open.get_mut(&group) {
            return self.shared.directory.extend(open, pages);
        }
        if self.open.len() >= OPEN_AT_ONCE
            && let Some((&largest, _)) = self.open.iter().max_by_key(|(_, open)| open.payload)
        {
            self.publish(largest)?;
        }
        Ok(self.shared.directory.begin(group, pages)?.map(|open| {
            self.open.insert(group, open);
        }))
    }

    fn write_buffer(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        let Some(open) = self.open.get_mut(&buffer.group) else { return Ok(()) };
        if let Err(error) = self.drive.write(&open.file, &buffer.bytes, open.payload) {
            let open = self.open.remove(&buffer.group);
            return Err(self.failed(open, "write", error));
        }
        open.append(buffer);
        Ok(())
    }

    fn publish(&mut self, group: u64) -> Result<()> {
        let Some(mut open) = self.open.remove(&group) else { return Ok(()) };
        self.drop_changed(&mut open.footer.rows);
        if open.footer.rows.is_empty() {
            return Ok(());
        }
        let (shared, number) = (self.shared.clone(), open.reservation.number);
        let footer = open.footer.encode(shared.directory.key, number, open.payload);
        let written = self.drive.write(&open.file, &footer, open.payload);
        let stamped = written.and_then(|()| Ok(Stamp::of(&open.file.metadata()?)));
        let stamp = match stamped {
            Ok(stamp) => stamp,
            Err(error) => return Err(self.failed(Some(open), "write", error)),
        };
        let published =
            shared.publish(&mut open, &stamp).inspect_err(|_| self.count_lost(&open.footer.rows))?;
        let rows = &open.footer.rows;
        if let Some(segment_index) = published {
            shared.place(segment_index, rows, true);
        }
        count(&shared.counters.admitted_samples, rows.len() as u64);
        count(&shared.counters.admitted_bytes, open.payload);
        Ok(())
    }

    /// Removes samples whose files no longer have the version from before the read: their bytes may be of two versions.
    fn drop_changed(&self, rows: &mut Vec<SegmentRow>) {
        let shared = &self.shared;
        if shared.verify == Verify::Never || rows.is_empty() {
            return;
        }
        let file = |row: &SegmentRow| shared.index.versioned(shared.index.extent(row.sample));
        let mut files: Vec<_> = rows.iter().map(file).collect();
        files.sort_unstable_by_key(|extent| (extent.file, extent.offset));
        files.dedup();
        let now = versions_now(&shared.index, &files);
        let mut changed = Vec::new();
        rows.retain(|row| {
            let same = now.get(&file(row)) == Some(&row.version);
            if !same {
                changed.push(*row);
            }
            same
        });
        let Some(first) = changed.first() else { return };
        shared.cancel_pending(&changed);
        count(&shared.counters.dropped_changed, changed.len() as u64);
        shared.index.notices().warn_once("files change", || {
            let path = shared.index.shown_path(first.sample);
            format!(
                "files of the dataset change during training, e.g. {}: their samples are not cached",
                path.display()
            )
        });
    }

    fn publish_all(&mut self) {
        for group in self.open.keys().copied().collect::<Vec<_>>() {
            if self.shared.abandoned.load(Relaxed) {
                let open = self.open.remove(&group);
                self.count_lost(open.as_ref().map_or(&[], |open| &open.footer.rows));
            } else if let Err(error) = self.publish(group) {
                self.pause(&error);
            }
        }
    }

    fn evict_group(&mut self, group: u64) {
        if let Some(open) = self.open.remove(&group) {
            self.shared.cancel_pending(&open.footer.rows);
        }
        let doomed: Vec<_> =
            self.shared.catalog().live().filter(|(_, segment)| segment.group == group).collect();
        for (segment_index, segment) in doomed {
            self.shared.forget(segment_index);
            if let Some(bytes) = self.remove(segment.number) {
                count(&self.shared.counters.evicted_segments, 1);
                count(&self.shared.counters.evicted_bytes, bytes);
            }
        }
        if self.shared.store_state() == StoreState::Full {
            self.shared.set_state(StoreState::Open);
        }
    }

    fn remove(&self, number: u64) -> Option<u64> {
        let removed = self.shared.directory.remove(number);
        removed.unwrap_or_else(|error| {
            self.shared.failed(error.to_string());
            None
        })
    }

    /// Abandons a segment that could not be written, with all its samples, and makes the error.
    fn failed(&self, open: Option<OpenSegment>, what: &str, error: io::Error) -> Error {
        self.count_lost(open.as_ref().map_or(&[], |open| &open.footer.rows));
        Error::io(format!("{what} a cache segment in"), &self.shared.directory.own, error)
    }

    fn count_lost(&self, rows: &[SegmentRow]) {
        self.shared.cancel_pending(rows);
        count(&self.shared.counters.dropped_off, rows.len() as u64);
    }

    fn pause(&mut self, error: &Error) {
        let shared = &self.shared;
        shared.counters.failed(format!("{error}; nothing is cached for a while"));
        shared.index.notices().warn_once("cache writes", || {
            let seconds = PAUSE.as_secs();
            format!(
                "writing to the cache failed: {error}. Nothing is cached for {seconds} s at a time, and training \
                 continues from the dataset. Free space on the drive of {}, or allow writing to it",
                shared.directory.own.display()
            )
        });
        self.shared.set_state(StoreState::Off);
        self.paused = Some(Instant::now());
    }
}

/// Keeps the samples of a buffer that fit into a file of at most `limit` bytes, which already has `rows` samples of
/// `payload` bytes. Returns the rows of all other samples.
fn fit(buffer: &mut WriteBuffer, mut payload: u64, mut rows: usize, limit: u64) -> Vec<SegmentRow> {
    buffer.keep(|row| {
        let fits = file_bytes(payload + u64::from(row.length), rows + 1) <= limit;
        if fits {
            payload += u64::from(row.length);
            rows += 1;
        }
        fits
    })
}
