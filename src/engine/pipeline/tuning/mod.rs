//! Tunes a pipeline while it runs. The reading thread does it, by the way: whatever happens passes by there, so that no
//! further thread wakes up for it. [`crate::tune`] decides.

mod budget;
mod gate;
mod node;
mod told;

pub(super) use budget::{CpuBudget, CpuMeter};
pub(super) use gate::WorkerGate;
pub(super) use told::SharedState;

use super::stats::EpochCounters;
use super::{EpochRun, PipelineShared};
use crate::batch::BatchPool;
use crate::config;
use crate::tune::{Decision, Knob, KnobState, KnobValues, Observation, Tuner};
use base::rng::{RandomKey, RandomStream, Use};
use base::trace::{TraceLane, TunedRecord};
use gate::OpensAtTheEnd;
use node::NodePlace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the counters are looked at.
const EVERY: Duration = Duration::from_millis(100);

/// How often is looked at what else has a part in the node's processors.
const LOOK_AROUND: Duration = Duration::from_secs(2);

/// What the workers have of it.
#[derive(Clone)]
pub(super) struct WorkerBounds {
    pub gate: Arc<WorkerGate>,
    pub budget: Option<Arc<CpuBudget>>,
    pub origin: Instant,
}

/// The tuner of a pipeline, and what it turns.
pub(super) struct Tuning {
    shared: Arc<PipelineShared>,
    batches: BatchPool,
    tuner: Tuner,
    /// The values that the knobs have in this run instead of the tuner's, which learns nothing meanwhile.
    held: Option<KnobValues>,
    bounds: WorkerBounds,
    /// The workers that the processors of this process, or the budget, allow.
    allowed: usize,
    place: NodePlace,
    meter: Option<CpuMeter>,
    next_look: Instant,
    next_look_around: Instant,
    /// The counters of the run when they were last taken in, and when that was.
    seen: Option<(Instant, CountedSoFar)>,
    /// The times for which the reading thread has waited with its queue full, and for batches ahead.
    full: Duration,
    ahead: Duration,
    /// What a test changes at random.
    shaken: Option<RandomStream>,
    _opens: OpensAtTheEnd,
}

/// Counters at one moment. Times are in seconds.
#[derive(Clone, Copy)]
struct CountedSoFar {
    samples: u64,
    batches: u64,
    consumer: f64,
    busy: f64,
    full: f64,
    ahead: f64,
    read_busy: f64,
    rested: f64,
}

impl Tuning {
    pub(super) fn new(shared: Arc<PipelineShared>, batches: BatchPool) -> Self {
        let plan = &shared.config.tuning;
        let tuner = Tuner::new(plan.ranges, plan.start);
        let now = Instant::now();
        let budget = plan.cpu.map(|share| Arc::new(CpuBudget::new(share * config::cores(plan.ranks))));
        let gate = Arc::new(WorkerGate::new(tuner.values().get(Knob::Threads)));
        let _opens = OpensAtTheEnd(gate.clone());
        let tuning = Self {
            batches,
            tuner,
            held: None,
            bounds: WorkerBounds { gate, budget, origin: now },
            allowed: usize::MAX,
            place: NodePlace::default(),
            meter: None,
            next_look: now,
            next_look_around: now,
            seen: None,
            full: Duration::ZERO,
            ahead: Duration::ZERO,
            shaken: plan.shaken.map(|seed| RandomKey::new(b"shaken knobs", seed, 0, Use::Order).stream(0)),
            _opens,
            shared,
        };
        tuning.apply();
        tuning
    }

    pub(super) fn for_workers(&self) -> WorkerBounds {
        self.bounds.clone()
    }

    /// The most reads in flight.
    pub(super) fn depth(&self) -> usize {
        self.values().get(Knob::QueueDepth)
    }

    /// The values of the knobs.
    fn values(&self) -> KnobValues {
        self.held.unwrap_or_else(|| self.tuner.values())
    }

    /// Begins a run. What counts before its first batch is that this comes soon, so no fewer workers than usual go.
    pub(super) fn begin(&mut self, lane: &mut TraceLane) {
        let now = Instant::now();
        self.seen = None;
        self.held = self.shared.tuned.held().take();
        self.apply();
        self.next_look_around = now;
        self.look_around(now, lane);
        let usual = self.tuner.range(Knob::Threads).usual;
        let at_first = if self.held.is_some() { 0 } else { usual.min(self.allowed) };
        self.bounds.gate.open_for(self.workers().max(at_first));
        let budget = self.bounds.budget.clone();
        self.meter.get_or_insert_with(|| CpuMeter::new(budget, self.bounds.origin));
    }

    /// Ends a run, after which others may change things and have the processors.
    pub(super) fn end(&mut self) {
        self.place.end_turn();
        self.place.leave();
        if self.held.take().is_some() {
            self.apply();
        }
    }

    /// Notes that the reading thread has waited so long, with its queue full or for batches ahead.
    pub(super) fn waited(&mut self, passed: Duration, with_queue_full: bool, for_batches: bool) {
        if with_queue_full {
            self.full += passed;
        } else if for_batches {
            self.ahead += passed;
        }
    }

