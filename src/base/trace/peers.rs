//! Counters of requests to a job's other nodes. From time to time the log gets the sum of all nodes, the worst nodes by
//! name, and the sum of the remaining nodes. Each of these is a line of the log, which viewers show as a counter.

use crate::names::as_map;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub(super) const CATEGORY: &str = "peers";

const ALL: &str = "all peers";
const OTHERS: &str = "other peers";

const NODE: &str = "peer ";

/// A number in a log. An integer is written without a decimal point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TraceNumber {
    /// A counter.
    Whole(u64),
    /// A time in seconds.
    Real(f64),
}

/// The numbers of one node, or the sums of several nodes, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerNumbers(BTreeMap<Cow<'static, str>, TraceNumber>);

impl PeerNumbers {
    /// The number with this name; 0 if it is missing, because zeros are not stored.
    pub fn get(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(TraceNumber::Whole(count)) => *count as f64,
            Some(TraceNumber::Real(number)) => *number,
            None => 0.0,
        }
    }
}

impl FromIterator<(&'static str, TraceNumber)> for PeerNumbers {
    fn from_iter<I: IntoIterator<Item = (&'static str, TraceNumber)>>(numbers: I) -> Self {
        let zero = |number: &TraceNumber| matches!(number, TraceNumber::Whole(0) | TraceNumber::Real(0.0));
        let numbers = numbers.into_iter().filter(|(_, number)| !zero(number));
        Self(numbers.map(|(name, number)| (name.into(), number)).collect())
    }
}

/// The counters of requests to all other nodes since the run began, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PeersRecord {
    /// The sum of all nodes.
    pub all: PeerNumbers,
    /// The worst nodes by name, the worst first.
    #[serde(serialize_with = "as_map")]
    pub nodes: Vec<(String, PeerNumbers)>,
    /// The sum of the nodes that are not in `nodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<PeerNumbers>,
}

impl PeersRecord {
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, &PeerNumbers)> {
        let sums = [(ALL, Some(&self.all)), (OTHERS, self.others.as_ref())];
        let sums = sums.into_iter().filter_map(|(name, numbers)| Some((name.to_owned(), numbers?)));
        sums.chain(self.nodes.iter().map(|(node, numbers)| (format!("{NODE}{node}"), numbers)))
    }

    /// Adds the log line `name` to this record. The line with the sum of all nodes first clears the record, because it
    /// begins a new one.
    pub(super) fn add(&mut self, name: &str, numbers: PeerNumbers) {
        match name.strip_prefix(NODE) {
            Some(node) => self.nodes.push((node.to_owned(), numbers)),
            None if name == ALL => *self = Self { all: numbers, ..Self::default() },
            None if name == OTHERS => self.others = Some(numbers),
            // A later version of Foreload may write further lines.
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_from_its_lines_and_takes_the_place_of_the_one_before() {
        let numbers = |reads| {
            let values = [("reads", TraceNumber::Whole(reads)), ("busy", TraceNumber::Whole(0))];
            PeerNumbers::from_iter(values.into_iter().chain([("deadline_seconds", TraceNumber::Real(0.1))]))
        };
        let record = |reads| PeersRecord {
            all: numbers(3 * reads),
            nodes: vec![("b".into(), numbers(reads)), ("all peers".into(), numbers(reads))],
            others: Some(numbers(reads)),
        };
        let mut read = PeersRecord::default();
        for (name, numbers) in record(5).lines().chain(record(7).lines()) {
            let written = serde_json::to_string(numbers).unwrap();
            assert!(!written.contains("busy"), "{written}");
            read.add(&name, serde_json::from_str(&written).unwrap());
        }
        read.add("peers to come", numbers(1));
        assert_eq!(read, record(7));
        assert_eq!((read.all.get("reads"), read.all.get("busy")), (21.0, 0.0));
    }
}
