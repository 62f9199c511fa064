//! Predictions that can be verified by hand.

use super::*;

const MACHINE: Machine = Machine {
    source: TierRates {
        open_seconds: 2e-3,
        read_seconds: 1e-3,
        concurrency: 64.0,
        read_bandwidth: 200e6,
        write_bandwidth: 0.0,
    },
    nvme: TierRates {
        open_seconds: 0.0,
        read_seconds: 1e-4,
        concurrency: 64.0,
        read_bandwidth: 2e9,
        write_bandwidth: 1e9,
    },
    decode_bandwidth: 400e6,
};

const JOB: PredictedJob = PredictedJob {
    samples: 100_000,
    bytes: 10_000_000_000,
    requests: 100_000,
    requests_kept: 100_000,
    shards: Some(10),
    charged: false,
    nodes: 1,
    ranks_per_node: 1,
    batch_size: 250,
    repeats: 1,
    epochs: 5,
    depth: 32,
    consume_seconds: 0.0,
    cache_bytes: 5_000_000_000,
    fill: FillChoice::Use,
    network: None,
    by_locality: false,
};

fn close(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.01, "{value}, not {expected}");
}

#[test]
fn what_is_slowest_decides() {
    let whole = PredictedJob { cache_bytes: JOB.bytes, ..JOB };
    let prediction = predict(&whole, &MACHINE);
    // 10 GB at 200 MB/s take 50 s. Later epochs are limited by decoding at 400 MB/s.
    close(prediction.first.seconds, 50.0);
    assert_eq!(prediction.first.limit, Limit::SourceBandwidth);
    close(prediction.later.seconds, 25.0);
    assert_eq!((prediction.later.limit, prediction.later.hits), (Limit::Decode, 1.0));
    assert_eq!((prediction.slow_bytes, prediction.slow_requests), (JOB.bytes, JOB.samples));
    close(prediction.seconds, 150.0);

    let slow_steps = PredictedJob { consume_seconds: 0.15, ..whole };
    let prediction = predict(&slow_steps, &MACHINE);
    close(prediction.first.seconds, 60.0);
    assert_eq!(prediction.first.limit, Limit::Consumer);
    assert!(prediction.first.wait_seconds < 0.5, "{prediction:?}");
}

#[test]
fn blocks_are_asked_for_once_where_their_samples_are_kept() {
    let blocks = PredictedJob { requests_kept: 500, ..JOB };
    let requests = |job: PredictedJob| {
        let found = predict(&job, &MACHINE);
        (found.first.slow_requests, found.later.slow_requests)
    };
    assert_eq!(requests(PredictedJob { cache_bytes: JOB.bytes, ..blocks }), (500, 0));
    // Blocks that do not fit into the cache are requested again for each of their samples.
    assert_eq!(requests(blocks), (50_250, 50_000));
    assert_eq!(requests(PredictedJob { cache_bytes: 0, ..blocks }), (100_000, 100_000));
}

#[test]
fn single_files_pay_an_open_each() {
    let loose = PredictedJob { shards: None, ..JOB };
    let late = TierRates { open_seconds: 30e-3, ..MACHINE.source };
    let prediction = predict(&loose, &Machine { source: late, ..MACHINE });
    // Each of 100 000 files takes 31 ms, and 32 are read at a time.
    close(prediction.first.seconds, 100_000.0 * 31e-3 / 32.0);
    assert_eq!(prediction.first.limit, Limit::SourceLatency);
    close(prediction.later.seconds, 50_000.0 * 31e-3 / 32.0);
    assert_eq!(prediction.later.slow_bytes, JOB.bytes / 2);
}

#[test]
fn a_larger_cache_never_costs_time() {
    for (nodes, repeats) in [(1, 1), (4, 1), (1, 3), (4, 3)] {
        for fill in [FillChoice::Use, FillChoice::Ahead] {
            let size = |tenths| tenths * JOB.bytes / 10;
            let times: Vec<f64> = (0..=10)
                .map(|tenths| PredictedJob { cache_bytes: size(tenths), nodes, repeats, fill, ..JOB })
                .map(|job| predict(&job, &MACHINE).seconds)
                .collect();
            let never_longer = times.windows(2).all(|pair| pair[1] <= 1.01 * pair[0]);
            assert!(never_longer, "{nodes} nodes, {repeats} repeats, {fill:?}: {times:?}");
        }
    }
}

#[test]
fn repeats_are_read_once_and_decoded_each_time() {
    let job = PredictedJob { repeats: 4, cache_bytes: 0, batch_size: 256, ..JOB };
    let prediction = predict(&job, &MACHINE);
    // A quarter of the dataset is read from the source. All repeats are decoded, which is the limit.
    assert_eq!(prediction.later.slow_bytes, JOB.bytes / 4);
    assert_eq!(prediction.later.limit, Limit::Decode);
    close(prediction.later.seconds, 25.0);
    // With four repeats, an epoch has a quarter of the samples. Each of the four ranks gets one repeat of a
    // sample and reads the sample itself, so the bytes stay the same.
    let four = predict(&PredictedJob { ranks_per_node: 4, ..job }, &MACHINE);
    assert_eq!(four.later.slow_bytes, JOB.bytes);
    let two_nodes = predict(&PredictedJob { nodes: 2, ..job }, &MACHINE);
    assert_eq!(two_nodes.later.slow_bytes, JOB.bytes / 2);
    // A cache with space for the whole dataset gets a quarter of the samples first, then a quarter of the missing
    // samples in each epoch.
    let whole = PredictedJob { cache_bytes: JOB.bytes, ..job };
    let hits: Vec<f64> = kept(&whole, 1.0, false).iter().map(|kept| kept.hits).collect();
    for (epoch, hits) in hits.into_iter().enumerate() {
        assert!((hits - (1.0 - 0.75_f64.powi(epoch as i32))).abs() < 0.02, "epoch {epoch}: {hits}");
    }
    // With staging, everything is in the cache after the first epoch.
    let ahead = predict(&PredictedJob { fill: FillChoice::Ahead, ..whole }, &MACHINE);
    assert!(ahead.ahead && ahead.later.hits == 1.0, "{ahead:?}");
}

