//! The arguments of `foreload bench`.

use crate::cli::emulate;
use crate::cli::settings::{Settings, TakesSettings};
use crate::config::{LoaderOptions, parse_duration};
use crate::io::PfsRates;
use std::path::PathBuf;
use std::time::Duration;

/// `foreload bench` takes all settings that have a flag.
#[derive(Debug, Clone)]
pub(super) struct BenchSettings;

impl TakesSettings for BenchSettings {
    const DEFAULTS: &'static [(&'static str, &'static str)] = &[("batch_size", "256")];
}

/// The arguments of `foreload bench`.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct BenchArgs {
    /// The dataset: a directory of class directories or of tar shards
    pub(super) dir: PathBuf,
    /// Epochs to run, at least 1; the n-th has number n, from 0
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) epochs: u64,
    /// Stop each epoch after this many batches, at least 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) steps: Option<u64>,
    /// This process' rank among those of the job; it gets its share of each global batch
    #[arg(long, default_value_t = 0)]
    pub(super) rank: u32,
    /// Processes of the job
    #[arg(long, default_value_t = 1)]
    pub(super) world_size: u32,
    /// Keep the consumer busy for so long after each batch, e.g. 20ms: it stands for the training step
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_duration("consume", text))]
    pub(super) consume: Duration,
    /// Make the dataset's storage as slow as a parallel file system, e.g. open=2ms,read=1ms,bandwidth=200MB; also
    /// opens=6000 (a second) and concurrency=64 (requests at once)
    #[arg(long, value_name = "SPEC", value_parser = emulate::rates)]
    pub(super) emulate_pfs: Option<PfsRates>,
    /// The same as --train=false
    #[arg(long, conflicts_with = "train")]
    eval: bool,
    /// Log which stage did what when to this file; `foreload report` shows it, and so do Perfetto and chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Run the same epochs again from memory, and show how long storage holds the consumer up
    #[arg(long)]
    pub(super) stall: bool,
    /// Hash every byte of the batches of each epoch, of all fields and in order (costs time)
    #[arg(long)]
    pub(super) checksum: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    settings: Settings<BenchSettings>,
}

impl BenchArgs {
    /// The settings of the loader.
    pub(super) fn options(&self) -> LoaderOptions {
        let settings = (*self.settings).clone();
        LoaderOptions { train: settings.train && !self.eval, ..settings }
    }
}
