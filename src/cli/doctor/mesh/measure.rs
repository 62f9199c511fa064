//! The measurement of one node: reads from other nodes, one at a time and then many at once.

use crate::usage::ProcessUsage;
use base::error::Result;
use base::names::NamedValue;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use store::peers::{Peer, PeerProbe, ProbedReads, SharedDataset, Token};

/// The share of the time for reading samples one at a time.
const ALONE: f64 = 0.2;

/// The number of connections to each other node during training if there are few nodes, and the limit for a
/// measurement.
const CONNECTIONS: usize = 4;
const MAX_CONNECTIONS: usize = 32;

/// The settings of the measurement.
pub(super) struct MeasuredBy<'a> {
    /// All nodes.
    pub peers: &'a [Peer],
    pub dataset: SharedDataset,
    pub token: Token,
    pub sample_bytes: u32,
    /// The total duration.
    pub seconds: Duration,
    /// The number of connections to the node that is read from.
    pub connections: usize,
}

/// The number of connections to the node that is read from, for `nodes` nodes: about as many as training has to all
/// others together.
pub(super) fn connections(nodes: usize) -> usize {
    (CONNECTIONS * nodes.saturating_sub(1)).clamp(CONNECTIONS, MAX_CONNECTIONS)
}

/// The measurement of one node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeMeasure {
    /// The reads from each of the other nodes.
    pub links: Vec<LinkMeasure>,
    /// The processor time of the process while all nodes read at once. It includes serving as many reads to others.
    pub cpu_seconds: f64,
}

/// The reads from one other node.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct LinkMeasure {
    /// The other node, by number.
    pub from: usize,
    /// The number of small samples read one at a time, and the seconds within which half and 99 % of them arrived.
    pub alone: u64,
    pub p50: f64,
    pub p99: f64,
    /// The samples and bytes that arrived on all connections at once, and the duration in seconds.
    pub samples: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// The failed reads, by reason.
    pub missed: BTreeMap<String, u64>,
}

impl LinkMeasure {
    fn add_missed(&mut self, reads: &ProbedReads) {
        for (miss, count) in &reads.missed {
            *self.missed.entry(miss.name().to_owned()).or_default() += count;
        }
    }
}

/// The name of the meeting after the first part of the measurement (0), and after each round (from 1).
pub(super) fn purpose(number: usize) -> String {
    match number {
        0 => "doctor, reads one at a time".to_owned(),
        round => format!("doctor, round {round}"),
    }
}

/// Measures as node `own`, which reads from the nodes at these distances. `wait_for_all` waits until all nodes have
/// reached this point; it is called once for each [`purpose`].
///
/// # Errors
/// The errors of `wait_for_all` and of [`PeerProbe`].
pub(super) fn run(
    by: &MeasuredBy<'_>,
    own: usize,
    distances: &[usize],
    wait_for_all: impl Fn(&str) -> Result<()>,
) -> Result<NodeMeasure> {
    let each = by.seconds.div_f64(distances.len().max(1) as f64);
    let mut probe = PeerProbe::new(by.peers, by.dataset, by.token.clone(), by.sample_bytes, by.connections)?;
    let mut links = Vec::new();
    for distance in distances {
        let from = (own + distance) % by.peers.len();
        let reads = probe.alone(from, each.mul_f64(ALONE))?;
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
        // Skip a node that gave no small sample: it would only keep all waiting. Others may still read from this node.
        if link.alone > 0 {
            let before = ProcessUsage::now().cpu_seconds;
            let reads = probe.together(link.from, each.mul_f64(1.0 - ALONE))?;
            cpu_seconds += ProcessUsage::now().cpu_seconds - before;
            (link.samples, link.bytes, link.seconds) = (reads.samples, reads.bytes, reads.seconds);
            link.add_missed(&reads);
        }
        wait_for_all(&purpose(1 + number))?;
    }
    Ok(NodeMeasure { links, cpu_seconds })
}
