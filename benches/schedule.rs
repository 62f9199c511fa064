//! A rank's cost of computing the places of a step: its slice of a global batch or, with locality, the assignment of
//! the whole global batch.

use criterion::{Criterion, criterion_group, criterion_main};
use foreload::testing::dataset::Fingerprint;
use foreload::testing::schedule::{
    BucketSizes, BucketTable, LastBatch, Order, SampleOwners, Schedule, Selection,
};
use std::hint::black_box;
use std::sync::Arc;

const SAMPLES: u64 = 10_000_000;
const RANKS_PER_NODE: u32 = 8;
/// The images of a dataset from the web.
const IMAGES: u64 = 100_000_000;

/// The places of one step after another.
fn measure(criterion: &mut Criterion, name: &str, schedule: &Schedule) {
    let mut step = 0;
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            step = (step + 1) % schedule.steps();
            schedule.places(step).fold(0, |sum, place| sum ^ black_box(place).draw.sample)
        });
    });
}

fn places(criterion: &mut Criterion) {
    let order = Order::drawn(Arc::new(Selection::all(SAMPLES)), &Fingerprint([1; 32]), 2, 3);
    for ranks in [8, 64, 1024] {
        let schedule = || Schedule::new(order.clone(), 256, 3, ranks, LastBatch::Drop).expect("a schedule");
        let name = format!("a step of 256 places on each of {ranks} ranks");
        measure(criterion, &format!("{name}, in order"), &schedule());
        let nodes = u64::from(ranks.div_ceil(RANKS_PER_NODE)).max(2);
        let homes = move || {
            let node = |rank| (u64::from(rank) * nodes / u64::from(ranks)) as u32;
            // As evenly distributed as owners that are computed by hashing.
            let home = move |sample: u64| {
                Some(((sample.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % nodes) as usize)
            };
            SampleOwners::new((0..ranks).map(node).collect(), home)
        };
        let local = |schedule: Schedule, homes| schedule.by_locality(Arc::new(homes)).expect("as many ranks");
        measure(criterion, &format!("{name}, by locality"), &local(schedule(), homes()));
        measure(
            criterion,
            &format!("{name}, by locality in rings"),
            &local(schedule().with_unit(4), homes()),
        );
        let even = homes().with_even_bytes(|sample| 50_000 + sample % 100_003);
        measure(criterion, &format!("{name}, by locality with even bytes"), &local(schedule(), even));
    }
}

/// The start of a run with buckets over 100 million images: the bucket of each image, the table of all, and the first
/// step.
fn buckets(criterion: &mut Criterion) {
    let sizes = BucketSizes::of_area(1 << 20, 64, 2.0).expect("sizes");
    let side = |number: u64| 64 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 53) as u32;
    let of_image = |image: u64| sizes.nearest(side(image), side(image + 1));
    criterion.bench_function("the buckets of 100 million images, on one core", |bencher| {
        bencher.iter(|| (0..IMAGES).fold(0, |sum, image| sum + u64::from(of_image(image))));
    });
    let found: Vec<u8> = (0..IMAGES).map(of_image).collect();
    let table = || BucketTable::new(found.clone(), sizes.list().len(), b"sizes");
    criterion.bench_function("the table of 100 million images", |bencher| bencher.iter(table));
    let (table, selection) = (Arc::new(table()), Arc::new(Selection::all(IMAGES)));
    criterion.bench_function("an order of 100 million images and its first step", |bencher| {
        bencher.iter(|| {
            let of = (&Fingerprint([1; 32]), 2, 3);
            let order =
                Order::by_buckets(selection.clone(), table.clone(), of, 256 * 64, true, LastBatch::Drop);
            let schedule = Schedule::new(order, 256, 3, 64, LastBatch::Drop).expect("a schedule");
            schedule.places(0).fold(0, |sum, place| sum ^ black_box(place).draw.sample)
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = places
}
criterion_group! {
    name = of_buckets;
    config = Criterion::default().sample_size(10);
    targets = buckets
}
criterion_main!(benches, of_buckets);
