//! The kinds of sources, a file or a folder each.

pub(crate) mod folder;
pub(crate) mod redis;
pub(crate) mod socket;
pub(crate) mod zeromq;

use super::record::sample_id;

/// The part of a stream that is a rank's, where all ranks read the whole of it: the samples whose number, modulo the
/// number of ranks, is the rank's. That number is 63 bits of the hash of stream and key ([`sample_id`]), so that every
/// rank knows it without asking the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankShare {
    /// Which of the ranks this is, from 0.
    pub rank: u32,
    /// How many ranks divide the stream.
    pub world_size: u32,
}

impl Default for RankShare {
    /// One rank, which takes all.
    fn default() -> Self {
        Self { rank: 0, world_size: 1 }
    }
}

impl RankShare {
    /// Whether a sample is this rank's.
    pub(crate) fn takes(self, stream: &str, key: &str) -> bool {
        self.world_size <= 1 || sample_id(stream, key) % u64::from(self.world_size) == u64::from(self.rank)
    }

    /// What is wrong with it, in words.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.rank < self.world_size {
            return Ok(());
        }
        Err(format!("rank is {}, must be less than world_size, which is {}", self.rank, self.world_size))
    }
}
