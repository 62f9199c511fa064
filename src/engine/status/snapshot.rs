//! What a process tells of its loaders. Counters count since the first epoch of a loader began.
//!
//! A loader of another kind, or something else that feeds a consumer, says so in `kind` and leaves out what it has
//! not. A section that only some have is one more `Option` of [`LoaderSnapshot`].

use serde::{Deserialize, Serialize};
use stream::StreamAccount;

/// All loaders of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessSnapshot {
    /// The version of what is answered.
    pub version: u32,
    /// The program: of Python, the script or module that it runs.
    pub program: String,
    pub loaders: Vec<LoaderSnapshot>,
}

/// What a loader is and has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoaderSnapshot {
    /// The number of the loader in its process.
    pub number: u64,
    /// `images`, `files` or `stream`.
    pub kind: String,
    /// The dataset's place, or the streams' names.
    pub dataset: String,
    pub rank: u32,
    pub world_size: u32,
    /// Where batches end: `cpu`, or `cuda:0`.
    pub device: String,
    /// Whether an epoch is under way.
    pub running: bool,
    pub epoch: u64,
    /// The number of steps whose batches were delivered in this epoch.
    pub step: u64,
    /// The number of steps of the epoch; of a stream there is none.
    pub steps: Option<u64>,
    /// The seconds since the first epoch began.
    pub seconds: f64,
    /// The samples of the batches that were delivered.
    pub samples: u64,
    /// The bytes of samples that were read, from all tiers.
    pub bytes: u64,
    /// The samples that failed in this epoch.
    pub failed: u64,
    pub stages: StageNumbers,
    pub stalls: StallNumbers,
    /// The tiers that samples came from, the source first.
    pub tiers: Vec<TierNumbers>,
    pub queue: QueueNumbers,
    /// The processors that the loader may keep busy on average, where it has a share of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// How batches are had of the process that makes them for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingNumbers>,
    /// What became of the samples of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamAccount>,
}

/// How long the stages were busy, in seconds, summed over their threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageNumbers {
    /// The number of threads that decode and augment.
    pub threads: u32,
    /// The number of lanes of a GPU.
    pub lanes: u32,
    /// Reads were in flight.
    pub reading: f64,
    /// None were, because too few samples of a stream had arrived.
    pub arrivals: f64,
    pub decoding: f64,
    pub augmenting: f64,
    /// The GPU was given planes, decoded and augmented.
    pub gpu: f64,
    /// The consumer waited.
    pub waiting: f64,
}

/// How long the consumer waited for each batch of this epoch, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallNumbers {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// What a tier gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierNumbers {
    pub name: String,
    /// The samples that came from it.
    pub samples: u64,
    /// The seconds from asking for these samples to having them, summed.
    pub latency: f64,
    /// The bytes of the dataset that it holds, and the most that it may hold; 0 for the source.
    pub held_bytes: u64,
    pub quota_bytes: u64,
}

/// How full the queues are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueNumbers {
    /// The reads in flight, and the most that may be.
    pub in_flight: u64,
    pub depth: u64,
    /// The batches that are ready for the consumer, and the most that the pipeline has at a time.
    pub ready: u64,
    pub prefetch: u64,
}

/// How batches are shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharingNumbers {
    /// The process that makes the batches, for how many loaders, and by how many recipes.
    pub producer: u64,
    pub consumers: u64,
    pub recipes: u64,
    /// The batches that were lent, and by how many processes, one after another.
    pub batches: u64,
    pub producers: u64,
    /// Those of the processes that were lost.
    pub lost: u64,
    /// How often the others had gone on.
    pub left_behind: u64,
}

impl SharingNumbers {
    /// These numbers by the names that statistics have for them.
    pub fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("batches", self.batches),
            ("producers", self.producers),
            ("producers_lost", self.lost),
            ("left_behind", self.left_behind),
            ("producer_pid", self.producer),
            ("consumers", self.consumers),
            ("recipes", self.recipes),
        ]
    }
}
