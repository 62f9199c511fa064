//! The flag `--stall`: alternates epochs as configured ("as given" in the output) with epochs that read all samples
//! from memory, to show what keeps the consumer waiting.

use super::args::BenchArgs;
use super::epochs::BenchRun;
use super::place::BenchPlace;
use super::report::EpochReport;
use crate::output;
use base::error::Result;
use engine::config::LoaderConfig;
use engine::pipeline::Pipeline;
use serde::Serialize;
use store::io::{InMemoryDataset, Reader};

/// The minimum number of pairs of epochs. The first pair is not counted, because it starts threads and fills caches.
const MIN_PAIRS: usize = 3;
/// The maximum number of pairs. Pairs are added while their results differ too much.
const MAX_PAIRS: usize = 7;

/// How much longer the consumer waits in epochs as configured than in epochs with all samples in memory, and the
/// reason.
#[derive(Debug, Serialize)]
pub(super) struct Stall {
    pub(super) resident_bytes: u64,
    /// The seconds by which the consumer waited longer than in the epochs from memory, summed over all epochs. A
    /// negative value is due to chance.
    pub(super) held_up_seconds: f64,
    pub(super) held_up_share: f64,
    /// The size of `held_up_seconds` that chance alone can explain: the spread of the epochs after the first, times the
    /// number of all epochs.
    pub(super) chance_seconds: f64,
    #[serde(flatten)]
    pub(super) verdict: StallVerdict,
    pub(super) epochs: Vec<EpochStall>,
    pub(super) from_memory: Vec<EpochReport>,
}

/// The verdict from pairs of epochs. In each pair, the same epoch runs once as configured, and once with all samples in
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct StallVerdict {
    pub(super) pairs: usize,
    /// How much longer the consumer waits than in the epoch from memory, as a share of the epoch: the median over the
    /// pairs.
    pub(super) median_share: f64,
    pub(super) spread_share: f64,
    /// The work that the consumer waits for; absent if the difference within the pairs is too small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_up_by: Option<HeldUpBy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HeldUpBy {
    Storage,
    Cache,
    Decode,
}

#[derive(Debug, Clone, Copy)]
struct EpochPair {
    /// How much longer the consumer waited in the epoch as configured than in the epoch from memory, as a share of the
    /// duration of the epoch as configured.
    share: f64,
    /// How many seconds longer each kind of work took in the epoch as configured than in the epoch from memory:
    /// [reading from storage, reading from the cache, a worker's decoding].
    longer: [f64; 3],
}

/// One epoch that ran twice: as configured, and with all samples in memory. Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct EpochStall {
    pub(super) epoch: u64,
    pub(super) steps: u64,
    pub(super) seconds: f64,
    pub(super) seconds_from_memory: f64,
    pub(super) wait_seconds: f64,
    pub(super) wait_seconds_from_memory: f64,
    pub(super) held_up_seconds: f64,
    pub(super) held_up_seconds_per_step: f64,
}

impl EpochStall {
    fn new(given: &EpochReport, memory: &EpochReport) -> Self {
        let held_up_seconds = given.wait_seconds - memory.wait_seconds;
        Self {
            epoch: given.epoch,
            steps: given.steps,
            seconds: given.seconds,
            seconds_from_memory: memory.seconds,
            wait_seconds: given.wait_seconds,
            wait_seconds_from_memory: memory.wait_seconds,
            held_up_seconds,
            held_up_seconds_per_step: held_up_seconds / given.steps.max(1) as f64,
        }
    }
}

impl EpochPair {
    fn new(given: &EpochReport, memory: &EpochReport) -> Self {
        let [given_work, memory_work] = [given.work, memory.work];
        let reading = given_work.reading - memory_work.reading;
        Self {
            share: (given.wait_seconds - memory.wait_seconds) / given.seconds.max(f64::MIN_POSITIVE),
            longer: [
                reading * given_work.from_source,
                reading * (1.0 - given_work.from_source),
                given_work.decoding - memory_work.decoding,
            ],
        }
    }
}

impl StallVerdict {
    /// The verdict from these pairs. The verdict names a reason only if the consumer's additional waiting exceeds the
    /// spread of the pairs.
    fn of(pairs: &[EpochPair]) -> Self {
        let mut shares: Vec<f64> = pairs.iter().map(|pair| pair.share).collect();
        let median_share = median(&mut shares);
        let spread_share = shares.last().zip(shares.first()).map_or(0.0, |(most, least)| most - least);
        let causes = [HeldUpBy::Storage, HeldUpBy::Cache, HeldUpBy::Decode];
        let longer = |of: usize| median(&mut pairs.iter().map(|pair| pair.longer[of]).collect::<Vec<_>>());
        let most = (0..causes.len()).max_by(|&one, &other| longer(one).total_cmp(&longer(other)));
        let is_conclusive = pairs.len() >= MIN_PAIRS && median_share > spread_share;
        let held_up_by = most.filter(|_| is_conclusive).map(|most| causes[most]);
        Self { pairs: pairs.len(), median_share, spread_share, held_up_by }
    }

