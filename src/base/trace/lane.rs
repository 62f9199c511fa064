//! A thread's handle to the log. It joins related intervals, and passes them to the writer without ever blocking.
//!
//! A *track* is one stage of one lane; its intervals never overlap. The first [`PER_LEVEL`] intervals are written as
//! recorded, except that overlapping or adjacent ones are joined. After that, intervals that begin within a millisecond
//! become one interval, which stores how long the stage was busy. After each further [`PER_LEVEL`] intervals, this
//! resolution doubles. So a track grows by at most [`PER_LEVEL`] intervals (1.3 MB) each time the run's length doubles.
//! After a day it has at most 15 · [`PER_LEVEL`] intervals.

use super::writer::{GaugeSample, TraceChunk, TraceEvent, TraceLog};
use super::{Gauge, PeersRecord, Stage, StageWork, since};
use std::sync::Arc;
use std::time::Instant;

const PER_LEVEL: u32 = 8192;

/// The first resolution: intervals that begin within this time are joined, in nanoseconds.
const FIRST_RESOLUTION: u64 = 1_000_000;

/// The maximum length of an interval that consists of overlapping parts, in nanoseconds. After it, a new interval
/// begins. So the log of a reader that is never idle still shows its activity over time.
const MAX_JOINED: u64 = 10_000_000;

const CHUNK: usize = 128;

/// How long a lane may hold intervals before it passes them to the writer, in nanoseconds. A killed run loses the held
/// intervals.
const MAX_HOLD_TIME: u64 = 200_000_000;

/// The shortest time between two recorded values of a gauge, in nanoseconds.
const GAUGE_INTERVAL: u64 = 20_000_000;

/// A thread's handle to the log. Dropping the handle passes its intervals to the writer.
pub struct TraceLane(Option<Box<Recorder>>);

struct Recorder {
    log: Arc<TraceLog>,
    thread: Arc<str>,
    number: u32,
    tracks: Vec<(Stage, StageTrack)>,
    gauged: Vec<(Gauge, u64)>,
    chunk: Vec<TraceEvent>,
    samples: Vec<GaugeSample>,
    peers: Vec<(u64, PeersRecord)>,
    oldest: Option<u64>,
}

#[derive(Default)]
struct StageTrack {
    open: Option<TraceEvent>,
    closed_until: u64,
    closed: u32,
    /// Intervals that begin within this time are joined, in nanoseconds. It is 0 until [`PER_LEVEL`] intervals are
    /// closed.
    resolution: u64,
}

impl TraceLane {
    pub(super) fn new(log: Option<Arc<TraceLog>>, thread: &str) -> Self {
        Self(log.map(|log| {
            Box::new(Recorder {
                number: log.next_lane(),
                thread: thread.into(),
                tracks: Vec::new(),
                gauged: Vec::new(),
                chunk: Vec::new(),
                samples: Vec::new(),
                peers: Vec::new(),
                oldest: None,
                log,
            })
        }))
    }

    /// Makes a handle to a log that is off.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether the log is on. If it is off, callers can skip the computation of values that only the log needs.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records that `stage` was busy from `start` to `end`. The intervals of a stage must come in the order of their
    /// ends.
    #[inline]
    pub fn record(&mut self, stage: Stage, start: Instant, end: Instant, work: StageWork) {
        if let Some(recorder) = &mut self.0 {
            recorder.record(stage, start, end, work);
        }
    }

    /// Records the `value` of `gauge` at `moment`.
    #[inline]
    pub fn gauge(&mut self, gauge: Gauge, moment: Instant, value: u64) {
        if let Some(recorder) = &mut self.0 {
            recorder.gauge(gauge, moment, value);
        }
    }

    /// Records the counters of requests to the job's other nodes at `moment`.
    pub fn peers(&mut self, moment: Instant, record: PeersRecord) {
        if let Some(recorder) = &mut self.0 {
            let moment = since(recorder.log.origin, moment);
            recorder.peers.push((moment, record));
            recorder.hold(None, moment);
        }
    }

    /// Passes the held intervals to the writer. Call it before the thread sleeps for long.
    pub fn flush(&mut self) {
        if let Some(recorder) = &mut self.0 {
            recorder.close_all();
            recorder.send();
        }
    }
}

