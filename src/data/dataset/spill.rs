//! Locations of the rows of a group in the spill file of an index that is being built.

use super::arrays::SpilledArray;
use super::blocks::CompressedBlock;
use super::cells::ColumnFacts;
use super::member::MEMBER_ROW;
use super::{FieldKind, Notes, Stamp};
use base::parts::RawHeaderSummary;
use std::ops::Range;

/// The class of groups without samples that belong to other shards, which sorts them after all shards.
pub(super) const CLASS_OF_FILES: u32 = 1;

/// A group of samples (a shard, a directory or a manifest) whose rows are in the spill file, one kind of row after
/// another. A shard has lengths, labels, offsets, header summaries, member counts and members. A directory has lengths,
/// ends of names, and names. A manifest has the rows of a directory, then labels. A shard of arrays has
/// labels, then the cells of its arrays.
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
    /// Whether samples are rows of arrays, which have labels but neither lengths nor offsets.
    pub(super) is_of_arrays: bool,
    pub(super) arrays: Vec<SpilledArray>,
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
        let width = if self.facts.cells.has_ends() { 4 } else { self.facts.cells.width() };
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
        self.rows(self.at, if self.is_of_arrays { 0 } else { 4 })
    }

    pub(super) fn labels(&self) -> Range<u64> {
        self.rows(self.lengths().end, 4)
    }

    pub(super) fn offsets(&self) -> Range<u64> {
        self.rows(self.labels().end, if self.is_of_arrays { 0 } else { 8 })
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

/// Numbers the files of arrays that are not in a shard. Those with a stamp are groups; the files of chunks are numbered
/// after all groups, as the chunks are ([`DatasetPart::chunk_file`](super::part::DatasetPart)).
pub(super) fn number_array_files(groups: &mut [SpilledGroup], notes: &Notes) {
    let of_files = |group: &SpilledGroup| (group.class == CLASS_OF_FILES).then(|| group.path.clone());
    let files: Vec<Vec<u8>> = groups.iter().filter_map(of_files).collect();
    let count = groups.len();
    let mut cells = 0;
    for (number, group) in groups.iter_mut().enumerate() {
        let directory = directory_of(&group.path);
        for array in &mut group.arrays {
            let first = match notes.has_chunk_files(&group.path) {
                true => Some(count as u64 + cells),
                false => first_below(&files, directory).map(|first| (count - files.len() + first) as u64),
            };
            cells += array.cell_count();
            array.base = first.map_or(0, |first| u32::try_from(first - number as u64).unwrap_or(u32::MAX));
        }
    }
}

/// The first of sorted paths that is in a directory; `None` if there is none.
pub(super) fn first_below(paths: &[impl AsRef<[u8]>], directory: &[u8]) -> Option<usize> {
    let first = paths.partition_point(|path| path.as_ref() < directory);
    paths.get(first).filter(|path| path.as_ref().starts_with(directory)).map(|_| first)
}

/// The directory of a path, with a slash at its end unless it is the root.
pub(super) fn directory_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)]
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
