//! Counts of skipped files by place, which is the root or a directory. If a directory changes, only its own skipped
//! files are counted again.

use super::samples::text;
use super::{Notes, Skipped};
use std::collections::BTreeMap;

pub(super) type SkippedByReason = BTreeMap<String, Skipped>;

/// The place of files in the root that were skipped while the layout was detected. If the root is then indexed as a
/// directory of samples, the files that are skipped at that time have the empty path as their place.
pub(super) const ROOT_SURVEY: &[u8] = b"/";

/// Maximum number of places for which the index keeps skipped files. For a place beyond this number, a lower count than
/// before is not recorded.
const MAX_PLACES: usize = 1000;

impl Notes {
    pub(super) fn assigned_to(mut self, place: &[u8]) -> Self {
        if !self.skipped.is_empty() {
            self.places = BTreeMap::from([(text(place), self.skipped.clone())]);
        }
        self
    }

    pub(super) fn merge_places(&mut self, places: BTreeMap<String, SkippedByReason>) {
        let free_places = MAX_PLACES.saturating_sub(self.places.len());
        self.places.extend(places.into_iter().take(free_places));
    }

    /// Replaces the skipped files of a place. Returns whether this changed any reason or count.
    pub(super) fn replace_skipped(&mut self, place: &[u8], now: SkippedByReason) -> bool {
        let place = text(place);
        if self.places.len() >= MAX_PLACES && !self.places.contains_key(&place) {
            return self.raise_counts(now);
        }
        if self.places.get(&place).map_or(now.is_empty(), |before| *before == now) {
            return false;
        }
        for (reason, gone) in &self.places.remove(&place).unwrap_or_default() {
            let Some(total) = self.skipped.get_mut(reason) else { continue };
            total.count = total.count.saturating_sub(gone.count);
            if total.count == 0 {
                self.skipped.remove(reason);
            } else if total.example == gone.example {
                let others = self.places.values().filter_map(|skipped| skipped.get(reason));
                total.example = others.map(|other| &other.example).min().unwrap_or(&gone.example).clone();
            }
        }
        self.absorb(Self { skipped: now, ..Self::default() }.assigned_to(place.as_bytes()));
        true
    }

    fn raise_counts(&mut self, now: SkippedByReason) -> bool {
        let mut is_new = false;
        for (reason, more) in now {
            if self.skipped.get(&reason).is_none_or(|known| known.count < more.count) {
                self.skipped.insert(reason, more);
                is_new = true;
            }
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::super::left_out::SkipCost;
    use super::*;

    fn skipped(parts: &[(&str, u64, &str)]) -> SkippedByReason {
        let of = |&(reason, count, example): &(&str, u64, &str)| {
            (reason.to_owned(), Skipped { count, example: example.to_owned(), loss: SkipCost::Sample })
        };
        parts.iter().map(of).collect()
    }

    #[test]
    fn a_place_that_changed_is_counted_anew_and_others_stay() {
        let place = |parts| Notes { skipped: skipped(parts), ..Notes::default() };
        let mut notes = place(&[("gif", 1, "a/1"), ("tar", 1, "a/t")]).assigned_to(b"a");
        notes.absorb(place(&[("gif", 2, "b/1")]).assigned_to(b"b"));
        notes.absorb(place(&[("gif", 1, "in a shard")]));
        assert_eq!(notes.skipped, skipped(&[("gif", 4, "a/1"), ("tar", 1, "a/t")]));
        assert!(!notes.replace_skipped(b"b", skipped(&[("gif", 2, "b/1")])));
        assert!(notes.replace_skipped(b"a", skipped(&[("gif", 1, "a/2"), ("tar", 1, "a/t")])));
        assert_eq!(notes.skipped["gif"].example, "a/2");
        assert!(notes.replace_skipped(b"a", skipped(&[])));
        assert_eq!(notes.skipped, skipped(&[("gif", 3, "b/1")]));
        assert!(notes.replace_skipped(b"c", skipped(&[("tar", 1, "c/t")])));
        assert!(notes.replace_skipped(b"c", skipped(&[])));
        assert!(!notes.replace_skipped(b"c", skipped(&[])));
        assert_eq!(notes.skipped, skipped(&[("gif", 3, "b/1")]));
    }
}
