//! The requests of a process to the job's other nodes, as a table: the worst nodes by name, and all other nodes in one
//! row.

use super::page::escaped;
use crate::output;
use base::trace::{PeerNumbers, PeersSummary};
use std::fmt::Write;

const COLUMNS: [&str; 9] =
    ["node", "samples", "bytes", "median", "99 % within", "refused", "late", "failed", "breaker"];

pub(super) fn table(summary: &PeersSummary) -> String {
    format!("peers of {}\n{}", summary.process, output::table(&rows(summary)).join("\n"))
}

pub(super) fn html(summary: &PeersSummary) -> String {
    let mut html = format!("<h2>Peers of {}</h2>\n<table>\n", escaped(&summary.process));
    for (number, row) in rows(summary).iter().enumerate() {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let cell = escaped(cell);
            let _ = match (number, column) {
                (0, _) | (_, 0) => write!(html, "<th>{cell}"),
                _ => write!(html, "<td class=\"number\">{cell}"),
            };
        }
        html += "\n";
    }
    html + "</table>\n<p><small>Samples that did not arrive were read from the dataset\u{2019}s storage. \
            <b>Refused</b>: the node was overloaded, or rejects requests of this job; <b>late</b>: not received by the \
            deadline; <b>failed</b>: no connection, wrong bytes, or the node was skipped after failures.</small></p>\n"
}

fn rows(summary: &PeersSummary) -> Vec<[String; 9]> {
    let asked = &summary.asked;
    let mut rows = vec![COLUMNS.map(String::from)];
    rows.extend(asked.nodes.iter().map(|(node, numbers)| row(node.clone(), numbers)));
    if let Some(others) = &asked.others {
        rows.push(row(format!("{} others", others.get("nodes")), others));
    }
    if asked.nodes.len() > 1 {
        rows.push(row(format!("all {}", asked.all.get("nodes")), &asked.all));
    }
    rows
}

fn row(name: String, numbers: &PeerNumbers) -> [String; 9] {
    let count = |names: &[&str]| names.iter().map(|name| numbers.get(name)).sum::<f64>().to_string();
    let within = |name: &str| match numbers.get(name) {
        // No sample arrived.
        0.0 => "-".into(),
        seconds => output::seconds(seconds),
    };
    let breaker = match (numbers.get("nodes"), numbers.get("breakers_open")) {
        (_, 0.0) => String::new(),
        (1.0, _) => "open".into(),
        (_, open) => format!("{open} open"),
    };
    [
        name,
        count(&["hits"]),
        output::bytes(numbers.get("bytes") as u64),
        within("latency_median_seconds"),
        within("latency_p99_seconds"),
        count(&["refused", "busy"]),
        count(&["timeouts"]),
        count(&["wrong", "unreachable", "breaker"]),
        breaker,
    ]
}
