//! The tuner: it tries one change at a time, keeps what helps, gives back what is not needed, and then rests.

use super::measure::{BUSY, Measured, MeasuredStretch, NEVER, Observation, WAITS, WhatLimits};
use super::memory::{Memory, Signature};
use super::rules::{KnobChange, Tried, percent, to_give_back, to_raise};
use super::{Decision, Knob, KnobRange, KnobValues};

/// Seconds after a change that are not measured, because what was begun before it is still on its way.
const SETTLING: f64 = 0.25;

/// The smallest gain for which a change is kept, however little noise there is.
const LEAST_GAIN: f64 = 0.03;

/// A relative standard error above which it is worth while to measure for longer.
const NOISE: f64 = 0.015;

/// A gain counts that is more than so many standard errors. With more of them hardly a gain of a tenth is found where
/// rates are noisy, and what is kept by mistake is hardly worse.
const ERRORS: f64 = 1.0;

/// A search ends after so many tries, whatever they bring.
const MOST_TRIES: u32 = 24;

/// The windows in a row that must be unlike what was before, until another search begins. Where searches find nothing,
/// it is twice as many each time, up to 256 times, unless the difference is large.
const STRANGE: u32 = 3;
const MOST_DOUBLINGS: u32 = 8;

/// The windows in a row without waiting until something is given back. Each time that it was needed after all, it is
/// four times as many.
const CALM: u32 = 6;
const MOST_CALM: u32 = CALM << 10;

/// Decides about the knobs of one pipeline.
pub struct Tuner {
    ranges: [KnobRange; 3],
    /// Which knobs stay as they are, whatever the bounds.
    fixed: [bool; 3],
    values: KnobValues,
    window: MeasuredStretch,
    /// Seconds that are not measured yet.
    settling: f64,
    phase: Phase,
    search: Search,
    memory: Memory,
    /// Windows in a row that were unlike the reference.
    strange: u32,
    /// Searches in a row that changed nothing.
    fruitless: u32,
    /// Windows in a row in which the consumer never waited, and how many there must be.
    calm: u32,
    enough_calm: u32,
    /// Whether something was not to be given back in the latest search.
    is_needed: bool,
    /// Whether fewer threads than usual work because the consumer did not need them.
    gave_threads: bool,
    limit: WhatLimits,
}

enum Phase {
    /// The next change is looked for.
    Searching,
    /// A change is being tried.
    Trying(KnobTrial),
    /// The next window is what later ones are compared with.
    Adopted,
    /// All is well as long as what is measured is like this.
    Resting(Signature),
}

struct KnobTrial {
    change: KnobChange,
    from: KnobValues,
    base: Measured,
    gives_back: bool,
}

/// What is known of a search.
#[derive(Default)]
struct Search {
    /// The values and conditions that it began with.
    began: Option<(KnobValues, Signature)>,
    /// The changes that brought nothing.
    refused: Vec<Tried>,
    tries: u32,
    fruitful: bool,
    /// Whether what was tried last was needed, so that it was not given back.
    needed: bool,
    /// Whether noise has hidden what a change brings, so that what it is compared with is measured for longer, too.
    careful: bool,
}

impl Tuner {
    /// A tuner that begins with these values.
    pub fn new(ranges: [KnobRange; 3], start: KnobValues) -> Self {
        let within = |knob: Knob| {
            let KnobRange { least, most, .. } = ranges[knob as usize];
            start.get(knob).clamp(least, most)
        };
        Self {
            ranges,
            fixed: ranges.map(KnobRange::is_fixed),
            values: KnobValues::of(within),
            window: MeasuredStretch::default(),
            settling: 0.0,
            phase: Phase::Searching,
            search: Search::default(),
            memory: Memory::default(),
            strange: 0,
            fruitless: 0,
            calm: 0,
            enough_calm: CALM,
            is_needed: false,
            gave_threads: false,
            limit: WhatLimits::Unknown,
        }
    }

    pub fn values(&self) -> KnobValues {
        self.values
    }

