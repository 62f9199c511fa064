//! The policies to compare: where samples are kept, and how they are read.

use base::error::{Error, Result};
use serde::Serialize;

/// Where samples are kept, and how they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Lower bound: reading takes no time. The cost is Σ over steps of the slowest node's bytes / c. No policy can be
    /// faster.
    LowerBound,
    /// Every sample comes from the slow tier when it is needed, one after another.
    Naive,
    /// Every sample comes from the slow tier, read ahead by the staging threads up to the size of the staging buffer.
    StagingPool,
    /// Private caches are filled with the samples that are read, and evict the least recently used sample.
    Lru,
    /// Private caches are filled with the samples that are read until they are full.
    NeverEvict,
    /// Private caches are filled with the samples that are read, and evict the sample with the most distant next use.
    Belady,
    /// Private caches keep the samples that their node uses soonest, in groups that are evicted together, as in
    /// Foreload.
    NextUse,
    /// NoPFS: each node prefetches the samples that it will use most often, and nodes read from each other.
    Frequency,
    /// Like `NextUse`, but nodes also read the samples that other nodes happen to keep.
    NextUsePeers,
    /// The node that uses a sample first keeps it if it has space, and nodes read from each other.
    FirstUser,
    /// Each sample has an owner node that keeps it, computed by rendezvous hashing, and nodes read from each other.
    Owner,
    /// Like `Owner`, but each node takes the samples of a global batch that it keeps, up to its batch size.
    OwnerLocality,
    /// The placement with the least predicted time, among the placements that a Foreload deployment can use.
    Foreload,
}

impl Policy {
    /// All policies, in the order of tables.
    pub const ALL: [Self; 13] = [
        Self::LowerBound,
        Self::Naive,
        Self::StagingPool,
        Self::Lru,
        Self::NeverEvict,
        Self::Belady,
        Self::NextUse,
        Self::Frequency,
        Self::NextUsePeers,
        Self::FirstUser,
        Self::Owner,
        Self::OwnerLocality,
        Self::Foreload,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowerBound => "lower-bound",
            Self::Naive => "naive",
            Self::StagingPool => "staging-pool",
            Self::Lru => "lru",
            Self::NeverEvict => "never-evict",
            Self::Belady => "belady",
            Self::NextUse => "next-use",
            Self::Frequency => "frequency",
            Self::NextUsePeers => "next-use-peers",
            Self::FirstUser => "first-user",
            Self::Owner => "owner",
            Self::OwnerLocality => "owner-locality",
            Self::Foreload => "foreload",
        }
    }

    /// Returns the policy of this name.
    ///
    /// # Errors
    /// [`Error::Config`] that lists the valid names.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|policy| policy.name()).collect();
            Error::config("policies", format!("has {name:?}, must be one of {}", names.join(", ")))
        })
    }
}
