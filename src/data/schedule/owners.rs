//! The owner nodes of samples: the input of a schedule by locality.

use std::fmt;

/// The nodes of a job's ranks, and the owner node of each sample.
///
/// Each rank computes its share of the samples from these values alone. So all ranks must have the same values, and the
/// values must not change during an epoch. Otherwise some samples are lost, and others occur twice.
pub struct SampleOwners {
    pub(super) node_of_rank: Vec<u32>,
    owner: Box<OwnerOf>,
    bytes: Option<Box<BytesOf>>,
}

type OwnerOf = dyn Fn(u64) -> Option<usize> + Send + Sync;
type BytesOf = dyn Fn(u64) -> u64 + Send + Sync;

impl SampleOwners {
    /// Makes the owner nodes of samples. `node_of_rank` is the index of each rank's node, from 0. `owner` returns the
    /// node that keeps a sample. `None`, or a node without ranks, means that the sample is equally far from all nodes.
    ///
    /// # Panics
    /// Panics if a node's index is not below the number of ranks.
    pub fn new(node_of_rank: Vec<u32>, owner: impl Fn(u64) -> Option<usize> + Send + Sync + 'static) -> Self {
        let ranks = node_of_rank.len();
        for (rank, &node) in node_of_rank.iter().enumerate() {
            assert!((node as usize) < ranks, "rank {rank} of {ranks} is on node {node}");
        }
        Self { node_of_rank, owner: Box::new(owner), bytes: None }
    }

    /// Makes the owners for a job on a single node: every rank is equally near to every sample.
    pub fn on_one_node(ranks: u32) -> Self {
        Self::new(vec![0; ranks as usize], |_| Some(0))
    }

    /// Adds the sizes of samples. Ranks then also get about equally many bytes. This moves no additional samples
    /// between nodes.
    pub fn with_even_bytes(self, bytes: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { bytes: Some(Box::new(bytes)), ..self }
    }

    pub(super) fn owner(&self, sample: u64) -> Option<usize> {
        (self.owner)(sample)
    }

    pub(super) fn bytes(&self, samples: &[u64]) -> Option<Vec<u64>> {
        self.bytes.as_ref().map(|bytes| samples.iter().map(|&sample| bytes(sample)).collect())
    }
}

impl fmt::Debug for SampleOwners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SampleOwners")
            .field("node_of_rank", &self.node_of_rank)
            .finish_non_exhaustive()
    }
}
