//! The cost of resuming: restoring a state at the beginning and near the end of an epoch of ten million samples, and
//! the order's draws with and without weights, in both directions.

use criterion::{Criterion, criterion_group, criterion_main};
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::build::{
    GroupRows, IndexBuilder, IndexFacts, IndexGroup, SampleRow, ShardRows,
};
use foreload::testing::dataset::{Contents, DatasetIndex, Fingerprint, Layout, Stamp};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::schedule::{Order, Selection};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SAMPLES: u64 = 10_000_000;
const SHARDS: u64 = 1000;

/// An index of shards that do not exist: restoring reads none of them.
fn index(directory: &Path) -> DatasetIndex {
    let target = directory.join("index");
    let mut builder = IndexBuilder::new(&target, Layout::Tar, Contents::Images).expect("a builder");
    for shard in 0..SHARDS {
        let packed = |i| SampleRow { offset: 110_000 * i, length: 100_000, label: (i % 1000) as u32 };
        let samples = (0..SAMPLES / SHARDS).map(packed).collect();
        let rows = GroupRows::Shard(ShardRows { samples, ..ShardRows::default() });
        builder
            .add(&IndexGroup { path: format!("{shard}").into_bytes(), stamp: Stamp::default(), rows })
            .expect("a group");
    }
    let root = PathBuf::from("/nowhere");
    builder.finish(&IndexFacts { root: root.clone(), ..IndexFacts::default() }).expect("an index");
    DatasetIndex::load(&root, &target).expect("it loads")
}

fn restore(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let index = Arc::new(index(directory.path()));
    let options = LoaderOptions { batch_size: 256, threads: Some(2), ..LoaderOptions::default() };
    let config = options.check(&index).expect("settings that fit");
    let pipeline = Pipeline::new(index, config);
    for steps in [0, 10, SAMPLES / 256 / 2, SAMPLES / 256 - 2] {
        let mut state = pipeline.state(5, 0, 1).expect("a state");
        state.position = 256 * steps;
        criterion.bench_function(&format!("restore at step {steps} of 10 million samples"), |bencher| {
            bencher.iter(|| pipeline.resume(black_box(&state), 0, 1).expect("it fits"));
        });
    }
}

fn draws(criterion: &mut Criterion) {
    let members = |part: u32| (part * 1000..(part + 1) * 1000).collect();
    let weighted =
        Selection::of_strata(1_000_000, (0..1000).map(|part| (f64::from(part + 1), members(part))).collect());
    for (name, selection) in
        [("every sample once", Selection::all(1_000_000)), ("a thousand weights", weighted)]
    {
        let order = Order::drawn(Arc::new(selection), &Fingerprint([1; 32]), 2, 3);
        let mut at = 0;
        let mut next = move || {
            at = (at + 7919) % 1_000_000;
            at
        };
        criterion.bench_function(&format!("sample at a position, {name}"), |bencher| {
            bencher.iter(|| order.sample(black_box(next())));
        });
        criterion.bench_function(&format!("positions of a sample, {name}"), |bencher| {
            bencher.iter(|| order.positions(black_box(next())).fold(0, u64::wrapping_add));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = restore, draws
}
criterion_main!(benches);