impl Drop for TraceLane {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Recorder {
    fn record(&mut self, stage: Stage, start: Instant, end: Instant, work: StageWork) {
        let (start, end) = (since(self.log.origin, start), since(self.log.origin, end));
        let event = TraceEvent { stage, start, end: end.max(start), busy: end.saturating_sub(start), work };
        let closed = self.track(stage).add(event);
        self.hold(closed, end);
    }

    fn track(&mut self, stage: Stage) -> &mut StageTrack {
        let place = self.tracks.iter().position(|(known, _)| *known == stage).unwrap_or_else(|| {
            self.tracks.push((stage, StageTrack::default()));
            self.tracks.len() - 1
        });
        &mut self.tracks[place].1
    }

    fn gauge(&mut self, gauge: Gauge, moment: Instant, value: u64) {
        let moment = since(self.log.origin, moment);
        let last = self.gauged.iter_mut().find(|(known, _)| *known == gauge);
        if last.as_ref().is_none_or(|(_, last)| moment >= *last + GAUGE_INTERVAL) {
            match last {
                Some((_, last)) => *last = moment,
                None => self.gauged.push((gauge, moment)),
            }
            self.samples.push(GaugeSample { gauge, moment, value });
            self.hold(None, moment);
        }
    }

    fn hold(&mut self, closed: Option<TraceEvent>, now: u64) {
        self.chunk.extend(closed);
        let oldest = *self.oldest.get_or_insert(now);
        if self.chunk.len() >= CHUNK || now >= oldest + MAX_HOLD_TIME {
            self.send();
        }
    }

    fn close_all(&mut self) {
        let closed = self.tracks.iter_mut().filter_map(|(_, track)| track.close());
        self.chunk.extend(closed);
    }

    fn send(&mut self) {
        self.oldest = None;
        if self.chunk.is_empty() && self.samples.is_empty() && self.peers.is_empty() {
            return;
        }
        self.log.send(TraceChunk {
            thread: self.thread.clone(),
            lane: self.number,
            events: std::mem::take(&mut self.chunk),
            samples: std::mem::take(&mut self.samples),
            peers: std::mem::take(&mut self.peers),
        });
    }
}

impl StageTrack {
    /// Joins `event` to the open interval if they are close enough. Otherwise opens a new interval, and returns the
    /// interval that this closes.
    fn add(&mut self, mut event: TraceEvent) -> Option<TraceEvent> {
        if let Some(open) = &mut self.open
            && open.work.epoch == event.work.epoch
            && open.takes(&event, self.resolution)
        {
            open.join(&event, self.closed_until);
            return None;
        }
        let closed = self.close();
        // The closed interval already covers the overlap, and the intervals of a track must not overlap.
        event.start = event.start.max(self.closed_until).min(event.end);
        event.busy = event.end - event.start;
        self.open = Some(event);
        closed
    }

    fn close(&mut self) -> Option<TraceEvent> {
        let closed = self.open.take()?;
        self.closed_until = closed.end;
        self.closed += 1;
        if self.closed.is_multiple_of(PER_LEVEL) {
            self.resolution = (2 * self.resolution).max(FIRST_RESOLUTION);
        }
        Some(closed)
    }
}

impl TraceEvent {
    fn takes(&self, next: &Self, resolution: u64) -> bool {
        let touches = next.start <= self.end && self.end - self.start < MAX_JOINED;
        touches || next.start < self.start + resolution
    }

    /// Joins `next` to this interval. The time before `floor` is not counted, because the file already has it.
    fn join(&mut self, next: &Self, floor: u64) {
        let start = next.start.max(floor);
        let end = self.end.max(next.end);
        let before = self.start.saturating_sub(start);
        let after = end - start.clamp(self.end, end);
        // The sum leaves out the overlap of `next` with this interval, although `next` may have been busy in idle gaps
        // there. `next` was busy throughout, so the busy time is at least the length of `next`.
        self.busy = (self.busy + before + after).max(next.end.saturating_sub(start));
        self.start = self.start.min(start);
        self.end = end;
        self.work.bytes += next.work.bytes;
        self.work.samples += next.work.samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RandomKey, RandomStream, Use};
    use crate::tier_name::TierName;

