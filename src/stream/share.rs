//! The share of one rank in a stream: which samples belong to the rank, the names of its files, and the keys that it
//! assigns.
//!
//! Only this module defines these names and keys. So directories and keys of former runs are recognised.

use super::record::sample_id;
use std::path::{Path, PathBuf};

/// The share of one rank in a stream. If all ranks read the whole stream, the sample with id `id` belongs to rank `id %
/// world_size`. The id is 63 bits of the hash of stream and key ([`sample_id`]), so that every rank computes the same
/// division without communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankShare {
    /// This rank, from 0.
    pub rank: u32,
    /// The number of ranks that divide the stream.
    pub world_size: u32,
}

impl Default for RankShare {
    /// A single rank, which takes all samples.
    fn default() -> Self {
        Self { rank: 0, world_size: 1 }
    }
}

impl RankShare {
    /// Whether a sample belongs to this rank.
    pub fn owns(self, stream: &str, key: &str) -> bool {
        self.world_size <= 1 || self.owns_id(sample_id(stream, key))
    }

    /// Whether the sample with this id belongs to this rank.
    pub fn owns_id(self, id: u64) -> bool {
        Self::owner(self.world_size, id) == self.rank
    }

    /// The rank, among `world_size` ranks, to which the sample with this id belongs.
    pub fn owner(world_size: u32, id: u64) -> u32 {
        (id % u64::from(world_size.max(1))) as u32
    }

    /// The key of this rank's sample number `number`, for samples that arrive without a key. Each rank counts its own
    /// samples.
    pub fn key(self, number: u64) -> String {
        match self.world_size {
            1 => number.to_string(),
            _ => format!("{}-{number}", self.rank),
        }
    }

    /// The number in a key that [`RankShare::key`] made, on any rank.
    pub fn number_in(key: &str) -> Option<u64> {
        key.rsplit('-').next()?.parse().ok()
    }

    /// The path of this rank's file or directory. If there are several ranks, the name ends with the rank.
    pub fn path(self, path: &Path) -> PathBuf {
        if self.world_size == 1 {
            return path.to_owned();
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", self.rank));
        path.with_file_name(name)
    }

    /// The abandoned files or directories at `path` that this rank must remove. Their names end in ranks that no longer
    /// exist. Each of them is assigned to one rank of this run. Empty if the parent directory cannot be listed.
    pub fn abandoned(self, path: &Path) -> Vec<PathBuf> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Vec::new();
        };
        let rank_of = |found: &str| match found.strip_prefix(name)? {
            "" => (self.world_size > 1).then_some(0),
            end => {
                let rank: u32 = end.strip_prefix('.')?.parse().ok()?;
                (self.world_size == 1 || rank >= self.world_size).then_some(rank)
            }
        };
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| {
                let rank = entry.file_name().to_str().and_then(rank_of);
                rank.is_some_and(|rank| rank % self.world_size == self.rank)
            })
            .map(|entry| entry.path())
            .collect();
        found.sort_unstable();
        found
    }

    /// Checks that the rank is below the number of ranks, and returns the problem as text.
    pub fn check(self) -> Result<(), String> {
        if self.rank < self.world_size {
            return Ok(());
        }
        Err(format!("rank is {}, must be less than world_size, which is {}", self.rank, self.world_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_left_that_are_no_more_is_looked_after_by_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kept", "kept.0", "kept.1", "kept.2", "kept.3", "kept.x", "kept2", "other.3"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let abandoned = |rank, world_size| -> Vec<String> {
            let found = RankShare { rank, world_size }.abandoned(&folder.path().join("kept"));
            found.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(abandoned(0, 1), ["kept.0", "kept.1", "kept.2", "kept.3"]);
        assert_eq!(
            (abandoned(0, 2), abandoned(1, 2)),
            (vec!["kept".into(), "kept.2".into()], vec!["kept.3".into()])
        );
        assert_eq!((abandoned(0, 4), abandoned(3, 4)), (vec!["kept".to_owned()], vec![]));
    }

    #[test]
    fn keys_of_ranks_are_not_those_of_others() {
        assert_eq!(RankShare::default().key(7), "7");
        assert_eq!(RankShare { rank: 1, world_size: 2 }.key(7), "1-7");
        assert_eq!(["7", "1-7", "1-x", ""].map(RankShare::number_in), [Some(7), Some(7), None, None]);
    }
}
