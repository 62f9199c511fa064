//! A simulated pipeline in virtual time, and what the tuner makes of it.

use super::{Decision, Knob, KnobRange, KnobValues, Observation, Tuner};
use base::rng::{RandomKey, RandomStream, Use};

/// Seconds between two observations.
const TICK: f64 = 0.1;

/// What everything costs. Times are in seconds.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// A decoding thread's work for a sample.
    work: f64,
    /// The processors that decoding threads have.
    cores: f64,
    /// A read takes so long.
    latency: f64,
    /// Storage gives no more reads a second.
    reads: f64,
    /// The reads in flight above which storage becomes slower, in proportion.
    crowd: f64,
    /// The share of the rate that each halving or doubling of the reads in flight, away from what is usual, takes away.
    strays: f64,
    /// The consumer is busy so long for a sample.
    consume: f64,
    /// The relative standard deviation of each observed rate.
    noise: f64,
}

const FAST: Costs = Costs {
    work: 5e-4,
    cores: 4.0,
    latency: 1e-4,
    reads: 1e9,
    crowd: 1e9,
    strays: 0.0,
    consume: 0.0,
    noise: 0.0,
};

const BATCH: f64 = 64.0;

const RANGES: [KnobRange; 3] = [
    KnobRange { least: 1, usual: 4, most: 4 },
    KnobRange { least: 1, usual: 32, most: 256 },
    KnobRange { least: 1, usual: 4, most: 8 },
];

impl Costs {
    /// Samples a second that the loader could give, by each of its parts.
    fn parts(&self, values: KnobValues) -> [f64; 3] {
        let get = |knob| values.get(knob) as f64;
        let decoded = get(Knob::Threads).min(self.cores) / self.work;
        let service = |in_flight: f64| {
            let slower = (in_flight / self.crowd).max(1.0);
            (in_flight / self.latency / slower).min(self.reads)
        };
        let ahead = get(Knob::Prefetch) * BATCH / 2.0;
        [decoded, service(get(Knob::QueueDepth)), service(ahead)]
    }

    fn rate(&self, values: KnobValues) -> f64 {
        let consumed = if self.consume > 0.0 { 1.0 / self.consume } else { f64::MAX };
        let usual = RANGES[Knob::QueueDepth as usize].usual as f64;
        let away = (usual / values.get(Knob::QueueDepth) as f64).log2().abs();
        (1.0 - self.strays * away) * self.parts(values).into_iter().fold(consumed, f64::min)
    }

    /// The best rate that any values have.
    fn best(&self, ranges: &[KnobRange; 3]) -> f64 {
        let range = |knob: Knob| 1..=ranges[knob as usize].most;
        let mut best: f64 = 0.0;
        for threads in range(Knob::Threads) {
            for depth in range(Knob::QueueDepth) {
                for ahead in range(Knob::Prefetch) {
                    let values = [threads, depth, ahead];
                    best = best.max(self.rate(KnobValues::of(|knob| values[knob as usize])));
                }
            }
        }
        best
    }

    fn observe(&self, values: KnobValues, random: &mut RandomStream) -> Observation {
        let [decoded, full, ahead] = self.parts(values);
        // The sum of twelve is nearly normal.
        let normal: f64 =
            (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
        let rate = (self.rate(values) * (1.0 + self.noise * normal)).max(0.0);
        let samples = rate * TICK;
        let read = full.min(ahead);
        let waits_for_storage = if read < 1.02 * decoded { 0.9 * TICK } else { 0.0 };
        Observation {
            seconds: TICK,
            samples: samples.round() as u64,
            batches: 1,
            consumer_waited: (TICK * (1.0 - self.rate(values) * self.consume)).max(0.0),
            workers_busy: (samples * self.work).min(values.get(Knob::Threads) as f64 * TICK),
            read_full: if full <= ahead { waits_for_storage } else { 0.0 },
            read_ahead: if full > ahead { waits_for_storage } else { 0.9 * TICK - waits_for_storage },
            read_busy: 0.01,
            rested: 0.0,
        }
    }
}

/// A tuner, its clock, and what it decided.
struct Run {
    tuner: Tuner,
    now: f64,
    random: RandomStream,
    decisions: Vec<Decision>,
}

impl Run {
    fn new(start: [usize; 3], seed: u64) -> Self {
        let tuner = Tuner::new(RANGES, KnobValues::of(|knob| start[knob as usize]));
        let random = RandomKey::new(b"tuner", seed, 0, Use::Order).stream(0);
        Self { tuner, now: 0.0, random, decisions: Vec::new() }
    }

    /// Goes on for so long, and returns the number of changes meanwhile.
    fn on(&mut self, seconds: f64, costs: &Costs) -> usize {
        let (until, before) = (self.now + seconds, self.decisions.len());
        while self.now < until {
            self.now += TICK;
            let observation = costs.observe(self.tuner.values(), &mut self.random);
            self.decisions.extend(self.tuner.observe(self.now, observation, || true));
        }
        self.decisions.len() - before
    }

