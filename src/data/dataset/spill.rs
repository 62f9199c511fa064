//! Locations of the rows of a group in the spill file of an index that is being built.

use super::FieldKind;
use super::Stamp;
use super::blocks::CompressedBlock;
use super::cells::{CellType, ColumnFacts};
use super::member::MEMBER_ROW;
use base::parts::RawHeaderSummary;
use std::ops::Range;

/// A group of samples (a shard, a directory or a manifest) whose rows are in the spill file, one kind of row after
/// another. A shard has lengths, labels, offsets, header summaries, member counts and members. A directory has lengths,
/// ends of names, and names. A manifest has the rows of a directory, then labels.
#[derive(Default)]
pub(super) struct SpilledGroup {
    pub(super) class: u32,
    pub(super) path: Vec<u8>,
    pub(super) stamp: Stamp,
    pub(super) at: u64,
    pub(super) samples: u64,
    pub(super) names: u64,
    /// The sizes in bytes of the prefix and the suffix that all names share. Both are stored after the path.
    pub(super) affixes: [usize; 2],
    pub(super) keys: Vec<String>,
    pub(super) members: u64,
    /// The number of header summaries: one per sample in a packed shard, none in other shards.
    pub(super) header_summaries: u64,
    /// The kinds of the members, by key; empty if the keys determine the kinds.
    pub(super) kinds: Vec<FieldKind>,
    pub(super) columns: Vec<SpilledColumn>,
    /// The compressed blocks. There are few blocks compared with the samples, so the blocks stay in memory.
    pub(super) blocks: Vec<CompressedBlock>,
}

pub(super) struct SpilledColumn {
    pub(super) facts: ColumnFacts,
    pub(super) at: u64,
}

impl SpilledColumn {
    /// The range of the presence bytes: a u8 for each sample, which says whether the sample has a value.
    pub(super) fn present(&self, samples: u64) -> Range<u64> {
        self.at..self.at + samples
    }

    /// The range of the values. For strings, these are the lengths of the strings (u32).
    pub(super) fn values(&self, samples: u64) -> Range<u64> {
        let width = if self.facts.cells == CellType::Texts { 4 } else { self.facts.cells.width() };
        let start = self.present(samples).end;
        start..start + width * samples
    }

    /// The range of the strings, which are stored one after another.
    pub(super) fn texts(&self, samples: u64) -> Range<u64> {
        let start = self.values(samples).end;
        start..start + self.facts.text_bytes
    }
}

impl SpilledGroup {
    pub(super) fn column(&self, name: &str) -> Option<&SpilledColumn> {
        self.columns.iter().find(|column| column.facts.name == name)
    }

    fn rows(&self, start: u64, each: u64) -> Range<u64> {
        start..start + each * self.samples
    }

    pub(super) fn lengths(&self) -> Range<u64> {
        self.rows(self.at, 4)
    }

    pub(super) fn labels(&self) -> Range<u64> {
        self.rows(self.lengths().end, 4)
    }

    pub(super) fn offsets(&self) -> Range<u64> {
        self.rows(self.labels().end, 8)
    }

    pub(super) fn header_summaries(&self) -> Range<u64> {
        let start = self.offsets().end;
        start..start + size_of::<RawHeaderSummary>() as u64 * self.header_summaries
    }

    pub(super) fn counts(&self) -> Range<u64> {
        self.rows(self.header_summaries().end, 4)
    }

    pub(super) fn members(&self) -> Range<u64> {
        let start = self.counts().end;
        start..start + MEMBER_ROW as u64 * self.members
    }

    /// The range of the ends of the file names (u32): offsets within the names of the group.
    pub(super) fn name_ends(&self) -> Range<u64> {
        self.rows(self.lengths().end, 4)
    }

    pub(super) fn names(&self) -> Range<u64> {
        let start = self.name_ends().end;
        start..start + self.names
    }

    pub(super) fn listed_labels(&self) -> Range<u64> {
        self.rows(self.names().end, 4)
    }

    pub(super) fn own_path(&self) -> &[u8] {
        &self.path[..self.path.len() - self.affixes[0] - self.affixes[1]]
    }
}

/// The longest prefix and suffix that all names share. The prefix and the suffix do not overlap in any name.
pub(super) fn affixes<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> (&'a [u8], &'a [u8]) {
    let Some(first) = names.next() else { return Default::default() };
    let (mut prefix, mut suffix, mut shortest) = (first.len(), first.len(), first.len());
    for name in names {
        let same = |(a, b): &(&u8, &u8)| a == b;
        prefix = first[..prefix].iter().zip(name).take_while(same).count();
        let end = first[first.len() - suffix..].iter().rev();
        suffix = end.zip(name.iter().rev()).take_while(same).count();
        shortest = shortest.min(name.len());
    }
    (&first[..prefix], &first[first.len() - suffix.min(shortest - prefix)..])
}
