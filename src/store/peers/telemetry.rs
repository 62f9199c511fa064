//! Statistics of requests to peers, for `stats()`, logs and reports. The names of the values are defined only in this
//! file.

use super::client::{BreakerState, PeerCounts, PeerStats};
use base::names::NamedValue;
use base::trace::{Histogram, PeerNumbers, PeersRecord, TraceNumber};
use serde::Serialize;
use std::time::Duration;

const NAMED: usize = 20;

/// A value that [`PeerStats::by_name`] returns.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PeerValue {
    /// A counter, or a time in seconds.
    Number(TraceNumber),
    /// An address, or the name of a state.
    Text(String),
}

impl PeerStats {
    /// Returns all values with their names: counters, and times in seconds. `stats()["peers"]["nodes"]` and `foreload
    /// bench --json` use the same names.
    pub fn by_name(&self) -> Vec<(&'static str, PeerValue)> {
        let texts =
            [("address", self.address.to_string()), ("breaker_state", self.breaker.name().to_owned())];
        let texts = texts.into_iter().map(|(name, text)| (name, PeerValue::Text(text)));
        let numbers = numbers(&self.counts, self.deadline, &self.latency);
        texts.chain(numbers.map(|(name, number)| (name, PeerValue::Number(number)))).collect()
    }
}

fn numbers<'a>(
    counts: &PeerCounts,
    deadline: Duration,
    latency: &'a Histogram,
) -> impl Iterator<Item = (&'static str, TraceNumber)> + 'a {
    let counts: Vec<_> = counts.by_name().map(|(name, count)| (name, TraceNumber::Whole(count))).collect();
    let seconds = [
        ("deadline_seconds", deadline.as_secs_f64()),
        ("latency_median_seconds", latency.quantile(0.5)),
        ("latency_p99_seconds", latency.quantile(0.99)),
    ];
    counts.into_iter().chain(seconds.map(|(name, seconds)| (name, TraceNumber::Real(seconds))))
}

impl PeerCounts {
    /// Returns the number of requested samples that the peer failed to send: it refused them, was busy or late, sent
    /// wrong bytes, or could not be reached. Samples that are not in the peer's cache do not count.
    pub fn troubles(&self) -> u64 {
        self.refused + self.busy + self.timeouts + self.wrong + self.unreachable + self.breaker
    }
}

#[derive(Default)]
struct PeersSum {
    nodes: u64,
    counts: PeerCounts,
    breakers: u64,
    deadline: Duration,
    latency: Histogram,
}

impl PeersSum {
    fn of<'a>(peers: impl IntoIterator<Item = &'a PeerStats>) -> Self {
        let mut sum = Self::default();
        for peer in peers {
            sum.nodes += 1;
            sum.counts += peer.counts;
            sum.breakers += u64::from(peer.breaker != BreakerState::Closed);
            sum.deadline = sum.deadline.max(peer.deadline);
            sum.latency += &peer.latency;
        }
        sum
    }

    /// Returns the summed values, with the names of [`PeerStats::by_name`], the number of nodes, and the number of
    /// nodes whose breaker is not closed.
    fn numbers(&self) -> PeerNumbers {
        let nodes = [("nodes", self.nodes), ("breakers_open", self.breakers)];
        let nodes = nodes.map(|(name, count)| (name, TraceNumber::Whole(count)));
        nodes.into_iter().chain(numbers(&self.counts, self.deadline, &self.latency)).collect()
    }
}

/// Returns the statistics of all peers in few rows, so that they can be logged often: the sum of all nodes, the worst
/// nodes by name, and the sum of the other nodes. A node is worse if it failed to send more samples; among equals, if
/// it is slower. Returns `None` if nothing was requested of any peer.
pub fn peers_record(mut peers: Vec<(String, PeerStats)>) -> Option<PeersRecord> {
    peers.retain(|(_, peer)| peer.counts.reads + peer.counts.pushes > 0);
    if peers.is_empty() {
        return None;
    }
    let p99 = |peer: &PeerStats| peer.latency.quantile(0.99);
    peers.sort_by(|(name, one), (other_name, other)| {
        let troubles = other.counts.troubles().cmp(&one.counts.troubles());
        troubles.then(p99(other).total_cmp(&p99(one))).then(name.cmp(other_name))
    });
    let all = PeersSum::of(peers.iter().map(|(_, peer)| peer)).numbers();
    let rest = peers.split_off(peers.len().min(NAMED));
    let others = PeersSum::of(rest.iter().map(|(_, peer)| peer));
    Some(PeersRecord {
        all,
        nodes: peers.into_iter().map(|(name, peer)| (name, PeersSum::of([&peer]).numbers())).collect(),
        others: (others.nodes > 0).then(|| others.numbers()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(reads: u64, timeouts: u64, milliseconds: u64) -> PeerStats {
        let mut latency = Histogram::default();
        (0..reads - timeouts).for_each(|_| latency.record(Duration::from_millis(milliseconds)));
        PeerStats {
            address: "10.0.0.1:7100".parse().unwrap(),
            counts: PeerCounts { reads, hits: reads - timeouts, timeouts, ..PeerCounts::default() },
            breaker: if timeouts > 5 { BreakerState::Open } else { BreakerState::Closed },
            deadline: Duration::from_millis(100),
            latency,
        }
    }

    #[test]
    fn the_worst_of_many_are_named_and_nothing_is_lost() {
        let mut peers: Vec<(String, PeerStats)> =
            (0..1000).map(|node| (format!("node-{node}"), peer(10, 0, 1 + node % 7))).collect();
        peers[500].1 = peer(10, 7, 1);
        peers[300].1 = peer(10, 0, 900);
        peers.push(("never asked".into(), PeerStats { counts: PeerCounts::default(), ..peer(1, 0, 1) }));
        let record = peers_record(peers).unwrap();
        let named: Vec<&str> = record.nodes.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!((named.len(), &named[..2]), (NAMED, &["node-500", "node-300"][..]));
        assert_eq!(record.nodes[0].1.get("breakers_open"), 1.0);
        let others = record.others.as_ref().unwrap();
        assert_eq!((record.all.get("nodes"), others.get("nodes")), (1000.0, 980.0));
        for name in ["reads", "hits", "timeouts"] {
            let named: f64 = record.nodes.iter().map(|(_, numbers)| numbers.get(name)).sum();
            assert_eq!(named + others.get(name), record.all.get(name), "{name}");
        }
        assert_eq!(peers_record(Vec::new()), None);
    }

    #[test]
    fn values_have_the_names_that_statistics_give_them() {
        let values = peer(10, 6, 2).by_name();
        let of = |wanted| values.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone());
        assert_eq!(of("breaker_state"), Some(PeerValue::Text("open".into())));
        assert_eq!(of("timeouts"), Some(PeerValue::Number(TraceNumber::Whole(6))));
        assert_eq!(of("deadline_seconds"), Some(PeerValue::Number(TraceNumber::Real(0.1))));
    }
}
