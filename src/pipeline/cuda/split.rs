//! How batches are split between the decoding engine and the CUDA kernels, by rates that are measured while they work.
//!
//! This is a model without clocks and threads: it is told what was decoded between which moments, and says who decodes
//! what. The tests drive it through whole trainings in virtual time. Two decoders that work side by side end together
//! when each has as much work as the other, counted in seconds; so each batch is divided so that their accounts become
//! even. But the kernels need [`LARGE_BATCH`] images of a batch or none, and the engine as many as fill its cores. A
//! batch that is too small to be divided goes to one of them whole, and the other's turn comes when its account has
//! fallen behind by that much. Of batches of fewer than [`LARGE_BATCH`] images the kernels never get any, and the
//! engine works alone.

use crate::decode::nvjpeg::NvJpegBackend;

/// The fewest images of a call of the kernels.
const LARGE_BATCH: usize = NvJpegBackend::CudaBatched.least_of_call();

/// The number of measurements that a rate is computed from, without the quickest and the slowest quarter of them.
const REMEMBERED: usize = 8;

/// Two measurements in a row that are off by this factor mean that the rate has changed.
const FAR_OFF: f64 = 2.0;

/// The number of batches by whose time, for both decoders together, one may fall behind the other. If it fell further
/// behind, its next call would take longer than the other decoder takes for the batches beside it, and all would wait
/// for that call. The tests find this number right for the lanes and the batches in flight that there are.
const MOST_BEHIND: f64 = 7.0;

/// A decoder that got nothing is tried after this many batches, so that its rate is measured. The number doubles after
/// each trial in vain, up to `MOST_PATIENCE`.
const PATIENCE: u32 = 10;
const MOST_PATIENCE: u32 = 160;

/// Measures how long an image takes a decoder that always has work.
#[derive(Debug)]
struct DecodeRate {
    /// The latest calls, in the order in which they were done.
    calls: Vec<TimedCall>,
    /// When the call before these was done.
    former: f64,
    /// The number of measurements in a row that were far off.
    strange: usize,
}

/// A call of a decoder: images that were given to it at one moment and done at another, in seconds of one clock.
#[derive(Debug, Clone, Copy)]
struct TimedCall {
    images: usize,
    given: f64,
    done: f64,
}

impl TimedCall {
    /// The seconds that the call took, after one that was done at `former`: until then the decoder worked on that one.
    fn seconds(&self, former: f64) -> f64 {
        self.done - self.given.max(former)
    }
}

impl Default for DecodeRate {
    fn default() -> Self {
        Self { calls: Vec::new(), former: f64::MIN, strange: 0 }
    }
}

impl DecodeRate {
    /// Adds a call. Lanes report calls when all of a batch is done, so that these come in no order.
    fn saw(&mut self, call: TimedCall) {
        if call.images == 0 || !(call.done - call.given).is_finite() || call.done <= call.given {
            return;
        }
        let usual = self.of_one();
        let place = self.calls.partition_point(|known| known.done <= call.done);
        let former = place.checked_sub(1).map_or(self.former, |before| self.calls[before].done);
        let one = call.seconds(former) / call.images as f64;
        self.calls.insert(place, call);
        let is_far = usual.is_some_and(|usual| one > FAR_OFF * usual || one * FAR_OFF < usual);
        self.strange = if is_far { self.strange + 1 } else { 0 };
        let kept = if self.strange < 2 { REMEMBERED } else { std::mem::take(&mut self.strange) };
        while self.calls.len() > kept {
            self.former = self.calls.remove(0).done;
        }
    }

    /// The seconds that an image takes; `None` before the first call.
    fn of_one(&self) -> Option<f64> {
        let mut former = self.former;
        let mut calls: Vec<(f64, f64)> = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            calls.push((call.seconds(former), call.images as f64));
            former = call.done;
        }
        calls.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let outer = calls.len() / 4;
        let (mut seconds, mut images) = (0.0, 0.0);
        for call in &calls[outer..calls.len() - outer] {
            seconds += call.0;
            images += call.1;
        }
        (seconds > 0.0).then(|| seconds / images)
    }
}

