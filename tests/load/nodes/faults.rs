//! Faults of nodes that share their caches: servers that vanish, copies that are damaged, files that change during an
//! epoch. Bytes are right in all cases, and missing samples are counted.

use super::*;
use crate::common::files_below;
use std::os::unix::fs::FileExt;

/// Flips a byte in the middle of the samples of every segment in a node's cache.
fn damage(world: &World, node: &str) -> usize {
    let mut damaged = 0;
    for path in files_below(&world.cache_of(node)) {
        let metadata = path.metadata().unwrap();
        if metadata.len() < 10_000 {
            continue;
        }
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (at, mut byte) = (metadata.len() / 3, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        file.set_modified(metadata.modified().unwrap()).unwrap();
        damaged += 1;
    }
    damaged
}

#[test]
fn a_copy_that_is_damaged_at_its_home_is_found_there_and_read_anew() {
    let world = World::sharded(600);
    let names = ["whole", "damaged"];
    let nodes = world.nodes(&names, 0.6);
    run_all(&nodes, 0);
    assert!(damage(&world, "damaged") > 0, "there are segments");
    let found = run_all(&nodes, 1);
    let anew: u64 = found.iter().map(|ran| ran.stats.source.source_bytes).sum();
    assert!(anew > 0, "{:?}", found[0].stats);
    // The owner node drops the damaged segment with all its samples, and gets them again; on a busy machine this takes
    // a while.
    let mut shares = (2..9).map(|epoch| source_bytes(&run_all(&nodes, epoch)) as f64 / world.total() as f64);
    assert!(shares.any(|share| share <= 0.02), "it is read from the source in each epoch");
    assert!(
        nodes[1].cache().unwrap().stats().tier(NVME).damaged > 0,
        "{:?}",
        nodes[1].cache().unwrap().stats()
    );
}

#[test]
fn a_node_that_vanishes_costs_reads_of_the_source_and_is_counted() {
    let world = World::new(600);
    let mut nodes = world.nodes(&["stays", "vanishes"], 0.6);
    run_all(&nodes, 0);
    run_all(&nodes, 1);
    drop(nodes.pop());
    let not_had = |node: &Pipeline| {
        let (_, stats) = node.cache().unwrap().peers().remove(1);
        stats.counts.unreachable + stats.counts.breaker + stats.counts.timeouts
    };
    // On a busy machine the server may have been too slow before, too.
    let before = not_had(&nodes[0]);
    let ran = run(&nodes[0], 2, (0, 2), 0, &|sample| bytes(sample, 0));
    let peers = ran.stats.tier(PEERS);
    assert!(peers.fallbacks > 100 && peers.hits == 0, "{:?}", ran.stats);
    assert_eq!(not_had(&nodes[0]) - before, peers.fallbacks, "{:?}", ran.stats);
    // The peer is tried again after a while, and another failure is also reported once.
    let mut warned = Vec::new();
    for epoch in 3..200 {
        run(&nodes[0], epoch, (0, 2), 0, &|sample| bytes(sample, 0));
        warned.extend(nodes[0].index().notices().take());
        if !warned.is_empty() {
            break;
        }
    }
    assert!(warned.iter().any(|notice| notice.contains("cannot be reached")), "{warned:?}");
}

#[test]
fn files_that_change_while_nodes_train_reach_nobody_as_old_bytes_in_the_next_run() {
    let seed = foreload::testing::rng::RandomKey::new(b"faults", 1, 0, Use::Augment);
    let mut random = seed.stream(0);
    let world = World::new(300);
    // All versions of a sample have the same length.
    let at = |sample: usize, version: u64| {
        let mut changed = bytes(sample, version);
        changed.resize(bytes(sample, 0).len(), 0);
        changed
    };
    let mut versions = vec![0; 300];
    for round in 0..6 {
        let nodes = world.nodes(&["one", "other", "third"], 0.4);
        for epoch in 0..2 {
            run_with(&nodes, 2 * round + epoch, &|sample| at(sample, versions[sample]));
        }
        drop(nodes);
        for _ in 0..40 {
            let sample = random.below(300) as usize;
            versions[sample] += 1;
            std::fs::write(world.path(sample), at(sample, versions[sample])).unwrap();
        }
    }
}
