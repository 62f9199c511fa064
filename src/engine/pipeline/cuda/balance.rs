//! Divides images between the CPU and the GPU's decoders, by the times that lanes and workers measure.
//!
//! On the GPU the decoding engine gets all images that it can decode, and nvJPEG's kernels get the others. The engine's
//! images are not divided between engine and kernels, because the two slow each other down. On an H200, the engine
//! alone decodes 15,900 images/s. When the kernels got a third of these images, engine and kernels together decoded
//! 2,800 images/s (`docs/gpu.md`), and a training step at the same time took 2.9 times as long.

use super::rate::{DecodeRate, TimedCall};
use base::locks::lock;
use pixels::decode::nvjpeg::NvJpegBackend;
use std::sync::Mutex;

const SMOOTHING: f64 = 0.2;

/// Minimum weight of a new image in the moving averages `BalanceState::parts`. The first 256 images have larger
/// weights.
const MIN_KIND_WEIGHT: f64 = 1.0 / 256.0;

/// The CPU's share of the images while its rate is unknown. It must not be 0: the rate is measured with these images.
const UNMEASURED_CPU_SHARE: f64 = 0.02;

// The state is valid after every statement, so a panic elsewhere cannot break it.
pub(crate) struct LoadBalancer(Mutex<BalanceState>);

struct BalanceState {
    gpu: DecodeRate,
    /// The CPU's mean time per image in seconds, with all workers decoding; `None` before the first measurement.
    cpu: Option<f64>,
    /// The fraction of batches that had to wait for a lane, from 0 to 1. If no batches wait, the GPU is not the
    /// bottleneck, so the CPU need not help.
    waiting: f64,
    /// The sum of the CPU's share over the images since the CPU got its last image. When it reaches 1, the CPU gets the
    /// next image.
    due: f64,
    counted: f64,
    /// The fractions of all images that are left for large calls of the kernels: colour images first, then gray images.
    parts: [f64; 2],
}

/// The images of one kind (colour or gray) in a batch, which the kernels can decode in one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelCall {
    pub gray: bool,
    pub batch: usize,
}

impl KernelCall {
    /// Returns whether the call is large enough in nearly all batches (within two standard deviations), if it gets the
    /// fraction `part` of all images.
    fn is_large(self, part: f64) -> bool {
        let images = part * self.batch as f64;
        let least = images - 2.0 * (images * (1.0 - part)).max(0.0).sqrt();
        NvJpegBackend::CudaBatched.accepts_call_of((least + 0.5) as usize)
    }
}

impl BalanceState {
    /// Returns the weight of the next image in the moving averages `parts`. Over the first 256 images, these weights
    /// give the plain mean.
    fn weight(&self) -> f64 {
        MIN_KIND_WEIGHT.max(1.0 / (self.counted + 1.0))
    }
}

