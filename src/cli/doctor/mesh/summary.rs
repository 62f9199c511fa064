//! The summary of the measurements of all nodes. No I/O.

use super::measure::{LinkMeasure, NodeMeasure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The settings that must be the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MeshTerms {
    pub version: String,
    pub sample_bytes: u32,
    pub seconds: f64,
    /// The maximum number of other nodes that each node reads from.
    pub most_rounds: u64,
    pub tls: bool,
}

#[derive(Debug, Clone)]
pub(super) struct MeshNode {
    pub name: String,
    pub rank: u32,
    pub address: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NodePlacement {
    /// All ranks are on one node, and each counts as a node: the network is its loopback.
    OneNode,
    /// All nodes are containers or network namespaces of one machine.
    OneMachine,
    Apart,
}

/// The report that `--json` prints. Later versions may add fields, but do not change the meaning of existing fields.
#[derive(Debug, Serialize)]
pub(super) struct MeshSummary {
    #[serde(flatten)]
    pub terms: MeshTerms,
    pub place: NodePlacement,
    pub connections: usize,
    /// The number of rounds, which is the number of other nodes that each node read from.
    pub rounds: usize,
    pub nodes: Vec<NodeSummary>,
    pub links: Vec<LinkSummary>,
    /// The samples per second of a node while all nodes read at once: the median over the nodes.
    pub median_samples_per_s: f64,
    /// Sentences about nodes that cannot be reached, or from which only small samples arrive. If there are any, the
    /// exit code is 1.
    pub problems: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeSummary {
    pub node: String,
    pub rank: u32,
    pub address: SocketAddr,
    /// The median time in seconds of a small sample that is read alone: the median over the node's links; null if none
    /// arrived.
    pub p50_seconds: Option<f64>,
    /// The 99th percentile of the time in seconds of a small sample that is read alone: the maximum over the node's
    /// links; null if none arrived.
    pub p99_seconds: Option<f64>,
    pub samples_per_s: f64,
    pub bytes_per_s: f64,
    /// The processor time for reading one sample and serving one sample to another node; null if no sample arrived.
    pub cpu_seconds_per_sample: Option<f64>,
    pub processors: f64,
    pub failed: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct LinkSummary {
    pub node: String,
    pub from: String,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    pub samples_per_s: f64,
    pub bytes_per_s: f64,
    pub failed: BTreeMap<String, u64>,
}

impl MeshSummary {
    pub(super) fn new(
        terms: MeshTerms,
        place: NodePlacement,
        connections: usize,
        nodes: Vec<MeshNode>,
        measures: &[&NodeMeasure],
    ) -> Self {
        let links = |node: usize| measures[node].links.iter().map(move |link| (node, link));
        let links: Vec<MeshRead<'_>> = (0..nodes.len()).flat_map(links).collect();
        let summaries: Vec<NodeSummary> =
            nodes.iter().zip(measures).map(|(node, measure)| NodeSummary::new(node, measure)).collect();
        let mut rates: Vec<f64> = summaries.iter().map(|node| node.samples_per_s).collect();
        Self {
            place,
            connections,
            rounds: measures.iter().map(|measure| measure.links.len()).max().unwrap_or(0),
            links: links.iter().map(|(node, link)| LinkSummary::new(&nodes, *node, link)).collect(),
            median_samples_per_s: median(&mut rates).unwrap_or(0.0),
            problems: problems(&nodes, &links),
            nodes: summaries,
            terms,
        }
    }

    /// Returns the links with less than half of the median rate, the slowest first. Links on which no sample arrived
    /// are not included.
    pub(super) fn slow_links(&self) -> Vec<&LinkSummary> {
        let mut links: Vec<&LinkSummary> =
            self.links.iter().filter(|link| link.samples_per_s > 0.0).collect();
        links.sort_by(|one, other| one.samples_per_s.total_cmp(&other.samples_per_s));
        let usual = median(&mut links.iter().map(|link| link.samples_per_s).collect::<Vec<_>>());
        links.retain(|link| usual.is_some_and(|usual| 2.0 * link.samples_per_s < usual));
        links
    }
}

impl NodeSummary {
    fn new(node: &MeshNode, measure: &NodeMeasure) -> Self {
        let links = &measure.links;
        let sum = |of: fn(&LinkMeasure) -> f64| links.iter().map(of).sum::<f64>();
        let seconds = sum(|link| link.seconds).max(f64::MIN_POSITIVE);
        let samples = sum(|link| link.samples as f64);
        let responding = || links.iter().filter(|link| link.alone > 0);
        Self {
            node: node.name.clone(),
            rank: node.rank,
            address: node.address,
            p50_seconds: median(&mut responding().map(|link| link.p50).collect::<Vec<_>>()),
            p99_seconds: responding().map(|link| link.p99).max_by(f64::total_cmp),
            samples_per_s: samples / seconds,
            bytes_per_s: sum(|link| link.bytes as f64) / seconds,
            cpu_seconds_per_sample: (samples > 0.0).then(|| measure.cpu_seconds / samples),
            processors: measure.cpu_seconds / seconds,
            failed: links.iter().flat_map(|link| link.missed.values()).sum(),
        }
    }
}

impl LinkSummary {
    fn new(nodes: &[MeshNode], node: usize, link: &LinkMeasure) -> Self {
        let seconds = link.seconds.max(f64::MIN_POSITIVE);
        Self {
            node: nodes[node].name.clone(),
            from: nodes[link.from].name.clone(),
            p50_seconds: link.p50,
            p99_seconds: link.p99,
            samples_per_s: link.samples as f64 / seconds,
            bytes_per_s: link.bytes as f64 / seconds,
            failed: link.missed.clone(),
        }
    }
}

/// The median. For an even number of values, it is the higher of the two middle values.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A link: the reading node, and its reads.
type MeshRead<'a> = (usize, &'a LinkMeasure);

fn problems(nodes: &[MeshNode], links: &[MeshRead<'_>]) -> Vec<String> {
    let (dead, living): (Vec<MeshRead<'_>>, Vec<MeshRead<'_>>) =
        links.iter().copied().partition(|(_, link)| link.alone == 0);
    let small_alone: Vec<MeshRead<'_>> =
        living.iter().copied().filter(|(_, link)| link.samples == 0).collect();
    if living.is_empty() && !dead.is_empty() {
        let addresses: Vec<String> = nodes.iter().map(node_label).collect();
        return vec![format!("no node can be reached from any other: {}", listed(&addresses))];
    }
    let in_touch: BTreeSet<usize> = living.iter().flat_map(|(reader, link)| [*reader, link.from]).collect();
    // Report a node without a working link once, not once per other node.
    let mut cut_off: BTreeMap<usize, Vec<MeshRead<'_>>> = BTreeMap::new();
    let mut by_server: BTreeMap<usize, Vec<MeshRead<'_>>> = BTreeMap::new();
    for (reader, link) in dead {
        let apart: Vec<usize> =
            [reader, link.from].into_iter().filter(|node| !in_touch.contains(node)).collect();
        match apart.is_empty() {
            true => by_server.entry(link.from).or_default().push((reader, link)),
            false => apart.into_iter().for_each(|node| cut_off.entry(node).or_default().push((reader, link))),
        }
    }
    let alone = cut_off.into_iter().map(|(node, dead)| {
        let (node, why) = (node_label(&nodes[node]), reasons(&dead));
        format!("node {node} reaches no other node, and none reaches it ({why})")
    });
    let unreached = by_server.into_iter().map(|(server, dead)| {
        let readers: Vec<String> = dead.iter().map(|(reader, _)| nodes[*reader].name.clone()).collect();
        let others = match living.iter().filter(|(_, link)| link.from == server).count() {
            0 => String::new(),
            1 => ", though from 1 other node".to_owned(),
            count => format!(", though from {count} other nodes"),
        };
        let (readers, server, why) = (listed(&readers), node_label(&nodes[server]), reasons(&dead));
        format!("node {server} cannot be reached from {readers}{others} ({why})")
    });
    let narrow = small_alone.iter().map(|&(reader, link)| {
        format!(
            "small samples from {} reach {}, but large ones do not ({}): check that all devices between them pass \
             packets as large as the nodes' MTU",
            node_label(&nodes[link.from]),
            nodes[reader].name,
            reasons(&[(reader, link)])
        )
    });
    alone.chain(unreached).chain(narrow).collect()
}

/// Returns at most `most` sentences, and a line that counts the sentences that were left out.
pub(super) fn first_of(sentences: &[String], most: usize) -> Vec<String> {
    let more = sentences.len().saturating_sub(most);
    let rest = (more > 0).then(|| format!("and {more} more lines like these; --json lists all"));
    sentences.iter().take(most).cloned().chain(rest).collect()
}

fn node_label(node: &MeshNode) -> String {
    format!("{} ({})", node.name, node.address)
}

fn reasons(dead: &[MeshRead<'_>]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, count) in dead.iter().flat_map(|(_, link)| &link.missed) {
        *counts.entry(reason).or_default() += count;
    }
    counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

const LISTED: usize = 8;

fn listed(names: &[String]) -> String {
    match names.len().checked_sub(LISTED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} others", names[..LISTED].join(", ")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A network of `count` nodes in which each node reads from every other node. `samples` gives the samples per
    /// second of a link; 0 means that no sample arrives.
    pub(in super::super) fn mesh(count: usize, samples: impl Fn(usize, usize) -> u64) -> MeshSummary {
        let name = |node: usize| char::from(b'a' + node as u8).to_string();
        let node = |node: usize| MeshNode {
            name: name(node),
            rank: node as u32,
            address: format!("10.0.0.{}:7100", node + 1).parse().unwrap(),
        };
        let link = |reader: usize, from: usize| match samples(reader, from) {
            0 => LinkMeasure { from, missed: [("timeout".to_owned(), 2)].into(), ..LinkMeasure::default() },
            samples => LinkMeasure {
                from,
                alone: 100,
                p50: 1e-4,
                p99: 2e-4,
                samples,
                bytes: 110_000 * samples,
                seconds: 1.0,
                ..LinkMeasure::default()
            },
        };
        let measure = |reader: usize| NodeMeasure {
            links: (1..count).map(|distance| link(reader, (reader + distance) % count)).collect(),
            cpu_seconds: 0.1,
        };
        let measures: Vec<NodeMeasure> = (0..count).map(measure).collect();
        let terms = MeshTerms {
            version: "0".into(),
            sample_bytes: 110_000,
            seconds: 4.0,
            most_rounds: 16,
            tls: false,
        };
        let measures: Vec<&NodeMeasure> = measures.iter().collect();
        MeshSummary::new(terms, NodePlacement::Apart, 8, (0..count).map(node).collect(), &measures)
    }

    #[test]
    fn a_mesh_without_trouble_has_no_problems() {
        let mesh = mesh(4, |_, _| 1000);
        assert!(mesh.problems.is_empty() && mesh.slow_links().is_empty(), "{mesh:?}");
        assert_eq!((mesh.median_samples_per_s, mesh.rounds), (1000.0, 3));
        assert!((mesh.nodes[0].bytes_per_s - 1.1e8).abs() < 1.0);
    }

    #[test]
    fn a_node_behind_a_firewall_is_named_with_who_cannot_reach_it() {
        let mesh = mesh(4, |reader, from| if from == 1 && reader != 3 { 0 } else { 1000 });
        let [problem] = &mesh.problems[..] else { panic!("{:?}", mesh.problems) };
        assert_eq!(
            problem,
            "node b (10.0.0.2:7100) cannot be reached from a, c, though from 1 other node (4 timeout)"
        );
        assert_eq!(mesh.nodes[0].failed, 2);
    }

    #[test]
    fn a_way_that_only_small_samples_come_is_named() {
        let nodes = mesh(2, |_, _| 1000).nodes;
        let node =
            |node: &NodeSummary| MeshNode { name: node.node.clone(), rank: node.rank, address: node.address };
        let nodes: Vec<MeshNode> = nodes.iter().map(node).collect();
        let missed = BTreeMap::from([("timeout".to_owned(), 16)]);
        let link = LinkMeasure { from: 1, alone: 100, missed, ..LinkMeasure::default() };
        let lines = problems(&nodes, &[(0, &link)]);
        let start = "small samples from b (10.0.0.2:7100) reach a, but large ones do not (16 timeout)";
        assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
        assert_eq!(
            first_of(&["x".to_owned(), "y".to_owned()], 1),
            ["x", "and 1 more lines like these; --json lists all"]
        );
    }

    #[test]
    fn a_node_that_is_cut_off_is_told_of_once_beside_others_that_fail() {
        let cut_off = |node| node == 2;
        let dead = |reader, from| cut_off(reader) || cut_off(from) || (reader, from) == (0, 1);
        let mesh = mesh(4, |reader, from| if dead(reader, from) { 0 } else { 1000 });
        let [first, second] = &mesh.problems[..] else { panic!("{:?}", mesh.problems) };
        assert!(
            first.starts_with(
                "node c (10.0.0.3:7100) reaches no other node, and none reaches it (12 timeout)"
            )
        );
        assert!(
            second.starts_with("node b (10.0.0.2:7100) cannot be reached from a, though from 1 other node"),
            "{second}"
        );
        assert_eq!(mesh.nodes[2].p50_seconds, None);
    }

    #[test]
    fn where_nothing_comes_it_is_said_once() {
        let mesh = mesh(3, |_, _| 0);
        let [problem] = &mesh.problems[..] else { panic!("{:?}", mesh.problems) };
        assert!(
            problem.starts_with("no node can be reached from any other: a (10.0.0.1:7100), b "),
            "{problem}"
        );
    }

    #[test]
    fn slow_links_are_those_of_less_than_half() {
        let mesh = mesh(4, |reader, from| match (reader, from) {
            (0, 3) => 400,
            (2, 3) => 300,
            (1, 3) => 501,
            _ => 1000,
        });
        let slow: Vec<_> = mesh.slow_links().iter().map(|link| (&link.node[..], &link.from[..])).collect();
        assert_eq!(slow, [("c", "d"), ("a", "d")]);
    }
}