    /// Looks at what happened up to `now`, if it is time. Returns whether anything was changed.
    pub(super) fn look(&mut self, run: &EpochRun, now: Instant, lane: &mut TraceLane) -> bool {
        if let Some(random) = &mut self.shaken {
            let (at, ranges) =
                (self.bounds.origin.elapsed().as_secs_f64(), &self.shared.config.tuning.ranges);
            let mut most = ranges.map(|range| random.below(range.most as u64) as usize + 1).into_iter();
            let decisions = self.tuner.force(at, KnobValues::of(|_| most.next().unwrap_or(1)));
            return self.carry_out(now, decisions, lane);
        }
        if now < self.next_look {
            return false;
        }
        self.next_look = now + EVERY;
        if let Some(meter) = &mut self.meter {
            // The reading thread never rests: everything waits for it.
            meter.note();
        }
        let changed = self.look_around(now, lane);
        let counted = self.counted(&run.counters);
        if counted.batches == 0 {
            return changed;
        }
        self.bounds.gate.open_for(self.workers());
        let Some((since, before)) = self.seen else {
            self.seen = Some((now, counted));
            return changed;
        };
        // How long a consumer waits is known when it has waited.
        if counted.batches == before.batches && counted.consumer == before.consumer {
            return changed;
        }
        self.seen = Some((now, counted));
        if self.held.is_some() || !self.shared.config.tuning.on {
            return changed;
        }
        let observation = counted.since(&before, (now - since).as_secs_f64());
        let at = self.at(now);
        let Self { tuner, place, shared, .. } = self;
        let unavailable = |why: &str| shared.notify_alone(why);
        let decisions = tuner.observe(at, observation, || place.take_turn(&unavailable));
        if !self.tuner.is_trying() {
            self.place.end_turn();
        }
        self.carry_out(now, decisions, lane) || changed
    }

    fn at(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.bounds.origin).as_secs_f64()
    }

    /// The number of workers that may work.
    fn workers(&self) -> usize {
        self.values().get(Knob::Threads).min(self.allowed)
    }

    /// Looks how many processors there are, and who shares a budget. Returns whether that changed anything.
    fn look_around(&mut self, now: Instant, lane: &mut TraceLane) -> bool {
        if now < self.next_look_around {
            return false;
        }
        self.next_look_around = now + LOOK_AROUND;
        let plan = &self.shared.config.tuning;
        let (cores, why) = match (plan.cpu, &self.bounds.budget) {
            (Some(share), Some(budget)) => {
                let sharing = self.place.share(&|why: &str| self.shared.notify_alone(why));
                let cores = share * config::cores(plan.ranks.max(sharing));
                budget.set(cores);
                (cores, "the share of the processors that cpu gives")
            }
            _ if !plan.on => return false,
            _ => (config::cores(1), "the processors that this process may use"),
        };
        let allowed = (cores.ceil() as usize).max(1);
        if plan.cpu.is_some() {
            self.allowed = allowed;
        }
        let at = self.at(now);
        let most = plan.most(Knob::Threads).min(allowed);
        let decisions = self.tuner.bound(at, Knob::Threads, most, why);
        self.carry_out(now, decisions, lane)
    }

    fn carry_out(&mut self, now: Instant, decisions: Vec<Decision>, lane: &mut TraceLane) -> bool {
        let any = !decisions.is_empty();
        for decision in &decisions {
            let Decision { knob, from, to, why, .. } = decision;
            let (from, to) = (*from as u64, *to as u64);
            lane.tuned(now, TunedRecord { knob: knob.name().into(), from, to, why: why.clone() });
        }
        self.apply();
        let mut state = self.shared.tuned.state();
        decisions.into_iter().for_each(|decision| state.log.add(decision));
        any
    }

    /// Turns the knobs, and says so.
    fn apply(&self) {
        let values = self.values();
        self.bounds.gate.open_for(self.workers());
        self.batches.set_ahead(values.get(Knob::Prefetch));
        let plan = &self.shared.config.tuning;
        let knobs = Knob::ALL.map(|knob| {
            let value = if knob == Knob::Threads { self.workers() } else { values.get(knob) };
            KnobState { knob, value, range: self.tuner.range(knob) }
        });
        let mut state = self.shared.tuned.state();
        state.on = plan.on;
        state.resting = self.tuner.is_resting();
        state.limit = self.tuner.limit();
        state.knobs = knobs.to_vec();
        state.cores = self.bounds.budget.as_ref().map(|budget| budget.cores());
    }

    fn counted(&self, counters: &EpochCounters) -> CountedSoFar {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 * 1e-9;
        CountedSoFar {
            samples: counters.finished.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            consumer: seconds(&counters.consumer),
            busy: seconds(&counters.decode) + seconds(&counters.augment),
            full: self.full.as_secs_f64(),
            ahead: self.ahead.as_secs_f64(),
            read_busy: seconds(&counters.read_busy),
            rested: self.bounds.budget.as_ref().map_or(0.0, |budget| budget.rested().as_secs_f64()),
        }
    }
}

impl CountedSoFar {
    /// What was counted in the `seconds` since the counters were `before`.
    fn since(&self, before: &Self, seconds: f64) -> Observation {
        Observation {
            seconds,
            samples: self.samples - before.samples,
            batches: self.batches - before.batches,
            // A wait that ends now may have begun before.
            consumer_waited: (self.consumer - before.consumer).min(seconds),
            workers_busy: self.busy - before.busy,
            read_full: self.full - before.full,
            read_ahead: self.ahead - before.ahead,
            read_busy: self.read_busy - before.read_busy,
            rested: self.rested - before.rested,
        }
    }
}
