//! The files of arrays that are not shards: files of one chunk each, which are numbered after the groups as the chunks
//! are, and groups without samples, which are the other files and directories on which an array depends.

use super::DatasetPart;
use crate::dataset::arrays::{ArrayFile, CELL_ROW};
use crate::dataset::format::Section;
use crate::dataset::spill::directory_of;
use crate::dataset::zarr::ChunkKeys;
use crate::dataset::{FileId, Layout, Stamp};
use std::ops::Range;

/// An array whose chunks are files of their own.
pub(in crate::dataset) struct ChunkFiles {
    /// The number of its first chunk among the chunks of all arrays.
    first: u64,
    group: usize,
    /// The number of chunks in each dimension.
    grid: Vec<u64>,
    keys: ChunkKeys,
}

impl DatasetPart {
    /// The arrays whose chunks are files of their own, in the order of their chunks.
    pub(super) fn find_chunk_files(&self) -> Vec<ChunkFiles> {
        let (table, all_keys) = (self.file.arrays(), &self.notes.chunk_keys);
        let found = |number| {
            let group = table.key(number)?.0 as usize;
            let path = self.group_path(Some(group).filter(|group| *group < self.groups())?);
            let keys = *all_keys.get(&*String::from_utf8_lossy(path))?;
            let (first, grid) = table.grid(number)?;
            Some(ChunkFiles { first, group, grid, keys })
        };
        if all_keys.is_empty() { Vec::new() } else { (0..table.len()).filter_map(found).collect() }
    }

    /// The number of files that hold one chunk each, and of the numbers in between that no file has.
    pub(super) fn chunk_file_numbers(&self) -> u64 {
        let chunks = self.file.section(Section::ChunkCells).len() / CELL_ROW;
        if self.chunk_files.is_empty() { 0 } else { chunks as u64 }
    }

    /// Whether chunks are files of their own, which have no stamp in the index.
    pub(in crate::dataset) fn has_chunk_files(&self) -> bool {
        !self.chunk_files.is_empty()
    }

    /// The path below the root of a file that holds one chunk; `None` for a shard.
    pub(super) fn chunk_file(&self, file: FileId) -> Option<Vec<u8>> {
        let number = u64::from(file.0).checked_sub(self.groups() as u64)?;
        let at = self.chunk_files.partition_point(|files| files.first <= number).checked_sub(1)?;
        let ChunkFiles { first, group, grid, keys } = &self.chunk_files[at];
        let name = keys.name(number - first, grid);
        Some([directory_of(self.group_path(*group)), name.as_bytes()].concat())
    }

    /// Whether a file is a group: a shard, or a file that belongs to one.
    pub(in crate::dataset) fn is_group(&self, file: FileId) -> bool {
        (file.0 as usize) < self.groups()
    }

    pub(super) fn find_shards(&self) -> usize {
        let groups = self.groups() as u64;
        // The samples of parallel directories are one group, which the groups of the directories belong to.
        if self.layout() == Layout::Parallel {
            return groups.min(1) as usize;
        }
        let Some(of) = self.layout().shards() else { return groups as usize };
        super::search(0, groups, |group| !of.is_part(self.group_path(group as usize))) as usize
    }

    /// The number of groups that are shards. The groups after them belong to shards.
    pub(in crate::dataset) fn shards(&self) -> usize {
        self.shards
    }

    /// The groups that belong to a shard, which are sorted by their paths.
    pub(in crate::dataset) fn parts_of(&self, shard: usize) -> Range<usize> {
        let directory = directory_of(self.group_path(shard));
        let first = |is_before: &dyn Fn(&[u8]) -> bool| {
            let of = |group| is_before(self.group_path(group as usize));
            super::search(self.shards as u64, self.groups() as u64, of) as usize
        };
        first(&|path| path < directory)..first(&|path| path < directory || path.starts_with(directory))
    }

    /// Replaces each group that belongs to a shard by that shard. Directories of such shards are not nested.
    pub(in crate::dataset) fn owners(&self, mut groups: Vec<usize>) -> Vec<usize> {
        groups.sort_unstable();
        let shards = self.shards();
        if shards == self.groups() {
            return groups;
        }
        let names: Vec<&[u8]> = (0..shards).map(|shard| directory_of(self.group_path(shard))).collect();
        let owner = |group: usize| {
            let path = self.group_path(group);
            if group < shards { Some(group) } else { names.iter().position(|name| path.starts_with(name)) }
        };
        let mut owners: Vec<usize> = groups.into_iter().filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The stamps of a shard and of the files that belong to it, as they are compared.
    pub(in crate::dataset) fn known_stamps(
        &self,
        shard: usize,
        stamp: Stamp,
        files: Vec<ArrayFile>,
    ) -> impl Iterator<Item = (usize, Stamp)> {
        let parts = self.parts_of(shard).zip(files).map(|(part, file)| (part, file.stamp));
        std::iter::once((shard, stamp)).chain(parts).map(|(group, stamp)| (group, self.known(stamp)))
    }

    /// Whether the files that belong to a shard are other files than when it was indexed.
    pub(in crate::dataset) fn has_other_files(&self, shard: usize, found: &[ArrayFile]) -> bool {
        let known = self.parts_of(shard).map(|group| self.group_path(group));
        !known.eq(found.iter().map(|file| &file.path[..]))
    }

    /// The number of the first file of a shard's arrays, counted from the shard's own file.
    pub(in crate::dataset) fn first_array_file(&self, shard: usize) -> u32 {
        let of_chunks = self.chunk_files.iter().find(|files| files.group == shard);
        let first = match of_chunks {
            Some(files) => self.groups() as u64 + files.first,
            None => {
                Some(self.parts_of(shard)).filter(|parts| !parts.is_empty()).map_or(0, |of| of.start as u64)
            }
        };
        u32::try_from(first.saturating_sub(shard as u64)).unwrap_or(u32::MAX)
    }
}
