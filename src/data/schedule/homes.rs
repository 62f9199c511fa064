//! Where the samples of a job are kept: what a schedule must know to take them to their nodes.

use std::fmt;

/// The nodes of a job's ranks, and the node that keeps each sample.
///
/// Each rank computes by this alone which samples are its own. So all ranks must be given the same, and what it says
/// must not change as long as an epoch runs: otherwise samples would be lost, and others would come twice.
pub struct SampleHomes {
    node_of_rank: Vec<u32>,
    home: Box<HomeOf>,
    bytes: Option<Box<BytesOf>>,
}

type HomeOf = dyn Fn(u64) -> Option<usize> + Send + Sync;
type BytesOf = dyn Fn(u64) -> u64 + Send + Sync;

impl SampleHomes {
    /// The homes of samples among nodes, which have numbers from 0. `node_of_rank` says on which node each rank is, and
    /// `home` which node keeps a sample; `None`, or a node without ranks, where it is as far from all.
    ///
    /// # Panics
    /// Panics when a rank's node has a number that is not below the number of ranks, for each node has one.
    pub fn new(node_of_rank: Vec<u32>, home: impl Fn(u64) -> Option<usize> + Send + Sync + 'static) -> Self {
        let ranks = node_of_rank.len();
        for (rank, &node) in node_of_rank.iter().enumerate() {
            assert!((node as usize) < ranks, "rank {rank} of {ranks} is on node {node}");
        }
        Self { node_of_rank, home: Box::new(home), bytes: None }
    }

    /// The homes where all ranks are on one node, and no sample is nearer to one than to another.
    pub fn on_one_node(ranks: u32) -> Self {
        Self::new(vec![0; ranks as usize], |_| Some(0))
    }

    /// The same, by which ranks also get about as many bytes each, as far as no more samples move for it. `bytes` is
    /// the size of a sample.
    pub fn with_even_bytes(self, bytes: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { bytes: Some(Box::new(bytes)), ..self }
    }

    pub(super) fn node_of_rank(&self) -> &[u32] {
        &self.node_of_rank
    }

    pub(super) fn home(&self, sample: u64) -> Option<usize> {
        (self.home)(sample)
    }

    /// The sizes of `samples`, where ranks are to get as many bytes each.
    pub(super) fn bytes(&self, samples: &[u64]) -> Option<Vec<u64>> {
        self.bytes.as_ref().map(|bytes| samples.iter().map(|&sample| bytes(sample)).collect())
    }
}

impl fmt::Debug for SampleHomes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SampleHomes")
            .field("node_of_rank", &self.node_of_rank)
            .finish_non_exhaustive()
    }
}
