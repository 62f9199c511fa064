//! `--stall`: the same epochs from memory, and what storage makes of them.

use super::args::Args;
use super::epochs::Pass;
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
    /// Bytes kept in memory for it.
    pub(super) resident_bytes: u64,
    /// Seconds by which the consumer waited longer than from memory, in all epochs. Below 0 only by chance.
    pub(super) held_up_seconds: f64,
    /// Of all seconds of the epochs as given.
    pub(super) held_up_share: f64,
    /// Per epoch.
    pub(super) epochs: Vec<EpochStall>,
    /// The epochs from memory.
    pub(super) from_memory: Vec<EpochReport>,
}

/// An epoch as given and from memory, seconds.
#[derive(Debug, Serialize)]
pub(super) struct EpochStall {
    pub(super) epoch: u64,
    pub(super) steps: u64,
    pub(super) seconds: f64,
    pub(super) seconds_from_memory: f64,
    pub(super) wait_seconds: f64,
    pub(super) wait_seconds_from_memory: f64,
    /// The difference of the waits: what storage costs the consumer.
    pub(super) held_up_seconds: f64,
    pub(super) held_up_seconds_per_step: f64,
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

/// Runs the epochs again from memory and compares them with those `given`.
///
/// # Errors
/// As [`Resident::load`]; whatever the loader raises.
pub(super) fn measure(
    args: &Args,
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
    let memory = Pass::run(args, &pipeline)?;
    let epochs: Vec<EpochStall> =
        given.iter().zip(&memory.epochs).map(|(given, memory)| EpochStall::new(given, memory)).collect();
    let sum = |of: fn(&EpochStall) -> f64| epochs.iter().map(of).sum::<f64>();
    let held_up_seconds = sum(|epoch| epoch.held_up_seconds);
    Ok(Stall {
        resident_bytes: index.total_bytes(),
        held_up_seconds,
        held_up_share: held_up_seconds / sum(|epoch| epoch.seconds).max(f64::MIN_POSITIVE),
        epochs,
        from_memory: memory.epochs,
    })
}
