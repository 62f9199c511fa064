//! The interface of sources of samples. The kinds of sources are in `sources`.

use super::record::Record;
use super::share::RankShare;
use base::error::Result;
use std::collections::HashSet;
use std::time::Duration;

/// A sample that a source has received.
#[derive(Debug)]
pub struct Arrival {
    /// The key of the sample in its stream.
    pub key: String,
    /// The sample, or the reason why what arrived cannot be a sample. Such an arrival counts as failed.
    pub record: Result<Record, String>,
    /// The number of samples missing before this sample, if the source numbers its samples consecutively.
    pub gap: u64,
}

/// The result of receiving from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// More samples may come, now or later.
    More,
    /// No more samples will ever come.
    End,
}

/// Which samples a source gives after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The source gives samples in a fixed order, and can resume after any sample.
    Ordered,
    /// The source gives all its samples in any order, except settled samples, whose keys it gets when it is opened.
    Unordered,
    /// The source never gives a sample again.
    Never,
}

/// The position of a source: which of its samples are settled. A settled sample was delivered, dropped or withdrawn, or
/// it failed, and the source never has to give it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourcePosition {
    /// For an ordered source: this sample and all before it are settled.
    pub after: Option<String>,
    /// The keys of all other settled samples, in the order in which they were settled.
    pub settled: Vec<String>,
    /// For an ordered source that was divided among other numbers of ranks before: for each of these numbers, the
    /// `after` of each rank, in order of rank. Of the samples that belonged to a rank, the sample `after` and all
    /// earlier samples are settled.
    #[serde(default)]
    pub divisions: Vec<Vec<Option<String>>>,
}

impl SourcePosition {
    /// The highest number in any key of this position that [`RankShare::key`] made.
    pub fn highest_number(&self) -> Option<u64> {
        let keys = self.after.iter().chain(&self.settled);
        keys.filter_map(|key| RankShare::number_in(key)).max()
    }

    /// The joint position of former ranks for a source that numbers its samples and never gives a sample again. It is
    /// after the highest sample number.
    pub fn after_all(positions: Vec<Self>) -> Self {
        let afters = positions.iter().filter_map(|position| position.after.clone());
        let after = afters.max_by_key(|after| RankShare::number_in(after));
        Self { after, ..Self::union(positions) }
    }

    /// The position whose `settled` keys are the union of the `settled` keys of these positions.
    pub fn union(positions: Vec<Self>) -> Self {
        let mut seen = HashSet::new();
        let settled = positions.into_iter().flat_map(|position| position.settled);
        Self { settled: settled.filter(|key| seen.insert(key.clone())).collect(), ..Self::default() }
    }
}

/// A source of samples. One thread drives it.
pub trait StreamSource: Send {
    /// The name of the stream. It is part of every sample's identity and of states, so it must not contain a secret.
    fn name(&self) -> &str;

    /// Which samples the source gives after a restart.
    fn replay(&self) -> Replay;

    /// Connects, and resumes at `position`. Called once, before samples are received, fetched or acknowledged.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] or [`base::error::Error::Io`] with the remedy, if the source cannot be
    /// reached or no longer has what the position needs.
    fn open(&mut self, position: &SourcePosition) -> Result<()>;

    /// The key after which an open ordered source begins. `None` if the source had a position, or begins with the first
    /// existing sample.
    fn starts_after(&self) -> Option<String> {
        None
    }

    /// The position at which this rank resumes, from the positions of the former ranks, in order of rank.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] if the source can resume only with the same number of ranks.
    fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        Ok(SourcePosition::union(former))
    }

    /// Waits up to `patience` for samples, and appends up to `most` of them. If `most` is 0, the source appends no
    /// sample, and only shows the server that this reader is alive. An ordered source gives all samples after its
    /// position's `after`. An unordered source skips settled samples. After a lost connection the source warns, and
    /// reconnects with pauses. Only a permanent problem is an error.
    ///
    /// # Errors
    /// The permanent problem: the source will never give more samples.
    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received>;

    /// Releases settled samples after a checkpoint of this position was safely written: acknowledges messages or
    /// removes files, as the source's settings say. Returns whether the source will never give the samples of the
    /// position's `settled` again. Then their keys can be dropped.
    ///
    /// # Errors
    /// The errors of the source. The same position may be given again.
    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool>;

    /// Whether [`StreamSource::acknowledge`] does anything. If not, the method is never called, and counts as done.
    fn needs_acknowledge(&self) -> bool {
        true
    }

    /// Gets the sample with this key again, for the replay of a journal. Keys come in the order in which the samples
    /// were used. A source that can only be read in order skips the samples between these keys.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if the source no longer has the sample, or cannot replay.
    fn fetch(&mut self, key: &str) -> Result<Record>;

    /// A description of the source without secrets: `redis stream "images" at 127.0.0.1:6379, group "train"`.
    fn describe(&self) -> String;
}
