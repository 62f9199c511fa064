//! Which change to try next, by what limits.

use super::measure::{BUSY, Measured};
use super::{Knob, KnobRange, KnobValues};

/// A share of the reading thread's time above which what it waits for is worth a try.
const OFTEN: f64 = 0.2;

/// A share of decoding threads' time above which nothing else than these can be the limit.
const ALL_THE_TIME: f64 = 0.95;

/// The share of their time in which the threads that are left when some are given back will work.
const LOAD: f64 = 0.75;

/// A change to try.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KnobChange {
    /// What is tried: a knob upwards or not, or several together.
    pub what: Tried,
    pub to: KnobValues,
    pub why: String,
}

/// What is tried, by which it is known again when it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tried {
    Up(Knob),
    Down(Knob),
    /// All that is less than usual back to it.
    Back,
    /// All upwards that may hold up.
    Together,
}

impl KnobChange {
    fn of(what: Tried, knob: Knob, values: KnobValues, to: usize, why: String) -> Self {
        let to = KnobValues::of(|other| if other == knob { to } else { values.get(other) });
        Self { what, to, why }
    }
}

/// The changes that may raise the rate of a pipeline whose consumer waits, the likeliest first.
pub(super) fn to_raise(measured: &Measured, values: KnobValues, ranges: &[KnobRange; 3]) -> Vec<KnobChange> {
    let range = |knob: Knob| ranges[knob as usize];
    let threads = values.get(Knob::Threads);
    let load = measured.busy_threads() / threads as f64;
    let waits = format!("the consumer waits {}", percent(measured.waiting()));
    let mut changes = Vec::new();
    if measured.rests() {
        // More of anything would only rest more.
        return changes;
    }
    let mut up = |knob: Knob, holds: bool, why: String| {
        let (value, KnobRange { usual, most, .. }) = (values.get(knob), range(knob));
        if value < most && (holds || value < usual) {
            let to = range(knob).above(knob, value);
            changes.push(KnobChange::of(Tried::Up(knob), knob, values, to, format!("{waits}; {why}")));
        }
    };
    let decoding = format!("decoding threads are busy {}", percent(load));
    let storage = format!("as many reads as may be are in flight {}", percent(measured.full()));
    let ahead = format!("as many batches as may be are open {}", percent(measured.ahead()));
    // A thread that has lost its processor to another counts as busy, so that a full queue says more than load does;
    // batches ahead are open all the time where decoding is what limits.
    let has_time = load < ALL_THE_TIME;
    if load > BUSY {
        up(Knob::Threads, true, decoding.clone());
    }
    if measured.full() >= measured.ahead() {
        up(Knob::QueueDepth, measured.full() > OFTEN, storage.clone());
        up(Knob::Prefetch, has_time && measured.ahead() > OFTEN, ahead);
    } else {
        up(Knob::Prefetch, has_time && measured.ahead() > OFTEN, ahead);
        up(Knob::QueueDepth, measured.full() > OFTEN, storage.clone());
    }
    if load <= BUSY {
        up(Knob::Threads, false, decoding);
    }
    // More than usual may be too much for storage that serves one request after another, and is of no use where storage
    // is not waited for.
    let (knob, depth) = (Knob::QueueDepth, values.get(Knob::QueueDepth));
    let usual = range(knob).usual;
    if depth > usual {
        let to = if measured.full() > OFTEN { (depth / 2).max(usual) } else { usual };
        changes.push(KnobChange::of(Tried::Down(knob), knob, values, to, format!("{waits}; {storage}")));
    }
    // Knobs that hold up together gain nothing one by one.
    let reads_hold = measured.full() > OFTEN || has_time && measured.ahead() > OFTEN;
    let together = KnobValues::of(|knob| {
        let (value, KnobRange { usual, most, .. }) = (values.get(knob), range(knob));
        let goes_up = value < usual || reads_hold && knob != Knob::Threads;
        if goes_up && value < most { range(knob).above(knob, value) } else { value }
    });
    if Knob::ALL.into_iter().filter(|knob| together.get(*knob) != values.get(*knob)).count() > 1 {
        let why = format!("{waits}; what gains nothing alone may together");
        changes.push(KnobChange { what: Tried::Together, to: together, why });
    }
    // What is usual is no step into the dark.
    let back = KnobValues::of(|knob| values.get(knob).max(range(knob).usual.min(range(knob).most)));
    if back != values {
        let why = format!("{waits}; this is less than usual");
        changes.insert(0, KnobChange { what: Tried::Back, to: back, why });
    }
    changes
}

