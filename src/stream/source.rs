//! What a source of samples can do. Each kind is a file below `sources`.

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
    /// The sample; or, in words, why what arrived cannot be one. Such a sample counts as failed.
    pub record: Result<Record, String>,
    /// The number of samples that are missing before this one, where the source numbers them one after another.
    pub gap: u64,
}

/// The answer of a source that was asked for samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// There may be more, now or later.
    More,
    /// No more will ever come.
    End,
}

/// How a source goes on after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// It gives samples in a fixed order, and goes on behind any of them.
    Ordered,
    /// It gives all samples that it has but those of a list, in any order.
    Listed,
    /// What it has given is gone.
    Never,
}

/// How far the samples of a source are settled, which means delivered, dropped, failed or withdrawn: it need never give
/// them again.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourcePosition {
    /// Of an ordered source: this sample and all before it are settled.
    pub after: Option<String>,
    /// The settled samples beside those, by their keys, in the order in which they were settled.
    pub settled: Vec<String>,
    /// Of an ordered source that other numbers of ranks divided before: for each of these numbers `after` of each rank,
    /// by rank. Of the samples that were a rank's, that one and all before it are settled.
    #[serde(default)]
    pub divisions: Vec<Vec<Option<String>>>,
}

impl SourcePosition {
    /// The highest number in a key of [`RankShare::key`] that this position has.
    pub fn highest_number(&self) -> Option<u64> {
        let keys = self.after.iter().chain(&self.settled);
        keys.filter_map(|key| RankShare::number_in(key)).max()
    }

    /// The position of a source that numbers its samples and gives none of them again: behind the highest number.
    pub fn behind_all(positions: Vec<Self>) -> Self {
        let afters = positions.iter().filter_map(|position| position.after.clone());
        let after = afters.max_by_key(|after| RankShare::number_in(after));
        Self { after, ..Self::union(positions) }
    }

    /// The position at which what any of these has settled is settled, by name.
    pub fn union(positions: Vec<Self>) -> Self {
        let mut seen = HashSet::new();
        let settled = positions.into_iter().flat_map(|position| position.settled);
        Self { settled: settled.filter(|key| seen.insert(key.clone())).collect(), ..Self::default() }
    }
}

/// A source of samples, which one thread drives.
pub trait StreamSource: Send {
    /// The name of the stream: it is part of every sample's identity and of states, and so never holds a secret.
    fn name(&self) -> &str;

    /// How the source goes on after a restart.
    fn replay(&self) -> Replay;

    /// Connects, and goes on at `position`; called once, before anything else is asked.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] or [`base::error::Error::Io`] with the remedy, where it cannot be reached or
    /// has lost what the position needs.
    fn open(&mut self, position: &SourcePosition) -> Result<()>;

    /// Where an ordered source that is open begins, if it had no position to go on at and its first sample is not the
    /// first there is: behind this key.
    fn begins_behind(&self) -> Option<String> {
        None
    }

    /// The position at which this rank goes on where other ranks, more or fewer, stood at these, by rank.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] where only the same ranks can go on.
    fn divide_anew(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        Ok(SourcePosition::union(former))
    }

    /// Waits up to `patience` for samples, and appends up to `most` of them: none, where the source is only to show
    /// that somebody is there. An ordered source gives all that lies behind its position's `after`; a listed one leaves
    /// out what is settled. A source that loses its connection makes it again by itself, after pauses, and tells
    /// notices; only what will not mend is an error.
    ///
    /// # Errors
    /// What keeps the source from ever giving more.
    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received>;

    /// Lets go of settled samples, because a checkpoint of this position is safely written: messages are acknowledged,
    /// files removed, as the source's settings say. Returns whether the source will never again give the samples of
    /// the position's `settled`, so that nobody needs to remember them.
    ///
    /// # Errors
    /// Those of the source; the same position may be given again.
    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool>;

    /// Whether [`StreamSource::acknowledge`] does anything. If not it is never called, and counts as done.
    fn lets_go(&self) -> bool {
        true
    }

    /// Gets the sample with this key once more, for the replay of a journal. Keys come in the order in which the
    /// samples were used; where the source can only be read in order, what lies between is passed over.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] where the source no longer has it, or cannot replay.
    fn fetch(&mut self, key: &str) -> Result<Record>;

    /// The source in words, without secrets: `redis stream "images" at 127.0.0.1:6379, group "train"`.
    fn describe(&self) -> String;
}
