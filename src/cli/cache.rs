//! The command `foreload cache`, which shows the contents of a cache directory, or empties it.

use super::output;
use base::error::Result;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use store::tier::store::inspect::{self, CacheContents, CachedDataset, ClearResult};

/// The commands of `foreload cache`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum CacheCommand {
    /// Show the datasets with samples in a cache directory, their bytes, and when they were last used
    Show {
        /// The cache directory, the `path` of `foreload.Directory`
        directory: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Empty a cache directory, also one of an older format; jobs that use it continue, and read from their dataset
    Clear {
        /// The cache directory, the `path` of `foreload.Directory`
        directory: PathBuf,
        /// Only this dataset: a path it was used at, or the beginning of its fingerprint [default: all]
        dataset: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: &CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Show { directory, json } => {
            output::print_report(&inspect::contents(directory)?, *json, show)
        }
        CacheCommand::Clear { directory, dataset, json } => {
            output::print_report(&inspect::clear(directory, dataset.as_deref())?, *json, freed)
        }
    }
}

fn show(held: &CacheContents) -> String {
    let CacheContents { directory, format, usable, datasets, bytes, filling_bytes, others } = held;
    let mut lines = vec![format!(
        "{}: {} of {} datasets, format {format}",
        directory.display(),
        output::bytes(*bytes),
        datasets.len()
    )];
    if !usable {
        lines.push(
            "  this program cannot use this format: `foreload cache clear` empties an older one".to_owned(),
        );
    }
    for one in datasets {
        lines.push(format!(
            "{}\n  {} samples, {} in {} files, {}",
            title(one),
            one.samples,
            output::bytes(one.bytes),
            one.segments,
            if one.in_use { "in use".to_owned() } else { format!("last used {}", when(one.last_used)) }
        ));
    }
    if *filling_bytes > 0 {
        lines.push(format!("being filled: {}", output::bytes(*filling_bytes)));
    }
    if !others.is_empty() {
        lines.push(format!("other files: {}", others.join(", ")));
    }
    lines.join("\n")
}

fn freed(cleared: &ClearResult) -> String {
    let mut lines: Vec<_> = cleared
        .datasets
        .iter()
        .map(|one| {
            let in_use_note = if one.in_use {
                "; a job uses it: it continues, reads from the dataset and may fill the cache again"
            } else {
                ""
            };
            format!("{}\n  {} samples, {}{in_use_note}", title(one), one.samples, output::bytes(one.bytes))
        })
        .collect();
    lines.push(format!("{} freed in {} files", output::bytes(cleared.bytes), cleared.segments));
    if cleared.renewed {
        lines.push("the directory had an older format; it can be used again".to_owned());
    }
    lines.join("\n")
}

/// The number of shown characters of a fingerprint, enough to distinguish all datasets in a directory.
const FINGERPRINT_CHARS: usize = 16;

fn title(dataset: &CachedDataset) -> String {
    let name = dataset.name().get(..FINGERPRINT_CHARS).unwrap_or(dataset.name());
    if dataset.roots.is_empty() { name.to_owned() } else { format!("{name}  {}", dataset.roots.join(", ")) }
}

fn when(last_used: Option<u64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    match last_used.map(|then| now.saturating_sub(then)) {
        None => "at an unknown time".to_owned(),
        Some(s) if s < 120 => format!("{s} seconds ago"),
        Some(s) if s < 2 * 3600 => format!("{} minutes ago", s / 60),
        Some(s) if s < 48 * 3600 => format!("{} hours ago", s / 3600),
        Some(s) => format!("{} days ago", s / 86_400),
    }
}
