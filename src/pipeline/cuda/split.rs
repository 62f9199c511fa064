//! Who decodes how much: the decoding engine or the CUDA kernels, by rates that are measured while they work.
//!
//! A model without clocks and threads: told what was decoded between which moments, it says who shall have what. The
//! tests drive it through whole trainings in virtual time. Two decoders that work side by side end together when each
//! has as much work as the other, counted in seconds; so each batch is divided as evens their accounts. But the kernels
//! want [`LARGE_BATCH`] images of a batch or none, and the engine as many as its cores: a batch that is too small to be
//! divided goes to one of them whole, the other's turn comes when its account has fallen behind by so much. From
//! batches of fewer than [`LARGE_BATCH`] images the kernels never get any, and the engine works alone.

use crate::decode::nvjpeg::NvJpegBackend;

/// The fewest images of a call of the kernels.
const LARGE_BATCH: usize = NvJpegBackend::CudaBatched.least_of_call();

/// A rate is of so many measurements, the quickest and the slowest quarter of them left out.
const REMEMBERED: usize = 8;

/// Two measurements in a row that are off by this factor mean that the rate is another one now.
const OFF: f64 = 2.0;

/// A decoder can fall behind by the time that both together need for so many batches, not more: a call that takes it
/// longer than the batches beside its own take the other one would be waited for by all. With as many lanes, and
/// batches under way, as there are, the tests find this to be right.
const BESIDE: f64 = 7.0;

/// A decoder that got nothing is tried after so many batches, that its rate may be seen; after each trial in vain it is
/// twice as many.
const PATIENCE: u32 = 10;
const MOST_PATIENCE: u32 = 160;

/// How long an image takes a decoder that has enough to do.
#[derive(Debug)]
struct Meter {
    /// By the moments at which they were done.
    calls: Vec<Call>,
    /// When the one before these was done.
    former: f64,
    /// Measurements in a row that were far off.
    strange: usize,
}

/// Images that were given to a decoder at one moment and done at another, in seconds of one clock.
#[derive(Debug, Clone, Copy)]
struct Call {
    images: usize,
    given: f64,
    done: f64,
}

impl Call {
    /// Seconds of it, behind a call that was done at `former`: until then the decoder worked on that.
    fn seconds(&self, former: f64) -> f64 {
        self.done - self.given.max(former)
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self { calls: Vec::new(), former: f64::MIN, strange: 0 }
    }
}

impl Meter {
    /// Lanes tell what they know when all of a batch is done, so that calls come in no order.
    fn saw(&mut self, call: Call) {
        if call.images == 0 || !(call.done - call.given).is_finite() || call.done <= call.given {
            return;
        }
        let usual = self.of_one();
        let place = self.calls.partition_point(|known| known.done <= call.done);
        let former = place.checked_sub(1).map_or(self.former, |before| self.calls[before].done);
        let one = call.seconds(former) / call.images as f64;
        self.calls.insert(place, call);
        let is_far = usual.is_some_and(|usual| one > OFF * usual || one * OFF < usual);
        self.strange = if is_far { self.strange + 1 } else { 0 };
        let kept = if self.strange < 2 { REMEMBERED } else { std::mem::take(&mut self.strange) };
        while self.calls.len() > kept {
            self.former = self.calls.remove(0).done;
        }
    }

    /// Seconds of an image; `None` before the first.
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

/// When a decoder that gets nothing is tried.
#[derive(Debug)]
struct Trial {
    /// Batches since it got something.
    without: u32,
    patience: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self { without: 0, patience: PATIENCE }
    }
}

impl Trial {
    /// One more batch, of which it `gets` something or not: whether it shall be tried.
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

/// How batches are split between the engine and the kernels.
#[derive(Debug)]
pub(crate) struct Split {
    engine: Meter,
    cuda: Meter,
    /// Images that the engine works on side by side.
    cores: usize,
    /// Seconds of work that the engine was given more than the kernels, as far as that still matters.
    ahead: f64,
    engine_trial: Trial,
    cuda_trial: Trial,
}

impl Split {
    /// For an engine that works on so many images side by side; nothing is known yet of either's rate.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            engine: Meter::default(),
            cuda: Meter::default(),
            cores: cores.max(1),
            ahead: 0.0,
            engine_trial: Trial::default(),
            cuda_trial: Trial::default(),
        }
    }

    /// The engine was given `images` at one moment and done with them at another.
    pub(crate) fn engine_took(&mut self, images: usize, given: f64, done: f64) {
        // One more than fills its cores takes as long as if it filled them again.
        self.engine.saw(Call { images: images.next_multiple_of(self.cores), given, done });
    }

    /// So did the kernels with a large batch.
    pub(crate) fn cuda_took(&mut self, images: usize, given: f64, done: f64) {
        self.cuda.saw(Call { images, given, done });
    }

    /// Of a batch's `images` that both decode, how many the kernels shall have: none, enough for a call of theirs, or
    /// all.
    pub(crate) fn for_cuda(&mut self, images: usize) -> usize {
        if images < LARGE_BATCH {
            return 0;
        }
        // What is left fills the engine's cores.
        let first = LARGE_BATCH + (images - LARGE_BATCH) % self.cores;
        let divided = || (first..images).step_by(self.cores);
        let (least, most) = (divided().next().unwrap_or(images), divided().next_back().unwrap_or(0));
        let (Some(engine), Some(cuda)) = (self.engine.of_one(), self.cuda.of_one()) else {
            // What has not been seen yet gets enough to be seen.
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
        let most_ahead = BESIDE * images as f64 * together(engine, cuda);
        let ahead = self.ahead + on_engine(images - chosen) - on_cuda(chosen);
        self.ahead = ahead.clamp(-most_ahead, most_ahead);
        chosen
    }

    /// Seconds of an image for all that decode on the GPU.
    pub(crate) fn of_one(&self) -> Option<f64> {
        match (self.engine.of_one(), self.cuda.of_one()) {
            (Some(engine), Some(cuda)) => Some(together(engine, cuda)),
            (engine, cuda) => engine.or(cuda),
        }
    }
}

/// Seconds of an image for two that work side by side.
fn together(one: f64, other: f64) -> f64 {
    one * other / (one + other)
}

#[cfg(test)]
mod tests;
