//! Trainings in virtual time, with three lanes, with an engine and kernels that each do one thing at a time, and with a
//! consumer that is never slower than the GPU.

use super::*;
use crate::config::LANES;
use crate::rng::{RandomKey, RandomStream, Use};

/// Batches that may be under way or waiting for one before them.
const UNDER_WAY: usize = LANES + 2;
/// Batches of a training, and how many of them do not count.
const BATCHES: usize = 200;
const WARM: usize = 50;
const CORES: usize = 7;

/// A GPU and a loader's batches.
#[derive(Clone, Copy)]
struct SimulatedGpu {
    images: usize,
    engine: f64,
    cuda: f64,
}

/// What a lane knows when its batch is done.
struct Landed {
    at: f64,
    engine: TimedCall,
    cuda: TimedCall,
}

impl SimulatedGpu {
    /// Images a second behind the first batches, when `for_cuda` divides batch after batch, told what has landed
    /// before. Each time that a decoder takes is `jitter` times what it should be.
    fn run(
        &self,
        mut for_cuda: impl FnMut(usize, &[Landed]) -> usize,
        mut jitter: impl FnMut() -> f64,
    ) -> f64 {
        let (mut lanes, mut engine_free, mut cuda_free) = ([0.0f64; LANES], 0.0f64, 0.0f64);
        let (mut through, mut flying): (Vec<f64>, Vec<Landed>) = (Vec::new(), Vec::new());
        for batch in 0..BATCHES {
            let lane = lanes.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            let now = lane.max(batch.checked_sub(UNDER_WAY).map_or(0.0, |before| through[before]));
            flying.sort_by(|a, b| b.at.total_cmp(&a.at));
            let mut landed = flying.split_off(flying.partition_point(|flying| flying.at > now));
            landed.reverse();
            let on_cuda = for_cuda(batch, &landed);
            let on_engine = self.images - on_cuda;
            let mut work = |free: &mut f64, images: usize, slots: usize, seconds: f64| {
                let done = if images > 0 { free.max(now) + slots as f64 * seconds * jitter() } else { now };
                *free = free.max(done);
                TimedCall { images, given: now, done }
            };
            let slots = on_engine.next_multiple_of(CORES);
            let engine = work(&mut engine_free, on_engine, slots, self.engine);
            let cuda = work(&mut cuda_free, on_cuda, on_cuda, self.cuda);
            *lane = engine.done.max(cuda.done);
            through.push(lane.max(through.last().copied().unwrap_or(0.0)));
            flying.push(Landed { at: *lane, engine, cuda });
        }
        (BATCHES - WARM) as f64 * self.images as f64 / (through[BATCHES - 1] - through[WARM - 1])
    }

    /// Images a second by the best of all plans by which each batch, or every so many-th, is divided in one way and the
    /// others go to one decoder whole.
    fn best(&self) -> f64 {
        let divided = (LARGE_BATCH..self.images).filter(|cuda| (self.images - cuda).is_multiple_of(CORES));
        let ways: Vec<usize> = [0].into_iter().chain(divided).chain([self.images]).collect();
        let mut best: f64 = 0.0;
        for &others in &[0, self.images] {
            for (every, &cuda) in (1..=12).flat_map(|every| ways.iter().map(move |cuda| (every, cuda))) {
                if self.images >= LARGE_BATCH || cuda + others == 0 {
                    let plan =
                        |batch: usize, _: &[Landed]| if batch.is_multiple_of(every) { cuda } else { others };
                    best = best.max(self.run(plan, || 1.0));
                }
            }
        }
        best
    }

    /// Images a second with a split that begins to learn from what `split` knows.
    fn with(&self, mut split: Split, jitter: impl FnMut() -> f64) -> f64 {
        let divide = |_, landed: &[Landed]| {
            for Landed { engine, cuda, .. } in landed {
                split.engine_took(engine.images, engine.given, engine.done);
                split.cuda_took(cuda.images, cuda.given, cuda.done);
            }
            let cuda = split.for_cuda(self.images);
            assert!(cuda == 0 || cuda >= LARGE_BATCH, "{cuda} images for the kernels");
            cuda
        };
        self.run(divide, jitter)
    }

