//! A rank's cost of computing the places of a step: its slice of a global batch or, with locality, the assignment of
//! the whole global batch.

use criterion::{Criterion, criterion_group, criterion_main};
use foreload::testing::dataset::Fingerprint;
use foreload::testing::schedule::{LastBatch, Order, SampleOwners, Schedule, Selection};
use std::hint::black_box;
use std::sync::Arc;

const SAMPLES: u64 = 10_000_000;
const RANKS_PER_NODE: u32 = 8;

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

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = places
}
criterion_main!(benches);