impl LoadBalancer {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BalanceState {
            gpu: DecodeRate::default(),
            cpu: None,
            waiting: 0.0,
            due: 0.0,
            counted: 0.0,
            parts: [0.0; 2],
        }))
    }

    pub(crate) fn record_gpu_call(&self, call: TimedCall) {
        lock(&self.0).gpu.record(call);
    }

    pub(crate) fn record_cpu_image(&self, workers: usize, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            let one = seconds / workers as f64;
            let cpu = &mut lock(&self.0).cpu;
            *cpu = Some(cpu.map_or(one, |mean| mean + SMOOTHING * (one - mean)));
        }
    }

    pub(crate) fn record_batch(&self, waiting: bool) {
        let mut state = lock(&self.0);
        state.waiting += SMOOTHING * (f64::from(u8::from(waiting)) - state.waiting);
    }

    /// Counts an image, even if the CPU gets it. If a call of the kernels may decode the image, `left_for` is that
    /// call.
    pub(crate) fn count(&self, left_for: Option<KernelCall>) {
        let mut state = lock(&self.0);
        let weight = state.weight();
        state.counted += 1.0;
        for (gray, part) in [false, true].into_iter().zip(&mut state.parts) {
            let is_one = left_for.is_some_and(|call| call.gray == gray);
            *part += weight * (f64::from(u8::from(is_one)) - *part);
        }
    }

    pub(crate) fn is_large(&self, call: KernelCall) -> bool {
        call.is_large(lock(&self.0).parts[usize::from(call.gray)])
    }

    /// Returns whether at least half of all images are left for this call. If the call is still too small, larger
    /// batches would help.
    pub(crate) fn is_wanted(&self, call: KernelCall) -> bool {
        let state = lock(&self.0);
        state.counted * MIN_KIND_WEIGHT >= 1.0 && state.parts[usize::from(call.gray)] >= 0.5
    }

    /// Returns whether the CPU decodes the next image, although the GPU could. The CPU never takes an image that `call`
    /// needs to stay large.
    pub(crate) fn take_for_cpu(&self, call: Option<KernelCall>) -> bool {
        let mut state = lock(&self.0);
        let Some(gpu) = state.gpu.seconds_per_image() else { return false };
        let share = state.cpu.map_or(UNMEASURED_CPU_SHARE, |cpu| gpu / (gpu + cpu)) * state.waiting;
        state.due += share;
        if state.due < 1.0 {
            return false;
        }
        let without = |call: KernelCall| state.parts[usize::from(call.gray)] * (1.0 - state.weight());
        let turn = call.is_none_or(|call| call.is_large(without(call)));
        // If the call can spare no image, the CPU takes the next image instead. At most one such image is owed.
        state.due = if turn { state.due - 1.0 } else { 1.0 };
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_helps_only_when_batches_wait_for_the_gpu() {
        let balancer = LoadBalancer::new();
        let turns = |n| (0..n).filter(|_| balancer.take_for_cpu(None)).count();
        assert_eq!(turns(1000), 0, "nothing is known yet");
        balancer.record_gpu_call(TimedCall { images: 100, given: 0.0, done: 0.1 });
        // 4 workers at 3 ms per image together take 0.75 ms per image; the engine takes 1 ms per image.
        balancer.record_cpu_image(4, 0.003);
        assert_eq!(turns(1000), 0, "no batch waits");
        for _ in 0..100 {
            balancer.record_batch(true);
        }
        let helped = turns(1000);
        assert!((565..=575).contains(&helped), "{helped}: 1 / (1 + 0.75) of 1000");
        for _ in 0..100 {
            balancer.record_batch(false);
        }
        assert!(turns(1000) <= 1);
    }

    const CALL: KernelCall = KernelCall { gray: false, batch: 64 };

    #[test]
    fn kinds_that_are_rare_make_no_large_calls() {
        let balancer = LoadBalancer::new();
        let mut large = [0; 2];
        for image in 0..2000 {
            let call = KernelCall { gray: image % 4 == 3, batch: 128 };
            balancer.count(Some(call));
            large[usize::from(call.gray)] += u32::from(balancer.is_large(call));
        }
        assert_eq!(large, [1500, 0], "three quarters and one quarter of 128");
        for _ in 0..2000 {
            balancer.count(Some(KernelCall { gray: true, batch: 128 }));
        }
        assert!(balancer.is_large(KernelCall { gray: true, batch: 128 }), "all of a batch");
        assert!(
            balancer.is_large(KernelCall { gray: true, batch: 51 })
                && !balancer.is_large(KernelCall { gray: true, batch: 50 })
        );
    }

    #[test]
    fn a_call_has_no_images_but_those_left_for_it() {
        for (left, of, batch, is_large) in [
            (64, 64, 64, true),
            (64, 64, 40, false),
            // The other images of the batch are progressive images, PNGs, or images for the decoding engine.
            (40, 64, 64, false),
            (4, 64, 64, false),
            (40, 64, 128, true),
            // With 52 images on average, every third batch has fewer than 51.
            (52, 64, 64, false),
        ] {
            let balancer = LoadBalancer::new();
            let call = KernelCall { batch, ..CALL };
            (0..64 * 50).for_each(|image| balancer.count((image * 23 % of < left).then_some(call)));
            assert_eq!(balancer.is_large(call), is_large, "{left} of {of}, batches of {batch}");
            assert_eq!(balancer.is_wanted(call), 2 * left >= of, "{left} of {of}");
        }
    }

    #[test]
    fn the_cpu_takes_no_more_than_a_large_call_can_spare() {
        let balancer = LoadBalancer::new();
        balancer.record_gpu_call(TimedCall { images: 100, given: 0.0, done: 0.1 });
        balancer.record_cpu_image(4, 0.001);
        (0..100).for_each(|_| balancer.record_batch(true));
        let (mut taken, mut least) = (0, 64);
        for batch in 0..100 {
            let mut left = 0;
            for _ in 0..CALL.batch {
                let turn = balancer.take_for_cpu(Some(CALL));
                balancer.count((!turn).then_some(CALL));
                left += u32::from(!turn);
                taken += u32::from(turn);
                assert!(balancer.is_large(CALL), "batch {batch}");
            }
            least = least.min(left);
        }
        assert!(NvJpegBackend::CudaBatched.accepts_call_of(least as usize), "a call of {least}");
        assert!(taken > 300, "the CPU helps with {taken} of 6400");
        let turns = (0..1000).filter(|_| balancer.take_for_cpu(None)).count();
        assert!(turns > 700, "{turns} of 1000");
    }
}