    /// The share of the best rate that the current values have.
    fn share(&self, costs: &Costs) -> f64 {
        costs.rate(self.tuner.values()) / costs.best(&RANGES)
    }
}

/// Situations in which different things limit.
fn situations() -> Vec<(&'static str, Costs)> {
    vec![
        ("decoding", FAST),
        ("decoding, heavy", Costs { work: 5e-3, ..FAST }),
        ("decoding beside a hog", Costs { cores: 2.5, ..FAST }),
        ("one core", Costs { cores: 1.0, ..FAST }),
        ("drive", Costs { latency: 1e-3, ..FAST }),
        ("drive that could be a little slower", Costs { latency: 1.7e-3, ..FAST }),
        ("parallel file system", Costs { latency: 0.01, ..FAST }),
        ("parallel file system, heavy", Costs { latency: 0.01, work: 5e-3, ..FAST }),
        ("object store", Costs { latency: 0.04, ..FAST }),
        ("bandwidth", Costs { latency: 0.01, reads: 1500.0, ..FAST }),
        ("a crowd is slow", Costs { latency: 0.01, crowd: 24.0, ..FAST }),
        ("few reads come in bursts, many need memory", Costs { strays: 0.025, ..FAST }),
        ("slow consumer", Costs { consume: 1e-3, ..FAST }),
        ("slow consumer, slow storage", Costs { consume: 1e-3, latency: 0.02, ..FAST }),
        ("a consumer as fast as decoding", Costs { consume: 1.3e-4, ..FAST }),
    ]
}

const STARTS: [[usize; 3]; 5] = [[4, 32, 4], [1, 1, 1], [1, 256, 8], [4, 1, 1], [2, 8, 2]];

#[test]
fn it_comes_near_the_best_from_anywhere_and_then_rests() {
    for (name, costs) in situations() {
        for start in STARTS {
            for (seed, noise) in [(1, 0.0), (2, 0.03), (3, 0.1)] {
                let costs = Costs { noise, ..costs };
                let mut run = Run::new(start, seed);
                run.on(40.0, &costs);
                let share = run.share(&costs);
                let least = if noise > 0.05 { 0.9 } else { 0.95 };
                let so_far = &run.decisions;
                assert!(share >= least, "{name} from {start:?}, noise {noise}: {share:.2}, {so_far:#?}");
                let later = run.on(1800.0, &costs);
                let all = &run.decisions[run.decisions.len() - later..];
                assert!(later <= 3, "{name} from {start:?}, noise {noise}: {later} changes, {all:#?}");
            }
        }
    }
}

#[test]
fn it_follows_a_threefold_change_within_ten_seconds() {
    for (name, costs) in situations() {
        let three = [
            ("work", Costs { work: 3.0 * costs.work, ..costs }),
            ("less work", Costs { work: costs.work / 3.0, ..costs }),
            ("latency", Costs { latency: 3.0 * costs.latency, ..costs }),
            ("consumer", Costs { consume: costs.consume / 3.0, ..costs }),
        ];
        for (what, changed) in three {
            let (costs, changed) = (Costs { noise: 0.02, ..costs }, Costs { noise: 0.02, ..changed });
            let mut run = Run::new([4, 32, 4], 7);
            run.on(60.0, &costs);
            run.on(10.0, &changed);
            let share = run.share(&changed);
            assert!(share >= 0.95, "{name}, {what}: {share:.2}, {:#?}", run.decisions);
        }
    }
}

#[test]
fn costs_that_come_and_go_are_not_followed_again_and_again() {
    let light = Costs { noise: 0.05, ..FAST };
    let heavy = Costs { work: 3.0 * light.work, ..light };
    let mut run = Run::new([4, 32, 4], 11);
    for _ in 0..10 {
        run.on(20.0, &light);
        run.on(20.0, &heavy);
    }
    let changes: usize = (0..45).map(|_| run.on(20.0, &light) + run.on(20.0, &heavy)).sum();
    assert!(changes <= 3, "{changes} changes, {:#?}", run.decisions);
}

#[test]
fn what_is_not_needed_is_given_back_once_and_taken_again_at_once() {
    let slow = Costs { consume: 1e-3, noise: 0.03, ..FAST };
    let mut run = Run::new([4, 256, 8], 3);
    run.on(60.0, &slow);
    let values = Knob::ALL.map(|knob| run.tuner.values().get(knob));
    assert_eq!(values, [1, 32, 4], "{:#?}", run.decisions);
    assert_eq!(run.decisions.len(), 3);
    let fast = Costs { consume: 0.0, ..slow };
    for _ in 0..20 {
        run.now += TICK;
        let observation = fast.observe(run.tuner.values(), &mut run.random);
        run.decisions.extend(run.tuner.observe(run.now, observation, || false));
    }
    assert_eq!(run.tuner.values().get(Knob::Threads), 4, "in whoever's turn: {:#?}", run.decisions);
}

/// A consumer that waits a little at first, as one does that has just begun, and then not at all.
#[test]
fn what_is_not_needed_is_given_back_also_later() {
    let nearly = Costs { consume: 1e-3 * 0.985, ..FAST };
    let slow = Costs { consume: 1e-3, ..FAST };
    let mut run = Run::new([4, 32, 4], 3);
    // The observed wait is that of a consumer which is a little faster than what is given to it.
    for _ in 0..30 {
        run.now += TICK;
        let observation = slow.observe(run.tuner.values(), &mut run.random);
        let waited = TICK * (1.0 - nearly.consume / slow.consume);
        let observation = Observation { consumer_waited: waited, ..observation };
        run.decisions.extend(run.tuner.observe(run.now, observation, || true));
    }
    assert!(run.tuner.is_resting() && run.decisions.is_empty(), "{:#?}", run.decisions);
    run.on(10.0, &slow);
    assert_eq!(run.tuner.values().get(Knob::Threads), 1, "{:#?}", run.decisions);
}

#[test]
fn the_largest_value_can_be_lowered_and_raised() {
    let mut run = Run::new([4, 32, 4], 5);
    run.on(10.0, &FAST);
    let decision = run.tuner.bound(run.now, Knob::Threads, 2, "a quota").pop().unwrap();
    assert_eq!((decision.from, decision.to, &*decision.why), (4, 2, "a quota"));
    run.on(30.0, &FAST);
    assert_eq!(run.tuner.values().get(Knob::Threads), 2);
    assert_eq!(run.tuner.bound(run.now, Knob::Threads, 4, "no quota"), []);
    run.on(10.0, &FAST);
    assert_eq!(run.tuner.values().get(Knob::Threads), 4);
}

#[test]
fn what_is_taken_back_stays_within_bounds_that_came_down_meanwhile() {
    let slow = Costs { consume: 1e-3, ..FAST };
    let mut run = Run::new([4, 32, 4], 6);
    while !run.tuner.is_trying() {
        run.on(TICK, &slow);
    }
    assert_eq!(run.tuner.values().get(Knob::Threads), 1, "what is tried");
    run.tuner.bound(run.now, Knob::Threads, 3, "a quota");
    run.on(20.0, &Costs { work: 2e-3, ..slow });
    assert_eq!(run.tuner.values().get(Knob::Threads), 3, "{:#?}", run.decisions);
}

#[test]
fn a_trial_is_taken_back_in_the_turn_of_another_and_comes_again() {
    let slow = Costs { consume: 1e-3, ..FAST };
    let mut run = Run::new([4, 32, 4], 8);
    while !run.tuner.is_trying() {
        run.on(TICK, &slow);
    }
    let tried = run.decisions.pop().unwrap();
    let mut others_turn = Vec::new();
    for _ in 0..100 {
        run.now += TICK;
        let observation = slow.observe(run.tuner.values(), &mut run.random);
        others_turn.extend(run.tuner.observe(run.now, observation, || false));
    }
    let [taken_back] = &others_turn[..] else { panic!("{others_turn:#?}") };
    assert_eq!((taken_back.from, taken_back.to), (tried.to, tried.from));
    run.on(5.0, &slow);
    assert_eq!(run.tuner.values().get(Knob::Threads), 1, "{:#?}", run.decisions);
}

#[test]
fn threads_are_given_back_after_more_of_something_else_was_kept() {
    let far = Costs { latency: 0.04, work: 1e-4, ..FAST };
    let mut run = Run::new([4, 32, 4], 7);
    // A little at first, and then never.
    for (waits, ticks) in [(0.03, 200), (0.0, 200)] {
        for _ in 0..ticks {
            run.now += TICK;
            let observation = far.observe(run.tuner.values(), &mut run.random);
            let observation = Observation { consumer_waited: waits * TICK, ..observation };
            run.decisions.extend(run.tuner.observe(run.now, observation, || true));
        }
        assert!(run.tuner.is_resting());
    }
    let raised = |decision: &Decision| decision.knob == Knob::QueueDepth && decision.to > 32;
    assert!(run.decisions.iter().any(raised), "{:#?}", run.decisions);
    assert_eq!(run.tuner.values().get(Knob::Threads), 1, "{:#?}", run.decisions);
}

#[test]
fn nothing_changes_without_leave_and_what_is_fixed_stays() {
    let costs = Costs { latency: 0.04, ..FAST };
    let ranges = [KnobRange::fixed(2), KnobRange::fixed(1), KnobRange::fixed(3)];
    let mut tuner = Tuner::new(ranges, KnobValues::of(|_| 1));
    let mut random = RandomKey::new(b"tuner", 1, 0, Use::Order).stream(0);
    let mut refused = Run::new([1, 1, 1], 1);
    for tick in 0..1000 {
        let observation = costs.observe(tuner.values(), &mut random);
        assert_eq!(tuner.observe(f64::from(tick), observation, || true), []);
        let observation = costs.observe(refused.tuner.values(), &mut random);
        assert_eq!(refused.tuner.observe(f64::from(tick), observation, || false), []);
    }
    assert_eq!(Knob::ALL.map(|knob| tuner.values().get(knob)), [2, 1, 3]);
    assert_eq!(tuner.bound(0.0, Knob::Threads, 1, "a quota"), []);
}
