//! The command line. Each command has a file or folder with its name. `settings` makes flags from the table of
//! settings, `job` finds the ranks of a job, and `output` prints results as text or JSON.

#![warn(unreachable_pub)]

mod bench;
mod cache;
#[cfg(feature = "simulate")]
mod calibrate;
mod doctor;
mod emulate;
mod index;
mod job;
mod output;
mod pack;
#[cfg(feature = "simulate")]
mod plan;
#[cfg(feature = "simulate")]
mod plot;
mod report;
mod serve;
mod settings;
mod show;
#[cfg(feature = "simulate")]
mod simulate;
mod synth;
mod top;
mod unpack;
mod usage;

pub use job::{FindsJob, FoundJob, JobQuestion};

use base::error::Error;
use base::names::NamedValue;
use clap::{Parser, Subcommand};
use data::dataset::without_secrets;
use std::borrow::Cow;
use std::ffi::OsString;

/// A data loader for people who train on GPUs. It knows the epoch's order and loads ahead.
#[derive(Debug, Parser)]
#[command(name = "foreload", version = base::version::get(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run epochs of a dataset at full speed and show what limits them
    Bench(Box<bench::BenchArgs>),
    /// Show the contents of a cache directory, or empty it
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Measure the speed of this machine's storage and decoders, for `foreload plan`
    #[cfg(feature = "simulate")]
    Calibrate(calibrate::CalibrateArgs),
    /// Show what this machine supports, what Foreload will use, and why
    Doctor(doctor::DoctorArgs),
    /// Build, check and show the persistent index of a dataset
    Index(index::IndexArgs),
    /// Pack a dataset losslessly into shards whose images decode in half to two thirds of the CPU time
    Pack(pack::PackArgs),
    /// Predict the cost of a job: seconds per epoch, the bottleneck, and the gain from more NVMe
    #[cfg(feature = "simulate")]
    Plan(plan::PlanArgs),
    /// Simulate the cost of a training on many nodes under each caching policy
    #[cfg(feature = "simulate")]
    Simulate(simulate::SimulateArgs),
    /// A command that this build lacks
    #[cfg(not(feature = "simulate"))]
    #[command(name = "simulate", aliases = ["calibrate", "plan"], hide = true)]
    LeftOut(LeftOutArgs),
    /// Produce batches for loaders with `shared=` (started by them)
    #[command(hide = true)]
    Produce,
    /// Show how the time of each epoch of a logged run was spent
    Report(report::ReportArgs),
    /// Produce batches for all loaders on this node that share them (`shared=`), until interrupted
    Serve(Box<serve::ServeArgs>),
    /// Draw what a network sees: transformed images next to the originals, with the drawn parameters
    Show(Box<show::ShowArgs>),
    /// Create a dataset of JPEGs with ImageNet's statistics from real photographs
    Synth(synth::SynthArgs),
    /// Show what all loaders of this user on this node are doing, live
    Top(top::TopArgs),
    /// Restore the original files of a packed dataset
    Unpack(unpack::UnpackArgs),
}

/// The arguments after the name of a command that this build lacks.
#[cfg(not(feature = "simulate"))]
#[derive(Debug, clap::Args)]
struct LeftOutArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

const DATASET: &str = "The dataset: a directory of class directories, of files or of shards; one shard; a table of \
    files (.csv, .tsv, .jsonl, .ndjson); COCO annotations (.json); several shards as 'train-{000..099}.tar'; or a URL \
    of any of these";

/// Returns a clap parser for a type with named values.
fn choice<T: NamedValue + Send + Sync>(
    setting: &'static str,
) -> impl Fn(&str) -> Result<T, base::error::Error> + Clone + Send + Sync + 'static {
    move |name| T::parse(setting, name)
}

/// Runs the command line `args` (program name first) and returns the exit code: 0, 1 if the work failed, 2 for bad
/// usage. Results go to stdout, everything else to stderr. Commands that are part of a job of several processes
/// (`--peers`) find the other processes with `finder`, and fail without one.
pub fn main(args: Vec<OsString>, finder: Option<&dyn FindsJob>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(answer) => {
            // For --help and --version, clap returns an answer with exit code 0. An error of printing cannot be
            // reported anywhere.
            let text = answer.render().to_string();
            match without_secrets(&text) {
                Cow::Borrowed(_) => drop(answer.print()),
                Cow::Owned(text) => eprint!("{text}"),
            }
            return answer.exit_code();
        }
    };
    let _aloud = base::notices::PrintUrgentNotices::begin();
    let outcome = match cli.command {
        Command::Bench(args) => bench::run(&args, finder),
        Command::Cache(command) => cache::run(&command),
        #[cfg(feature = "simulate")]
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Doctor(args) => doctor::run(&args, finder),
        Command::Index(args) => index::run(&args),
        Command::Pack(args) => pack::run(&args),
        #[cfg(feature = "simulate")]
        Command::Plan(args) => plan::run(&args),
        #[cfg(feature = "simulate")]
        Command::Simulate(args) => simulate::run(&args),
        #[cfg(not(feature = "simulate"))]
        Command::LeftOut(_) => {
            Err(Error::left_out("commands `calibrate`, `plan` and `simulate`", "simulate"))
        }
        Command::Produce => engine::serve::started_by_a_loader(),
        Command::Report(args) => report::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Unpack(args) => unpack::run(&args),
    };
    engine::pipeline::release_gpus();
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            let lines: Vec<_> = error.to_string().lines().map(output::escaped_for_terminal).collect();
            eprintln!("foreload: {}", lines.join("\n"));
            if matches!(error, Error::Config { .. }) { 2 } else { 1 }
        }
    }
}
