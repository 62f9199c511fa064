//! The policies: which samples are kept where, and how they are read.

use base::error::{Error, Result};
use serde::Serialize;

/// Which samples are kept where, and how they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Reading takes no time: Σ over steps of the slowest node's bytes / c. Nothing can be faster.
    LowerBound,
    /// Every sample comes from the slow tier when it is needed, one after the other.
    Naive,
    /// Every sample comes from the slow tier, read ahead by the staging threads as far as the staging buffer reaches.
    StagingPool,
    /// Private caches are filled with what is read, and evict the least recently used sample.
    Lru,
    /// Private caches are filled with what is read until they are full.
    NeverEvict,
    /// Private caches are filled with what is read, and evict the sample whose next use is the furthest away.
    Belady,
    /// Private caches keep what their node uses soonest, in groups that leave together, as Foreload does it.
    NextUse,
    /// NoPFS: each node prefetches what it will use most often, and nodes read from each other.
    Frequency,
    /// As `NextUse`, and nodes read from each other what others happen to have.
    NextUsePeers,
    /// The node that uses a sample first keeps it while there is space, and nodes read from each other.
    FirstUser,
    /// Each sample has a home that keeps it, computed by rendezvous hashing, and nodes read from each other.
    Owner,
    /// As `Owner`, and the samples of a global batch are taken by the nodes that keep them, as far as batches stay
    /// equal.
    OwnerLocality,
    /// Foreload takes, of the placements that a deployment can do, the one with the least predicted time.
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

    /// The name on the command line.
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

    /// Finds the policy of this name.
    ///
    /// # Errors
    /// [`Error::Config`], which lists the names there are.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|policy| policy.name()).collect();
            Error::config("policies", format!("has {name:?}, must be of {}", names.join(", ")))
        })
    }
}
