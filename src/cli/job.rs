//! How the processes of a job find one another, for commands that are part of a job (`--peers`). Only the Python
//! package supports launchers, so it passes a [`FindsJob`] to the command line.

use base::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::tier::RankMeeting;

/// Finds the other processes of a job. Implemented by the Python package, which supports launchers and frameworks.
pub trait FindsJob {
    /// Finds the job that this process belongs to, without communicating with the other processes.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` and [`Error::Unavailable`] if the launcher's information cannot be used, or a
    /// package is missing.
    fn find(&self, ask: &JobQuestion<'_>) -> Result<FoundJob>;

    /// The program that runs a `foreload` command in this environment, and its first arguments.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no such program.
    fn command(&self) -> Result<Vec<OsString>>;
}

/// The program that runs a `foreload` command in the same way as this process.
///
/// # Errors
/// The errors of [`FindsJob::command`].
pub(super) fn own_command(finder: Option<&dyn FindsJob>) -> Result<Vec<OsString>> {
    match finder {
        Some(finder) => finder.command(),
        None => {
            let own = std::env::current_exe();
            own.map(|path| vec![path.into()])
                .map_err(|error| Error::Unavailable(format!("cannot find the path of this program: {error}")))
        }
    }
}

/// The user's settings for how a job's processes find one another.
#[derive(Debug)]
pub struct JobQuestion<'a> {
    /// A directory that all nodes share, for jobs whose launcher has no rendezvous.
    pub directory: Option<&'a Path>,
    /// The address and port of this node; `None` means its address in the launcher's network, and any free port.
    pub listen: Option<&'a str>,
    /// How long a rank waits for the other ranks at each meeting.
    pub patience: Duration,
}

/// The rank of this process in its job, and how the job's ranks meet.
pub struct FoundJob {
    /// The rank of this process.
    pub rank: u32,
    /// The number of ranks of the job.
    pub world_size: u32,
    /// The number of ranks on this node, if known.
    pub local_world_size: Option<u32>,
    /// How the ranks wait for one another and exchange data.
    pub meeting: Arc<dyn RankMeeting>,
}

/// The flags that say how nodes reach one another.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct NodeArgs {
    /// The address and port at which the other nodes reach this one, e.g. 10.0.0.7:7100 [default: its address in the
    /// launcher's network, and any free port]
    #[arg(long, value_name = "ADDRESS", requires = "peers")]
    pub(super) listen: Option<String>,
    /// Encrypt the traffic between nodes with TLS, with a new key per node and job
    #[arg(long, requires = "peers")]
    pub(super) tls: bool,
}

/// Finds the job that this process belongs to.
///
/// # Errors
/// The errors of [`FindsJob::find`]; [`Error::Config`] for `peers` if the process is alone, or there is no `finder`.
pub(super) fn find(
    finder: Option<&dyn FindsJob>,
    directory: Option<&PathBuf>,
    nodes: &NodeArgs,
    patience: Duration,
) -> Result<FoundJob> {
    let Some(finder) = finder else {
        let message = "needs the command of the Python package, which supports launchers: run foreload of its \
                       environment, or python -m foreload";
        return Err(Error::config("peers", message));
    };
    let (directory, listen) = (directory.map(PathBuf::as_path), nodes.listen.as_deref());
    let job = finder.find(&JobQuestion { directory, listen, patience })?;
    if job.world_size < 2 {
        let message = "this process is alone: start the command on every node with the job's launcher, as `torchrun \
                       --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint node0:29400 -m foreload ...`, \
                       `mpirun foreload ...`, or `srun foreload ... --peers=/a/directory/that/all/nodes/share`; \
                       without a launcher set \
                       RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (requires torch)";
        return Err(Error::config("peers", message));
    }
    Ok(job)
}
