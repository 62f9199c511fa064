//! The knobs: what can be changed while a pipeline runs, and within which bounds.

use base::error::{Error, Result};

/// What can be changed while a pipeline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// The threads that decode.
    Threads,
    /// The reads in flight; with `io="pread"` the threads that read.
    QueueDepth,
    /// The batches that are being filled or wait for the consumer.
    Prefetch,
}

impl Knob {
    pub const ALL: [Self; 3] = [Self::Threads, Self::QueueDepth, Self::Prefetch];

    /// The name in statistics, logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::QueueDepth => "queue_depth",
            Self::Prefetch => "prefetch",
        }
    }

    /// The next value above `value`, at most `most`. Steps grow with the value, because what limits may be far away.
    fn above(self, value: usize, most: usize) -> usize {
        let step = match self {
            Self::Threads | Self::QueueDepth => value,
            Self::Prefetch => value / 2,
        };
        (value + step.max(1)).min(most)
    }
}

/// The values that a knob may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnobRange {
    pub least: usize,
    /// The value that a pipeline begins with, and has all the time where nothing is tuned.
    pub usual: usize,
    pub most: usize,
}

impl KnobRange {
    /// A knob that stays as it is.
    pub fn fixed(value: usize) -> Self {
        Self { least: value, usual: value, most: value }
    }

    /// A knob from 1 to `most`.
    pub fn up_to(usual: usize, most: usize) -> Self {
        Self { least: 1, usual, most: most.max(usual) }
    }

    /// The next value of `knob` above `value`. The way up stops at what is usual.
    pub(super) fn above(self, knob: Knob, value: usize) -> usize {
        knob.above(value, if value < self.usual { self.usual.min(self.most) } else { self.most })
    }

    pub fn is_fixed(self) -> bool {
        self.least == self.most
    }
}

/// A value for each knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnobValues(pub(super) [usize; Knob::ALL.len()]);

impl KnobValues {
    pub fn of(value: impl FnMut(Knob) -> usize) -> Self {
        Self(Knob::ALL.map(value))
    }

    pub fn get(&self, knob: Knob) -> usize {
        self.0[knob as usize]
    }

    /// These values, but for those that `text` has, such as `threads=1,queue_depth=4`.
    ///
    /// # Errors
    /// [`Error::Config`] by the name `setting`.
    pub fn with(mut self, text: &str, setting: &'static str) -> Result<Self> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let parsed = part.split_once('=').and_then(|(name, value)| {
                let knob = Knob::ALL.into_iter().find(|knob| knob.name() == name)?;
                Some((knob, value.parse().ok().filter(|value| *value > 0)?))
            });
            let Some((knob, value)) = parsed else {
                let names = Knob::ALL.map(Knob::name).join(", ");
                let message =
                    format!("has {part:?}, must be NAME=NUMBER, parted by commas; the names are {names}");
                return Err(Error::config(setting, message));
            };
            self.0[knob as usize] = value;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_a_text() {
        let usual = KnobValues([2, 32, 8]);
        assert_eq!(usual.with("threads=1, prefetch=3", "x").unwrap(), KnobValues([1, 32, 3]));
        assert_eq!(usual.with("", "x").unwrap(), usual);
        for wrong in ["threads", "threads=0", "threads=-1", "speed=3", "=3"] {
            let message = usual.with(wrong, "START").unwrap_err().to_string();
            assert!(message.contains("START") && message.contains("queue_depth"), "{message}");
        }
    }

    #[test]
    fn steps_reach_the_bound_and_never_pass_it() {
        for knob in Knob::ALL {
            let (mut value, mut steps) = (1, 0);
            while value < 100 {
                let next = knob.above(value, 100);
                assert!(next > value && next <= 100, "{knob:?}");
                (value, steps) = (next, steps + 1);
            }
            assert!(steps < 15, "{knob:?}: {steps}");
        }
    }
}
