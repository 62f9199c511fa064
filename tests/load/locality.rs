//! Ranks that take the samples which their nodes store, as whole pipelines: the bytes of each global batch are the same
//! as without.

use crate::common::{Dataset, ids, with_cache};
use foreload::Mixing;
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldValue, LoaderOptions, OnError};
use foreload::testing::pipeline::{Epoch, Pipeline};
use foreload::testing::schedule::{Assignment, BatchEntry, LastBatch, SampleOwners};
use foreload::testing::state::State;
use foreload::testing::tier::FillChoice;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

const EPOCH: u64 = 1;
const MIX: &str = r#"[{"RandomChoice": {"transforms": [{"MixUp": {"alpha": 0.4, "num_classes": 3}},
    {"CutMix": {"num_classes": 3}}]}}]"#;

/// The global batch size of all jobs here.
const GLOBAL: u32 = 32;

fn options(world: u32) -> LoaderOptions {
    LoaderOptions {
        batch_size: GLOBAL / world,
        image_size: (24, 20),
        threads: Some(2),
        seed: 5,
        ..LoaderOptions::default()
    }
}

/// A pipeline that gets the owners of samples from the test; its nodes do not meet.
fn assigned(dataset: &Dataset, options: &LoaderOptions, assignment: Assignment) -> Pipeline {
    let index = dataset.index();
    let mut config = options.check(&index).unwrap();
    config.assignment = assignment;
    Pipeline::new(index, config)
}

/// A job: its numbers of ranks and nodes.
#[derive(Clone, Copy, Debug)]
struct Job {
    world: u32,
    nodes: u32,
}

impl Job {
    fn node_of(self, rank: u32) -> u32 {
        rank / (self.world / self.nodes)
    }

    /// The first node stores most samples, and some samples are stored by no node.
    fn home(self, sample: u64) -> Option<usize> {
        let number = (sample * 7 % 11) as u32;
        (number > 0).then_some((number.saturating_sub(4) % self.nodes) as usize)
    }

    fn homes(self) -> Arc<SampleOwners> {
        Arc::new(SampleOwners::new((0..self.world).map(|rank| self.node_of(rank)).collect(), move |sample| {
            self.home(sample)
        }))
    }

    /// A pipeline for each rank, as in separate processes.
    fn pipelines(self, dataset: &Dataset, asked: &LoaderOptions, assignment: Assignment) -> Vec<Pipeline> {
        let options = LoaderOptions { batch_size: GLOBAL / self.world, ..asked.clone() };
        let of_rank = |_| {
            let pipeline = assigned(dataset, &options, assignment);
            if assignment == Assignment::Locality {
                pipeline.set_homes(self.homes());
            }
            pipeline
        };
        (0..self.world).map(of_rank).collect()
    }
}

/// The data of each sample in a batch: image, label, id, mask.
fn samples(pipeline: &Pipeline, batch: &Batch) -> Vec<Vec<u8>> {
    let Some(FieldValue::Tensor(labels)) = pipeline.config().field(batch, "label") else { panic!() };
    let tensors = [batch.images(), labels, batch.sample_ids(), batch.mask()];
    let part = |bytes: &[u8], at: usize| {
        let each = bytes.len() / batch.len();
        bytes[at * each..][..each].to_vec()
    };
    let of = |at| tensors.each_ref().map(|tensor| part(tensor.bytes(), at)).concat();
    (0..batch.len()).map(of).collect()
}

/// The samples that ranks have taken of an epoch: for each step, each place with its data.
#[derive(Default)]
struct Taken(BTreeMap<u64, Vec<(BatchEntry, Vec<u8>)>>);

impl Taken {
    /// Takes up to `steps` batches of a rank. The schedule gives the place of each sample in the global batch.
    fn take(&mut self, pipeline: &Pipeline, epoch: &mut Epoch, (rank, world): (u32, u32), steps: u64) {
        let schedule = pipeline.schedule(EPOCH, rank, world).unwrap();
        for _ in 0..steps {
            let step = epoch.next_step();
            let Some(batch) = epoch.next_batch().unwrap() else { break };
            let places: Vec<BatchEntry> = schedule.places(step).collect();
            assert_eq!(places.len(), batch.len());
            let mut taken: Vec<_> = places.into_iter().zip(samples(pipeline, &batch)).collect();
            if pipeline.config().last_batch == LastBatch::Partial {
                // The number of ranks whose batch is only padding depends on the number of ranks.
                taken.retain(|(place, _)| place.valid);
            }
            self.0.entry(step).or_default().extend(taken);
        }
    }

