//! Summarises each epoch of a log: for each stage how long it was busy, how many samples and bytes it processed, and
//! how fast.

use super::Stage;
use super::limit::limit;
use super::merge::{TraceSpan, course, merged};
use super::peers::PeersRecord;
use super::read::{Recording, StageRecord};
use serde::Serialize;
use std::collections::BTreeMap;

/// The summary of a log.
#[derive(Debug, Serialize)]
pub struct TraceSummary {
    /// Whether the run ended normally.
    pub complete: bool,
    /// The epochs, sorted by process, then by epoch.
    pub epochs: Vec<EpochSummary>,
    /// For each process, its counters of requests to other nodes in the whole run; absent if nodes share no caches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeersSummary>,
}

/// The counters of a process for requests to other nodes.
#[derive(Debug, Serialize)]
pub struct PeersSummary {
    /// The name of the process.
    pub process: String,
    /// The counters, with the same names as in `stats()["peers"]["nodes"]`.
    #[serde(flatten)]
    pub asked: PeersRecord,
}

/// The summary of an epoch.
#[derive(Debug, Serialize)]
pub struct EpochSummary {
    /// The name of the process.
    pub process: String,
    /// The index of the epoch.
    pub epoch: u64,
    /// The seconds from the consumer's first wait to the end of its last step.
    pub seconds: f64,
    /// The number of samples that the consumer received.
    pub samples: u64,
    /// The share of the epoch in which the consumer waited.
    pub waiting: f64,
    /// The stage that limited the epoch, which had the highest load; `None` if the consumer waited for at most a
    /// hundredth of the time.
    pub limit: Option<String>,
    /// The stages that did any work.
    pub stages: Vec<StageSummary>,
}

/// The work of one stage in an epoch.
#[derive(Debug, Serialize)]
pub struct StageSummary {
    /// The name of the stage.
    pub stage: String,
    /// The number of threads that worked on it.
    pub threads: usize,
    /// The number of intervals in the log. Each of them may consist of several recorded intervals.
    pub intervals: usize,
    /// The seconds in which at least one thread was busy with the stage.
    pub merged_seconds: f64,
    /// The busy seconds of all threads together. Reads that one thread has in flight at the same time count once.
    pub thread_seconds: f64,
    /// The share of the epoch in which at least one thread was busy with the stage.
    pub share: f64,
    /// The share of the epoch in which the stage's thread was busy; the average if the stage has several threads.
    pub load: f64,
    /// The number of samples that the stage worked on.
    pub samples: u64,
    /// The number of bytes that the stage worked on.
    pub bytes: u64,
    /// Bytes per second of `merged_seconds`.
    pub bandwidth: f64,
    /// For each of the equal parts of the epoch, the share of the stage's threads that were busy.
    #[serde(skip)]
    pub course: Vec<f64>,
}

impl Recording {
    /// Summarises the log. Divides each epoch into `parts` equal parts to show each stage's activity over time.
    pub fn summary(&self, parts: usize) -> TraceSummary {
        let process =
            |pid: u32| self.processes.get(&pid).cloned().unwrap_or_else(|| format!("process {pid}"));
        let epochs = self.epochs.iter();
        let epochs =
            epochs.map(|(&(pid, epoch), stages)| EpochSummary::new(process(pid), epoch, stages, parts));
        let peers = self.peers.iter();
        let peers = peers.map(|(&pid, asked)| PeersSummary { process: process(pid), asked: asked.clone() });
        TraceSummary { complete: self.complete, epochs: epochs.collect(), peers: peers.collect() }
    }
}

impl EpochSummary {
    fn new(process: String, epoch: u64, stages: &BTreeMap<Stage, StageRecord>, parts: usize) -> Self {
        let (start, end) = extent(stages);
        let of = |(&stage, record)| StageSummary::new(stage, record, start, end, parts);
        let summaries: Vec<StageSummary> = stages.iter().map(of).collect();
        let waiting = summaries.iter().find(|s| s.stage == Stage::Wait.name()).map_or(0.0, |s| s.share);
        let loads: Vec<_> = stages.keys().copied().zip(summaries.iter().map(|stage| stage.load)).collect();
        Self {
            process,
            epoch,
            seconds: seconds((end - start) as f64),
            samples: stages.get(&Stage::Train).map_or(0, |train| train.samples),
            waiting,
            limit: limit(waiting, &loads).map(Stage::name),
            stages: summaries,
        }
    }
}

impl StageSummary {
    fn new(stage: Stage, record: &StageRecord, start: u64, end: u64, parts: usize) -> Self {
        let spans: Vec<TraceSpan> = record.tracks.values().flatten().copied().collect();
        let inside: Vec<TraceSpan> = spans.iter().filter_map(|span| span.within(start, end)).collect();
        let threads = record.tracks.len();
        let whole = ((end - start) as f64).max(1.0);
        let busy = |spans: &[TraceSpan]| spans.iter().map(|span| span.busy).sum::<u64>() as f64;
        let merged_seconds = seconds(merged(&spans));
        let mut course = course(&inside, start, end, parts);
        course.iter_mut().for_each(|part| *part /= threads as f64);
        Self {
            stage: stage.name(),
            threads,
            intervals: spans.len(),
            merged_seconds,
            thread_seconds: seconds(busy(&spans)),
            share: merged(&inside) / whole,
            load: busy(&inside) / whole / threads as f64,
            samples: record.samples,
            bytes: record.bytes,
            bandwidth: if merged_seconds > 0.0 { record.bytes as f64 / merged_seconds } else { 0.0 },
            course,
        }
    }
}

/// The start and end of an epoch. If the log has the consumer's intervals, only these count, because copies ahead of
/// use may continue after the epoch.
fn extent(stages: &BTreeMap<Stage, StageRecord>) -> (u64, u64) {
    let of = |wanted: &dyn Fn(Stage) -> bool| {
        let spans =
            stages.iter().filter(|(stage, _)| wanted(**stage)).flat_map(|(_, d)| d.tracks.values().flatten());
        spans.fold(None, |extent: Option<(u64, u64)>, span| {
            let (start, end) = extent.unwrap_or((span.start, span.end));
            Some((start.min(span.start), end.max(span.end)))
        })
    };
    of(&|stage| matches!(stage, Stage::Wait | Stage::Train)).or_else(|| of(&|_| true)).unwrap_or((0, 0))
}

fn seconds(nanoseconds: f64) -> f64 {
    nanoseconds * 1e-9
}