    pub fn range(&self, knob: Knob) -> KnobRange {
        self.ranges[knob as usize]
    }

    /// What held the pipeline up when that was measured last.
    pub fn limit(&self) -> WhatLimits {
        self.limit
    }

    /// Whether a change is being tried, which other changes on the same machine would disturb.
    pub fn is_trying(&self) -> bool {
        matches!(self.phase, Phase::Trying(_))
    }

    /// Whether nothing is looked for.
    pub fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting(_))
    }

    /// Sets all knobs, within their bounds, whatever was measured.
    pub fn force(&mut self, now: f64, values: KnobValues) -> Vec<Decision> {
        let ranges = self.ranges;
        let within = |knob: Knob| {
            let KnobRange { least, most, .. } = ranges[knob as usize];
            values.get(knob).clamp(least, most)
        };
        self.set(now, KnobValues::of(within), "a test shakes the knobs")
    }

    /// Sets the largest value that a knob may have from now on, because of `why`. A knob that is fixed stays as it is.
    pub fn bound(&mut self, now: f64, knob: Knob, most: usize, why: &str) -> Vec<Decision> {
        let range = &mut self.ranges[knob as usize];
        let most = most.max(range.least);
        if self.fixed[knob as usize] || range.most == most {
            return Vec::new();
        }
        range.most = most;
        self.memory.clear();
        if !self.is_trying() {
            self.begin_search(None);
        }
        let values = self.values;
        if values.get(knob) <= most {
            return Vec::new();
        }
        self.begin_search(None);
        self.window = MeasuredStretch::default();
        self.set(
            now,
            KnobValues::of(|of| values.get(of).min(if of == knob { most } else { usize::MAX })),
            why,
        )
    }

    /// Takes in what happened, and says what is to change at `now`, in seconds of any clock. Nothing is tried unless
    /// `may_change`, which is asked only where something would be; what is being tried is taken back then.
    pub fn observe(
        &mut self,
        now: f64,
        observation: Observation,
        mut may_change: impl FnMut() -> bool,
    ) -> Vec<Decision> {
        if self.is_trying() && !may_change() {
            return self.abandon(now);
        }
        if self.settling > 0.0 {
            self.settling -= observation.seconds;
            return Vec::new();
        }
        self.window.add(observation);
        let Some(measured) = self.window.measured() else { return Vec::new() };
        self.limit = measured.limit(self.values.get(Knob::Threads));
        let decisions = match std::mem::replace(&mut self.phase, Phase::Searching) {
            Phase::Searching if self.search.careful && measured.error > NOISE && self.window.extend() => {
                return Vec::new();
            }
            Phase::Searching => self.look_for_a_change(now, &measured, &mut may_change),
            Phase::Trying(trial) => match self.judge(now, trial, &measured) {
                TrialOutcome::MeasureOn => return Vec::new(),
                TrialOutcome::Kept => self.look_for_a_change(now, &measured, &mut may_change),
                TrialOutcome::TakenBack(decisions) => decisions,
            },
            Phase::Adopted => {
                self.phase = Phase::Resting(self.signature(&measured));
                Vec::new()
            }
            Phase::Resting(reference) => self.watch(now, reference, &measured, &mut may_change),
        };
        self.window = MeasuredStretch::default();
        decisions
    }

    fn set(&mut self, now: f64, to: KnobValues, why: &str) -> Vec<Decision> {
        let from = std::mem::replace(&mut self.values, to);
        self.settling = SETTLING;
        let of = |knob: Knob| {
            let (from, to) = (from.get(knob), to.get(knob));
            (from != to).then(|| Decision { at: now, knob, from, to, why: why.to_owned() })
        };
        Knob::ALL.into_iter().filter_map(of).collect()
    }

    fn signature(&self, measured: &Measured) -> Signature {
        Signature::of(measured, self.values.get(Knob::Threads))
    }

    fn begin_search(&mut self, began: Option<(KnobValues, Signature)>) {
        self.phase = Phase::Searching;
        self.search = Search { began, ..Search::default() };
        self.strange = 0;
        self.calm = 0;
    }

    /// Tries the next change, if there is one; else the tuner rests.
    fn look_for_a_change(
        &mut self,
        now: f64,
        measured: &Measured,
        may_change: &mut dyn FnMut() -> bool,
    ) -> Vec<Decision> {
        let values = self.values;
        let signature = self.signature(measured);
        self.search.began.get_or_insert((values, signature));
        let gives_back = measured.waiting() < NEVER;
        self.calm = if gives_back { self.calm + 1 } else { 0 };
        let changes = if measured.waiting() > WAITS {
            to_raise(measured, values, &self.ranges)
        } else if gives_back {
            to_give_back(measured, values, &self.ranges)
        } else {
            Vec::new()
        };
        let is_new = |change: &KnobChange| !self.search.refused.contains(&change.what);
        let next = changes.into_iter().find(is_new).filter(|_| self.search.tries < MOST_TRIES);
        let Some(change) = next else {
            self.rest(measured);
            return Vec::new();
        };
        // A consumer that has only just begun may be slow for other reasons.
        if gives_back && self.calm < self.enough_calm || !may_change() {
            return Vec::new();
        }
        self.search.tries += 1;
        let decisions = self.set(now, change.to, &change.why);
        self.phase = Phase::Trying(KnobTrial { change, from: values, base: *measured, gives_back });
        decisions
    }

    /// Keeps a change or takes it back.
    fn judge(&mut self, now: f64, trial: KnobTrial, measured: &Measured) -> TrialOutcome {
        let base = trial.base;
        let gain = measured.rate() / base.rate() - 1.0;
        let noise = base.error.hypot(measured.error);
        let (is_good, is_unsure) = if trial.gives_back {
            (measured.waiting() < WAITS, measured.waiting() < WAITS)
        } else {
            let clear = gain > (ERRORS * noise).max(LEAST_GAIN);
            // A consumer that waits no more takes no more either.
            let relieved = measured.waiting() < base.waiting() / 2.0 && gain > 0.0;
            // On the way back to what is usual a gain is expected, and small ones add up; a loss would have to show.
            let usual = self.is_back(&trial) && gain > -(ERRORS * noise).max(LEAST_GAIN);
            let is_good = clear || relieved || usual;
            (is_good, !is_good && noise > NOISE && gain > -noise)
        };
        if is_unsure && self.window.extend() {
            self.phase = Phase::Trying(trial);
            return TrialOutcome::MeasureOn;
        }
        let KnobTrial { change, from, gives_back, .. } = trial;
        if is_good {
            (self.search.fruitful, self.search.needed) = (true, false);
            self.gave_threads |= change.what == Tried::Down(Knob::Threads);
            // What limits now may be something else.
            self.search.refused.clear();
            if let Tried::Up(knob) = change.what {
                self.search.refused.push(Tried::Down(knob));
            }
            return TrialOutcome::Kept;
        }
        if is_unsure && !self.search.careful {
            // It is tried once more.
            self.search.careful = true;
        } else {
            self.search.refused.push(change.what);
        }
        if gives_back {
            self.search.needed = true;
            self.enough_calm = (4 * self.enough_calm).min(MOST_CALM);
        }
        // The bounds may have come down meanwhile.
        let from = self.within_bounds(from);
        let why = match gives_back {
            true => format!("with fewer the consumer waits {}", percent(measured.waiting())),
            false => format!("no gain: {measured} samples/s after {base}"),
        };
        TrialOutcome::TakenBack(self.set(now, from, &why))
    }

    /// Takes back what is being tried: it was paused for so long that another pipeline tries something now.
    fn abandon(&mut self, now: f64) -> Vec<Decision> {
        let Phase::Trying(trial) = std::mem::replace(&mut self.phase, Phase::Searching) else {
            return Vec::new();
        };
        self.window = MeasuredStretch::default();
        let from = self.within_bounds(trial.from);
        self.set(now, from, "another loader of this node tries something now: this is tried again later")
    }

    /// These values, as far as the bounds allow them.
    fn within_bounds(&self, values: KnobValues) -> KnobValues {
        KnobValues::of(|knob| values.get(knob).min(self.ranges[knob as usize].most))
    }

    /// Whether a trial raises what is less than usual, and not above that, or lowers what is more to what is usual.
    fn is_back(&self, trial: &KnobTrial) -> bool {
        Knob::ALL.into_iter().all(|knob| {
            let (from, to) = (trial.from.get(knob), trial.change.to.get(knob));
            let usual = self.ranges[knob as usize].usual;
            (from..=from.max(usual)).contains(&to) || to == usual
        })
    }

    /// Rests until something else is measured.
    fn rest(&mut self, measured: &Measured) {
        let signature = self.signature(measured);
        let Search { began, fruitful, needed, .. } = std::mem::take(&mut self.search);
        self.is_needed = needed;
        if let Some(began) = began {
            self.memory.keep(began, self.values);
        }
        self.memory.keep((self.values, signature), self.values);
        self.fruitless = if fruitful { 0 } else { (self.fruitless + 1).min(MOST_DOUBLINGS) };
        self.strange = 0;
        self.phase = Phase::Resting(signature);
    }

    /// Compares what is measured with what was when the tuner went to rest.
    fn watch(
        &mut self,
        now: f64,
        reference: Signature,
        measured: &Measured,
        may_change: &mut dyn FnMut() -> bool,
    ) -> Vec<Decision> {
        self.phase = Phase::Resting(reference);
        let (signature, values) = (self.signature(measured), self.values);
        let KnobRange { usual, most, .. } = self.ranges[Knob::Threads as usize];
        let (threads, usual) = (values.get(Knob::Threads), usual.min(most));
        let are_busy = measured.busy_threads() > BUSY * threads as f64;
        let are_missed = self.gave_threads && threads < usual && are_busy;
        if measured.waiting() > WAITS && are_missed {
            // What was given back is missed. That is no trial, and needs no leave: with the usual threads all was well.
            self.enough_calm = (4 * self.enough_calm).min(MOST_CALM);
            self.begin_search(Some((values, signature)));
            self.search.fruitful = true;
            self.gave_threads = false;
            let why = format!("the consumer waits {}, as it did not before", percent(measured.waiting()));
            let to = KnobValues::of(|knob| if knob == Knob::Threads { usual } else { values.get(knob) });
            return self.set(now, to, &why);
        }
        // When the tuner went to rest the consumer may have waited a little.
        self.calm = if measured.waiting() < NEVER { self.calm + 1 } else { 0 };
        let can_give = || !to_give_back(measured, values, &self.ranges).is_empty();
        if !self.is_needed && self.calm >= self.enough_calm && can_give() {
            let calm = self.calm;
            self.begin_search(Some((values, signature)));
            self.calm = calm;
            return Vec::new();
        }
        self.strange = if signature.is_like(reference) { 0 } else { self.strange + 1 };
        let doublings = if signature.is_far_from(reference) { 0 } else { self.fruitless };
        if self.strange < STRANGE << doublings {
            return Vec::new();
        }
        match self.memory.recall(values, signature) {
            Some(best) if best == values => self.phase = Phase::Resting(signature),
            Some(best) => {
                if may_change() {
                    return self.adopt(now, best);
                }
            }
            None => self.begin_search(Some((values, signature))),
        }
        self.strange = 0;
        Vec::new()
    }

    /// Sets what was found best before.
    fn adopt(&mut self, now: f64, best: KnobValues) -> Vec<Decision> {
        self.phase = Phase::Adopted;
        self.strange = 0;
        let best = self.within_bounds(best);
        self.set(now, best, "what is measured was met before, and this was best")
    }
}

/// What came of a trial.
enum TrialOutcome {
    /// It takes a longer measurement.
    MeasureOn,
    Kept,
    TakenBack(Vec<Decision>),
}
