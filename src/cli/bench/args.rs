//! The arguments of `foreload bench`.

use super::place::BenchPlace;
use crate::DATASET;
use crate::emulate;
use crate::job::{self, FindsJob, NodeArgs};
use crate::settings::{Settings, TakesSettings};
use base::error::{Error, Result};
use engine::config::{GivenSettings, LoaderOptions, Peers, UserValue, parse_duration};
use std::path::PathBuf;
use std::time::Duration;
use store::io::ParallelFsRates;

/// `foreload bench` has a flag for every setting that can be a flag.
impl TakesSettings for BenchArgs {}

/// How long a rank waits for the other ranks, which may still be listing a large dataset.
const PATIENCE: Duration = Duration::from_secs(3600);

const RANK: &str = "{rank}";

/// The arguments of `foreload bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    #[arg(value_name = "DATASET", help = DATASET)]
    pub(super) dir: PathBuf,
    /// Epochs to run, at least 1; the n-th has number n, from 0
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) epochs: u64,
    /// Stop each epoch after this many batches, at least 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) steps: Option<u64>,
    /// Rank of this process; it gets its share of each global batch
    #[arg(long, default_value_t = 0, conflicts_with = "peers")]
    rank: u32,
    /// Number of processes of the job
    #[arg(long, default_value_t = 1, conflicts_with = "peers")]
    world_size: u32,
    /// Share the nodes' caches, as the loader's `peers` does: the command runs on all nodes, started by torchrun,
    /// mpirun or srun, which set the rank. Launchers without a rendezvous, such as srun, need a DIRECTORY that all
    /// nodes share
    #[arg(long, value_name = "DIRECTORY", require_equals = true)]
    peers: Option<Option<PathBuf>>,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Simulated training step after each batch, e.g. 20ms
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_duration("consume", text))]
    pub(super) consume: Duration,
    /// Make the dataset's storage as slow as a parallel file system, e.g. open=2ms,read=1ms,bandwidth=200MB; also
    /// opens=6000 (per second) and concurrency=64 (requests at once)
    #[arg(long, value_name = "SPEC", value_parser = emulate::rates)]
    pub(super) emulate_pfs: Option<ParallelFsRates>,
    /// The same as --train=false
    #[arg(long, conflicts_with = "train")]
    eval: bool,
    /// Write an interval log of all stages to this file; `foreload report`, Perfetto and chrome://tracing show it.
    /// With --peers each rank has its own file: `{rank}` in the name stands for the rank
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Also run each epoch from memory, and show what delays the consumer: storage, the cache or decoding. After the
    /// first epoch, 3 to 7 more run until the result is clear, even if --epochs is smaller
    #[arg(long)]
    pub(super) stall: bool,
    /// Hash all bytes of each epoch's batches, of all fields and in order (costs time)
    #[arg(long)]
    pub(super) checksum: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    settings: Settings<BenchArgs>,
}

impl BenchArgs {
    pub(super) fn options(&self) -> LoaderOptions {
        let settings = (*self.settings).clone();
        LoaderOptions { train: if self.eval { Some(false) } else { settings.train }, ..settings }
    }

    pub(super) fn given(&self) -> GivenSettings {
        let mut given = self.settings.given().clone();
        if self.eval {
            given.give("train", UserValue::Truth(false));
        }
        given
    }

    pub(super) fn place(&self, finder: Option<&dyn FindsJob>) -> Result<BenchPlace> {
        let Some(directory) = &self.peers else {
            return Ok(BenchPlace { rank: self.rank, world_size: self.world_size, ..BenchPlace::default() });
        };
        let found = job::find(finder, directory.as_ref(), &self.nodes, PATIENCE)?;
        Ok(BenchPlace {
            rank: found.rank,
            world_size: found.world_size,
            local_world_size: found.local_world_size,
            peers: Peers { on: true, tls: self.nodes.tls, meeting: Some(found.meeting), ..Peers::default() },
        })
    }

    pub(super) fn trace(&self, place: &BenchPlace) -> Result<Option<PathBuf>> {
        let Some(path) = &self.trace else { return Ok(None) };
        if self.peers.is_none() {
            return Ok(Some(path.clone()));
        }
        match path.to_str().filter(|text| text.contains(RANK)) {
            Some(text) => Ok(Some(text.replace(RANK, &place.rank.to_string()).into())),
            None => {
                let message = format!(
                    "is {}, which all ranks would write: put {RANK} into its name, as in run-{RANK}.json",
                    path.display()
                );
                Err(Error::config("trace", message))
            }
        }
    }
}
