//! Chooses how the cache is filled: with samples as they are read, or with whole shards ahead of their use.

use super::TierRates;
use base::names::named;

/// How the user wants the cache to be filled (`fill=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FillChoice {
    /// A cost model decides, by rates that are measured at the start.
    #[default]
    Auto,
    /// Samples are written through as they are read: each byte leaves the source once.
    Use,
    /// Samples are written through as they are read. In addition, whole shards are copied ahead of their use, in large
    /// sequential reads, in the order of their next use.
    Ahead,
}

named!(FillChoice: "auto" => Auto, "use" => Use, "ahead" => Ahead);

/// How the cache is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// With samples as they are read.
    Use,
    /// With samples as they are read, and also with whole shards ahead of their use.
    Ahead,
}

/// The bytes of one read when whole shards are copied ahead of their use (staging): large enough for any parallel file
/// system, and small enough that the pipeline's own reads hardly wait for it.
pub const STAGED_READ: u64 = 4 << 20;

/// The reason that is reported if a node does not copy whole shards ahead. The node uses only a part of the samples in
/// each epoch, so it would use many samples of a shard later, or never.
pub const KEPT_AS_READ: &str = "the node uses only a part of each epoch, and keeps samples as it reads them";

/// Staging (copying whole shards ahead) must be this many times faster than reading on use to be chosen. Staging needs
/// a second reader, and samples that are used before their shard has arrived are read twice.
const ADVANTAGE: f64 = 1.5;
/// The value of [`ADVANTAGE`] for an object store that charges each request. Staging makes far fewer requests, so it
/// may take twice the time.
const CHARGED_ADVANTAGE: f64 = 0.5;

/// The inputs of the cost model that chooses how the cache is filled.
#[derive(Debug, Clone, Copy)]
pub struct FillJob {
    /// The number of samples in the dataset.
    pub samples: u64,
    /// The total bytes of all samples.
    pub bytes: u64,
    /// Whether samples are in shards. If each sample is a file, staging would open the files one by one too.
    pub shards: bool,
    /// The number of reads in flight.
    pub depth: usize,
    /// Whether the object store charges for each request.
    pub charged: bool,
}

/// Chooses how to fill the cache, and returns the reason in words. `source` has the rates of the source, or the reason
/// why they are unknown.
///
/// Compares two times, which are computed from the rates: to read all samples in random order, and to read all shards
/// in chunks of [`STAGED_READ`] bytes. If the rates are unknown, shards are staged only if each request is charged.
pub fn choose(choice: FillChoice, job: &FillJob, source: Result<TierRates, String>) -> (Fill, String) {
    match choice {
        FillChoice::Use => return (Fill::Use, "fill=use".into()),
        FillChoice::Ahead => return (Fill::Ahead, "fill=ahead".into()),
        FillChoice::Auto if !job.shards => {
            return (Fill::Use, "each sample is a file: reading ahead would need as many opens".into());
        }
        FillChoice::Auto => {}
    }
    let source = match source {
        Ok(source) => source,
        Err(_) if job.charged => {
            let mib = STAGED_READ >> 20;
            return (Fill::Ahead, format!("requests are charged, and reads of {mib} MiB need few of them"));
        }
        Err(why) => return (Fill::Use, why),
    };
    let at_once = TierRates { concurrency: source.concurrency.min(job.depth as f64), ..source };
    let on_use = at_once.random_seconds(job.samples, job.bytes, false);
    let ahead = source.sequential_seconds(job.bytes, STAGED_READ);
    let rate = |seconds: f64| job.bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE);
    let rates = format!(
        "reads of samples reach {:.0} MB/s, reads of {} MiB reach {:.0} MB/s",
        rate(on_use),
        STAGED_READ >> 20,
        rate(ahead)
    );
    let advantage = if job.charged { CHARGED_ADVANTAGE } else { ADVANTAGE };
    if on_use > advantage * ahead { (Fill::Ahead, rates) } else { (Fill::Use, rates) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: FillJob =
        FillJob { samples: 100_000, bytes: 10_000_000_000, shards: true, depth: 32, charged: false };

    fn source(read_seconds: f64) -> TierRates {
        TierRates {
            open_seconds: 0.0,
            read_seconds,
            concurrency: 16.0,
            read_bandwidth: 2e9,
            write_bandwidth: 0.0,
        }
    }

    #[test]
    fn latency_speaks_for_staging_and_its_absence_against() {
        let choice = |latency| choose(FillChoice::Auto, &JOB, Ok(source(latency)));
        assert_eq!(choice(10e-3).0, Fill::Ahead, "{}", choice(10e-3).1);
        assert_eq!(choice(0.1e-3).0, Fill::Use, "{}", choice(0.1e-3).1);
        let charged = FillJob { charged: true, ..JOB };
        let choice_of_charged = |rates| choose(FillChoice::Auto, &charged, rates).0;
        assert_eq!(choice_of_charged(Ok(source(0.1e-3))), Fill::Ahead);
        assert_eq!(choice_of_charged(Err("too small".into())), Fill::Ahead);
        assert!(choice(10e-3).1.contains("reach 160 MB/s"), "{}", choice(10e-3).1);
    }

    #[test]
    fn the_user_and_loose_files_decide_without_rates() {
        let loose = FillJob { shards: false, ..JOB };
        assert_eq!(choose(FillChoice::Auto, &loose, Ok(source(10e-3))).0, Fill::Use);
        assert_eq!(choose(FillChoice::Ahead, &loose, Err(String::new())).0, Fill::Ahead);
        assert_eq!(choose(FillChoice::Use, &JOB, Ok(source(10e-3))).0, Fill::Use);
        assert_eq!(
            choose(FillChoice::Auto, &JOB, Err("too small".into())),
            (Fill::Use, "too small".to_owned())
        );
    }
}
