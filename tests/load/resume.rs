//! A run that resumes from a state delivers the same rest of the epoch: from any step, for any length, on any number of
//! ranks.

use crate::common::{Dataset, finished, printed_seed, thorough};
use foreload::testing::batch::Batch;
use foreload::testing::config::{LoaderOptions, Weights};
use foreload::testing::dataset::{ClassRef, Fingerprint};
use foreload::testing::pipeline::{Epoch, Pipeline};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::schedule::{LastBatch, Order, Schedule, Selection};
use foreload::testing::state::{OrderIdentity, State};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The random numbers of a test's choices.
fn choices() -> RandomStream {
    RandomKey::new(b"resume tests", printed_seed(), 0, Use::Order).stream(0)
}

/// The contents of a batch, one entry for each sample.
fn samples(batch: &Batch) -> Vec<Vec<u8>> {
    let (images, labels, ids, mask) = (batch.images(), batch.labels(), batch.sample_ids(), batch.mask());
    let part = |bytes: &[u8], at: usize| {
        let each = bytes.len() / batch.len();
        bytes[at * each..(at + 1) * each].to_vec()
    };
    let of = |at| {
        [part(images.bytes(), at), part(labels.bytes(), at), part(ids.bytes(), at), part(mask.bytes(), at)]
    };
    (0..batch.len()).map(|at| of(at).concat()).collect()
}

fn rest(mut epoch: Epoch) -> Vec<[u8; 32]> {
    let mut digests = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        digests.push(Sha256::digest(samples(&batch).concat()).into());
    }
    digests
}

fn options(world: u32) -> LoaderOptions {
    LoaderOptions {
        batch_size: 8 / world,
        image_size: (24, 24),
        threads: Some(2),
        seed: 5,
        ..LoaderOptions::default()
    }
}

#[test]
fn a_small_epoch_goes_on_at_every_step() {
    let weighted = LoaderOptions {
        weights: Some(Weights::Classes(vec![(ClassRef::Number(1), 2.5)])),
        epoch_size: Some(70),
        ..options(1)
    };
    for (dataset, asked) in [
        (Dataset::folder(61), options(1)),
        (Dataset::shards(61, 9), LoaderOptions { last_batch: Some(LastBatch::Pad), ..options(1) }),
        (Dataset::folder(45), weighted),
    ] {
        let (saving, resuming) = (dataset.pipeline(&asked), dataset.pipeline(&asked));
        let whole = rest(resuming.epoch(3, 0, 1, 0).unwrap());
        assert!(whole.len() >= 7);
        let mut epoch = saving.epoch(3, 0, 1, 0).unwrap();
        for step in 0..=whole.len() {
            let state = State::from_json(&epoch.progress().state(None).unwrap().to_json()).unwrap();
            assert_eq!(rest(resuming.resume(&state, 0, 1).unwrap()), whole[step..], "after {step} steps");
            let _ = epoch.next_batch().unwrap();
        }
    }
}

#[test]
fn an_epoch_of_which_nothing_is_left_says_so() {
    let dataset = Dataset::folder(61);
    let pipeline = dataset.pipeline(&options(1));
    let epoch = finished(&pipeline, 2);
    let state = epoch.progress().state(None).unwrap();
    assert!(state.is_through() && pipeline.index().notices().take().is_empty());
    assert!(rest(pipeline.resume(&state, 0, 1).unwrap()).is_empty());
    let said = pipeline.index().notices().take();
    assert!(
        said.len() == 1 && said[0].contains("epoch 2 was chosen") && said[0].contains("epoch 3"),
        "{said:?}"
    );
}