#[test]
fn nodes_that_use_a_part_hit_as_their_plan_lets_them() {
    for (nodes, repeats) in [(4, 1), (1, 4), (4, 3)] {
        let job = PredictedJob { nodes, repeats, cache_bytes: JOB.bytes / 4, epochs: 60, ..JOB };
        let hits: Vec<f64> = kept(&job, 0.25, false).iter().map(|kept| kept.hits).collect();
        let mean = hits[7..].iter().sum::<f64>() / (hits.len() - 7) as f64;
        assert!((0.5..0.57).contains(&mean), "{nodes} nodes, {repeats} repeats: {mean}");
        assert_eq!(hits[0], 0.0);
    }
}

#[test]
fn staging_ahead_hides_latency() {
    // Single samples arrive at 32 / 50 ms = 640 a second, that is 64 MB/s. Pieces of 4 MiB arrive at the full 200 MB/s.
    let late = Machine { source: TierRates { read_seconds: 50e-3, ..MACHINE.source }, ..MACHINE };
    let whole = PredictedJob { cache_bytes: JOB.bytes, ..JOB };
    let on_use = predict(&whole, &late);
    close(on_use.first.seconds, 100_000.0 * 50e-3 / 32.0);
    let ahead = predict(&PredictedJob { fill: FillChoice::Ahead, ..whole }, &late);
    assert!(ahead.ahead && ahead.first.seconds < 0.6 * on_use.first.seconds, "{ahead:?}");
    assert!(ahead.first.slow_bytes > JOB.bytes && ahead.first.slow_bytes < 2 * JOB.bytes, "{ahead:?}");
    close(ahead.later.seconds, on_use.later.seconds);
    assert_eq!(
        predict(&PredictedJob { fill: FillChoice::Auto, ..whole }, &late),
        ahead_auto(&ahead, &late, &whole)
    );
}

/// Returns `ahead` with the reason text of the automatic choice. The two predictions differ in nothing else.
fn ahead_auto(ahead: &Prediction, machine: &Machine, job: &PredictedJob) -> Prediction {
    let reason = predict(&PredictedJob { fill: FillChoice::Auto, ..*job }, machine).fill_reason;
    Prediction { fill_reason: reason, ..ahead.clone() }
}

/// Four nodes whose caches together hold the dataset, with a slow source and a network.
const PEERS: PredictedJob =
    PredictedJob { nodes: 4, cache_bytes: 2_500_000_000, network: Some(50e6), depth: 64, ..JOB };

#[test]
fn peers_read_the_source_once() {
    let fast = PredictedJob { network: Some(1e9), ..PEERS };
    let prediction = predict(&fast, &MACHINE);
    assert_eq!((prediction.first.slow_bytes, prediction.later.slow_bytes), (JOB.bytes, 0));
    assert_eq!((prediction.held, prediction.held_together), (0.25, 1.0));
    // Each node decodes its quarter at 400 MB/s.
    assert_eq!(prediction.later.limit, Limit::Decode);
    close(prediction.later.seconds, 6.25);
    // Caches of half the size hold half of the dataset, so half of each epoch comes from the source, at 200 MB/s.
    let half = predict(&PredictedJob { cache_bytes: fast.cache_bytes / 2, ..fast }, &MACHINE);
    assert_eq!(half.later.slow_bytes, JOB.bytes / 2);
    close(half.later.seconds, 25.0);
    // Private caches of that size hit only samples that their own node has kept.
    let private = predict(&PredictedJob { network: None, ..fast }, &MACHINE);
    assert!(private.later.hits < 0.7 && private.later.slow_bytes > JOB.bytes / 4, "{private:?}");
    assert_eq!(private.held_together, 0.25);
}

#[test]
fn the_network_may_be_the_limit() {
    let prediction = predict(&PEERS, &MACHINE);
    // A node receives three quarters of its 2.5 GB from other nodes, at 50 MB/s.
    assert_eq!(prediction.later.limit, Limit::Network);
    close(prediction.later.seconds, 37.5);
    // In the first epoch, the node receives as many bytes from other nodes for its cache.
    close(prediction.first.stages.network, 37.5);
    let local = predict(&PredictedJob { by_locality: true, ..PEERS }, &MACHINE);
    assert_eq!(local.later.limit, Limit::Decode);
    // With a batch of 250, a node moves at most the fraction 0.4 / √250 of its samples.
    assert!((0.015..0.03).contains(&(local.later.stages.network / 50.0)), "{local:?}");
    let more = predict(&PredictedJob { nodes: 8, ..PEERS }, &MACHINE);
    close(more.later.seconds, 7.0 / 64.0 * 200.0);
}

#[test]
fn peers_fill_as_samples_come_up() {
    let job = PredictedJob { repeats: 4, batch_size: 256, network: Some(1e9), ..PEERS };
    for (epoch, kept) in kept(&job, 0.25, false).iter().enumerate() {
        let seen = 1.0 - 0.75_f64.powi(epoch as i32);
        assert!((kept.hits - seen).abs() < 1e-9, "epoch {epoch}: {kept:?}");
    }
}
