//! Which samples nodes read from each other, and which from the source.

use super::*;
use crate::common::with_cache;
use foreload::CacheChoice;

const SAMPLES: usize = 600;

/// Names for `count` nodes that no other test of the same world uses.
fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|node| format!("{prefix}-{node}")).collect()
}

fn nodes(world: &World, prefix: &str, count: usize, share: f64) -> Vec<Pipeline> {
    let names = names(prefix, count);
    world.nodes(&names.iter().map(String::as_str).collect::<Vec<_>>(), share)
}

/// The share of the dataset that was read from the source.
fn source_share(world: &World, ran: &[Ran]) -> f64 {
    source_bytes(ran) as f64 / world.total() as f64
}

#[test]
fn caches_that_hold_the_dataset_together_read_it_once() {
    for world in [World::new(SAMPLES), World::sharded(SAMPLES)] {
        for count in [2, 3] {
            let nodes = nodes(&world, &count.to_string(), count, 1.2 / count as f64);
            for epoch in 0..4 {
                let ran = run_all(&nodes, epoch);
                let stats: Vec<_> = ran.iter().map(|ran| &ran.stats).collect();
                let (source, bound) = (source_share(&world, &ran), if epoch == 0 { 1.03 } else { 0.02 });
                assert!(source <= bound, "{count} nodes, epoch {epoch}: {source}, {stats:?}");
                let used: usize = ran.iter().flat_map(|ran| &ran.steps).map(Vec::len).sum();
                let reads: u64 = stats.iter().map(|stats| stats.source.source_reads).sum();
                assert_eq!(hits(&ran, PEERS) + hits(&ran, NVME) + reads, used as u64, "{stats:?}");
                if epoch > 0 {
                    let late: u64 = ran.iter().map(|ran| ran.late).sum();
                    assert!(hits(&ran, PEERS) + late > used as u64 / 3, "{stats:?}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_read_from_the_source_and_no_more() {
    let world = World::new(SAMPLES);
    let nodes = nodes(&world, "small", 2, 0.25);
    for epoch in 0..4 {
        let ran = run_all(&nodes, epoch);
        let bound = if epoch == 0 { 1.03 } else { 0.5 + 0.02 };
        let source = source_share(&world, &ran);
        assert!(source <= bound, "epoch {epoch}: {source}, {:?}", ran[0].stats);
    }
}

#[test]
fn all_nodes_restart_one_after_another_and_lose_nothing() {
    for world in [World::new(SAMPLES), World::sharded(SAMPLES)] {
        let mut running = nodes(&world, "rolling", 2, 0.6);
        // The last pushes of the first epoch may still be in flight.
        (0..2).for_each(|epoch| drop(run_all(&running, epoch)));
        for epoch in 2..5 {
            drop(running);
            running = nodes(&world, "rolling", 2, 0.6);
            let ran = run_all(&running, epoch);
            assert!(source_share(&world, &ran) <= 0.02, "epoch {epoch}: {}", told(&running));
        }
    }
}

#[test]
fn files_that_change_between_runs_are_read_anew_by_whoever_needs_them() {
    let world = World::new(SAMPLES);
    run_all(&nodes(&world, "changed", 2, 0.8), 0);
    let version = |sample: usize| u64::from(sample.is_multiple_of(5));
    // The new contents have the old lengths, so that the index does not change.
    for sample in (0..SAMPLES).step_by(5) {
        let length = bytes(sample, 0).len();
        let mut changed = bytes(sample, 1);
        changed.resize(length, 0);
        std::fs::write(world.path(sample), changed).unwrap();
    }
    let expected = |sample: usize| {
        let mut expected = bytes(sample, version(sample));
        expected.resize(bytes(sample, 0).len(), 0);
        expected
    };
    let running = nodes(&world, "changed", 2, 0.8);
    for epoch in 1..4 {
        let ran = run_with(&running, epoch, &expected);
        let source = source_share(&world, &ran);
        let bound = if epoch == 1 { 0.25 } else { 0.02 };
        assert!(source <= bound, "epoch {epoch}: {source}, {}", told(&running));
    }
}

#[test]
fn a_node_that_comes_back_empty_or_does_not_come_back_changes_no_batch() {
    let world = World::new(SAMPLES);
    let from = |nodes: &[Pipeline], epoch, first_step| {
        let ran = run_from(nodes, epoch, first_step, &|sample| bytes(sample, 0));
        // The samples of each global batch in order, rank after rank.
        let steps = ran[0].steps.len();
        (0..steps)
            .map(|step| ran.iter().flat_map(|ran| ran.steps[step].clone()).collect())
            .collect::<Vec<Vec<usize>>>()
    };
    let all = |nodes: &[Pipeline], epoch| from(nodes, epoch, 0);
    let mut alone = world.options("alone", 1.5, Table::new(vec![vec![0]]));
    alone.batch_size = 16;
    let alone = world.pipeline(&alone);
    let expected: Vec<_> = (0..4).map(|epoch| all(std::slice::from_ref(&alone), epoch)).collect();
    let two = nodes(&world, "elastic", 2, 0.6);
    assert_eq!(all(&two, 0), expected[0]);
    drop(two);
    std::fs::remove_dir_all(world.cache_of("elastic-1")).unwrap();
    let two = nodes(&world, "elastic", 2, 0.6);
    assert_eq!(all(&two, 1), expected[1]);
    drop(two);
    // With four nodes, each node's batches are smaller, but the global batch is the same.
    let names = names("elastic", 4);
    let table = Table::new((0..4).map(|rank| vec![rank]).collect());
    let four: Vec<Pipeline> = names
        .iter()
        .map(|name| {
            let options = LoaderOptions { batch_size: 4, ..world.options(name, 0.6, table.clone()) };
            world.pipeline(&options)
        })
        .collect();
    assert_eq!(from(&four, 2, 20), expected[2][20..], "they resume in the middle of an epoch");
    assert_eq!(all(&four, 3), expected[3]);
}

#[test]
fn ranks_of_one_node_share_its_server_and_its_memory() {
    let world = World::new(SAMPLES);
    let table = Table::new(vec![vec![0, 1], vec![2, 3]]);
    // The memory tier of a node belongs to its first rank. Huge pages are large compared with these samples.
    let ranks: Vec<Pipeline> = (0..4)
        .map(|rank| {
            let options = LoaderOptions {
                batch_size: 4,
                cache: CacheChoice::in_ram(8 << 20),
                local_world_size: Some(2),
                ..world.options(&format!("memory-{rank}"), 0.0, table.clone())
            };
            world.pipeline(&options)
        })
        .collect();
    for epoch in 0..3 {
        let ran = run_all(&ranks, epoch);
        let bound = if epoch == 0 { 1.03 } else { 0.02 };
        assert!(source_share(&world, &ran) <= bound, "epoch {epoch}: {:?}", ran[1].stats);
        if epoch > 0 {
            let tier = |rank: usize, tier| ran[rank].stats.tier(tier).hits;
            assert!(tier(0, TierName::RAM) > 0 && tier(2, TierName::RAM) > 0, "{:?}", ran[0].stats);
            assert_eq!(tier(1, TierName::RAM) + tier(3, TierName::RAM), 0);
        }
    }
    assert!(ranks[0].cache().unwrap().served().is_some() && ranks[1].cache().unwrap().served().is_none());
}

#[test]
fn a_directory_with_room_for_everything_ends_with_everything() {
    let world = World::new(SAMPLES);
    let nodes = nodes(&world, "whole", 2, 1.5);
    for epoch in 0..6 {
        let ran = run_all(&nodes, epoch);
        let bound = if epoch == 0 { 1.03 } else { 0.02 };
        assert!(source_share(&world, &ran) <= bound, "epoch {epoch}: {:?}", ran[0].stats);
    }
    let held = nodes[0].cache().unwrap().stats().tier(NVME).held_samples;
    assert!(held > SAMPLES as u64 * 9 / 10, "{held} samples");
}

#[test]
fn what_cannot_be_is_said_before_anything_is_read() {
    let world = World::new(40);
    let table = Table::new(vec![vec![0], vec![1]]);
    let refused = |options: LoaderOptions| options.check(&world.index()).unwrap_err().to_string();
    let options = || world.options("refused", 1.5, table.clone());
    let error = refused(LoaderOptions { cache: CacheChoice::default(), ..options() });
    assert!(error.starts_with("config: peers: needs cache="), "{error}");
    let fill = foreload::FillChoice::Ahead;
    let error = refused(with_cache(options(), |cache| cache.directory.fill = fill));
    assert!(error.starts_with("config: cache_fill: is ahead"), "{error}");
    let error = refused(LoaderOptions { peers: Peers { on: true, ..Peers::default() }, ..options() });
    assert!(error.starts_with("config: peers: is supported only by loaders in Python"), "{error}");
}

/// The errors of the ranks on these nodes, which cannot train together.
fn refusals(
    nodes: &[Vec<u32>],
    options: impl Fn(u32, Arc<Table>) -> (LoaderOptions, Arc<DatasetIndex>) + Sync,
) -> Vec<String> {
    let ranks = nodes.iter().flatten().count() as u32;
    let table = Table::new(nodes.to_vec());
    std::thread::scope(|scope| {
        let start = |rank| {
            let (table, options) = (table.clone(), &options);
            scope.spawn(move || {
                let (options, index) = options(rank, table);
                let pipeline = Pipeline::new(index.clone(), options.check(&index).unwrap());
                pipeline.epoch(0, rank, ranks, 0).err().expect("an error").to_string()
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_that_do_not_belong_together_are_all_told_so() {
    let (one, other) = (World::new(40), World::new(41));
    let two = [vec![0], vec![1]];
    let of = |world: &World, name: &str, table| world.options(name, 1.5, table);
    let name = |rank: u32| format!("together-{rank}");
    let datasets = refusals(&two, |rank, table| {
        let world = if rank == 0 { &one } else { &other };
        (of(world, &name(rank), table), world.index())
    });
    let settings = refusals(&two, |rank, table| {
        let options = of(&one, &name(rank), table);
        (LoaderOptions { seed: rank.into(), ..options }, one.index())
    });
    let tls = refusals(&two, |rank, table| {
        let options = of(&one, &name(rank), table);
        let peers = Peers { tls: rank == 0, ..options.peers.clone() };
        (LoaderOptions { peers, ..options }, one.index())
    });
    let directories = refusals(&two, |_, table| (of(&one, "one for two", table), one.index()));
    // The ranks of one node store samples together.
    let pairs = [vec![0, 1], vec![2, 3]];
    let apart = refusals(&pairs, |rank, table| (of(&one, &name(rank), table), one.index()));
    let sizes = refusals(&pairs, |rank, table| {
        let options = of(&one, &name(rank / 2), table);
        let more = |size: &mut u64| *size += u64::from(rank == 3);
        (with_cache(options, |cache| cache.directory.size.iter_mut().for_each(more)), one.index())
    });
    for (what, said) in [
        ("the dataset's fingerprint is ", datasets),
        ("have different settings: seed is ", settings),
        ("have different settings: tls of peers is ", tls),
        ("have the same cache directory", directories),
        ("give all ranks of a node the same directory and sizes", apart),
        ("give all ranks of a node the same directory and sizes", sizes),
    ] {
        assert!(said.iter().all(|said| said.contains(what)), "{what}: {said:?}");
    }
}

#[test]
fn ranks_that_take_what_their_node_keeps_read_little_from_others_and_train_on_the_same() {
    let world = World::new(SAMPLES);
    let job = |name: &str, assignment| {
        let table = Table::new((0..3).map(|rank| vec![rank]).collect());
        let of = |node: u32| LoaderOptions {
            batch_size: 16,
            assignment,
            ..world.options(&format!("{name}-{node}"), 0.5, table.clone())
        };
        (0..3).map(|node| world.pipeline(&of(node))).collect::<Vec<_>>()
    };
    let sets = |ran: &[Ran]| -> Vec<Vec<usize>> {
        let of_step = |step: usize| {
            let mut samples: Vec<usize> = ran.iter().flat_map(|ran| ran.steps[step].clone()).collect();
            samples.sort_unstable();
            samples
        };
        (0..ran[0].steps.len()).map(of_step).collect()
    };
    // The largest difference between the ranks' bytes, over all steps.
    let spread = |ran: &[Ran]| -> usize {
        let of_step = |step: usize| {
            let load =
                |ran: &Ran| -> usize { ran.steps[step].iter().map(|&sample| bytes(sample, 0).len()).sum() };
            let loads: Vec<usize> = ran.iter().map(load).collect();
            loads.iter().max().unwrap() - loads.iter().min().unwrap()
        };
        (0..ran[0].steps.len()).map(of_step).sum()
    };
    let (in_order, local) = (job("order", Assignment::Order), job("local", Assignment::Locality));
    let even = job("even", Assignment::EvenLocality);
    for epoch in 0..3 {
        let (in_order, local) = (run_all(&in_order, epoch), run_all(&local, epoch));
        let even = run_all(&even, epoch);
        assert_eq!(sets(&in_order), sets(&local), "each global batch has the same samples");
        assert_eq!(sets(&in_order), sets(&even), "each global batch has the same samples");
        assert!(spread(&even) < spread(&local), "{} of {} bytes", spread(&even), spread(&local));
        if epoch > 0 {
            let (far, near) = (hits(&in_order, PEERS), hits(&local, PEERS));
            assert!(4 * near < far, "{far} samples came from other nodes in order, {near} by locality");
            // Samples that no batch of the earlier epochs contained are read for the first time.
            assert!(source_share(&world, &local) <= 0.06, "{:?}", local[0].stats);
        }
    }
}
