//! The flag `--stall`: it runs the same epochs from memory, to show how long storage holds them up.

use super::args::BenchArgs;
use super::epochs::BenchRun;
use super::place::BenchPlace;
use super::report::EpochReport;
use crate::cli::output;
use crate::config::LoaderConfig;
use crate::dataset::DatasetIndex;
use crate::error::Result;
use crate::io::{Reader, Resident};
use crate::pipeline::Pipeline;
use serde::Serialize;
use std::sync::Arc;

/// How long storage holds the consumer up.
#[derive(Debug, Serialize)]
pub(super) struct Stall {
    /// The bytes kept in memory for this.
    pub(super) resident_bytes: u64,
    /// The seconds by which the consumer waited longer than from memory, in all epochs. They are below 0 only by
    /// chance.
    pub(super) held_up_seconds: f64,
    /// The share of these seconds in all seconds of the epochs as given.
    pub(super) held_up_share: f64,
    /// The seconds by which the consumer may wait longer by chance: how far the waits of the epochs from memory are
    /// apart, times their number. With several epochs the first is left out, which starts the threads; with a single
    /// one this is unknown.
    pub(super) chance_seconds: Option<f64>,
    /// The result for each epoch.
    pub(super) epochs: Vec<EpochStall>,
    /// The reports of the epochs from memory.
    pub(super) from_memory: Vec<EpochReport>,
}

/// An epoch as given and from memory, in seconds.
#[derive(Debug, Serialize)]
pub(super) struct EpochStall {
    pub(super) epoch: u64,
    pub(super) steps: u64,
    pub(super) seconds: f64,
    pub(super) seconds_from_memory: f64,
    pub(super) wait_seconds: f64,
    pub(super) wait_seconds_from_memory: f64,
    /// The difference of the waits, which is what storage costs the consumer.
    pub(super) held_up_seconds: f64,
    pub(super) held_up_seconds_per_step: f64,
}

impl Stall {
    /// Whether the epochs differ by no more than chance explains, as far as that is known.
    pub(super) fn is_within_chance(&self) -> bool {
        self.held_up_seconds <= self.chance_seconds.unwrap_or(0.0)
    }
}

impl EpochStall {
    fn new(given: &EpochReport, memory: &EpochReport) -> Self {
        let held_up_seconds = given.wait_seconds - memory.wait_seconds;
        Self {
            epoch: given.epoch,
            steps: given.steps,
            seconds: given.seconds,
            seconds_from_memory: memory.seconds,
            wait_seconds: given.wait_seconds,
            wait_seconds_from_memory: memory.wait_seconds,
            held_up_seconds,
            held_up_seconds_per_step: held_up_seconds / given.steps.max(1) as f64,
        }
    }
}

/// Runs the epochs again from memory and compares them with the `given` ones.
///
/// # Errors
/// The errors of [`Resident::load`] and of the loader.
pub(super) fn measure(
    args: &BenchArgs,
    place: &BenchPlace,
    index: &Arc<DatasetIndex>,
    config: LoaderConfig,
    given: &[EpochReport],
) -> Result<Stall> {
    let bar = output::bar(index.len(), "samples into memory");
    let samples = Resident::load(index, &|more| bar.inc(more))?;
    bar.finish_and_clear();
    if !args.json {
        output::print("\nthe same from memory:")?;
    }
    let open = move |_: &_, _: &_, config: &LoaderConfig| {
        Ok(Box::new(samples.reader(config.queue_depth)) as Box<dyn Reader>)
    };
    let config = LoaderConfig { cache: None, ..config };
    let pipeline = Pipeline::with_reader(index.clone(), config, Box::new(open));
    let memory = BenchRun::run(args, place, &pipeline)?;
    let epochs: Vec<EpochStall> =
        given.iter().zip(&memory.epochs).map(|(given, memory)| EpochStall::new(given, memory)).collect();
    let sum = |of: fn(&EpochStall) -> f64| epochs.iter().map(of).sum::<f64>();
    let held_up_seconds = sum(|epoch| epoch.held_up_seconds);
    let chance_seconds =
        chance(&epochs.iter().map(|epoch| epoch.wait_seconds_from_memory).collect::<Vec<_>>());
    Ok(Stall {
        resident_bytes: index.total_bytes(),
        chance_seconds,
        held_up_seconds,
        held_up_share: held_up_seconds / sum(|epoch| epoch.seconds).max(f64::MIN_POSITIVE),
        epochs,
        from_memory: memory.epochs,
    })
}

/// How much of all epochs' waits together may be chance, judged by the waits of each epoch from memory.
fn chance(waits: &[f64]) -> Option<f64> {
    let alike = if waits.len() > 2 { &waits[1..] } else { waits };
    let most = alike.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = alike.iter().copied().fold(f64::INFINITY, f64::min);
    (alike.len() > 1).then_some((most - least) * waits.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_what_epochs_alike_differ_by() {
        assert_eq!(chance(&[]), None);
        assert_eq!(chance(&[1.0]), None);
        assert_eq!(chance(&[1.0, 1.5]), Some(1.0));
        assert_eq!(chance(&[9.0, 1.0, 1.5, 1.25]), Some(2.0));
    }

    #[test]
    fn what_is_below_chance_is_called_so() {
        for (held_up_seconds, chance_seconds, expected) in [
            (-0.1, None, true),
            (0.1, None, false),
            (0.1, Some(0.2), true),
            (0.3, Some(0.2), false),
            (-0.3, Some(0.2), true),
        ] {
            let stall = Stall {
                resident_bytes: 0,
                held_up_seconds,
                held_up_share: 0.0,
                chance_seconds,
                epochs: Vec::new(),
                from_memory: Vec::new(),
            };
            assert_eq!(stall.is_within_chance(), expected, "{held_up_seconds} of {chance_seconds:?}");
        }
    }
}
