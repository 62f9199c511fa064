//! What is measured: observations of short stretches of time, and windows of them with their noise.

use std::fmt;
use std::ops::AddAssign;

/// The seconds that a window lasts at least, and at most.
const SHORTEST: f64 = 0.5;
const LONGEST: f64 = 5.0;

/// The fewest batches and observations of a window.
const FEWEST_BATCHES: u64 = 3;
const FEWEST_OBSERVATIONS: usize = 4;

/// A share of the time below which a consumer never waits, and above which it does.
pub(super) const NEVER: f64 = 0.01;
pub(super) const WAITS: f64 = 0.02;

/// A share of their time above which threads have no time to spare.
pub(super) const BUSY: f64 = 0.8;

/// A share of the time in which threads rest above which their budget is what limits.
const OFTEN: f64 = 0.1;

/// What a pipeline did in a stretch of time in which its consumer took batches. Times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// How long it was.
    pub seconds: f64,
    /// The samples that became finished.
    pub samples: u64,
    /// The batches that were delivered.
    pub batches: u64,
    /// The consumer waited for a batch.
    pub consumer_waited: f64,
    /// All decoding threads together worked.
    pub workers_busy: f64,
    /// The reading thread waited for storage with as many reads in flight as it may have.
    pub read_full: f64,
    /// It waited because as many batches were open as may be, or because the next ones had no buffers.
    pub read_ahead: f64,
    /// It worked.
    pub read_busy: f64,
    /// Threads rested because of a budget of processor time.
    pub rested: f64,
}

impl AddAssign for Observation {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.samples += more.samples;
        self.batches += more.batches;
        self.consumer_waited += more.consumer_waited;
        self.workers_busy += more.workers_busy;
        self.read_full += more.read_full;
        self.read_ahead += more.read_ahead;
        self.read_busy += more.read_busy;
        self.rested += more.rested;
    }
}

/// What holds a pipeline up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhatLimits {
    /// Nothing has been measured yet.
    #[default]
    Unknown,
    /// The consumer never waits.
    Consumer,
    /// The budget of processor time.
    Budget,
    /// The threads that decode.
    Decoding,
    /// Storage, with as many reads in flight as there may be.
    Storage,
    /// The number of batches ahead.
    Ahead,
    /// The reading thread.
    Reading,
    /// None of them alone.
    Several,
}

impl WhatLimits {
    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Consumer => "consumer",
            Self::Budget => "budget",
            Self::Decoding => "decoding",
            Self::Storage => "storage",
            Self::Ahead => "batches ahead",
            Self::Reading => "reading",
            Self::Several => "several",
        }
    }
}

/// Observations that are measured together.
#[derive(Debug, Default)]
pub(super) struct MeasuredStretch {
    sum: Observation,
    rates: Vec<(f64, f64)>,
    /// Whether to measure on for certainty.
    extended: bool,
}

impl MeasuredStretch {
    pub(super) fn add(&mut self, observation: Observation) {
        self.sum += observation;
        if observation.seconds > 0.0 {
            self.rates.push((observation.seconds, observation.samples as f64 / observation.seconds));
        }
    }

    /// What was measured, once that is enough.
    pub(super) fn measured(&self) -> Option<Measured> {
        let shortest = if self.extended { 4.0 * SHORTEST } else { SHORTEST };
        let enough = self.sum.seconds >= shortest
            && self.sum.batches >= FEWEST_BATCHES
            && self.rates.len() >= FEWEST_OBSERVATIONS;
        let all = self.sum.samples > 0 && (enough || self.sum.seconds >= LONGEST);
        all.then(|| Measured { sum: self.sum, error: self.error() })
    }

    /// Measures four times as long. Returns whether that is new.
    pub(super) fn extend(&mut self) -> bool {
        !std::mem::replace(&mut self.extended, true)
    }

    /// The standard error of the rate, relative to it.
    fn error(&self) -> f64 {
        let n = self.rates.len() as f64;
        let mean = self.sum.samples as f64 / self.sum.seconds;
        let squares: f64 =
            self.rates.iter().map(|(seconds, rate)| seconds / self.sum.seconds * (rate - mean).powi(2)).sum();
        (squares / (n - 1.0).max(1.0)).sqrt() / mean
    }
}

