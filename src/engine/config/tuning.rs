//! Which knobs of a pipeline are tuned, and within which bounds.

use super::{LoaderOptions, share};
use crate::batch::Pools;
use crate::tune::{Knob, KnobRange, KnobValues};
use base::error::{Error, Result};
use data::dataset::DatasetIndex;

/// The variable that says with which values the tuner begins, for benchmarks of it.
const START: &str = "FORELOAD_TUNER_START";

/// The most reads in flight that are tried. Storage behind a network answers hundreds at a time.
const DEEPEST: usize = 256;

/// What a pipeline may change while it runs.
#[derive(Debug, Clone)]
pub struct TuningPlan {
    /// Whether anything is changed.
    pub on: bool,
    /// The bounds of each knob.
    pub ranges: [KnobRange; 3],
    /// The values to begin with.
    pub start: KnobValues,
    /// The share of the node's processors that may be taken.
    pub cpu: Option<f64>,
    /// The ranks of the node, as far as they are known.
    pub ranks: u32,
    /// The seed of changes at random, with which tests show that no batch depends on them.
    pub shaken: Option<u64>,
}

/// What the bounds of the knobs follow from.
struct TunedKnobs {
    on: bool,
    cpu: Option<f64>,
    ranks: u32,
    threads: usize,
    queue_depth: usize,
    prefetch: usize,
    /// The most batches ahead for which there is memory.
    most_prefetch: usize,
    /// Whether the user gave the number of threads, and of reads in flight.
    threads_given: bool,
    depth_given: bool,
    /// Whether batches end on a GPU, whose host memory and lanes are sized for the usual values.
    on_gpu: bool,
}

impl LoaderOptions {
    /// The most reads in flight that slots are made for. Those of a drive are short, so that the usual slots do for
    /// more of them; a network answers after so long that each needs its own.
    pub(super) fn deepest_for(&self, index: &DatasetIndex) -> usize {
        match self.tune && self.queue_depth.is_none() && index.has_remote() {
            true => DEEPEST,
            false => self.depth_for(index) as usize,
        }
    }

    /// What is tuned of a pipeline with so many threads and reads in flight, and these pools.
    ///
    /// # Errors
    /// Those of [`TunedKnobs::plan`].
    pub(super) fn tuning(
        &self,
        (threads, queue_depth, pools): (usize, usize, Pools),
        sizes_are_bound: bool,
        on_gpu: bool,
    ) -> Result<TuningPlan> {
        // What lies in slots, or has no known size, is bound by the number of batches alone.
        let most_prefetch = match sizes_are_bound {
            true => (2 * pools.prefetch).min(pools.batches.saturating_sub(self.keep as usize)),
            false => pools.prefetch,
        };
        let knobs = TunedKnobs {
            on: self.tune,
            cpu: self.cpu,
            ranks: self.local_world_size.unwrap_or(1),
            threads,
            queue_depth,
            prefetch: pools.prefetch,
            most_prefetch,
            threads_given: self.threads.is_some() || !self.decoded,
            depth_given: self.queue_depth.is_some(),
            on_gpu,
        };
        knobs.plan()
    }
}

impl TunedKnobs {
    /// # Errors
    /// [`Error::Config`] for what the environment says of the values to begin with.
    fn plan(&self) -> Result<TuningPlan> {
        let Self { threads, queue_depth, prefetch, .. } = *self;
        let most_threads = match self.on_gpu {
            true => threads,
            // Ranks of a node may need different numbers.
            false => share::processors(1).min(2 * threads),
        };
        let knob = |is_fixed: bool, usual: usize, most: usize| match is_fixed || !self.on {
            true => KnobRange::fixed(usual),
            false => KnobRange::up_to(usual, most),
        };
        let ranges = [
            knob(self.threads_given, threads, most_threads),
            knob(self.depth_given, queue_depth, DEEPEST),
            knob(self.on_gpu, prefetch, self.most_prefetch),
        ];
        let usual = usual_of(&ranges);
        let start = match std::env::var_os(START).filter(|_| self.on) {
            Some(text) => usual.with(&text.to_string_lossy(), START)?,
            None => usual,
        };
        let start = KnobValues::of(|knob: Knob| {
            let KnobRange { least, most, .. } = ranges[knob as usize];
            start.get(knob).clamp(least, most)
        });
        Ok(TuningPlan { on: self.on, ranges, start, cpu: self.cpu, ranks: self.ranks, shaken: None })
    }
}

/// The values that knobs have where nothing is tuned.
fn usual_of(ranges: &[KnobRange; 3]) -> KnobValues {
    KnobValues::of(|knob| ranges[knob as usize].usual)
}

impl TuningPlan {
    /// A plan by which everything stays as it is, as for streams, whose rate others decide.
    pub fn off(&self) -> Self {
        let ranges = self.ranges.map(|range| KnobRange::fixed(range.usual));
        let start = usual_of(&ranges);
        Self { on: false, ranges, start, ..self.clone() }
    }

    /// The usual values, but for those that `text` has, as [`KnobValues::with`] reads it; `usual` has none.
    ///
    /// # Errors
    /// [`Error::Config`] by the name `setting`: for another text, for values that a knob cannot have here, and
    /// where nothing is tuned.
    pub fn held_at(&self, text: &str, setting: &'static str) -> Result<KnobValues> {
        if !self.on {
            let message = format!("has {text:?}, but nothing is tuned here that could be held");
            return Err(Error::config(setting, message));
        }
        let usual = usual_of(&self.ranges);
        let values = if text == "usual" { usual } else { usual.with(text, setting)? };
        for knob in Knob::ALL {
            let (name, value) = (knob.name(), values.get(knob));
            let KnobRange { least, most, .. } = self.ranges[knob as usize];
            if !(least..=most).contains(&value) {
                let message = format!("has {name}={value}, must be {least} to {most} here");
                return Err(Error::config(setting, message));
            }
        }
        Ok(values)
    }

    /// The largest value that a knob may ever have.
    pub fn most(&self, knob: Knob) -> usize {
        self.ranges[knob as usize].most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs() -> TunedKnobs {
        TunedKnobs {
            on: true,
            cpu: None,
            ranks: 1,
            threads: 1,
            queue_depth: 32,
            prefetch: 4,
            most_prefetch: 8,
            threads_given: false,
            depth_given: false,
            on_gpu: false,
        }
    }

    #[test]
    fn what_is_given_stays_and_the_rest_begins_as_usual() {
        let most = |knobs: TunedKnobs| Knob::ALL.map(|knob| knobs.plan().unwrap().most(knob));
        let threads = share::processors(1).min(2);
        assert_eq!(most(knobs()), [threads, 256, 8]);
        assert_eq!(most(TunedKnobs { threads_given: true, depth_given: true, ..knobs() }), [1, 32, 8]);
        assert_eq!(most(TunedKnobs { on_gpu: true, ..knobs() }), [1, 256, 4]);
        assert_eq!(most(TunedKnobs { on: false, ..knobs() }), [1, 32, 4]);
        let plan = knobs().plan().unwrap();
        assert_eq!(Knob::ALL.map(|knob| plan.start.get(knob)), [1, 32, 4]);
        assert!(!plan.off().on && plan.off().ranges.iter().all(|range| range.is_fixed()));
    }
}