/// What a pipeline gives back whose consumer never waits: threads that cost time without being needed, and whatever is
/// more than usual.
pub(super) fn to_give_back(
    measured: &Measured,
    values: KnobValues,
    ranges: &[KnobRange; 3],
) -> Vec<KnobChange> {
    let busy = measured.busy_threads();
    let needed = ((busy / LOAD).ceil() as usize).max(ranges[Knob::Threads as usize].least).max(1);
    let mut changes = Vec::new();
    if needed < values.get(Knob::Threads) && !ranges[Knob::Threads as usize].is_fixed() {
        let why = format!("the consumer never waits, and {busy:.1} threads are busy");
        changes.push(KnobChange::of(Tried::Down(Knob::Threads), Knob::Threads, values, needed, why));
    }
    for knob in [Knob::QueueDepth, Knob::Prefetch] {
        let usual = ranges[knob as usize].usual;
        if values.get(knob) > usual {
            let why = "the consumer never waits, and this is more than usual".to_owned();
            changes.push(KnobChange::of(Tried::Down(knob), knob, values, usual, why));
        }
    }
    changes
}

/// A share in words.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} % of the time", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Observation;

    const RANGES: [KnobRange; 3] = [
        KnobRange { least: 1, usual: 4, most: 8 },
        KnobRange { least: 1, usual: 32, most: 256 },
        KnobRange { least: 1, usual: 4, most: 8 },
    ];

    fn measured(waited: f64, busy: f64, full: f64, ahead: f64) -> Measured {
        let sum = Observation {
            seconds: 1.0,
            samples: 1000,
            batches: 10,
            consumer_waited: waited,
            workers_busy: busy,
            read_full: full,
            read_ahead: ahead,
            read_busy: 0.1,
            rested: 0.0,
        };
        Measured { sum, error: 0.0 }
    }

    fn values(changes: Vec<KnobChange>) -> Vec<[usize; 3]> {
        changes.into_iter().map(|change| change.to.0).collect()
    }

    #[test]
    fn what_limits_is_raised() {
        let raise = |measured: Measured, of| values(to_raise(&measured, KnobValues(of), &RANGES));
        assert_eq!(raise(measured(0.5, 3.99, 0.0, 0.9), [4, 32, 4]), [[8, 32, 4]]);
        assert_eq!(raise(measured(0.5, 1.0, 0.9, 0.0), [4, 32, 4]), [[4, 64, 4], [4, 64, 6]]);
        assert_eq!(raise(measured(0.5, 1.0, 0.1, 0.9), [4, 32, 4]), [[4, 32, 6], [4, 64, 6]]);
        assert!(raise(measured(0.5, 7.99, 0.0, 0.9), [8, 32, 4]).is_empty(), "all there is");
        let high = raise(measured(0.5, 1.0, 0.9, 0.0), [4, 128, 4]);
        assert_eq!(high, [[4, 256, 4], [4, 64, 4], [4, 256, 6]], "or there is too much");
        let low = raise(measured(0.5, 0.5, 0.0, 0.0), [1, 1, 1]);
        assert_eq!(low, [[4, 32, 4], [1, 2, 1], [1, 1, 2], [2, 1, 1], [2, 2, 2]], "below the usual");
    }

    #[test]
    fn nothing_is_raised_within_a_budget_and_full_queues_count_though_threads_are_busy() {
        let busy = measured(0.5, 3.99, 0.5, 0.4);
        let raise = |measured: &Measured| values(to_raise(measured, KnobValues([4, 32, 4]), &RANGES));
        assert_eq!(raise(&busy), [[8, 32, 4], [4, 64, 4], [4, 64, 6]]);
        let rested = Observation { rested: 0.5, ..busy.sum };
        assert!(raise(&Measured { sum: rested, ..busy }).is_empty());
    }

    #[test]
    fn what_is_not_needed_is_given_back() {
        let back = |busy, of| values(to_give_back(&measured(0.0, busy, 0.0, 0.9), KnobValues(of), &RANGES));
        assert_eq!(back(0.6, [4, 32, 4]), [[1, 32, 4]]);
        assert_eq!(back(1.4, [4, 32, 4]), [[2, 32, 4]]);
        assert!(back(2.9, [4, 32, 4]).is_empty(), "a quarter is kept for hiccups");
        assert_eq!(back(3.9, [4, 128, 8]), [[4, 32, 8], [4, 128, 4]]);
        assert!(back(3.9, [4, 2, 1]).is_empty(), "what is less than usual costs nothing");
    }
}
