//! The command line, one file for each command.

mod bench;
mod cache;
mod calibrate;
mod doctor;
mod emulate;
mod index;
mod job;
mod output;
mod pack;
mod plan;
mod plot;
mod report;
mod serve;
mod settings;
mod show;
mod simulate;
mod synth;
mod top;
mod unpack;
mod usage;

pub use job::{FindsJob, FoundJob, JobQuestion};

use crate::Error;
use crate::dataset::without_secrets;
use crate::names::NamedValue;
use clap::{Parser, Subcommand};
use std::borrow::Cow;
use std::ffi::OsString;

/// A data loader for people who train on GPUs. It knows the epoch's order and loads ahead.
#[derive(Debug, Parser)]
#[command(name = "foreload", version = env!("FORELOAD_VERSION"), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run epochs of a dataset as fast as they go and show what limits them
    Bench(Box<bench::BenchArgs>),
    /// Show what a cache directory holds, or empty it
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Measure how fast storage and decoders of this machine are, for `foreload plan`
    Calibrate(calibrate::CalibrateArgs),
    /// Say what this machine offers, what will be chosen, and why
    Doctor(doctor::DoctorArgs),
    /// Build, check and show the persistent index of a dataset
    Index(index::IndexArgs),
    /// Pack a dataset into shards whose images are decoded in less than half of the time, without loss
    Pack(pack::PackArgs),
    /// Say what a job will cost before it runs: seconds of an epoch, what limits it, what more NVMe would buy
    Plan(plan::PlanArgs),
    /// Compute what a training on many nodes would cost under each caching policy
    Simulate(simulate::SimulateArgs),
    /// Make the batches that loaders with `shared=` ask for, which start this themselves
    #[command(hide = true)]
    Produce,
    /// Show where the time of each epoch of a logged run went
    Report(report::ReportArgs),
    /// Make batches once for all loaders of this node that share them (`shared=`), as long as this runs
    Serve(Box<serve::ServeArgs>),
    /// Draw what a network sees: images as the transforms make them, beside the whole ones, with what was drawn
    Show(Box<show::ShowArgs>),
    /// Make a dataset of JPEGs with ImageNet's statistics from real photographs
    Synth(synth::SynthArgs),
    /// Show what all loaders of this user on this node are doing, live
    Top(top::TopArgs),
    /// Give back the files that a packed dataset was made of
    Unpack(unpack::UnpackArgs),
}

/// What a command says of the dataset that it takes.
const DATASET: &str = "The dataset: a directory of class directories, of files or of shards; one shard; a table of \
    files (.csv, .tsv, .jsonl, .ndjson); several shards by braces, as 'train-{000..099}.tar'; or a URL of these";

/// Makes a clap parser for a type with named values.
fn choice<T: NamedValue + Send + Sync>(
    setting: &'static str,
) -> impl Fn(&str) -> Result<T, crate::Error> + Clone + Send + Sync + 'static {
    move |name| T::parse(setting, name)
}

/// The version of the program, with the revision it was built from if that is known: `0.1.0 (1a2b3c4d5)`.
fn version() -> String {
    env!("FORELOAD_VERSION").to_owned()
}

/// Runs the command line `args` (program name first) and returns the exit code: 0, 1 if the work failed, 2 for bad
/// usage. Results go to stdout, everything else to stderr. What takes part in a job of several processes (`--peers`)
/// finds them by `finder`, and says so where there is none.
pub fn main(args: Vec<OsString>, finder: Option<&dyn FindsJob>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(answer) => {
            // This is also how --help and --version come, with exit code 0. If printing fails, there is nobody left to
            // tell.
            let text = answer.render().to_string();
            match without_secrets(&text) {
                Cow::Borrowed(_) => drop(answer.print()),
                Cow::Owned(text) => eprint!("{text}"),
            }
            return answer.exit_code();
        }
    };
    let _aloud = crate::notices::SpokenAloud::begin();
    let outcome = match cli.command {
        Command::Bench(args) => bench::run(&args, finder),
        Command::Cache(command) => cache::run(&command),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Doctor(args) => doctor::run(&args, finder),
        Command::Index(args) => index::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Produce => crate::serve::started_by_a_loader(),
        Command::Report(args) => report::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Unpack(args) => unpack::run(&args),
    };
    crate::pipeline::release_gpus();
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            let lines: Vec<_> = error.to_string().lines().map(output::harmless).collect();
            eprintln!("foreload: {}", lines.join("\n"));
            if matches!(error, Error::Config { .. }) { 2 } else { 1 }
        }
    }
}
