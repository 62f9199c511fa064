//! The mixing decision: how many samples of a step are new, and how many are rehearsed. No I/O.

use base::error::{Error, Result};
use base::names::named;
use std::time::{Duration, Instant};

/// What happens if fewer samples wait than a batch needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenDry {
    /// The batch waits for more samples.
    #[default]
    Wait,
    /// The batch is shorter.
    Short,
    /// Rehearsed samples take the places of the missing samples.
    Rehearse,
}

named!(WhenDry: "wait" => Wait, "short" => Short, "rehearse" => Rehearse);

/// The settings of the mix.
#[derive(Debug, Clone)]
pub struct MixOptions {
    pub batch_size: u32,
    /// The smallest and the largest rehearsed share of a batch. They are equal unless the share adapts.
    pub share: (f64, f64),
    /// The lower and the upper limit of the mean number of uses per new sample, if there are limits.
    pub samples_per_insert: Option<(f64, f64)>,
    pub when_dry: WhenDry,
    /// How long a batch waits for samples until the stream counts as dry.
    pub dry_after: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MixView {
    pub waiting: u64,
    pub ended: bool,
    pub kept: u64,
    pub now: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MixDecision {
    Batch {
        new: u32,
        rehearsed: u32,
    },
    /// Decide again when more samples arrive, or at the given time at the latest (`None`: no limit).
    Wait(Option<Instant>),
    End,
}

pub(super) struct Mixer {
    options: MixOptions,
    used: u64,
    /// How many of the `used` samples were new.
    taken: u64,
    /// When the next batch began to wait for samples, if it waits.
    waits_since: Option<Instant>,
    /// Whether a batch has waited so long that the stream counts as dry.
    is_dry: bool,
}

impl MixOptions {
    /// Checks the shares and bounds.
    ///
    /// # Errors
    /// [`Error::Config`] for shares outside [0, 1) and for limits that are impossible.
    pub fn check(&self) -> Result<()> {
        let (least, greatest) = self.share;
        if !(0.0 <= least && least <= greatest && greatest < 1.0) {
            let message = format!("is {least} to {greatest}, must be at least 0 and below 1");
            return Err(Error::config("rehearsal.share", message));
        }
        if greatest > 0.0 && self.rehearsed_of(greatest) == 0 {
            let message = format!(
                "is {greatest}, which is less than half a sample of a batch of {}: it would rehearse nothing",
                self.batch_size
            );
            return Err(Error::config("rehearsal.share", message));
        }
        if self.rehearsed_of(least) == self.batch_size {
            let message =
                format!("is {least}, so a batch of {} would have no new samples: lower it", self.batch_size);
            return Err(Error::config("rehearsal.share", message));
        }
        if let Some((low, high)) = self.samples_per_insert
            && !(0.0 <= low && low <= high && high >= 1.0)
        {
            let message = format!(
                "is ({low}, {high}), must be two numbers in order, the second at least 1 (each sample is used once)"
            );
            return Err(Error::config("samples_per_insert", message));
        }
        if self.when_dry == WhenDry::Rehearse && greatest == 0.0 {
            let message =
                "is \"rehearse\", which needs a rehearsal buffer: rehearsal=foreload.Rehearsal(...)";
            return Err(Error::config("when_dry", message));
        }
        Ok(())
    }

    fn rehearsed_of(&self, share: f64) -> u32 {
        (share * f64::from(self.batch_size)).round() as u32
    }
}

impl Mixer {
    pub(super) fn new(options: MixOptions, (used, taken): (u64, u64)) -> Self {
        Self { options, used, taken, waits_since: None, is_dry: false }
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (self.used, self.taken)
    }

    pub(super) fn set_counts(&mut self, (used, taken): (u64, u64)) {
        (self.used, self.taken) = (used, taken);
    }

    pub(super) fn count(&mut self, new: u32, rehearsed: u32) {
        self.used += u64::from(new + rehearsed);
        self.taken += u64::from(new);
    }

    /// The number of rehearsed samples in a batch after the stream's end, with `kept` samples in the buffer.
    pub(super) fn rehearsed_when_dry(&self, kept: u64) -> u32 {
        match self.options.when_dry {
            WhenDry::Rehearse => u32::try_from(kept).unwrap_or(u32::MAX).min(self.options.batch_size),
            WhenDry::Wait | WhenDry::Short => 0,
        }
    }

    pub(super) fn decide(&mut self, view: MixView) -> MixDecision {
        let MixOptions { batch_size, share: (least, greatest), .. } = self.options;
        let kept = u32::try_from(view.kept).unwrap_or(u32::MAX).min(batch_size);
        let most_rehearsed = self.options.rehearsed_of(greatest).min(kept);
        let least_rehearsed = self.options.rehearsed_of(least).min(kept);
        // The share adapts to the number of waiting samples: with more new samples, fewer are rehearsed.
        let waiting = u32::try_from(view.waiting).unwrap_or(u32::MAX);
        let mut new = waiting.clamp(batch_size - most_rehearsed, batch_size - least_rehearsed);
        new = self.bounded_below(new, kept);
        if waiting < new {
            return self.dry(view, new, waiting, kept);
        }
        if !view.ended && self.exceeds(batch_size, new) {
            return self.wait(view.now);
        }
        self.waits_since = None;
        self.is_dry = false;
        MixDecision::Batch { new, rehearsed: batch_size - new }
    }

    /// Reduces the number of new samples, so that earlier samples are used often enough.
    fn bounded_below(&self, new: u32, kept: u32) -> u32 {
        let Some((low, _)) = self.options.samples_per_insert.filter(|(low, _)| *low > 0.0) else {
            return new;
        };
        let batch = self.options.batch_size;
        let uses = (self.used + u64::from(batch)) as f64 + self.slack();
        let may_take = (uses / low - self.taken as f64).clamp(0.0, f64::from(batch)) as u32;
        new.min(may_take).max(batch - kept.min(batch))
    }

    /// Whether a batch of `samples` with `new` new ones would use samples more often than allowed.
    fn exceeds(&self, samples: u32, new: u32) -> bool {
        let Some((_, high)) = self.options.samples_per_insert else { return false };
        let (used, taken) = (self.used + u64::from(samples), self.taken + u64::from(new));
        used as f64 > high * taken as f64 + self.slack()
    }

    /// The number of uses by which the limits may be exceeded, so that whole batches are possible.
    fn slack(&self) -> f64 {
        f64::from(self.options.batch_size)
    }

    /// Decides on a step for which fewer samples wait than the `new` samples that the batch needs.
    fn dry(&mut self, view: MixView, new: u32, waiting: u32, kept: u32) -> MixDecision {
        let batch = self.options.batch_size;
        let rehearse = self.options.when_dry == WhenDry::Rehearse;
        if view.ended && waiting == 0 {
            return MixDecision::End;
        }
        // A shorter batch has the same rehearsed share as a whole batch.
        let with_share = |new: u32| {
            let share = f64::from(batch - self.wanted_new(kept)) / f64::from(self.wanted_new(kept).max(1));
            ((f64::from(new) * share).round() as u32).min(kept).min(batch - new)
        };
        let rehearsed = match rehearse {
            true => kept.min(batch - waiting),
            false => with_share(waiting),
        };
        if view.ended {
            return MixDecision::Batch { new: waiting, rehearsed };
        }
        if self.options.when_dry == WhenDry::Wait || waiting + rehearsed == 0 || new == 0 {
            return self.wait(view.now);
        }
        let since = *self.waits_since.get_or_insert(view.now);
        let until = since + self.options.dry_after;
        if !self.is_dry && view.now < until {
            return MixDecision::Wait(Some(until));
        }
        self.is_dry = true;
        if waiting == 0 && !rehearse || self.exceeds(waiting + rehearsed, waiting) {
            return MixDecision::Wait(None);
        }
        MixDecision::Batch { new: waiting, rehearsed }
    }

    /// The number of new samples of a whole batch at the largest rehearsed share.
    fn wanted_new(&self, kept: u32) -> u32 {
        let batch = self.options.batch_size;
        batch - self.options.rehearsed_of(self.options.share.1).min(kept)
    }

    fn wait(&mut self, now: Instant) -> MixDecision {
        self.waits_since.get_or_insert(now);
        MixDecision::Wait(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn options() -> MixOptions {
        MixOptions {
            batch_size: 10,
            share: (0.4, 0.4),
            samples_per_insert: None,
            when_dry: WhenDry::Wait,
            dry_after: SECOND,
        }
    }

    fn view(waiting: u64, kept: u64, now: Instant) -> MixView {
        MixView { waiting, ended: false, kept, now }
    }

    fn batch(new: u32, rehearsed: u32) -> MixDecision {
        MixDecision::Batch { new, rehearsed }
    }

    #[test]
    fn the_share_is_exact_once_the_buffer_has_as_many() {
        let (mut mixer, now) = (Mixer::new(options(), (0, 0)), Instant::now());
        assert_eq!(mixer.decide(view(100, 0, now)), batch(10, 0));
        assert_eq!(mixer.decide(view(100, 3, now)), batch(7, 3));
        for kept in [4, 5, 1_000_000_000_000] {
            assert_eq!(mixer.decide(view(100, kept, now)), batch(6, 4));
        }
        assert_eq!(mixer.decide(view(5, 100, now)), MixDecision::Wait(None));
    }

    #[test]
    fn a_share_that_adapts_follows_what_waits() {
        let mut mixer = Mixer::new(MixOptions { share: (0.2, 0.7), ..options() }, (0, 0));
        let now = Instant::now();
        for (waiting, new) in [(1000, 8), (8, 8), (7, 7), (5, 5), (3, 3)] {
            assert_eq!(mixer.decide(view(waiting, 1000, now)), batch(new, 10 - new));
        }
        assert_eq!(mixer.decide(view(2, 1000, now)), MixDecision::Wait(None));
        assert_eq!(mixer.decide(view(9, 1, now)), batch(9, 1), "the buffer has one");
    }

    #[test]
    fn a_dry_stream_makes_short_batches_or_rehearses_after_a_while() {
        let now = Instant::now();
        let mut short = Mixer::new(MixOptions { when_dry: WhenDry::Short, ..options() }, (0, 0));
        assert_eq!(short.decide(view(3, 100, now)), MixDecision::Wait(Some(now + SECOND)));
        assert_eq!(short.decide(view(3, 100, now + SECOND)), batch(3, 2));
        assert_eq!(short.decide(view(0, 100, now + SECOND)), MixDecision::Wait(None), "nothing is new");
        assert_eq!(short.decide(view(1, 100, now + SECOND)), batch(1, 1), "it is dry already");
        assert_eq!(short.decide(view(6, 100, now + SECOND)), batch(6, 4));
        assert_eq!(short.decide(view(5, 100, now + SECOND)), MixDecision::Wait(Some(now + 2 * SECOND)));
        let mut rehearse = Mixer::new(MixOptions { when_dry: WhenDry::Rehearse, ..options() }, (0, 0));
        assert_eq!(rehearse.decide(view(3, 100, now)), MixDecision::Wait(Some(now + SECOND)));
        assert_eq!(rehearse.decide(view(3, 100, now + SECOND)), batch(3, 7));
        assert_eq!(rehearse.decide(view(0, 100, now + SECOND)), batch(0, 10));
        assert_eq!(rehearse.decide(view(0, 4, now + SECOND)), batch(0, 4), "there are no more");
    }

    #[test]
    fn the_end_brings_what_is_left() {
        let now = Instant::now();
        let mut mixer = Mixer::new(options(), (0, 0));
        let ended = |waiting, kept| MixView { ended: true, ..view(waiting, kept, now) };
        assert_eq!(mixer.decide(ended(7, 100)), batch(6, 4));
        assert_eq!(mixer.decide(ended(3, 100)), batch(3, 2));
        assert_eq!(mixer.decide(ended(0, 100)), MixDecision::End);
    }

    #[test]
    fn uses_stay_between_their_bounds() {
        let now = Instant::now();
        let bounds = MixOptions {
            samples_per_insert: Some((1.5, 3.0)),
            share: (0.0, 0.9),
            when_dry: WhenDry::Rehearse,
            dry_after: Duration::ZERO,
            ..options()
        };
        // No new sample arrives: samples are rehearsed until each was used three times, plus one batch.
        let mut mixer = Mixer::new(bounds.clone(), (10, 10));
        let mut uses = 10;
        while let MixDecision::Batch { new, rehearsed } = mixer.decide(view(0, 1000, now)) {
            assert_eq!(new, 0);
            mixer.count(new, rehearsed);
            uses += rehearsed;
        }
        assert_eq!(uses, 40);
        // Many samples arrive: batches rehearse until each sample is used 1.5 times.
        let mut mixer = Mixer::new(bounds, (0, 0));
        for _ in 0..300 {
            let MixDecision::Batch { new, rehearsed } = mixer.decide(view(1000, 1000, now)) else { panic!() };
            assert_eq!(new + rehearsed, 10);
            mixer.count(new, rehearsed);
        }
        let (used, taken) = mixer.counts();
        assert!((used as f64 - 1.5 * taken as f64).abs() <= 12.0, "{used} {taken}");
    }
}