/// What a window says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub sum: Observation,
    /// The standard error of the rate, relative to it.
    pub error: f64,
}

impl Measured {
    /// Samples a second.
    pub(super) fn rate(&self) -> f64 {
        self.sum.samples as f64 / self.sum.seconds
    }

    /// The share of the time in which the consumer waited.
    pub(super) fn waiting(&self) -> f64 {
        self.sum.consumer_waited / self.sum.seconds
    }

    /// How many decoding threads were busy on average.
    pub(super) fn busy_threads(&self) -> f64 {
        self.sum.workers_busy / self.sum.seconds
    }

    /// The seconds that a decoding thread has for a sample.
    pub(super) fn work_per_sample(&self) -> f64 {
        self.sum.workers_busy / self.sum.samples.max(1) as f64
    }

    /// The share of the time in which the reading thread waited with its queue full, or for batches ahead.
    pub(super) fn full(&self) -> f64 {
        self.sum.read_full / self.sum.seconds
    }

    pub(super) fn ahead(&self) -> f64 {
        self.sum.read_ahead / self.sum.seconds
    }

    /// Whether threads rest because of a budget.
    pub(super) fn rests(&self) -> bool {
        self.sum.rested > OFTEN * self.sum.seconds
    }

    /// What holds the pipeline up, which has so many decoding threads.
    pub(super) fn limit(&self, threads: usize) -> WhatLimits {
        if self.waiting() < WAITS {
            WhatLimits::Consumer
        } else if self.rests() {
            WhatLimits::Budget
        } else if self.busy_threads() > BUSY * threads as f64 {
            WhatLimits::Decoding
        } else if self.sum.read_busy > BUSY * self.sum.seconds {
            WhatLimits::Reading
        } else if self.full() > 0.5 {
            WhatLimits::Storage
        } else if self.ahead() > 0.5 {
            WhatLimits::Ahead
        } else {
            WhatLimits::Several
        }
    }
}

/// The rate, and its standard error.
impl fmt::Display for Measured {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.0} ± {:.0}", self.rate(), self.rate() * self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(samples: u64) -> Observation {
        Observation { seconds: 0.1, samples, batches: 1, ..Observation::default() }
    }

    #[test]
    fn a_window_knows_its_noise() {
        let measure = |samples: &[u64]| {
            let mut window = MeasuredStretch::default();
            samples.iter().for_each(|samples| window.add(observed(*samples)));
            window.measured()
        };
        assert_eq!(measure(&[100; 4]), None, "too short");
        let steady = measure(&[100; 6]).unwrap();
        assert!((steady.rate() - 1000.0).abs() < 1e-6 && steady.error < 1e-9);
        let noisy = measure(&[50, 150, 50, 150, 50, 150]).unwrap();
        assert!((noisy.rate() - 1000.0).abs() < 1e-6);
        assert!((noisy.error - 0.5 / 5f64.sqrt()).abs() < 1e-6, "{}", noisy.error);
        assert_eq!(measure(&[0; 100]), None, "nothing happened");
    }

    #[test]
    fn what_limits_is_told_by_who_has_no_time_to_spare() {
        let of = |waited, busy, full, ahead| {
            let sum = Observation {
                seconds: 1.0,
                samples: 100,
                consumer_waited: waited,
                workers_busy: busy,
                read_full: full,
                read_ahead: ahead,
                ..observed(100)
            };
            Measured { sum, error: 0.0 }.limit(2)
        };
        assert_eq!(of(0.0, 0.9, 0.0, 0.9), WhatLimits::Consumer);
        assert_eq!(of(0.5, 1.9, 0.0, 0.9), WhatLimits::Decoding);
        assert_eq!(of(0.5, 0.3, 0.9, 0.0), WhatLimits::Storage);
        assert_eq!(of(0.5, 0.3, 0.0, 0.9), WhatLimits::Ahead);
        assert_eq!(of(0.5, 0.3, 0.3, 0.3), WhatLimits::Several);
    }
}
