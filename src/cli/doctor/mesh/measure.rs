//! The measurement of one node: reads from other nodes, one at a time and then many at once.

use crate::usage::ProcessUsage;
use base::error::Result;
use base::names::NamedValue;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use store::peers::{Peer, PeerProbe, ProbedReads, SharedDataset, Token};

/// The fraction of the measuring time in which samples are read one at a time.
const LATENCY_SHARE: f64 = 0.2;

/// The number of connections to each other node during training, while the job has few nodes.
const CONNECTIONS: usize = 4;
const MAX_CONNECTIONS: usize = 32;

pub(super) struct MeasureSettings<'a> {
    pub peers: &'a [Peer],
    pub dataset: SharedDataset,
    pub token: Token,
    pub sample_bytes: u32,
    pub seconds: Duration,
    pub connections: usize,
}

/// The number of connections that a node opens to the node that it reads from, in a job of `nodes` nodes. In training,
/// a node has about this number of connections to all other nodes together.
pub(super) fn connections(nodes: usize) -> usize {
    (CONNECTIONS * nodes.saturating_sub(1)).clamp(CONNECTIONS, MAX_CONNECTIONS)
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeMeasure {
    pub links: Vec<LinkMeasure>,
    /// The processor time of the process while all nodes read at once. It includes serving the same number of reads to
    /// other nodes.
    pub cpu_seconds: f64,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct LinkMeasure {
    pub from: usize,
    /// The number of small samples that were read one at a time.
    pub alone: u64,
    /// The median time of these samples in seconds; `p99` is their 99th percentile.
    pub p50: f64,
    pub p99: f64,
    /// The number of samples that arrived while all connections were in use at once.
    pub samples: u64,
    pub bytes: u64,
    /// The time in seconds in which `samples` arrived.
    pub seconds: f64,
    pub missed: BTreeMap<String, u64>,
}

impl LinkMeasure {
    fn add_missed(&mut self, reads: &ProbedReads) {
        for (miss, count) in &reads.missed {
            *self.missed.entry(miss.name().to_owned()).or_default() += count;
        }
    }
}

/// The name of meeting `number`: meeting 0 follows the latency measurement, meeting n follows round n.
pub(super) fn purpose(number: usize) -> String {
    match number {
        0 => "doctor, reads one at a time".to_owned(),
        round => format!("doctor, round {round}"),
    }
}

/// Measures as node `own`. For each distance d of `distances`, node `own` reads from node `own` + d, modulo the number
/// of nodes. `wait_for_all` waits until all nodes have reached the same point. It is called once for each [`purpose`].
///
/// # Errors
/// The errors of `wait_for_all` and of [`PeerProbe`].
pub(super) fn run(
    by: &MeasureSettings<'_>,
    own: usize,
    distances: &[usize],
    wait_for_all: impl Fn(&str) -> Result<()>,
) -> Result<NodeMeasure> {
    let each = by.seconds.div_f64(distances.len().max(1) as f64);
    let mut probe = PeerProbe::new(by.peers, by.dataset, by.token.clone(), by.sample_bytes, by.connections)?;
    let mut links = Vec::new();
    for distance in distances {
        let from = (own + distance) % by.peers.len();
        let reads = probe.measure_latency(from, each.mul_f64(LATENCY_SHARE))?;
        let mut link = LinkMeasure {
            from,
            alone: reads.samples,
            p50: reads.latency.quantile(0.5),
            p99: reads.latency.quantile(0.99),
            ..LinkMeasure::default()
        };
        link.add_missed(&reads);
        links.push(link);
    }
    wait_for_all(&purpose(0))?;
    let mut cpu_seconds = 0.0;
    for (number, link) in links.iter_mut().enumerate() {
        // Skip a node from which no small sample arrived: reading from it would only delay all nodes. Other nodes may
        // still read from this node.
        if link.alone > 0 {
            let before = ProcessUsage::now().cpu_seconds;
            let reads = probe.measure_throughput(link.from, each.mul_f64(1.0 - LATENCY_SHARE))?;
            cpu_seconds += ProcessUsage::now().cpu_seconds - before;
            (link.samples, link.bytes, link.seconds) = (reads.samples, reads.bytes, reads.seconds);
            link.add_missed(&reads);
        }
        wait_for_all(&purpose(1 + number))?;
    }
    Ok(NodeMeasure { links, cpu_seconds })
}