    /// Takes a whole epoch of a job.
    fn of_job(job: Job, pipelines: &[Pipeline]) -> Self {
        let mut taken = Self::default();
        for (rank, pipeline) in (0..job.world).zip(pipelines) {
            let mut epoch = pipeline.epoch(EPOCH, rank, job.world, 0).unwrap();
            taken.take(pipeline, &mut epoch, (rank, job.world), u64::MAX);
        }
        taken
    }

    /// The SHA-256 of each global batch, with samples in the order of their places, and padding last.
    fn digests(mut self) -> Vec<[u8; 32]> {
        let digest = |places: &mut Vec<(BatchEntry, Vec<u8>)>| {
            places.sort_by_key(|(place, _)| (!place.valid, place.position));
            let mut hash = Sha256::new();
            places.iter().for_each(|(_, bytes)| hash.update(bytes));
            hash.finalize().into()
        };
        self.0.values_mut().map(digest).collect()
    }
}

fn in_order(dataset: &Dataset, asked: &LoaderOptions) -> Vec<[u8; 32]> {
    let alone = Job { world: 1, nodes: 1 };
    Taken::of_job(alone, &alone.pipelines(dataset, asked, Assignment::Order)).digests()
}

#[test]
fn global_batches_have_the_same_bytes() {
    let (usual, mix) = (options(1), Some(Mixing::from_json(MIX).unwrap()));
    let last = |last_batch| LoaderOptions { last_batch: Some(last_batch), ..usual.clone() };
    let broken = Dataset::folder(149);
    [3, 17, 30, 88].into_iter().for_each(|sample| broken.spoil(sample));
    for (what, dataset, asked) in [
        ("drop", Dataset::folder(149), last(LastBatch::Drop)),
        ("pad", Dataset::shards(149, 9), last(LastBatch::Pad)),
        ("partial", Dataset::folder(149), last(LastBatch::Partial)),
        ("mixed", Dataset::folder(149), LoaderOptions { mix: mix.clone(), ..last(LastBatch::Pad) }),
        (
            "mixed, partial",
            Dataset::folder(149),
            LoaderOptions { mix: mix.clone(), ..last(LastBatch::Partial) },
        ),
        ("repeated", Dataset::folder(149), LoaderOptions { repeats: 3, ..usual.clone() }),
        ("mixed repeats", Dataset::folder(149), LoaderOptions { repeats: 3, mix, ..usual.clone() }),
        ("substitutes", broken.indexed_anew(), LoaderOptions { on_error: OnError::Skip, ..usual.clone() }),
    ] {
        let alone = in_order(&dataset, &asked);
        assert!(alone.len() >= 4);
        for job in [Job { world: 2, nodes: 2 }, Job { world: 4, nodes: 2 }, Job { world: 8, nodes: 4 }] {
            let pipelines = job.pipelines(&dataset, &asked, Assignment::Locality);
            assert!(Taken::of_job(job, &pipelines).digests() == alone, "{what}: {job:?}");
        }
    }
}

#[test]
fn a_rank_takes_what_its_node_keeps() {
    let (dataset, job) = (Dataset::folder(149), Job { world: 4, nodes: 2 });
    let moved = |assignment| {
        let pipelines = job.pipelines(&dataset, &options(1), assignment);
        let (mut moved, mut least) = (0, 0);
        let mut held: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for (rank, pipeline) in (0..job.world).zip(&pipelines) {
            let mut epoch = pipeline.epoch(EPOCH, rank, job.world, 0).unwrap();
            while let Some(batch) = epoch.next_batch().unwrap() {
                for id in ids(&batch) {
                    let Some(home) = job.home(id as u64) else { continue };
                    *held.entry((epoch.next_step(), home)).or_default() += 1;
                    moved += u64::from(home != job.node_of(rank) as usize);
                }
            }
        }
        held.into_values().for_each(|held| least += held.saturating_sub(u64::from(GLOBAL / job.nodes)));
        (moved, least)
    };
    let (local, least) = moved(Assignment::Locality);
    let (slices, _) = moved(Assignment::Order);
    assert!(local == least && least > 0, "{local} samples moved, {least} must");
    assert!(slices > 2 * local, "{slices} samples move in order, {local} by locality");
}

