//! The setting `peers`: nodes of a job that share their caches.

use super::LoaderOptions;
use base::error::{Error, Result};
use base::names::NamedValue;
use data::schedule::Assignment;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use store::tier::{FillChoice, PeersOptions, RankMeeting, TierOptions};

/// The setting `peers=`: whether the nodes of a job read from each other's caches, and how they find each other.
#[derive(Clone, Default)]
pub struct Peers {
    /// Whether nodes share their caches.
    pub on: bool,
    /// Address and port to listen on; with `None`, the network interface towards the launcher and any free port.
    pub listen: Option<String>,
    /// A directory that all nodes share. Ranks that cannot communicate otherwise exchange their addresses through files
    /// there.
    pub directory: Option<PathBuf>,
    /// Name of the function by which ranks exchange bytes, as Python's `repr` shows it; with `None`, ranks use the
    /// job's own communication (torch.distributed, Ray, MPI or JAX).
    pub allgather: Option<String>,
    /// Whether traffic between nodes is encrypted.
    pub tls: bool,
    /// How the ranks exchange their addresses. The code that makes the loader sets it.
    pub meeting: Option<Arc<dyn RankMeeting>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { on, listen, directory, allgather, tls, meeting: _ } = self;
        let mut shown = f.debug_struct("Peers");
        shown.field("on", on).field("listen", listen).field("directory", directory);
        shown.field("allgather", allgather).field("tls", tls).finish_non_exhaustive()
    }
}

impl LoaderOptions {
    pub(super) fn peers(&self, tiers: &[TierOptions]) -> Result<Option<PeersOptions>> {
        let Peers { on: true, tls, meeting, .. } = &self.peers else {
            if self.assignment != Assignment::Order {
                let message = format!(
                    "is {}, which needs peers=...: set peers, or remove assignment",
                    self.assignment.name()
                );
                return Err(Error::config("assignment", message));
            }
            return Ok(None);
        };
        if tiers.is_empty() {
            let message = "needs cache=, because nodes share their caches: pass \
                           cache=foreload.Directory(\"/nvme/foreload\", \"800GB\")";
            return Err(Error::config("peers", message));
        }
        if self.cache.directory.fill == FillChoice::Ahead {
            let message = "is ahead, but with peers= each node keeps a part of each shard: remove fill";
            return Err(Error::config("cache_fill", message));
        }
        let Some(meeting) = meeting else {
            let message = "is supported only by loaders in Python: remove it here";
            return Err(Error::config("peers", message));
        };
        Ok(Some(PeersOptions { meeting: meeting.clone(), tls: *tls }))
    }
}
