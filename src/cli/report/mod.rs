//! The command `foreload report`: how the time of each epoch of a logged run was spent, and the requests to the job's
//! other nodes. It prints tables or JSON, or writes a page.

mod page;
mod peers;
mod text;

use super::output;
use base::error::{Error, Result};
use base::trace;
use std::path::PathBuf;

/// The arguments of `foreload report`.
#[derive(clap::Args, Debug)]
pub(super) struct ReportArgs {
    /// The log that `foreload bench --trace FILE` wrote; the log of a killed run works too
    file: PathBuf,
    /// Write the report as one HTML file, without scripts or external resources
    #[arg(long, value_name = "HTML")]
    out: Option<PathBuf>,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
}

const PARTS: usize = 180;

pub(super) fn run(args: &ReportArgs) -> Result<()> {
    let summary = trace::read(&args.file)?.summary(PARTS);
    if let Some(path) = &args.out {
        std::fs::write(path, page::html(&summary)).map_err(|error| Error::io("write", path, error))?;
    }
    if args.json { output::print_json(&summary) } else { output::print(&text::tables(&summary)) }
}
