//! A sorted list with fast access to the n-th entry: a list of sorted chunks.
//!
//! Inserting or removing moves at most the entries of one chunk. Finding the n-th entry adds up the lengths of the
//! chunks. With a million entries both take a few microseconds.

use super::KeptSample;

/// The maximum number of entries of a chunk. A full chunk takes 40 KiB.
const MAX_CHUNK: usize = 1024;

/// The sort key of an entry: its part, its random key, its id.
pub(super) type Position = (u32, u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservoirEntry {
    pub part: u32,
    pub kept: KeptSample,
}

impl ReservoirEntry {
    pub(super) fn position(&self) -> Position {
        (self.part, self.kept.order, self.kept.id)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct SortedEntries {
    /// No chunk is empty.
    chunks: Vec<Vec<ReservoirEntry>>,
    len: usize,
}

impl SortedEntries {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of the chunk that contains `position` or in which it belongs.
    fn chunk(&self, position: Position) -> usize {
        self.chunks.partition_point(|chunk| chunk[0].position() <= position).saturating_sub(1)
    }

    fn find(&self, position: Position) -> Option<(usize, usize)> {
        let chunk = self.chunk(position);
        let found = self.chunks.get(chunk)?.binary_search_by_key(&position, ReservoirEntry::position);
        Some((chunk, found.ok()?))
    }

    pub(super) fn insert(&mut self, entry: ReservoirEntry) {
        self.len += 1;
        let number = self.chunk(entry.position());
        let Some(chunk) = self.chunks.get_mut(number) else {
            self.chunks.push(vec![entry]);
            return;
        };
        let at = chunk.partition_point(|other| other.position() < entry.position());
        debug_assert!(chunk.get(at).is_none_or(|other| other.position() != entry.position()));
        chunk.insert(at, entry);
        if chunk.len() > MAX_CHUNK {
            let upper = chunk.split_off(MAX_CHUNK / 2);
            self.chunks.insert(number + 1, upper);
        }
    }

    pub(super) fn remove(&mut self, position: Position) -> Option<ReservoirEntry> {
        let (number, at) = self.find(position)?;
        self.len -= 1;
        let removed = self.chunks[number].remove(at);
        // Merge small neighbours, so that the number of chunks stays in proportion to the number of entries.
        let left = self.chunks[number].len();
        if left == 0 {
            self.chunks.remove(number);
        } else if left < MAX_CHUNK / 4
            && self.chunks.get(number + 1).is_some_and(|next| left + next.len() < MAX_CHUNK)
        {
            let next = self.chunks.remove(number + 1);
            self.chunks[number].extend(next);
        }
        Some(removed)
    }

    pub(super) fn get(&self, position: Position) -> Option<&KeptSample> {
        let (chunk, at) = self.find(position)?;
        Some(&self.chunks[chunk][at].kept)
    }

    pub(super) fn get_mut(&mut self, position: Position) -> Option<&mut KeptSample> {
        let (chunk, at) = self.find(position)?;
        Some(&mut self.chunks[chunk][at].kept)
    }

    /// The last entry of `part`, which is evicted first.
    pub(super) fn last_of(&self, part: u32) -> Option<&ReservoirEntry> {
        let end = (part, u64::MAX, u64::MAX);
        let chunk = self.chunks.get(self.chunk(end))?;
        let at = chunk.partition_point(|entry| entry.position() <= end).checked_sub(1)?;
        Some(&chunk[at]).filter(|entry| entry.part == part)
    }

    /// The ids of the entries at these indices of the sorted list, in the order of `ranks`. Each index must be below
    /// the number of entries.
    pub(super) fn at_ranks(&self, ranks: &[usize]) -> Vec<u64> {
        let mut sorted: Vec<(usize, usize)> = ranks.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut ids = vec![0; ranks.len()];
        let (mut chunks, mut before) = (self.chunks.iter(), 0);
        let mut chunk: &[ReservoirEntry] = &[];
        for (rank, place) in sorted {
            while rank - before >= chunk.len() {
                before += chunk.len();
                chunk = chunks.next().expect("the rank of an entry");
            }
            ids[place] = chunk[rank - before].kept.id;
        }
        ids
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ReservoirEntry> {
        self.chunks.iter().flatten()
    }
}
