//! What lanes and workers measure of each other, and what follows for who decodes an image.

use super::share::Share;
use crate::decode::nvjpeg::LARGE_BATCH;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Weight of a new measurement.
const SMOOTHING: f64 = 0.2;

/// Weight of an image when kinds of images are counted.
const KINDS: f64 = 1.0 / 256.0;

/// The CPU does not lose all work: its rate would never be seen again.
const LEAST: f64 = 0.02;

/// Shares of images, in the whole pipeline.
pub struct Shares(Mutex<State>);

struct State {
    gpu: Share,
    /// Seconds an image takes all workers together.
    cpu: Option<f64>,
    /// How often a batch had to wait for a lane: only then is the GPU what limits.
    waiting: f64,
    /// Part of an image that is due to the CPU.
    due: f64,
    /// Part of the images that are gray.
    gray: f64,
}

impl Shares {
    /// For decoding engines that work on so many images side by side.
    pub fn new(cores: usize) -> Self {
        Self(Mutex::new(State { gpu: Share::new(cores), cpu: None, waiting: 0.0, due: 0.0, gray: 0.0 }))
    }

    /// Tells what a flight's calls took.
    pub fn gpu_took(&self, tell: impl FnOnce(&mut Share)) {
        tell(&mut self.lock().gpu);
    }

    /// One of `workers` decoded an image in `seconds`.
    pub fn cpu_took(&self, workers: usize, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            let one = seconds / workers as f64;
            let cpu = &mut self.lock().cpu;
            *cpu = Some(cpu.map_or(one, |mean| mean + SMOOTHING * (one - mean)));
        }
    }

    /// A batch came to its lane and found others `waiting` before it, or none.
    pub fn batch_came(&self, waiting: bool) {
        let mut state = self.lock();
        state.waiting += SMOOTHING * (f64::from(u8::from(waiting)) - state.waiting);
    }

    /// Of a batch's `images` that both serve, how many the kernels shall decode instead of the engine.
    pub fn for_cuda(&self, images: usize) -> usize {
        self.lock().gpu.for_cuda(images)
    }

    /// Whether images of this kind are so many in batches of `batch` that the kernels' calls are large. Asked for each.
    pub fn makes_large_calls(&self, gray: bool, batch: usize) -> bool {
        let mut state = self.lock();
        state.gray += KINDS * (f64::from(u8::from(gray)) - state.gray);
        let part = if gray { state.gray } else { 1.0 - state.gray };
        part * batch as f64 >= LARGE_BATCH as f64
    }

    /// Whether the next image that the GPU could decode shall be the CPU's.
    pub fn cpu_turn(&self) -> bool {
        let mut state = self.lock();
        let Some(gpu) = state.gpu.of_one() else { return false };
        let share = state.cpu.map_or(LEAST, |cpu| gpu / (gpu + cpu)) * state.waiting;
        state.due += share;
        let turn = state.due >= 1.0;
        if turn {
            state.due -= 1.0;
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Valid after every statement: a panic elsewhere cannot have broken it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_helps_only_when_batches_wait_for_the_gpu() {
        let shares = Shares::new(1);
        let turns = |n| (0..n).filter(|_| shares.cpu_turn()).count();
        assert_eq!(turns(1000), 0, "nothing is known yet");
        shares.gpu_took(|gpu| gpu.engine_took(100, 0.0, 0.1));
        // 4 workers of 3 ms each: 0.75 ms an image beside the engine's 1 ms.
        shares.cpu_took(4, 0.003);
        assert_eq!(turns(1000), 0, "no batch waits");
        for _ in 0..100 {
            shares.batch_came(true);
        }
        let helped = turns(1000);
        assert!((565..=575).contains(&helped), "{helped}: 1 / (1 + 0.75) of 1000");
        for _ in 0..100 {
            shares.batch_came(false);
        }
        assert!(turns(1000) <= 1);
    }

    #[test]
    fn kinds_that_are_rare_make_no_large_calls() {
        let shares = Shares::new(1);
        let mut large = [0; 2];
        for image in 0..2000 {
            let gray = image % 4 == 0;
            large[usize::from(gray)] += u32::from(shares.makes_large_calls(gray, 128));
        }
        assert_eq!(large, [1500, 0], "three quarters and one quarter of 128");
        for _ in 0..2000 {
            shares.makes_large_calls(true, 128);
        }
        assert!(shares.makes_large_calls(true, 128), "all of a batch");
        assert!(!shares.makes_large_calls(true, 50));
    }
}
