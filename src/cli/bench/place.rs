//! The rank of a benchmark's process in its job, and how it reaches the other ranks.

use base::error::Result;
use engine::config::{LoaderOptions, Peers};

#[derive(Default)]
pub(super) struct BenchPlace {
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) local_world_size: Option<u32>,
    pub(super) peers: Peers,
}

impl BenchPlace {
    pub(super) fn apply_to(&self, options: LoaderOptions) -> LoaderOptions {
        let local_world_size = options.local_world_size.or(self.local_world_size);
        LoaderOptions { local_world_size, peers: self.peers.clone(), ..options }
    }

    /// Waits until all ranks have reached this point, because a rank that has exited serves no samples.
    ///
    /// # Errors
    /// The errors of [`RankMeeting::meet`](store::tier::RankMeeting::meet).
    pub(super) fn wait_for_all(&self) -> Result<()> {
        let Some(meeting) = &self.peers.meeting else { return Ok(()) };
        meeting.meet("the end of an epoch", &[], self.rank, self.world_size).map(drop)
    }
}
