//! Copies that a node has converted to another storage format, read by other nodes.

use super::*;
use crate::common::{jpeg, with_cache};
use foreload::testing::tier::FormChoice;

const SAMPLES: usize = 400;

#[test]
fn other_nodes_get_copies_in_the_form_that_they_have_and_make_the_same_files_of_them() {
    let world = World::new(SAMPLES);
    let file = |sample: usize| jpeg(sample as u64);
    (0..SAMPLES).for_each(|sample| std::fs::write(world.path(sample), file(sample)).unwrap());
    let total: usize = (0..SAMPLES).map(|sample| file(sample).len()).sum();
    let table = Table::new(vec![vec![0], vec![1]]);
    let options = |node| {
        with_cache(world.options(node, 1.0, table.clone()), |cache| {
            cache.directory.size = Some(12 * total as u64);
            cache.directory.form = FormChoice::Packed;
        })
    };
    let open = || [world.pipeline(&options("forms-0")), world.pipeline(&options("forms-1"))];
    let nodes = open();
    for epoch in 0..2 {
        run_with(&nodes, epoch, &file);
    }
    let converted = || -> u64 {
        let of = |node: &Pipeline| node.cache().expect("a cache").stats().tier(NVME);
        nodes.iter().map(of).map(|tier| tier.converted_samples + tier.unconvertible_samples).sum()
    };
    wait_for("all copies are packed", converted, |&converted| converted >= SAMPLES as u64);
    drop(nodes);
    // A node that has lost its copies gets the copies of the other node.
    std::fs::remove_dir_all(world.cache_of("forms-1")).unwrap();
    let nodes = open();
    let ran = run_with(&nodes, 2, &file);
    let peers = ran[1].stats.tier(PEERS);
    let late: u64 = ran.iter().map(|ran| ran.late).sum();
    assert!(peers.hits + late > SAMPLES as u64 / 8, "{}", told(&nodes));
    let mut running = nodes[1].epoch(3, 1, 2, 0).unwrap();
    while running.next_batch().unwrap().is_some() {}
    assert!(running.stats().rebuilt > 0, "they were packed: {}", told(&nodes));
}
