//! Who decodes how much: shares of the work, tuned while it runs from the rates that are measured.
//!
//! Two decoders that work side by side end together when each gets work by its rate. The shares follow that, smoothed,
//! so that neither a hiccup nor an unusual batch tips them over.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Weight of a new measurement.
const SMOOTHING: f64 = 0.2;

/// No decoder that can serve loses all work: its rate would never be seen again.
const LEAST: f64 = 0.02;

/// Shares of images, in the whole pipeline.
#[derive(Default)]
pub struct Shares(Mutex<State>);

#[derive(Default)]
struct State {
    /// Seconds an image takes the decoding engine, the CUDA kernels, and all workers together.
    hardware: Option<f64>,
    cuda: Option<f64>,
    cpu: Option<f64>,
    /// How often a batch had to wait for a lane: only then is the GPU what limits.
    waiting: f64,
    /// Part of an image that is due to the CPU.
    due: f64,
}

impl Shares {
    /// The engine decoded `images` in `seconds`.
    pub fn hardware_took(&self, images: usize, seconds: f64) {
        blend(&mut self.lock().hardware, images, seconds);
    }

    /// CUDA kernels decoded `images` in `seconds`.
    pub fn cuda_took(&self, images: usize, seconds: f64) {
        blend(&mut self.lock().cuda, images, seconds);
    }

    /// One of `workers` decoded an image in `seconds`.
    pub fn cpu_took(&self, workers: usize, seconds: f64) {
        blend(&mut self.lock().cpu, workers, seconds);
    }

    /// A batch came to its lane and found others `waiting` before it, or none.
    pub fn batch_came(&self, waiting: bool) {
        let mut state = self.lock();
        state.waiting += SMOOTHING * (f64::from(u8::from(waiting)) - state.waiting);
    }

    /// Of `images` that both serve, how many the engine shall decode.
    pub fn for_hardware(&self, images: usize) -> usize {
        let state = self.lock();
        let share = match (state.hardware, state.cuda) {
            (Some(hardware), Some(cuda)) => (cuda / (hardware + cuda)).clamp(LEAST, 1.0 - LEAST),
            // What has not been seen yet gets enough to be seen.
            (Some(_), None) => 0.8,
            _ => 0.5,
        };
        (images as f64 * share).round() as usize
    }

    /// Whether the next image that the GPU could decode shall be the CPU's.
    pub fn cpu_turn(&self) -> bool {
        let mut state = self.lock();
        let gpu = match (state.hardware, state.cuda) {
            (Some(hardware), Some(cuda)) => hardware * cuda / (hardware + cuda),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return false,
        };
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

/// Takes `seconds` for `images` into the mean time of one.
fn blend(mean: &mut Option<f64>, images: usize, seconds: f64) {
    if images == 0 || !seconds.is_finite() || seconds <= 0.0 {
        return;
    }
    let one = seconds / images as f64;
    *mean = Some(mean.map_or(one, |mean| mean + SMOOTHING * (one - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_get_work_by_their_rates() {
        let shares = Shares::default();
        assert_eq!(shares.for_hardware(100), 50);
        for _ in 0..50 {
            shares.hardware_took(10, 0.01);
            shares.cuda_took(10, 0.03);
        }
        assert_eq!(shares.for_hardware(100), 75);
        for _ in 0..50 {
            shares.cuda_took(10, 1000.0);
        }
        assert_eq!(shares.for_hardware(100), 98, "the slower one still shows its rate");
    }

    #[test]
    fn the_cpu_helps_only_when_batches_wait_for_the_gpu() {
        let shares = Shares::default();
        let turns = |n| (0..n).filter(|_| shares.cpu_turn()).count();
        assert_eq!(turns(1000), 0, "nothing is known yet");
        shares.hardware_took(100, 0.1);
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
}
