//! The command `foreload unpack`, which restores the files from which a packed dataset was made.

use super::output;
use super::pack::{left_out, with_bar};
use base::error::Result;
use data::pack::{self, UnpackReport};
use std::path::PathBuf;

/// The arguments of `foreload unpack`.
#[derive(Debug, clap::Args)]
pub(super) struct UnpackArgs {
    /// The packed dataset
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The directory for its files; it must be missing or empty
    #[arg(value_name = "DST")]
    into: PathBuf,
    /// Threads [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &UnpackArgs) -> Result<()> {
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(here, usize::from);
    let report = with_bar("files", |progress| pack::unpack(&args.source, &args.into, threads, progress))?;
    output::print_report(&report, args.json, |report| describe(args, report))
}

fn describe(args: &UnpackArgs, report: &UnpackReport) -> String {
    let UnpackReport { files, bytes, archives, seconds, .. } = report;
    let inside = if *archives > 0 { format!(" in {archives} shards") } else { String::new() };
    let mut lines = vec![format!(
        "{}: {files} files of {}{inside}, each byte for byte, in {}",
        args.into.display(),
        output::bytes(*bytes),
        output::seconds(*seconds)
    )];
    if *archives > 0 {
        lines.push("  owners and times of tar members were not kept".to_owned());
    }
    if report.not_compressed > 0 {
        let count = report.not_compressed;
        lines.push(format!("  {count} compressed shards were written uncompressed, and named accordingly"));
    }
    lines.extend(left_out(&report.left_out, report.members_left_out));
    lines.join("\n")
}