#[test]
fn ranks_come_and_go_in_the_middle_of_an_epoch() {
    let mut choices = choices();
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial] {
        let dataset = Dataset::folder(149);
        let pipelines: Vec<(u32, Pipeline)> = [1, 2, 4, 8]
            .map(|world| {
                (world, dataset.pipeline(&LoaderOptions { last_batch: Some(last), ..options(world) }))
            })
            .into();
        let global: Vec<Vec<Vec<u8>>> = {
            let mut epoch = pipelines[0].1.epoch(1, 0, 1, 0).unwrap();
            std::iter::from_fn(|| epoch.next_batch().unwrap().map(|batch| samples(&batch))).collect()
        };
        let mut state = pipelines[0].1.state(1, 0, 1).unwrap();
        let mut seen = Vec::new();
        // The number of ranks changes 1 → 2 → 4 → 1, then at random, each time after some steps.
        for turn in 0.. {
            let world = if turn < 4 { [0, 1, 2, 0][turn] } else { choices.below(4) as usize };
            let (world, pipeline) = &pipelines[world];
            let steps = 1 + choices.below(4) as usize;
            let (mut parts, mut states) = (vec![Vec::new(); steps], Vec::new());
            for rank in 0..*world {
                let mut epoch = pipeline.resume(&state, rank, *world).unwrap();
                for part in &mut parts {
                    if let Some(batch) = epoch.next_batch().unwrap() {
                        let mut samples = samples(&batch);
                        if last == LastBatch::Partial {
                            // Ranks without a sample have one sample of padding. The mask is the last byte.
                            samples.retain(|sample| sample.ends_with(&[1]));
                        }
                        part.extend(samples);
                    }
                }
                states.push(epoch.progress().state(None).unwrap());
            }
            assert!(states.iter().all(|state| *state == states[0]), "the same state on every rank");
            seen.extend(parts.into_iter().filter(|part| !part.is_empty()));
            state = states.swap_remove(0);
            if state.is_through() {
                break;
            }
        }
        assert_eq!(seen.len(), global.len());
        assert!(seen == global, "{last:?}: another batch");
    }
}

/// The order of a simulated dataset, which is the same from run to run.
fn simulated(samples: u64, epoch: u64) -> Order {
    Order::drawn(Arc::new(Selection::all(samples)), &Fingerprint([3; 32]), 11, epoch)
}

/// The SHA-256 of the places of all ranks in these steps.
fn digest(order: &Order, batch: u32, world: u32, steps: impl Iterator<Item = u64>) -> [u8; 32] {
    let ranks: Vec<Schedule> = (0..world)
        .map(|rank| Schedule::new(order.clone(), batch, rank, world, LastBatch::Partial).unwrap())
        .collect();
    let mut hash = Sha256::new();
    for step in steps {
        for rank in &ranks {
            for place in rank.places(step) {
                hash.update(place.position.to_le_bytes());
                hash.update(place.draw.sample.to_le_bytes());
            }
        }
    }
    hash.finalize().into()
}

/// The places in each batch are compared, because no such dataset exists; the other tests compare the batches.
#[test]
fn large_epochs_go_on_at_any_step() {
    let mut choices = choices();
    for trial in 0..if thorough() { 200 } else { 40 } {
        // With up to a million samples the whole rest is compared; with more, the next samples, the end, and some in
        // between.
        let samples = [100_003, 1_000_000, 50_000_017, 1_000_000_000][trial % 4];
        let (global, epoch) = (512, choices.below(1000));
        let identity = OrderIdentity {
            fingerprint: Fingerprint([3; 32]).to_string(),
            seed: 11,
            epoch_size: samples,
            shuffle: true,
            blocks: None,
            last_batch: LastBatch::Partial,
            selection: None,
            repeats: 1,
            mix: None,
            buckets: None,
            bins: None,
        };
        let (saved, step) = {
            let schedule =
                Schedule::new(simulated(samples, epoch), global, 0, 1, LastBatch::Partial).unwrap();
            let step = choices.below(schedule.steps());
            (State::new(&identity, epoch, &schedule, step, 0).to_json(), step)
        };
        let state = State::from_json(&saved).unwrap();
        assert!(saved.len() < 400, "{saved}");
        let world = 1 << choices.below(6);
        let order = simulated(samples, state.epoch);
        let resumed = Schedule::new(order.clone(), global / world, 0, world, LastBatch::Partial).unwrap();
        let (first, end) = (state.first_step(&resumed).unwrap(), resumed.steps());
        assert_eq!(first, step, "{samples} samples, {world} ranks");
        let mut steps: Vec<u64> =
            (first..end.min(first + 20)).chain(end.saturating_sub(5).max(first)..end).collect();
        if samples <= 1_000_000 {
            steps = (first..end).collect();
        } else {
            steps.extend((0..50).map(|_| first + choices.below(end - first)));
        }
        let uninterrupted = simulated(samples, epoch);
        assert_eq!(
            digest(&order, global / world, world, steps.iter().copied()),
            digest(&uninterrupted, global, 1, steps.iter().copied()),
            "{samples} samples, epoch {epoch}, step {first}, {world} ranks"
        );
    }
}
