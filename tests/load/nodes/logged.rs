//! The requests between nodes, in the interval log and in its report.

use super::*;
use foreload::testing::trace::{Trace, read};

#[test]
fn a_log_has_what_was_asked_of_each_node_as_it_was_counted() {
    let world = World::new(300);
    let log = world.directory.path().join("run.json");
    let trace = Trace::create(&log, "logged").unwrap();
    let mut nodes = world.nodes(&["logged", "other", "third"], 0.6);
    let logged = nodes.remove(0).traced(trace.clone());
    nodes.insert(0, logged);
    run_all(&nodes, 0);
    run_all(&nodes, 1);
    let counted = nodes[0].cache().unwrap().peers();
    drop(nodes);
    trace.finish().unwrap();
    let summary = read(&log).unwrap().summary(1);
    let [peers] = &summary.peers[..] else { panic!("{summary:?}") };
    assert_eq!(peers.process, "logged");
    assert_eq!(peers.asked.nodes.len(), 2, "nothing is asked of the own node: {peers:?}");
    for (node, numbers) in &peers.asked.nodes {
        let (_, peer) = counted.iter().find(|(name, _)| name == node).unwrap();
        assert_eq!(numbers.get("hits"), peer.counts.hits as f64, "{node}: {peers:?}");
        // JSON numbers are equal except for their last digit.
        let off = numbers.get("latency_p99_seconds") - peer.latency.quantile(0.99);
        assert!(off.abs() < 1e-12, "{node}: {off}, {peers:?}");
    }
    let hits: u64 = counted.iter().map(|(_, peer)| peer.counts.hits).sum();
    assert!(hits > 0 && peers.asked.all.get("hits") == hits as f64, "{peers:?}");
    assert_eq!(peers.asked.others, None);
}

#[test]
fn a_log_of_nodes_that_share_nothing_has_no_peers() {
    let world = World::new(20);
    let log = world.directory.path().join("run.json");
    let trace = Trace::create(&log, "alone").unwrap();
    let nodes = [world.nodes(&["alone"], 0.6).remove(0).traced(trace.clone())];
    run_all(&nodes, 0);
    drop(nodes);
    trace.finish().unwrap();
    let summary = read(&log).unwrap().summary(1);
    assert!(summary.peers.is_empty() && !summary.epochs.is_empty(), "{summary:?}");
    assert!(!std::fs::read_to_string(&log).unwrap().contains("peers\",\"ph"));
}
