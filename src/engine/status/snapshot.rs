//! The snapshot that a process sends of its loaders. Counters count since the first epoch of a loader began.
//!
//! To show another kind of loader, give it a name in `kind`, and leave fields that do not apply at their defaults.
//! Values that only some loaders have belong into an `Option` of [`LoaderSnapshot`].

use serde::{Deserialize, Serialize};
use stream::StreamCounters;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessSnapshot {
    pub version: u32,
    pub program: String,
    pub loaders: Vec<LoaderSnapshot>,
}

/// State and counters of a loader.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoaderSnapshot {
    /// Identifier of the loader in its process.
    pub number: u64,
    /// `images`, `files` or `stream`.
    pub kind: String,
    /// Path or URL of the dataset, or the names of the streams.
    pub dataset: String,
    pub rank: u32,
    pub world_size: u32,
    /// The device of the batches: `cpu`, or for example `cuda:0`.
    pub device: String,
    /// Whether an epoch is under way.
    pub running: bool,
    pub epoch: u64,
    /// Number of steps whose batches were delivered in this epoch.
    pub step: u64,
    /// Number of steps of the epoch; `None` for a stream.
    pub steps: Option<u64>,
    /// Seconds since the first epoch began.
    pub seconds: f64,
    /// Samples in delivered batches.
    pub samples: u64,
    /// Bytes of samples that were read, from all tiers.
    pub bytes: u64,
    /// Samples that failed in this epoch.
    pub failed: u64,
    pub stages: StageNumbers,
    pub stalls: StallNumbers,
    /// The tiers that samples came from, the source first.
    pub tiers: Vec<TierNumbers>,
    pub queue: QueueNumbers,
    /// Number of processors that the loader may keep busy on average, if `cpu=` limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// Counters of shared batches, if a producer makes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingNumbers>,
    /// Counters of the samples of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamCounters>,
}

/// Busy time of the stages in seconds, summed over their threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageNumbers {
    /// Number of threads that decode and augment.
    pub threads: u32,
    /// Number of lanes: threads that decode and augment batches on a GPU.
    pub lanes: u32,
    /// Time with reads in flight.
    pub reading: f64,
    /// Time without reads in flight because too few samples of a stream had arrived.
    pub arrivals: f64,
    pub decoding: f64,
    pub augmenting: f64,
    /// Time in which lanes copied planes to the GPU, decoded and augmented.
    pub gpu: f64,
    /// Time in which the consumer waited.
    pub waiting: f64,
}

/// Waiting time of the consumer for each batch of this epoch, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallNumbers {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Counters of a tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierNumbers {
    pub name: String,
    /// Samples that came from the tier.
    pub samples: u64,
    /// Sum of the times from request to arrival of these samples, in seconds.
    pub latency: f64,
    /// Bytes of the dataset that the tier holds, of at most `quota_bytes`. Both numbers are 0 for the source.
    pub held_bytes: u64,
    pub quota_bytes: u64,
}

/// Fill levels of the queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueNumbers {
    /// The number of reads in flight. Its limit is `depth`.
    pub in_flight: u64,
    pub depth: u64,
    /// The number of batches that are ready for the consumer. The pipeline has at most `prefetch` batches at a time.
    pub ready: u64,
    pub prefetch: u64,
}

/// Counters of shared batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharingNumbers {
    /// The process id of the producer. It has `consumers` consumers.
    pub producer: u64,
    pub consumers: u64,
    /// The number of leased batches. They came from `producers` producers, one after another.
    pub batches: u64,
    pub producers: u64,
    /// Producers that were lost.
    pub lost: u64,
    /// The number of times that this loader fell behind the other consumers.
    pub left_behind: u64,
}

impl SharingNumbers {
    /// Returns these numbers, each with its name in statistics.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("batches", self.batches),
            ("producers", self.producers),
            ("producers_lost", self.lost),
            ("left_behind", self.left_behind),
            ("producer_pid", self.producer),
            ("consumers", self.consumers),
        ]
    }
}
