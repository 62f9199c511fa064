//! Whether the nodes of a job share what they keep.

use super::LoaderOptions;
use base::error::{Error, Result};
use base::names::NamedValue;
use data::schedule::Assignment;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use store::tier::{FillChoice, PeersOptions, RankMeeting, TierOptions};

/// Whether nodes read from one another what each keeps, as asked for (`peers=`).
#[derive(Clone, Default)]
pub struct Peers {
    /// Whether they do.
    pub on: bool,
    /// The address and port to listen on; `None` means the side of the launcher, and any free port.
    pub listen: Option<String>,
    /// A directory that all nodes share, in which ranks meet that have nothing better.
    pub directory: Option<PathBuf>,
    /// The function by which ranks exchange bytes, as it is shown; `None` means the cluster's own engine.
    pub allgather: Option<String>,
    /// Whether what travels between nodes is encrypted.
    pub tls: bool,
    /// How the ranks meet, which whoever makes the loader gives.
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
    /// How the nodes share these tiers; `None` where each has its own.
    pub(super) fn peers(&self, tiers: &[TierOptions]) -> Result<Option<PeersOptions>> {
        let Peers { on: true, tls, meeting, .. } = &self.peers else {
            if self.assignment != Assignment::Order {
                let message = format!(
                    "is {}, which needs peers=..., by which it is known what each node keeps: give both, or leave \
                     assignment out",
                    self.assignment.name()
                );
                return Err(Error::config("assignment", message));
            }
            return Ok(None);
        };
        if tiers.is_empty() {
            let message = "needs cache=, which says what each node keeps for all: \
                           cache=foreload.Directory(\"/nvme/foreload\", \"800GB\")";
            return Err(Error::config("peers", message));
        }
        if self.cache.directory.fill == FillChoice::Ahead {
            let message = "is ahead, but with peers= a node keeps a part of each shard: leave fill out";
            return Err(Error::config("cache_fill", message));
        }
        let Some(meeting) = meeting else {
            let message = "needs ranks that meet, which loaders in Python do: leave it out here";
            return Err(Error::config("peers", message));
        };
        Ok(Some(PeersOptions { meeting: meeting.clone(), tls: *tls }))
    }
}
