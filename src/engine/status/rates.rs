//! The rates of a loader between two snapshots.

use super::snapshot::LoaderSnapshot;
use base::names::as_map;
use base::tier_name::TierName;
use base::trace::{NEGLIGIBLE_WAIT, Stage, limit};
use serde::Serialize;

/// The rates of a loader over an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoaderRates {
    /// Length of the interval in seconds.
    pub seconds: f64,
    pub samples_per_second: f64,
    pub bytes_per_second: f64,
    /// Share of the interval in which the consumer waited.
    pub waiting: f64,
    /// Name of the stage that limits the throughput, as in reports; `arrivals` if samples of a stream arrive too
    /// slowly; `consumer` if the consumer is too slow. `None` if no epoch is running, or the limit is unclear.
    pub limit: Option<String>,
    /// Load of each stage, by its name in reports: the share of the time in which a thread of the stage worked.
    #[serde(serialize_with = "as_map")]
    pub loads: Vec<(String, f64)>,
    /// Share of the samples that came from each tier, by name.
    #[serde(serialize_with = "as_map")]
    pub tiers: Vec<(String, f64)>,
}

/// Name of the limit if the consumer hardly waits.
const CONSUMER: &str = "consumer";

/// Name of the limit if samples of a stream arrive more slowly than they are used.
const ARRIVALS: &str = "arrivals";