#[test]
fn an_epoch_goes_on_with_other_ranks_and_nodes() {
    let dataset = Dataset::folder(149);
    let asked = LoaderOptions {
        mix: Some(Mixing::from_json(MIX).unwrap()),
        last_batch: Some(LastBatch::Partial),
        ..options(1)
    };
    let alone = in_order(&dataset, &asked);
    let mut taken = Taken::default();
    let mut state: Option<State> = None;
    let jobs = [
        (4, 2, Assignment::Locality),
        (2, 2, Assignment::Locality),
        (2, 1, Assignment::Order),
        (8, 4, Assignment::Locality),
    ];
    for (world, nodes, assignment) in jobs {
        let job = Job { world, nodes };
        let mut states = Vec::new();
        for (rank, pipeline) in (0..world).zip(job.pipelines(&dataset, &asked, assignment)) {
            // A state needs no owners: it exists before the nodes have met.
            let begins = || assigned(&dataset, &asked, assignment).state(EPOCH, 0, 1).unwrap();
            let from = state.clone().unwrap_or_else(begins);
            let mut epoch = pipeline.resume(&from, rank, world).unwrap();
            taken.take(&pipeline, &mut epoch, (rank, world), if world == 8 { u64::MAX } else { 1 });
            states.push(epoch.progress().state(None).unwrap());
        }
        assert!(states.iter().all(|state| *state == states[0]), "the same state on every rank");
        state = states.pop();
    }
    assert!(taken.digests() == alone);
}

/// For a rank without shards, the samples of its own batches are staged.
#[test]
fn a_cache_that_is_filled_ahead_changes_no_byte() {
    let (dataset, job) = (Dataset::folder(149), Job { world: 2, nodes: 2 });
    let alone = in_order(&dataset, &options(1));
    let asked = with_cache(dataset.cached(2.0, options(1)), |cache| cache.directory.fill = FillChoice::Ahead);
    for _ in 0..2 {
        let pipelines = job.pipelines(&dataset, &asked, Assignment::Locality);
        assert!(Taken::of_job(job, &pipelines).digests() == alone);
    }
}

#[test]
fn locality_without_homes_is_refused_with_what_to_do() {
    let dataset = Dataset::folder(64);
    for (assignment, name) in
        [(Assignment::Locality, "locality"), (Assignment::EvenLocality, "even_locality")]
    {
        let asked = LoaderOptions { assignment, ..options(2) };
        let said = asked.check(&dataset.index()).map(drop).unwrap_err().to_string();
        let start = format!("config: assignment: is {name}, which needs peers=");
        assert!(said.starts_with(&start), "{said}");
    }
    let pipeline = assigned(&dataset, &options(2), Assignment::Locality);
    let state = pipeline.state(EPOCH, 0, 2).unwrap();
    let refused = [
        pipeline.schedule(EPOCH, 0, 2).map(drop),
        pipeline.epoch(EPOCH, 0, 2, 0).map(drop),
        pipeline.resume(&state, 0, 2).map(drop),
    ];
    for refused in refused {
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with("config: assignment: needs to know what each node caches"), "{said}");
    }
    // Owners for another number of ranks are refused, too, and the right ones are accepted.
    pipeline.set_homes(Job { world: 4, nodes: 2 }.homes());
    let said = pipeline.epoch(EPOCH, 0, 2, 0).map(drop).unwrap_err().to_string();
    assert!(said.starts_with("config: world_size: is 2, but the peers have 4 ranks"), "{said}");
    pipeline.set_homes(Job { world: 2, nodes: 2 }.homes());
    assert!(pipeline.epoch(EPOCH, 0, 2, 0).unwrap().next_batch().unwrap().is_some());
}
