//! The command `foreload serve`, which makes batches for the loaders that share them, while it runs.

use super::output;
use super::settings::{Settings, TakesSettings};
use base::error::Result;
use engine::config::{LoaderKind, UserValue};
use engine::serve::Producer;
use engine::sharing::{BatchPosition, ProducerStart, TOGETHER};
use std::path::PathBuf;

/// `foreload serve` takes all settings that have a flag.
impl TakesSettings for ServeArgs {}

/// The arguments of `foreload serve`.
#[derive(clap::Args, Debug)]
pub(super) struct ServeArgs {
    /// The datasets, with the same paths as in the loaders
    #[arg(value_name = "DATASET", required = true)]
    dirs: Vec<PathBuf>,
    /// The rank whose batches are produced; loaders of other ranks need another producer
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// The number of ranks of each job
    #[arg(long, default_value_t = 1)]
    world_size: u32,
    #[command(flatten)]
    settings: Settings<ServeArgs>,
}

/// Runs the command until it is interrupted.
///
/// # Errors
/// The errors of the loader; [`Error::Unavailable`](base::error::Error::Unavailable) if nothing can be shared.
pub(super) fn run(args: &ServeArgs) -> Result<()> {
    let mut settings = args.settings.given().clone();
    if !settings.has("shared") {
        settings.give("shared", UserValue::Truth(true));
    }
    let start = ProducerStart {
        roots: args.dirs.clone(),
        kind: LoaderKind::Images,
        settings,
        rank: args.rank,
        world_size: args.world_size,
        keys: None,
        number: 0,
        at: BatchPosition { epoch: 0, step: 0 },
        consumers: args.settings.shared_consumers,
        patience: TOGETHER.as_millis() as u64,
    };
    let producer = Producer::open(&start)?;
    output::print_notices(producer.notices());
    let claim = producer.places().lock_any()?;
    let listener = producer.listen(&claim)?;
    let name = match args.settings.shared.as_deref() {
        None | Some("") => "True".to_owned(),
        Some(name) => format!("{name:?}"),
    };
    output::print(&format!(
        "serves batches of {} to this user's loaders with shared={name} and the same settings, until interrupted\n",
        args.dirs
            .iter()
            .map(|dir| data::source::shown(dir).display().to_string())
            .collect::<Vec<_>>()
            .join(", ")
    ))?;
    producer.serve(&listener, &start, &claim, None)
}
