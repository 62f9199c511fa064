//! The progress of one source: which of its samples are settled, so that the source never has to give them again.

use super::source::{Replay, SourcePosition};
use std::collections::{HashSet, VecDeque};

/// The samples of one source, from the first one that is not settled.
pub(super) struct SourceProgress {
    replay: Replay,
    /// The sample number of the first entry. Samples are numbered in the order of their arrival.
    first: u64,
    entries: VecDeque<ProgressEntry>,
    position: SourcePosition,
    /// For an ordered source that resumes: the keys of settled samples after the position. The source gives these
    /// samples again, and they are skipped.
    early: HashSet<String>,
}

struct ProgressEntry {
    key: String,
    settled: bool,
}

impl SourceProgress {
    pub(super) fn new(replay: Replay, position: SourcePosition) -> Self {
        let mut source_progress =
            Self { replay, first: 0, entries: VecDeque::new(), position, early: HashSet::new() };
        if replay != Replay::Unordered {
            source_progress.early.extend(source_progress.position.settled.drain(..));
        }
        source_progress
    }

    /// Makes the source begin after the sample with this key, unless the source resumes at a position.
    pub(super) fn start_after(&mut self, key: String) {
        self.position.after.get_or_insert(key);
    }

    /// Adds a sample that arrived, and returns its number. Returns `None` for a sample that was settled before the
    /// source resumed.
    pub(super) fn add(&mut self, key: &str) -> Option<u64> {
        let settled = self.early.remove(key);
        self.entries.push_back(ProgressEntry { key: key.to_owned(), settled });
        let number = self.first + self.entries.len() as u64 - 1;
        self.pass_settled();
        (!settled).then_some(number)
    }

    /// Marks the sample with this number as settled.
    ///
    /// # Panics
    /// Panics if the sample is settled already, because it would count twice.
    pub(super) fn settle(&mut self, number: u64) {
        let entry = &mut self.entries[(number - self.first) as usize];
        assert!(!entry.settled, "sample {:?} was settled twice", entry.key);
        entry.settled = true;
        self.pass_settled();
    }

    fn pass_settled(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.settled) {
            let key = self.entries.pop_front().map(|entry| entry.key);
            self.first += 1;
            match self.replay {
                Replay::Ordered | Replay::Never => self.position.after = key,
                Replay::Unordered => self.position.settled.extend(key),
            }
        }
    }

    pub(super) fn unsettled(&self) -> u64 {
        self.entries.iter().filter(|entry| !entry.settled).count() as u64
    }

    pub(super) fn position(&self) -> SourcePosition {
        let mut position = self.position.clone();
        let early = self.entries.iter().filter(|entry| entry.settled);
        position.settled.extend(early.map(|entry| entry.key.clone()));
        position.settled.extend(self.early.iter().cloned());
        position
    }

    /// Removes the keys that were settled at `position`, because the source will never give these samples again.
    pub(super) fn forget(&mut self, position: &SourcePosition) {
        if self.replay == Replay::Unordered {
            let forgotten: HashSet<&String> = position.settled.iter().collect();
            self.position.settled.retain(|key| !forgotten.contains(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_progress(replay: Replay) -> SourceProgress {
        let mut source_progress = SourceProgress::new(replay, SourcePosition::default());
        for (number, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert_eq!(source_progress.add(key), Some(number as u64));
        }
        source_progress
    }

    fn at(after: Option<&str>, settled: &[&str]) -> SourcePosition {
        let settled = settled.iter().map(|key| (*key).to_owned()).collect();
        SourcePosition { after: after.map(str::to_owned), settled, ..SourcePosition::default() }
    }

    #[test]
    fn an_ordered_source_goes_on_behind_what_is_settled_without_a_gap() {
        let mut source_progress = source_progress(Replay::Ordered);
        source_progress.settle(2);
        assert_eq!(source_progress.position(), at(None, &["c"]));
        source_progress.settle(0);
        assert_eq!(source_progress.position(), at(Some("a"), &["c"]));
        source_progress.settle(1);
        assert_eq!(source_progress.position(), at(Some("c"), &[]));
        assert_eq!(source_progress.add("e"), Some(4));
        source_progress.settle(4);
        source_progress.settle(3);
        assert_eq!(source_progress.position(), at(Some("e"), &[]));
    }

    #[test]
    fn what_was_settled_early_is_left_out_when_the_source_gives_it_again() {
        let position = at(Some("a"), &["c"]);
        let mut source_progress = SourceProgress::new(Replay::Ordered, position);
        assert_eq!(source_progress.position(), at(Some("a"), &["c"]));
        assert_eq!(["b", "c", "d"].map(|key| source_progress.add(key)), [Some(0), None, Some(2)]);
        assert_eq!(source_progress.position(), at(Some("a"), &["c"]));
        source_progress.settle(0);
        assert_eq!(source_progress.position(), at(Some("c"), &[]));
        source_progress.settle(2);
        assert_eq!(source_progress.position(), at(Some("d"), &[]));
    }

    #[test]
    fn a_beginning_is_a_position_until_a_sample_is_settled() {
        let mut source_progress = SourceProgress::new(Replay::Ordered, SourcePosition::default());
        source_progress.start_after("a".into());
        assert_eq!(source_progress.position(), at(Some("a"), &[]));
        source_progress.add("b");
        source_progress.settle(0);
        source_progress.start_after("a".into());
        assert_eq!(source_progress.position(), at(Some("b"), &[]));
    }

    #[test]
    fn a_listed_source_remembers_all_until_it_is_acknowledged() {
        let mut source_progress = source_progress(Replay::Unordered);
        source_progress.settle(1);
        source_progress.settle(0);
        let then = source_progress.position();
        assert_eq!(then, at(None, &["a", "b"]));
        source_progress.settle(2);
        source_progress.forget(&then);
        assert_eq!(source_progress.position(), at(None, &["c"]));
    }
}
