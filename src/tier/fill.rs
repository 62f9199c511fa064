//! How the fast tier is filled: with what is read anyway, or by whole shards ahead of their use.

use super::TierRates;

/// How the user wants it (`fill=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FillChoice {
    /// By the cost model, from rates measured at the start.
    #[default]
    Auto,
    /// Samples are written through as they are read: each byte leaves the source once.
    Use,
    /// Also, whole shards are copied beside training in large sequential reads, in the order of their next use.
    Ahead,
}

/// How it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// On use.
    Use,
    /// Ahead.
    Ahead,
}

/// Bytes of one staging read: large enough for any parallel file system, small enough that reads in demand wait little
/// behind it.
pub(crate) const PIECE: u64 = 4 << 20;

/// Staging must be this much faster than reading on use: it costs a second reader, and what is used before its shard
/// has come is read by itself all the same.
const ADVANTAGE: f64 = 1.5;

/// What the cost model looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillJob {
    /// Samples of the dataset.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether they lie in shards; loose files are opened one by one, however they are read.
    pub shards: bool,
    /// Reads in flight.
    pub depth: usize,
}

/// The way to fill, and why, in words.
///
/// Compares the time a first epoch needs for its reads: all samples in random order, or all shards in pieces of
/// [`PIECE`]; both as [`TierRates`] has it. `source` may say why its rates are not known.
pub(crate) fn choose(choice: FillChoice, job: &FillJob, source: Result<TierRates, String>) -> (Fill, String) {
    match choice {
        FillChoice::Use => return (Fill::Use, "fill=use".into()),
        FillChoice::Ahead => return (Fill::Ahead, "fill=ahead".into()),
        FillChoice::Auto if !job.shards => {
            return (Fill::Use, "loose files: read ahead of their use they cost the same opens".into());
        }
        FillChoice::Auto => {}
    }
    let source = match source {
        Ok(source) => source,
        Err(why) => return (Fill::Use, why),
    };
    let at_once = TierRates { concurrency: source.concurrency.min(job.depth as f64), ..source };
    let on_use = at_once.random_seconds(job.samples, job.bytes, false);
    let ahead = source.sequential_seconds(job.bytes, PIECE);
    let rate = |seconds: f64| job.bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE);
    let rates = format!(
        "samples come at {:.0} MB/s, pieces of {} MiB at {:.0} MB/s",
        rate(on_use),
        PIECE >> 20,
        rate(ahead)
    );
    if on_use > ADVANTAGE * ahead { (Fill::Ahead, rates) } else { (Fill::Use, rates) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: FillJob = FillJob { samples: 100_000, bytes: 10_000_000_000, shards: true, depth: 32 };

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
        assert!(choice(10e-3).1.contains("at 160 MB/s"), "{}", choice(10e-3).1);
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
