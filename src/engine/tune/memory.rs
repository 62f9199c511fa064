//! What was found out before, so that it is not found out again whenever a cost comes and goes.

use super::KnobValues;
use super::measure::{Measured, WhatLimits};
use std::collections::VecDeque;

/// The most findings that are kept.
const KEPT: usize = 32;

/// Factors: by less than the first two measures of a kind are alike, by more than the second they are far apart.
const ALIKE: f64 = 1.35;
const FAR: f64 = 2.0;

/// A factor by which it differs clearly how many decoding threads are busy. While decoding is what limits, that is
/// always the same, whatever a sample costs; it falls as soon as something else limits.
const FEWER_BUSY: f64 = 1.2;

/// Shares of waiting between which it is not said whether a consumer waits.
const HARDLY: f64 = 0.01;
const CLEARLY: f64 = 0.05;

/// By what conditions are recognised: how fast samples come, what they cost, what limits, and whether that is fast
/// enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Signature {
    rate: f64,
    work: f64,
    /// The decoding threads that are busy on average.
    busy: f64,
    waiting: f64,
    limit: WhatLimits,
}

impl Signature {
    /// The signature of what was measured with so many decoding threads.
    pub(super) fn of(measured: &Measured, threads: usize) -> Self {
        Self {
            rate: measured.rate(),
            work: measured.work_per_sample(),
            busy: measured.busy_threads(),
            waiting: measured.waiting(),
            limit: measured.limit(threads),
        }
    }

    /// Whether the other may be the same conditions, but for noise.
    pub(super) fn is_like(self, other: Self) -> bool {
        self.distance(other) < ALIKE && !self.differs_in_waiting(other) && !self.differs_in_limit(other)
    }

    /// Whether the other is something else beyond doubt.
    pub(super) fn is_far_from(self, other: Self) -> bool {
        self.distance(other) > FAR || self.differs_in_waiting(other) || self.differs_in_limit(other)
    }

    /// The factor by which the measure that differs most does.
    fn distance(self, other: Self) -> f64 {
        factor(self.rate, other.rate).max(factor(self.work, other.work))
    }

    /// Whether decoding limits in one of them and something else in the other, but for a consumer that hardly waits.
    fn differs_in_limit(self, other: Self) -> bool {
        let limits = [self.limit, other.limit];
        let is_about_decoding = limits.contains(&WhatLimits::Decoding) && self.limit != other.limit;
        is_about_decoding
            && !limits.contains(&WhatLimits::Consumer)
            && factor(self.busy, other.busy) > FEWER_BUSY
    }

    fn differs_in_waiting(self, other: Self) -> bool {
        let (less, more) = (self.waiting.min(other.waiting), self.waiting.max(other.waiting));
        less < HARDLY && more > CLEARLY
    }
}

/// By how many times one is more than the other.
fn factor(one: f64, two: f64) -> f64 {
    let (one, two) = (one.max(1e-9), two.max(1e-9));
    (one / two).max(two / one)
}

/// Conditions with the values of the knobs under which they were met, and the values that were found best.
#[derive(Debug, Clone, Copy)]
struct KnownConditions {
    met: (KnobValues, Signature),
    best: KnobValues,
}

/// The latest findings.
#[derive(Debug, Default)]
pub(super) struct Memory(VecDeque<KnownConditions>);

impl Memory {
    /// Keeps what was found in conditions that were met so.
    pub(super) fn keep(&mut self, met: (KnobValues, Signature), best: KnobValues) {
        self.0.retain(|finding| !(finding.met.0 == met.0 && finding.met.1.is_like(met.1)));
        self.0.push_front(KnownConditions { met, best });
        self.0.truncate(KEPT);
    }

    /// What was found best when the same was met before.
    pub(super) fn recall(&self, values: KnobValues, signature: Signature) -> Option<KnobValues> {
        let same = |finding: &&KnownConditions| finding.met.0 == values && finding.met.1.is_like(signature);
        self.0.iter().find(same).map(|finding| finding.best)
    }

    /// Forgets all, because the bounds are others.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Knob;

    fn signature(rate: f64, waiting: f64) -> Signature {
        Signature { rate, work: 1e-3, busy: rate * 1e-3, waiting, limit: WhatLimits::Decoding }
    }

    #[test]
    fn conditions_are_recognised_within_noise() {
        let usual = signature(1000.0, 0.5);
        assert!(usual.is_like(signature(1200.0, 0.6)) && usual.is_like(signature(800.0, 0.02)));
        assert!(!usual.is_like(signature(600.0, 0.5)) && !usual.is_far_from(signature(600.0, 0.5)));
        assert!(usual.is_far_from(signature(300.0, 0.5)));
        assert!(usual.is_far_from(signature(1000.0, 0.0)), "the consumer does not wait any more");
        let slower = |limit| Signature { limit, ..signature(800.0, 0.5) };
        let stored = slower(WhatLimits::Storage);
        assert!(usual.is_far_from(stored), "something else limits now");
        assert!(usual.is_like(Signature { busy: 0.9, ..stored }), "or hardly does");
        assert!(!usual.is_far_from(slower(WhatLimits::Consumer)), "waiting says more of a consumer");
        assert!(
            stored.is_like(Signature { busy: 0.5, ..slower(WhatLimits::Ahead) }),
            "nor is either about decoding"
        );
    }

    #[test]
    fn findings_are_those_of_the_same_values() {
        let values = |threads| KnobValues::of(|knob| if knob == Knob::Threads { threads } else { 9 });
        let mut memory = Memory::default();
        memory.keep((values(1), signature(1000.0, 0.5)), values(2));
        assert_eq!(memory.recall(values(1), signature(1100.0, 0.5)), Some(values(2)));
        assert_eq!(memory.recall(values(2), signature(1000.0, 0.5)), None);
        assert_eq!(memory.recall(values(1), signature(2000.0, 0.5)), None);
        memory.keep((values(1), signature(1100.0, 0.5)), values(3));
        assert_eq!(memory.recall(values(1), signature(1000.0, 0.5)), Some(values(3)), "the latest holds");
        for rate in 1..1000 {
            memory.keep((values(5), signature(1.4f64.powi(rate), 0.5)), values(3));
        }
        assert_eq!(memory.0.len(), KEPT);
        memory.clear();
        assert_eq!(memory.recall(values(1), signature(1000.0, 0.5)), None);
    }
}
