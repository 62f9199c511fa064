//! The kinds of sources, a file or a folder each.

pub(crate) mod folder;
pub(crate) mod redis;
pub(crate) mod socket;
pub(crate) mod zeromq;

use super::record::sample_id;
use std::path::{Path, PathBuf};

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
        self.world_size <= 1 || Self::owner(self.world_size, stream, key) == self.rank
    }

    /// Which of the ranks a sample is of.
    pub(crate) fn owner(world_size: u32, stream: &str, key: &str) -> u32 {
        (sample_id(stream, key) % u64::from(world_size.max(1))) as u32
    }

    /// The file or directory of this rank: where there are several, its name ends in the rank.
    pub(crate) fn path(self, path: &Path) -> PathBuf {
        if self.world_size == 1 {
            return path.to_owned();
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", self.rank));
        path.with_file_name(name)
    }

    /// Of so many former ranks those whose paths no rank has now, and which this rank is to look after.
    pub(crate) fn heirless(self, former: u32) -> impl Iterator<Item = Self> {
        let has_heir = move |rank| former > 1 && self.world_size > 1 && rank < self.world_size;
        (0..former)
            .filter(move |&rank| !has_heir(rank) && rank % self.world_size == self.rank)
            .map(move |rank| Self { rank, world_size: former })
    }

    /// What is wrong with it, in words.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.rank < self.world_size {
            return Ok(());
        }
        Err(format!("rank is {}, must be less than world_size, which is {}", self.rank, self.world_size))
    }
}