    fn event(start: u64, end: u64) -> TraceEvent {
        let work = StageWork { bytes: 10, samples: 1, ..StageWork::default() };
        TraceEvent { stage: Stage::Read(TierName::SOURCE), start, end, busy: end - start, work }
    }

    fn joined(intervals: impl IntoIterator<Item = (u64, u64)>) -> Vec<TraceEvent> {
        let mut track = StageTrack::default();
        let add = |(start, end)| track.add(event(start, end));
        let mut joined: Vec<TraceEvent> = intervals.into_iter().filter_map(add).collect();
        joined.extend(track.close());
        for pair in joined.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
        assert!(joined.iter().all(|event| event.start <= event.end && event.busy <= event.end - event.start));
        joined
    }

    fn busy(joined: &[TraceEvent]) -> u64 {
        joined.iter().map(|event| event.busy).sum()
    }

    fn random(seed: u64) -> RandomStream {
        RandomKey::new(b"lane", seed, 0, Use::Augment).stream(0)
    }

    #[test]
    fn a_day_of_intervals_stays_small_and_loses_nothing() {
        const DAY: u64 = 86_400_000_000_000;
        for seed in 0..3 {
            let mut stream = random(seed);
            let (mut now, mut spent, mut count) = (0, 0, 0);
            let intervals = std::iter::from_fn(|| {
                // The steps grow with time, because small steps would make a billion intervals in a day.
                let step = 1000 + stream.below(100_000 + now / 30_000);
                let start = now + stream.below(step);
                now += step;
                (now < DAY).then_some((start, now))
            });
            let intervals = intervals.inspect(|(start, end)| {
                spent += end - start;
                count += 1;
            });
            let joined = joined(intervals);
            assert!(
                count > 300_000 && joined.len() < 15 * PER_LEVEL as usize,
                "seed {seed}: {count}, {}",
                joined.len()
            );
            let (bytes, samples) =
                joined.iter().fold((0, 0), |(b, s), e| (b + e.work.bytes, s + e.work.samples));
            assert_eq!((bytes, samples), (10 * count, count), "seed {seed}");
            assert_eq!(busy(&joined), spent, "seed {seed}");
        }
    }

    #[test]
    fn what_overlaps_counts_once() {
        for seed in 0..300 {
            let mut stream = random(seed);
            let count = 1 + stream.below(40) as usize;
            let mut starts: Vec<u64> = (0..count).map(|_| stream.below(2000)).collect();
            let mut ends: Vec<u64> = starts.iter().map(|start| start + stream.below(200)).collect();
            starts.sort_unstable();
            ends.sort_unstable();
            let reads: Vec<(u64, u64)> = starts.into_iter().zip(ends).collect();
            let covered =
                (0..3000).filter(|t| reads.iter().any(|(start, end)| start <= t && t < end)).count();
            assert_eq!(busy(&joined(reads)), covered as u64, "seed {seed}");
        }
    }

    #[test]
    fn what_completes_late_never_counts_twice() {
        for seed in 0..300 {
            let mut stream = random(seed);
            let mut reads: Vec<(u64, u64)> = (0..1 + stream.below(40))
                .map(|_| (stream.below(2000), stream.below(1000)))
                .map(|(start, length)| (start, start + length))
                .collect();
            reads.sort_by_key(|read| read.1);
            let covered =
                (0..3000).filter(|t| reads.iter().any(|(start, end)| start <= t && t < end)).count();
            let joined = busy(&joined(reads));
            assert!(
                joined <= covered as u64 && 2 * joined >= covered as u64,
                "seed {seed}: {joined} of {covered}"
            );
        }
    }

    #[test]
    fn a_busy_time_without_an_end_is_split() {
        let joined = joined((0..1000).map(|n| (n * 1_000_000, (n + 3) * 1_000_000)));
        assert_eq!(busy(&joined), 1002 * 1_000_000);
        assert!(
            joined.len() > 50 && joined.iter().all(|event| event.end - event.start <= MAX_JOINED + 1_000_000)
        );
    }
}