    fn is_clear(&self) -> bool {
        self.median_share.abs() > self.spread_share
    }
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        count => (numbers[(count - 1) / 2] + numbers[count / 2]) / 2.0,
    }
}

/// Runs the epochs of `pipeline`, alternating with the same epochs from memory. Returns the run of `pipeline`, and the
/// verdict.
///
/// # Errors
/// The errors of [`InMemoryDataset::load`] and of the loader.
pub(super) fn measure(
    args: &BenchArgs,
    place: &BenchPlace,
    pipeline: &Pipeline,
) -> Result<(BenchRun, Stall)> {
    let (mut given, mut memory) = (BenchRun::default(), BenchRun::default());
    // The first epoch runs before anything else has read the dataset.
    given.epoch(args, place, pipeline, 0)?;
    let index = pipeline.index();
    let bar = output::bar(index.len(), "samples into memory");
    let samples = InMemoryDataset::load(index, &|more| bar.inc(more))?;
    bar.finish_and_clear();
    let say = |of: &str| if args.json { Ok(()) } else { output::print(of) };
    let open = move |_: &_, _: &_, config: &LoaderConfig| {
        Ok(Box::new(samples.reader(config.queue_depth)) as Box<dyn Reader>)
    };
    let config = LoaderConfig { cache: None, ..pipeline.config().clone() };
    let from_memory = Pipeline::with_reader(index.clone(), config, Box::new(open));
    say("from memory:")?;
    memory.epoch(args, place, &from_memory, 0)?;
    let mut pairs = Vec::new();
    let mut verdict = StallVerdict::of(&pairs);
    loop {
        let number = pairs.len() as u64 + 1;
        // All ranks of a job must run the same number of epochs.
        let may_add = pairs.len() < MAX_PAIRS && !verdict.is_clear() && place.peers.meeting.is_none();
        if pairs.len() >= MIN_PAIRS && number >= args.epochs && !may_add {
            break;
        }
        // Alternate which epoch of a pair runs first, so that changes over time affect both kinds of epochs equally.
        for is_given in [number.is_multiple_of(2), !number.is_multiple_of(2)] {
            say(if is_given { "as given:" } else { "from memory:" })?;
            let (run, pipeline) = if is_given { (&mut given, pipeline) } else { (&mut memory, &from_memory) };
            run.epoch(args, place, pipeline, number)?;
        }
        pairs.extend(given.epochs.last().zip(memory.epochs.last()).map(|(g, m)| EpochPair::new(g, m)));
        verdict = StallVerdict::of(&pairs);
    }
    let both = given.epochs.iter().zip(&memory.epochs);
    let epochs: Vec<EpochStall> = both.map(|(given, memory)| EpochStall::new(given, memory)).collect();
    let sum = |of: fn(&EpochStall) -> f64| epochs.iter().map(of).sum::<f64>();
    let (held_up_seconds, seconds) =
        (sum(|epoch| epoch.held_up_seconds), sum(|epoch| epoch.seconds).max(f64::MIN_POSITIVE));
    let stall = Stall {
        resident_bytes: index.total_bytes(),
        held_up_seconds,
        held_up_share: held_up_seconds / seconds,
        chance_seconds: verdict.spread_share * seconds,
        verdict,
        epochs,
        from_memory: memory.epochs,
    };
    Ok((given, stall))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(shares: &[f64], longer: [f64; 3]) -> StallVerdict {
        StallVerdict::of(&shares.iter().map(|&share| EpochPair { share, longer }).collect::<Vec<_>>())
    }

    #[test]
    fn a_verdict_needs_pairs_that_agree() {
        let storage = [1.0, 0.0, 0.1];
        for (shares, expected) in [
            (&[][..], None),
            (&[0.5, 0.5], None),
            (&[0.30, 0.32, 0.31], Some(HeldUpBy::Storage)),
            // Measured with images in the page cache: a median of 0.13 with a spread of 0.30 proves nothing.
            (&[0.13, 0.32, 0.02], None),
            (&[-0.3, -0.31, -0.32], None),
            (&[0.01, 0.0, -0.01, 0.02], None),
        ] {
            let verdict = verdict(shares, storage);
            assert_eq!((verdict.held_up_by, verdict.pairs), (expected, shares.len()), "{shares:?}");
        }
        let three = verdict(&[0.13, 0.32, 0.02], storage);
        assert!((three.median_share - 0.13).abs() < 1e-9 && (three.spread_share - 0.3).abs() < 1e-9);
        assert!(!three.is_clear() && verdict(&[-0.3, -0.31, -0.32], storage).is_clear());
    }

    #[test]
    fn it_names_the_work_that_took_longest() {
        for (longer, expected) in [
            ([1.0, 0.2, 0.5], HeldUpBy::Storage),
            ([0.1, 0.2, 0.0], HeldUpBy::Cache),
            ([0.1, -0.2, 0.5], HeldUpBy::Decode),
        ] {
            assert_eq!(verdict(&[0.5; 3], longer).held_up_by, Some(expected));
        }
    }
}