/// Decides when a decoder that gets nothing is tried.
#[derive(Debug)]
struct Trial {
    /// The number of batches since it got something.
    without: u32,
    patience: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self { without: 0, patience: PATIENCE }
    }
}

impl Trial {
    /// Counts one more batch, of which the decoder `gets` something or not. Returns whether it is to be tried.
    fn is_due(&mut self, gets: bool) -> bool {
        if gets {
            *self = Self::default();
            return false;
        }
        self.without += 1;
        let due = self.without >= self.patience;
        if due {
            *self = Self { without: 0, patience: (2 * self.patience).min(MOST_PATIENCE) };
        }
        due
    }
}

/// Decides how batches are split between the engine and the kernels.
#[derive(Debug)]
pub(crate) struct Split {
    engine: DecodeRate,
    cuda: DecodeRate,
    /// The number of images that the engine works on side by side.
    cores: usize,
    /// The seconds of work by which the engine was given more than the kernels, as far as that still matters.
    ahead: f64,
    engine_trial: Trial,
    cuda_trial: Trial,
}

impl Split {
    /// Makes a split for an engine that works on `cores` images side by side. Nothing is known yet about either
    /// decoder's rate.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            engine: DecodeRate::default(),
            cuda: DecodeRate::default(),
            cores: cores.max(1),
            ahead: 0.0,
            engine_trial: Trial::default(),
            cuda_trial: Trial::default(),
        }
    }

    /// Notes that the engine was given `images` at one moment and done with them at another.
    pub(crate) fn engine_took(&mut self, images: usize, given: f64, done: f64) {
        // One more than fills its cores takes as long as if it filled them again.
        self.engine.saw(TimedCall { images: images.next_multiple_of(self.cores), given, done });
    }

    /// Notes that the kernels were given a large batch at one moment and done with it at another.
    pub(crate) fn cuda_took(&mut self, images: usize, given: f64, done: f64) {
        self.cuda.saw(TimedCall { images, given, done });
    }

    /// The number of a batch's `images`, which both can decode, that go to the kernels: none, enough for a call of
    /// theirs, or all.
    pub(crate) fn for_cuda(&mut self, images: usize) -> usize {
        if images < LARGE_BATCH {
            return 0;
        }
        // The images that are left fill the engine's cores.
        let first = LARGE_BATCH + (images - LARGE_BATCH) % self.cores;
        let divided = || (first..images).step_by(self.cores);
        let (least, most) = (divided().next().unwrap_or(images), divided().next_back().unwrap_or(0));
        let (Some(engine), Some(cuda)) = (self.engine.of_one(), self.cuda.of_one()) else {
            // A decoder whose rate is not known yet gets enough images to measure it.
            return least;
        };
        let on_engine = |images: usize| images.next_multiple_of(self.cores) as f64 * engine;
        let on_cuda = |images: usize| images as f64 * cuda;
        let longer = |cuda: &usize| {
            let engine = self.ahead.max(0.0) + on_engine(images - cuda);
            engine.max((-self.ahead).max(0.0) + on_cuda(*cuda))
        };
        let all = [0, images].into_iter().chain(divided());
        let mut chosen = all.min_by(|a, b| longer(a).total_cmp(&longer(b))).unwrap_or(0);
        if self.cuda_trial.is_due(chosen > 0) {
            chosen = least;
        } else if self.engine_trial.is_due(chosen < images) {
            chosen = most;
        }
        let most_ahead = MOST_BEHIND * images as f64 * together(engine, cuda);
        let ahead = self.ahead + on_engine(images - chosen) - on_cuda(chosen);
        self.ahead = ahead.clamp(-most_ahead, most_ahead);
        chosen
    }

    /// The seconds that an image takes all decoders of the GPU together.
    pub(crate) fn of_one(&self) -> Option<f64> {
        match (self.engine.of_one(), self.cuda.of_one()) {
            (Some(engine), Some(cuda)) => Some(together(engine, cuda)),
            (engine, cuda) => engine.or(cuda),
        }
    }
}

/// The seconds that an image takes two decoders that work side by side.
fn together(one: f64, other: f64) -> f64 {
    one * other / (one + other)
}

#[cfg(test)]
mod tests;
