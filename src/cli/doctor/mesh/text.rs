//! The measurement as text: a table of the nodes, problems, and the consequences for a training.

use super::summary::{MeshSummary, MeshTerms, NodePlacement, NodeSummary, first_of};
use crate::output;

/// The maximum number of nodes in the table. If there are more, the table shows the slowest ones.
const SHOWN: usize = 24;

const NAMED_LINKS: usize = 5;

/// If this many processors are busy on average, they limit the rate: a process serves and reads with only two threads.
const BUSY: f64 = 1.5;

pub(super) fn describe(summary: &MeshSummary) -> String {
    let MeshSummary { terms, nodes, rounds, connections, .. } = summary;
    let MeshTerms { version, sample_bytes, tls, .. } = terms;
    let tls = if *tls { "TLS 1.3" } else { "not encrypted" };
    let mut lines = vec![format!(
        "foreload {version}: {} nodes, each read samples of {} from {rounds} of {} others, {connections} connections, \
         {tls}",
        nodes.len(),
        output::bytes(u64::from(*sample_bytes)),
        nodes.len() - 1,
    )];
    match summary.place {
        NodePlacement::OneNode => {
            lines.push("all nodes are one host: this measures its loopback, not a network".to_owned());
        }
        NodePlacement::OneMachine => lines.push(
            "all nodes are containers on one machine: this measures a virtual network, not a wire".to_owned(),
        ),
        NodePlacement::Apart => {}
    }
    lines.push(String::new());
    lines.extend(table(nodes));
    lines.push(String::new());
    let slow = summary.slow_links().into_iter().map(|link| {
        format!(
            "slow: {} reads from {} at {}/s ({:.0} samples/s), median of small samples {}",
            link.node,
            link.from,
            output::bytes(link.bytes_per_s as u64),
            link.samples_per_s,
            output::seconds(link.p50_seconds),
        )
    });
    lines.extend(first_of(&slow.collect::<Vec<_>>(), NAMED_LINKS));
    let reached = summary.links.iter().filter(|link| link.samples_per_s > 0.0);
    let lost = reached.filter(|link| !link.failed.is_empty()).map(|link| {
        let why: Vec<String> =
            link.failed.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!("lost: some samples from {} did not reach {}: {}", link.from, link.node, why.join(", "))
    });
    lines.extend(first_of(&lost.collect::<Vec<_>>(), NAMED_LINKS));
    let broken = summary.problems.iter().map(|problem| format!("broken: {problem}"));
    lines.extend(first_of(&broken.collect::<Vec<_>>(), SHOWN));
    lines.extend(verdict(summary));
    lines.join("\n")
}

fn verdict(summary: &MeshSummary) -> Vec<String> {
    let bytes = f64::from(summary.terms.sample_bytes);
    let slowest =
        |one: &&NodeSummary, other: &&NodeSummary| one.samples_per_s.total_cmp(&other.samples_per_s);
    let Some(slowest) = summary.nodes.iter().min_by(slowest) else { return Vec::new() };
    let median = summary.median_samples_per_s;
    let mut lines = vec![format!(
        "for training: with samples of {}, the median node gets {median:.0} samples/s ({}/s) while all read at once; \
         the slowest, {}, gets {:.0}, and the others would wait for it",
        output::bytes(bytes as u64),
        output::bytes((median * bytes) as u64),
        slowest.node,
        slowest.samples_per_s,
    )];
    let busy = summary.nodes.iter().filter(|node| node.processors >= BUSY).count();
    if 2 * busy > summary.nodes.len() {
        lines.push(format!(
            "the processors limit this, not the network: reading and serving kept more than {BUSY} of them busy on \
             {busy} nodes"
        ));
    }
    lines
}

fn table(nodes: &[NodeSummary]) -> Vec<String> {
    let columns =
        ["node", "address", "median", "99 % within", "bytes", "samples/s", "CPU a sample", "failed"];
    let mut rows = vec![columns.map(String::from)];
    let mut shown: Vec<&NodeSummary> = nodes.iter().collect();
    let rest = nodes.len().saturating_sub(SHOWN);
    if rest > 0 {
        shown.sort_by(|one, other| one.samples_per_s.total_cmp(&other.samples_per_s));
        shown.truncate(SHOWN);
    }
    rows.extend(shown.into_iter().map(row));
    let mut lines = output::table(&rows);
    if rest > 0 {
        lines.push(format!("and {rest} faster nodes; --json lists all"));
    }
    lines
}

fn row(node: &NodeSummary) -> [String; 8] {
    let seconds = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), output::seconds);
    [
        node.node.clone(),
        node.address.to_string(),
        seconds(node.p50_seconds),
        seconds(node.p99_seconds),
        format!("{}/s", output::bytes(node.bytes_per_s as u64)),
        format!("{:.0}", node.samples_per_s),
        seconds(node.cpu_seconds_per_sample),
        node.failed.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::mesh;
    use super::*;

    #[test]
    fn the_report_says_what_to_expect_and_what_stands_out() {
        let report = describe(&mesh(3, |reader, from| match (reader, from) {
            (0, 1) => 0,
            (2, 1) => 100,
            _ => 1000,
        }));
        for line in [
            "foreload 0: 3 nodes, each read samples of 110 KB from 2 of 2 others, 8 connections, not encrypted",
            "slow: c reads from b at 11.0 MB/s (100 samples/s), median of small samples 100 µs",
            "broken: node b (10.0.0.2:7100) cannot be reached from a, though from 1 other node (2 timeout)",
            "for training: with samples of 110 KB, the median node gets 1000 samples/s (110 MB/s) while all read at \
             once; the slowest, c, gets 550, and the others would wait for it",
        ] {
            assert!(report.contains(line), "{line}\nis not in\n{report}");
        }
    }

    #[test]
    fn of_many_nodes_the_slowest_are_shown() {
        let report = describe(&mesh(26, |reader, _| 1000 - reader as u64));
        assert!(report.contains("and 2 faster nodes") && !report.contains("\nb "), "{report}");
    }
}
