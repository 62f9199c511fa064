//! Merges overlapping intervals: computes how long at least one thread was busy, and how many were busy over time.

/// An interval of one track, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TraceSpan {
    pub start: u64,
    pub end: u64,
    /// How long the thread was busy, in nanoseconds. This is the length of the interval, unless the interval was joined
    /// from several.
    pub busy: u64,
}

impl TraceSpan {
    fn idle(&self) -> f64 {
        if self.end == self.start { 1.0 } else { 1.0 - self.busy as f64 / (self.end - self.start) as f64 }
    }

    pub(super) fn within(&self, start: u64, end: u64) -> Option<Self> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        let length = to.checked_sub(from)?;
        let busy = (1.0 - self.idle()) * length as f64;
        Some(Self { start: from, end: to, busy: busy.round() as u64 })
    }
}

/// The nanoseconds in which at least one of `spans` was busy: the length of their union. (TimeLogger merges latencies
/// in the same way.) Where joined spans of several threads overlap, assumes that the threads are busy independently of
/// each other.
pub(super) fn merged(spans: &[TraceSpan]) -> f64 {
    let mut edges: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * spans.len());
    for (index, span) in spans.iter().enumerate() {
        edges.extend([(span.start, index, true), (span.end, index, false)]);
    }
    edges.sort_unstable();
    let mut open = OpenSpans::default();
    let (mut busy, mut since) = (0.0, 0);
    for (moment, index, begins) in edges {
        busy += (moment - since) as f64 * open.busy();
        since = moment;
        let span = &spans[index];
        if span.busy >= span.end - span.start {
            open.full = if begins { open.full + 1 } else { open.full - 1 };
        } else if begins {
            open.partly.push((index, span.idle()));
        } else {
            open.partly.retain(|(other, _)| *other != index);
        }
    }
    busy
}

#[derive(Default)]
struct OpenSpans {
    full: i64,
    partly: Vec<(usize, f64)>,
}

impl OpenSpans {
    /// The probability that at least one of the open spans is busy.
    fn busy(&self) -> f64 {
        if self.full > 0 { 1.0 } else { 1.0 - self.partly.iter().map(|(_, idle)| idle).product::<f64>() }
    }
}

/// How many threads were busy on average in each of `parts` equal parts of the time from `start` to `end`.
pub(super) fn course<'a>(
    spans: impl IntoIterator<Item = &'a TraceSpan>,
    start: u64,
    end: u64,
    parts: usize,
) -> Vec<f64> {
    let width = ((end.saturating_sub(start)) as f64 / parts as f64).max(1.0);
    let mut course = vec![0.0; parts];
    for span in spans {
        let Some(span) = span.within(start, end) else { continue };
        let density = 1.0 - span.idle();
        let (from, to) = ((span.start - start) as f64 / width, (span.end - start) as f64 / width);
        let mut part = from as usize;
        while part < parts && (part as f64) < to {
            let covered = to.min(part as f64 + 1.0) - from.max(part as f64);
            course[part] += covered * density;
            part += 1;
        }
    }
    course
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RandomKey, RandomStream, Use};

    fn full(start: u64, end: u64) -> TraceSpan {
        TraceSpan { start, end, busy: end - start }
    }

    fn random(stream: &mut RandomStream, count: u64) -> Vec<TraceSpan> {
        let mut span = || {
            let start = stream.below(400);
            full(start, start + stream.below(40))
        };
        (0..count).map(|_| span()).collect()
    }

    #[test]
    fn the_union_is_that_of_the_moments() {
        for seed in 0..200 {
            let mut stream = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
            let count = stream.below(30);
            let spans = random(&mut stream, count);
            let covered =
                (0..500).filter(|t| spans.iter().any(|span| span.start <= *t && *t < span.end)).count();
            assert_eq!(merged(&spans), covered as f64, "seed {seed}");
        }
    }

    #[test]
    fn joined_spans_count_what_they_were_busy() {
        let half = |start, end| TraceSpan { start, end, busy: (end - start) / 2 };
        assert_eq!(merged(&[half(0, 100), half(150, 250)]), 100.0);
        // Two threads, each busy half of the time: together at least one is busy for three quarters of it.
        assert_eq!(merged(&[half(0, 100), half(0, 100)]), 75.0);
        assert_eq!(merged(&[half(0, 100), full(0, 40)]), 40.0 + 30.0);
        assert_eq!(merged(&[]), 0.0);
        assert_eq!(merged(&[full(7, 7)]), 0.0);
    }

    #[test]
    fn the_course_adds_up_to_what_was_busy() {
        for seed in 0..100 {
            let mut stream = RandomKey::new(&[], seed, 1, Use::Augment).stream(0);
            let spans = random(&mut stream, 20);
            let (start, end) = (50, 370);
            let inside: u64 =
                spans.iter().filter_map(|span| span.within(start, end)).map(|span| span.busy).sum();
            let course = course(&spans, start, end, 16);
            let total: f64 = course.iter().sum::<f64>() * 20.0;
            assert!((total - inside as f64).abs() < 1e-6, "seed {seed}: {total}, {inside}");
        }
        assert_eq!(course(&[full(10, 20)], 0, 40, 4), [0.0, 1.0, 0.0, 0.0]);
    }
}