    /// A split that has seen rates which are so many times the real ones.
    fn misled(&self, engine: f64, cuda: f64) -> Split {
        let mut split = Split::new(CORES);
        for call in 0..REMEMBERED {
            let done = 100.0 * (call as f64 - REMEMBERED as f64);
            split.engine_took(CORES, done - CORES as f64 * self.engine * engine, done);
            split.cuda_took(LARGE_BATCH, done - LARGE_BATCH as f64 * self.cuda * cuda, done);
        }
        split
    }
}

const RATIOS: [f64; 11] = [0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0];

#[test]
fn from_any_start_batches_are_divided_nearly_as_well_as_can_be() {
    for images in [32, 64, 128, 256] {
        for ratio in RATIOS {
            let machine = SimulatedGpu { images, engine: 1e-4, cuda: 1e-4 * ratio };
            let best = machine.best();
            let starts = [(1.0, 1.0), (100.0, 1.0), (0.01, 1.0), (1.0, 100.0), (1.0, 0.01)];
            let starts = starts.map(|(engine, cuda)| machine.misled(engine, cuda));
            for (start, split) in starts.into_iter().chain([Split::new(CORES)]).enumerate() {
                let part = machine.with(split, || 1.0) / best;
                assert!(part >= 0.95, "batches of {images}, {ratio}, start {start}: {part:.3} of the best");
            }
        }
    }
}

#[test]
fn times_that_vary_do_not_tip_the_shares_over() {
    for (images, ratio) in [64, 128, 256].into_iter().flat_map(|images| RATIOS.map(|ratio| (images, ratio))) {
        let machine = SimulatedGpu { images, engine: 1e-4, cuda: 1e-4 * ratio };
        let mut random: RandomStream =
            RandomKey::new(b"share", 0, images as u64, Use::Augment).stream((ratio * 100.0) as u64);
        // Up to a tenth more or less, and once in a hundred times a hiccup.
        let jitter = || {
            let tenth = 0.9 + 0.001 * random.below(201) as f64;
            if random.below(100) == 0 { 5.0 * tenth } else { tenth }
        };
        let part = machine.with(Split::new(CORES), jitter) / machine.best();
        assert!(part >= 0.75, "batches of {images}, {ratio}: {part:.3} of the best without hiccups");
    }
}

#[test]
fn small_batches_are_the_engines_alone() {
    let mut split = Split::new(CORES);
    for batch in 0..1000 {
        split.engine_took(32, f64::from(batch), f64::from(batch) + 0.9);
        assert_eq!(split.for_cuda(32), 0);
    }
    assert_eq!(split.for_cuda(LARGE_BATCH - 1), 0);
    assert!(split.for_cuda(LARGE_BATCH) >= LARGE_BATCH, "not seen yet");
}

#[test]
fn waits_behind_other_lanes_are_no_work() {
    let mut meter = DecodeRate::default();
    // Three lanes give at once, each again when it is done; the calls are told in no order.
    let calls: Vec<TimedCall> = (0..30)
        .map(|call| TimedCall { images: 10, given: f64::from((call - 2).max(0)), done: f64::from(call + 1) })
        .collect();
    for three in calls.chunks(3) {
        for call in three.iter().rev() {
            meter.saw(*call);
        }
    }
    let one = meter.of_one().unwrap();
    assert!((one - 0.1).abs() < 1e-9, "{one}");
    meter.saw(TimedCall { images: 10, given: 30.0, done: 130.0 });
    assert!((meter.of_one().unwrap() - 0.1).abs() < 1e-9, "a hiccup");
    meter.saw(TimedCall { images: 10, given: 130.0, done: 230.0 });
    assert!((meter.of_one().unwrap() - 10.0).abs() < 1e-9, "another rate");
}
