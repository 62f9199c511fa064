//! What is tuned changes no byte, and can be held.

use crate::common::{Dataset, epoch_bytes};
use crate::pipeline::options;
use foreload::testing::config::LoaderOptions;
use foreload::testing::io::IoChoice;

/// Threads come and go, reads in flight and batches ahead change at random while epochs run.
#[test]
fn same_bytes_whatever_the_tuner_does() {
    let dataset = Dataset::folder(61);
    let free = LoaderOptions { threads: None, ..options() };
    let fixed = LoaderOptions { tune: false, ..free.clone() };
    let still = dataset.pipeline(&fixed);
    let reference = epoch_bytes(&still, 3);
    assert_eq!(still.changes(), 0);
    for (seed, io) in [(1, IoChoice::Auto), (2, IoChoice::Pread), (3, IoChoice::Auto), (4, IoChoice::Pread)] {
        let pipeline = dataset.pipeline(&LoaderOptions { io, ..free.clone() }).shaken(seed);
        for _ in 0..3 {
            assert!(epoch_bytes(&pipeline, 3) == reference, "seed {seed}, {io:?}");
        }
        assert!(pipeline.changes() > 10, "seed {seed}: {}", pipeline.changes());
    }
}

#[test]
fn what_is_tuned_is_held_for_an_epoch() {
    let dataset = Dataset::folder(61);
    let tuned = LoaderOptions { threads: None, ..options() };
    let pipeline = dataset.pipeline(&tuned);
    let knobs = |held: &str| {
        pipeline.hold(held, "turns").unwrap();
        let mut epoch = pipeline.epoch(3, 0, 1, 0).unwrap();
        epoch.next_batch().unwrap().unwrap();
        let knobs = pipeline.knobs();
        while epoch.next_batch().unwrap().is_some() {}
        knobs
    };
    let usual = knobs("");
    // With one batch ahead the epoch goes on while they are looked at.
    let held = knobs("threads=1,queue_depth=3,prefetch=1");
    assert_eq!(held, [("threads", 1), ("queue_depth", 3), ("prefetch", 1)]);
    assert_eq!(knobs("prefetch=1"), [usual[0], usual[1], ("prefetch", 1)]);
    assert_eq!(knobs(""), usual);
    assert_eq!(knobs("usual"), usual);
    let refused = |held: &str| pipeline.hold(held, "turns").unwrap_err().to_string();
    for (held, why) in [("speed=1", "threads, queue_depth"), ("queue_depth=1000", "must be 1 to 256 here")] {
        assert!(refused(held).contains("turns") && refused(held).contains(why), "{}", refused(held));
    }
    let still = dataset.pipeline(&LoaderOptions { tune: false, ..tuned });
    assert!(still.hold("usual", "turns").unwrap_err().to_string().contains("nothing is tuned"));
}

/// What a budget leaves is enough for all batches, and threads that rest are woken for the end.
#[test]
fn same_bytes_within_a_budget() {
    let dataset = Dataset::folder(61);
    let reference = epoch_bytes(&dataset.pipeline(&options()), 3);
    for tune in [true, false] {
        let asked = LoaderOptions { cpu: Some(0.01), threads: None, tune, ..options() };
        assert!(epoch_bytes(&dataset.pipeline(&asked), 3) == reference);
    }
}
