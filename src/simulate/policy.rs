//! The policies to compare: where samples are kept, and how they are read.

use base::error::{Error, Result};
use base::names::{NamedValue, named};

/// Where samples are kept, and how they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Lower bound, which no policy can beat: reading takes no time. The duration is the sum over all steps of the
    /// slowest node's bytes, divided by its compute rate.
    LowerBound,
    /// Every sample comes from the slow tier when it is needed, one after another.
    Naive,
    /// Every sample comes from the slow tier, read ahead by the staging threads up to the size of the staging buffer.
    StagingPool,
    /// Each node caches the samples that it reads, and evicts the least recently used sample. No node reads another's
    /// cache.
    Lru,
    /// Each node caches the samples that it reads until its caches are full. No node reads another's cache.
    NeverEvict,
    /// Each node caches the samples that it reads, and evicts the sample with the most distant next use. No node reads
    /// another's cache.
    Belady,
    /// Each node caches the samples that it uses soonest, in groups that are evicted together, as Foreload does. No
    /// node reads another's cache.
    NextUse,
    /// NoPFS: each node prefetches the samples that it will use most often, and nodes read from each other.
    Frequency,
    /// Like `NextUse`, but nodes also read the samples that other nodes have cached for themselves.
    NextUsePeers,
    /// The first node that uses a sample caches it if it has space, and nodes read from each other.
    FirstUser,
    /// Each sample is cached by an owner node, which rendezvous hashing determines. Nodes read from each other.
    Owner,
    /// Like `Owner`, but a global batch is divided so that each node gets the samples that it owns, up to its batch
    /// size.
    OwnerLocality,
    /// The placement with the shortest predicted time among those that a Foreload deployment can use.
    Foreload,
}

// In the order in which tables show them.
named!(
    Policy:
    "lower-bound" => LowerBound, "naive" => Naive, "staging-pool" => StagingPool, "lru" => Lru,
    "never-evict" => NeverEvict, "belady" => Belady, "next-use" => NextUse, "frequency" => Frequency,
    "next-use-peers" => NextUsePeers, "first-user" => FirstUser, "owner" => Owner,
    "owner-locality" => OwnerLocality, "foreload" => Foreload,
);

impl Policy {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        NamedValue::name(self)
    }

    /// Returns the policy of this name.
    ///
    /// # Errors
    /// [`Error::Config`] that lists the valid names.
    pub fn parse(name: &str) -> Result<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            Error::config("policies", format!("has {name:?}, must be one of {}", names.join(", ")))
        })
    }
}
