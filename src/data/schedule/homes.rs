//! Which nodes keep the samples of a job: the input of a schedule by locality.

use std::fmt;

/// The nodes of a job's ranks, and the owner node of each sample.
///
/// Each rank computes its share of the samples from this alone. So all ranks must get the same values, and they must
/// not change during an epoch. Otherwise samples are lost, and others occur twice.
pub struct SampleOwners {
    node_of_rank: Vec<u32>,
    home: Box<HomeOf>,
    bytes: Option<Box<BytesOf>>,
}

type HomeOf = dyn Fn(u64) -> Option<usize> + Send + Sync;
type BytesOf = dyn Fn(u64) -> u64 + Send + Sync;

impl SampleOwners {
    /// Makes the owner nodes of samples. `node_of_rank` is the node of each rank, numbered from 0, and `home` returns
    /// the node that keeps a sample. `None`, or a node without ranks, means that the sample is equally far from all.
    ///
    /// # Panics
    /// Panics if a node's number is not below the number of ranks.
    pub fn new(node_of_rank: Vec<u32>, home: impl Fn(u64) -> Option<usize> + Send + Sync + 'static) -> Self {
        let ranks = node_of_rank.len();
        for (rank, &node) in node_of_rank.iter().enumerate() {
            assert!((node as usize) < ranks, "rank {rank} of {ranks} is on node {node}");
        }
        Self { node_of_rank, home: Box::new(home), bytes: None }
    }

    /// Makes the value for a job on a single node, where no sample is nearer to one rank than to another.
    pub fn on_one_node(ranks: u32) -> Self {
        Self::new(vec![0; ranks as usize], |_| Some(0))
    }

    /// Adds the sizes of samples. Ranks then also get about as many bytes each, where this moves no more samples.
    pub fn with_even_bytes(self, bytes: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { bytes: Some(Box::new(bytes)), ..self }
    }

    pub(super) fn node_of_rank(&self) -> &[u32] {
        &self.node_of_rank
    }

    pub(super) fn home(&self, sample: u64) -> Option<usize> {
        (self.home)(sample)
    }

    /// Returns the sizes of `samples`, if ranks must get about as many bytes each.
    pub(super) fn bytes(&self, samples: &[u64]) -> Option<Vec<u64>> {
        self.bytes.as_ref().map(|bytes| samples.iter().map(|&sample| bytes(sample)).collect())
    }
}

impl fmt::Debug for SampleOwners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SampleHomes")
            .field("node_of_rank", &self.node_of_rank)
            .finish_non_exhaustive()
    }
}