impl LoaderRates {
    /// Returns the rates from `before` to `now`; without `before`, since the loader began.
    pub fn between(before: Option<&LoaderSnapshot>, now: &LoaderSnapshot) -> Self {
        let beginning = LoaderSnapshot::default();
        let is_earlier = |before: &&LoaderSnapshot| {
            before.number == now.number && before.seconds < now.seconds && before.samples <= now.samples
        };
        let before = before.filter(is_earlier).unwrap_or(&beginning);
        let seconds = (now.seconds - before.seconds).max(1e-9);
        let share = |now: f64, before: f64, threads: u32| {
            let share = (now - before) / seconds / f64::from(threads.max(1));
            if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
        };
        let (stages, former) = (&now.stages, &before.stages);
        let waiting = share(stages.waiting, former.waiting, 1);
        let reading = share(stages.reading, former.reading, 1);
        let tiers: Vec<_> = now
            .tiers
            .iter()
            .map(|tier| {
                let then = before.tiers.iter().find(|then| then.name == tier.name);
                let (samples, latency) = then.map_or((0, 0.0), |then| (then.samples, then.latency));
                (&tier.name, tier.samples.saturating_sub(samples), share(tier.latency, latency, 1))
            })
            .collect();
        let arrived: f64 = tiers.iter().map(|(_, samples, _)| *samples as f64).sum();
        let mut loads: Vec<(Stage, f64)> = Vec::new();
        for (name, _, latency) in &tiers {
            // The time with reads of one tier in flight is not measured. It is at most the time with reads of any tier
            // in flight, and at most the sum of the tier's latencies.
            let load = latency.min(reading);
            loads.extend(TierName::new(name).map(|name| (Stage::Read(name), load)));
        }
        if arrived == 0.0 && now.queue.in_flight > 0 {
            // Nothing has arrived, so it is unknown which tier hangs. Usually it is the source.
            loads.retain(|(stage, _)| !matches!(stage, Stage::Read(_)));
            loads.push((Stage::Read(TierName::SOURCE), 1.0));
        }
        loads.extend([
            (Stage::Decode, share(stages.decoding, former.decoding, stages.threads)),
            (Stage::Augment, share(stages.augmenting, former.augmenting, stages.threads)),
            (Stage::GpuDecode, share(stages.gpu, former.gpu, stages.lanes)),
        ]);
        let arrivals = share(stages.arrivals, former.arrivals, 1);
        let busiest = loads.iter().map(|(_, load)| *load).fold(0.0, f64::max);
        let limit = match arrivals > busiest && waiting > NEGLIGIBLE_WAIT {
            true => Some(ARRIVALS.to_owned()),
            false => limit(waiting, &loads).map(Stage::name),
        };
        // The consumer may be busy with one batch for longer than this interval.
        let is_fed = waiting <= NEGLIGIBLE_WAIT && (now.samples > before.samples || now.queue.ready > 0);
        Self {
            seconds,
            samples_per_second: now.samples.saturating_sub(before.samples) as f64 / seconds,
            bytes_per_second: now.bytes.saturating_sub(before.bytes) as f64 / seconds,
            waiting,
            limit: limit.or_else(|| is_fed.then(|| CONSUMER.to_owned())).filter(|_| now.running),
            loads: loads
                .into_iter()
                .filter(|(_, load)| *load > 0.0)
                .map(|(stage, load)| (stage.name(), load))
                .collect(),
            tiers: tiers
                .into_iter()
                .filter(|(_, samples, _)| *samples > 0)
                .map(|(name, samples, _)| (name.clone(), samples as f64 / arrived))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{QueueNumbers, StageNumbers, TierNumbers};
    use super::*;

    fn tier(name: &str, samples: u64, latency: f64) -> TierNumbers {
        TierNumbers { name: name.into(), samples, latency, ..Default::default() }
    }

    fn loader(seconds: f64, samples: u64, stages: StageNumbers, tiers: Vec<TierNumbers>) -> LoaderSnapshot {
        let stages = StageNumbers { threads: 2, ..stages };
        let bytes = samples.saturating_mul(1000);
        LoaderSnapshot { running: true, seconds, samples, bytes, stages, tiers, ..Default::default() }
    }

    #[test]
    fn rates_are_differences_and_the_limit_is_that_of_reports() {
        let stages =
            StageNumbers { reading: 4.0, decoding: 6.0, augmenting: 2.0, waiting: 1.0, ..Default::default() };
        let before = loader(10.0, 1000, stages, vec![tier("source", 900, 50.0), tier("nvme", 100, 0.1)]);
        // In two seconds: 100 samples, half of them from nvme; workers half busy, reads always in flight.
        let stages =
            StageNumbers { reading: 6.0, decoding: 7.5, augmenting: 2.5, waiting: 2.0, ..Default::default() };
        let now = loader(12.0, 1100, stages, vec![tier("source", 950, 80.0), tier("nvme", 150, 0.2)]);
        let rates = LoaderRates::between(Some(&before), &now);
        assert_eq!((rates.samples_per_second, rates.bytes_per_second, rates.waiting), (50.0, 50_000.0, 0.5));
        assert_eq!(rates.limit.as_deref(), Some("read source"));
        assert_eq!(rates.tiers, [("source".into(), 0.5), ("nvme".into(), 0.5)]);
        let load = |name: &str| rates.loads.iter().find(|(of, _)| of == name).map_or(0.0, |(_, load)| *load);
        assert_eq!((load("read source"), load("decode"), load("augment")), (1.0, 0.375, 0.125));
        assert!((load("read nvme") - 0.05).abs() < 1e-9, "at most what its reads took");
        // Without an earlier snapshot, rates are means since the beginning. A snapshot of another loader, or of the
        // same moment, is ignored.
        let mean = LoaderRates::between(None, &now);
        assert_eq!(mean.samples_per_second, 1100.0 / 12.0);
        for other in [LoaderSnapshot { number: 7, ..before.clone() }, now.clone()] {
            assert_eq!(LoaderRates::between(Some(&other), &now), mean);
        }
    }

    #[test]
    fn a_consumer_that_never_waits_is_the_limit_and_what_hangs_is_named() {
        let before = loader(1.0, 100, StageNumbers::default(), vec![tier("source", 100, 1.0)]);
        let busy = StageNumbers { decoding: 1.0, ..Default::default() };
        let now = loader(2.0, 200, busy, vec![tier("source", 200, 1.1)]);
        assert_eq!(LoaderRates::between(Some(&before), &now).limit.as_deref(), Some("consumer"));
        let mut long = loader(3.0, 200, busy, now.tiers.clone());
        assert_eq!(LoaderRates::between(Some(&now), &long).limit, None, "nothing tells");
        long.queue.ready = 1;
        assert_eq!(LoaderRates::between(Some(&now), &long).limit.as_deref(), Some("consumer"));
        let idle = LoaderSnapshot { running: false, ..now.clone() };
        assert_eq!(LoaderRates::between(Some(&before), &idle).limit, None);
        // No sample has arrived: the workers worked a little before that, and reads are in flight.
        let waits = StageNumbers { decoding: 1.01, waiting: 1.0, ..Default::default() };
        let mut hangs = loader(3.0, 200, waits, now.tiers.clone());
        hangs.queue = QueueNumbers { in_flight: 4, ..Default::default() };
        assert_eq!(LoaderRates::between(Some(&now), &hangs).limit.as_deref(), Some("read source"));
        hangs.queue.in_flight = 0;
        hangs.stages.arrivals = 0.8;
        assert_eq!(LoaderRates::between(Some(&now), &hangs).limit.as_deref(), Some("arrivals"));
        hangs.stages.arrivals = 0.0;
        hangs.stages.decoding = 1.0;
        assert_eq!(LoaderRates::between(Some(&now), &hangs).limit, None, "nothing tells");
    }

    #[test]
    fn hostile_numbers_make_no_nonsense() {
        let stages =
            StageNumbers { waiting: f64::NAN, decoding: -5.0, reading: f64::MAX, ..Default::default() };
        let now = loader(
            0.0,
            u64::MAX,
            stages,
            vec![tier("UPPER case", 3, f64::INFINITY), tier("source", 1, -1.0)],
        );
        let rates = LoaderRates::between(None, &now);
        assert!(rates.loads.iter().all(|(_, load)| (0.0..=1.0).contains(load)), "{rates:?}");
    }
}
