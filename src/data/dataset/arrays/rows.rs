//! The arrays of a shard as an indexer returns them, and as the index file stores them.
//!
//! The index has a list of facts (`Section::Arrays`, as JSON), in which equal facts of many shards are one entry. It
//! also has a row of [`TABLE_ROW`] bytes for each array of each shard, the lengths of dimensions, and a row of
//! [`CELL_ROW`] bytes for each chunk whose place cannot be computed.

use super::filters::ChunkFilter;
use super::{CfFacts, check};
use crate::dataset::SampleAxis;
use crate::dataset::format::{u32_at, u64_at};
use crate::dataset::part::MAX_OFFSET;
use pixels::arrays::{MemoryOrder, StoredType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// What is the same for all samples of an array, and often for the arrays of many shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayFacts {
    /// The name by which a field selects the array, such as `/climate/data`.
    pub name: String,
    /// The type of the elements.
    pub stored: StoredType,
    /// The order of the elements in a cell.
    pub order: MemoryOrder,
    /// The filters of each chunk, in the order in which they were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<ChunkFilter>,
    /// The element that absent chunks consist of, as stored; empty if it is zero.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill: Vec<u8>,
    /// The decoding that the array's attributes ask for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cf: Option<CfFacts>,
}

impl ArrayFacts {
    pub(super) fn element_bytes(&self) -> u64 {
        self.stored.number.size() as u64
    }
}

/// An array of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardArray {
    /// What the array has in common with the arrays of other shards.
    pub facts: ArrayFacts,
    /// The lengths of the dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Where the elements are.
    pub storage: ArrayStorage,
}

/// Where the elements of an array are. Files are numbered from the shard's own file, which has number 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayStorage {
    /// All elements in one place.
    Run {
        /// The number of the file.
        file: u32,
        /// The offset of the first element.
        start: u64,
    },
    /// Chunks in any place, each with its size as stored. Chunks at the ends of dimensions are stored whole.
    Grid {
        /// The lengths of the dimensions of a chunk.
        chunk: Vec<u64>,
        /// The chunks in the order of the grid.
        cells: Vec<ChunkCell>,
    },
    /// Rows of different lengths. The first dimension of a row has as many elements as its cell; the other dimensions
    /// are those of the shape after the first.
    Rows {
        /// The cell of each row.
        cells: Vec<ChunkCell>,
    },
    /// Nothing is stored: all elements have the fill value.
    Fill,
}

/// The place of a chunk, or of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkCell {
    /// The number of the file.
    pub file: u32,
    /// The offset of the first byte; [`ChunkCell::ABSENT`] if nothing is stored, so that all elements have the fill
    /// value.
    pub offset: u64,
    /// The number of bytes as stored.
    pub length: u32,
    /// The filters that were left out: bit n stands for filter n.
    pub mask: u32,
    /// A number that differs for another version of a file that has no stamp; else 0.
    pub version: u32,
}

impl ChunkCell {
    /// The offset of a chunk that is not stored.
    pub const ABSENT: u64 = u64::MAX;

    /// The cell of a chunk that is not stored.
    pub const fn absent() -> Self {
        Self { file: 0, offset: Self::ABSENT, length: 0, mask: 0, version: 0 }
    }

    pub(in crate::dataset) fn is_absent(&self) -> bool {
        self.offset == Self::ABSENT
    }

    /// The cell with its file counted from another one.
    fn moved(self, base: u32) -> Self {
        Self { file: if self.is_absent() { 0 } else { self.file.saturating_add(base) }, ..self }
    }

    fn to_bytes(self) -> [u8; CELL_ROW] {
        let mut bytes = [0; CELL_ROW];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        for (at, value) in [(8, self.file), (12, self.length), (16, self.mask), (20, self.version)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; CELL_ROW]) -> Self {
        Self {
            file: u32_at(bytes, 8),
            offset: u64_at(bytes, 0),
            length: u32_at(bytes, 12),
            mask: u32_at(bytes, 16),
            version: u32_at(bytes, 20),
        }
    }
}

impl ShardArray {
    /// The number of bytes that are stored. The array must have been checked.
    pub(in crate::dataset) fn stored_bytes(&self) -> u64 {
        match &self.storage {
            ArrayStorage::Run { .. } => self
                .shape
                .iter()
                .fold(self.facts.element_bytes(), |bytes, length| bytes.saturating_mul(*length)),
            ArrayStorage::Grid { cells, .. } | ArrayStorage::Rows { cells } => {
                cells.iter().map(|cell| u64::from(cell.length)).sum()
            }
            ArrayStorage::Fill => 0,
        }
    }

    /// The array with its files counted from another one.
    pub(in crate::dataset) fn moved(mut self, base: u32) -> Self {
        match &mut self.storage {
            ArrayStorage::Run { file, .. } => *file = file.saturating_add(base),
            ArrayStorage::Grid { cells, .. } | ArrayStorage::Rows { cells } => {
                cells.iter_mut().for_each(|cell| *cell = cell.moved(base));
            }
            ArrayStorage::Fill => {}
        }
        self
    }

    fn cells(&self) -> &[ChunkCell] {
        match &self.storage {
            ArrayStorage::Grid { cells, .. } | ArrayStorage::Rows { cells } => cells,
            _ => &[],
        }
    }

    /// The row of the array in the index. The numbers of the group and of the facts, and the places of dimensions and
    /// cells in their sections, are known only when the index is written.
    fn row(&self) -> ArrayRow {
        let (kind, file, start) = match &self.storage {
            ArrayStorage::Run { file, start } => (RowKind::Run, *file, *start),
            ArrayStorage::Grid { .. } => (RowKind::Grid, 0, 0),
            ArrayStorage::Rows { .. } => (RowKind::Rows, 0, 0),
            ArrayStorage::Fill => (RowKind::Fill, 0, 0),
        };
        let (rank, cells) = (self.shape.len() as u32, self.cells().len() as u64);
        ArrayRow { group: 0, facts: 0, file, kind, rank, dims: 0, start, cells }
    }
}

/// The number of cells of a grid in each dimension, multiplied.
pub(super) fn grid_cells(shape: &[u64], cell: &[u64]) -> u64 {
    let counts = shape.iter().zip(cell).map(|(length, cell)| length.div_ceil((*cell).max(1)));
    counts.fold(1, u64::saturating_mul)
}

/// The lengths of all dimensions that the index stores of an array: of its shape, then of its chunks.
fn dims_of(array: &ShardArray) -> Vec<u64> {
    let chunk = match &array.storage {
        ArrayStorage::Grid { chunk, .. } => &chunk[..],
        _ => &[],
    };
    [&array.shape[..], chunk].concat()
}

/// The size of an array's row in the index, in bytes.
pub(in crate::dataset) const TABLE_ROW: usize = 40;
/// The size of a chunk's row in the index, in bytes.
pub(in crate::dataset) const CELL_ROW: usize = 24;
/// The largest number of dimensions, as in HDF5.
pub(super) const MAX_RANK: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    Run,
    Grid,
    Rows,
    Fill,
}

impl RowKind {
    const ALL: [Self; 4] = [Self::Run, Self::Grid, Self::Rows, Self::Fill];
}

/// The row of an array in the index. It has the numbers of the group, of the facts and of the file (u32 each), and the
/// kind of storage and the rank (u16 each). Then it has the number of the first dimension, the offset or the number of
/// the first cell, and the number of cells (u64 each).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrayRow {
    pub(super) group: u32,
    pub(super) facts: u32,
    pub(super) file: u32,
    pub(super) kind: RowKind,
    rank: u32,
    dims: u64,
    pub(super) start: u64,
    cells: u64,
}

impl ArrayRow {
    fn to_bytes(self) -> [u8; TABLE_ROW] {
        let mut bytes = [0; TABLE_ROW];
        let kind = self.kind as u32 | self.rank << 16;
        for (at, value) in [(0, self.group), (4, self.facts), (8, self.file), (12, kind)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(16, self.dims), (24, self.start), (32, self.cells)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; TABLE_ROW]) -> Option<Self> {
        let kind = u32_at(bytes, 12);
        Some(Self {
            group: u32_at(bytes, 0),
            facts: u32_at(bytes, 4),
            file: u32_at(bytes, 8),
            kind: *RowKind::ALL.get((kind & 0xffff) as usize)?,
            rank: kind >> 16,
            dims: u64_at(bytes, 16),
            start: u64_at(bytes, 24),
            cells: u64_at(bytes, 32),
        })
    }

    fn has_cells(self) -> bool {
        matches!(self.kind, RowKind::Grid | RowKind::Rows)
    }
}

/// The facts of all arrays while an index is built. Equal facts are stored once.
#[derive(Default)]
pub(in crate::dataset) struct FactsTable(BTreeMap<String, u32>);

/// An array of a group while the index is built. Its cells are in the spill file.
pub(in crate::dataset) struct SpilledArray {
    row: ArrayRow,
    dims: Vec<u64>,
    pub(in crate::dataset) cells: Range<u64>,
    /// The number of its first file, counted from the group, if its files are not the group's own.
    pub(in crate::dataset) base: u32,
}

impl FactsTable {
    /// Returns the array as it is kept until the index is written, and the bytes of its cells. The caller writes them
    /// to the spill file, where they begin at `at`.
    pub(in crate::dataset) fn add(&mut self, array: &ShardArray, at: u64) -> (SpilledArray, Vec<u8>) {
        let next = self.0.len() as u32;
        let facts = serde_json::to_string(&array.facts).unwrap_or_default();
        let facts = *self.0.entry(facts).or_insert(next);
        let cells: Vec<u8> = array.cells().iter().flat_map(|cell| cell.to_bytes()).collect();
        let row = ArrayRow { facts, ..array.row() };
        let end = at + cells.len() as u64;
        (SpilledArray { row, dims: dims_of(array), cells: at..end, base: 0 }, cells)
    }

    /// The list of facts as JSON, sorted, so that it does not depend on the order of reading.
    pub(in crate::dataset) fn json(&self) -> String {
        let facts: Vec<&str> = self.0.keys().map(String::as_str).collect();
        format!("[{}]", facts.join(","))
    }

    /// The rows of the arrays of all groups, in the order of the groups.
    pub(in crate::dataset) fn rows<'a>(
        &self,
        groups: impl Iterator<Item = &'a [SpilledArray]>,
    ) -> Vec<[u8; TABLE_ROW]> {
        let mut sorted = vec![0; self.0.len()];
        for (place, number) in (0..).zip(self.0.values()) {
            sorted[*number as usize] = place;
        }
        let (mut dims, mut cells, mut rows) = (0, 0, Vec::new());
        for (group, arrays) in (0..).zip(groups) {
            for array in arrays {
                let is_run = array.row.kind == RowKind::Run;
                let file = array.row.file.saturating_add(if is_run { array.base } else { 0 });
                let facts = sorted[array.row.facts as usize];
                let mut row = ArrayRow { group, facts, file, dims, ..array.row };
                if row.has_cells() {
                    row.start = cells;
                }
                rows.push(row.to_bytes());
                dims += array.dims.len() as u64;
                cells += array.row.cells;
            }
        }
        rows
    }
}

impl SpilledArray {
    pub(in crate::dataset) fn cell_count(&self) -> u64 {
        self.row.cells
    }

    /// The row of a cell with the number that its file has in the whole index.
    pub(in crate::dataset) fn moved(&self, cell: &[u8; CELL_ROW]) -> [u8; CELL_ROW] {
        ChunkCell::from_bytes(cell).moved(self.base).to_bytes()
    }

    pub(in crate::dataset) fn dim_bytes(&self) -> Vec<u8> {
        self.dims.iter().flat_map(|length| length.to_le_bytes()).collect()
    }
}

/// The sections of an index that describe arrays. Nothing in them is trusted: a damaged section can give other arrays,
/// but no access out of bounds.
#[derive(Clone, Copy)]
pub(in crate::dataset) struct ArrayTable<'a> {
    pub(in crate::dataset) rows: &'a [u8],
    pub(in crate::dataset) dims: &'a [u8],
    pub(in crate::dataset) cells: &'a [u8],
}

/// An array of a shard in the index.
pub(super) struct IndexedArray<'a> {
    pub(super) row: ArrayRow,
    pub(super) shape: Vec<u64>,
    /// The lengths of the dimensions of a cell: of a chunk, or of the whole array.
    pub(super) cell: Vec<u64>,
    pub(super) cells: &'a [[u8; CELL_ROW]],
}

impl<'a> ArrayTable<'a> {
    pub(in crate::dataset) fn len(&self) -> usize {
        self.rows.as_chunks::<TABLE_ROW>().0.len()
    }

    /// The numbers of an array's group and facts.
    pub(in crate::dataset) fn key(&self, number: usize) -> Option<(u32, u32)> {
        let row = self.rows.as_chunks::<TABLE_ROW>().0.get(number)?;
        Some((u32_at(row, 0), u32_at(row, 4)))
    }

    /// The number of an array's first chunk among those of all arrays, and the number of chunks in each dimension;
    /// `None` for an array without rows for its chunks.
    pub(in crate::dataset) fn grid(&self, number: usize) -> Option<(u64, Vec<u64>)> {
        let IndexedArray { row, shape, cell, .. } = self.get(number)?;
        let counts = shape.iter().zip(&cell).map(|(length, cell)| length.div_ceil((*cell).max(1)));
        (row.kind == RowKind::Grid).then(|| (row.start, counts.collect()))
    }

    /// The numbers of the arrays of a group.
    pub(in crate::dataset) fn of_group(&self, group: u32) -> Range<usize> {
        let rows = self.rows.as_chunks::<TABLE_ROW>().0;
        let first = |group| rows.partition_point(|row| u64::from(u32_at(row, 0)) < group);
        first(group.into())..first(u64::from(group) + 1)
    }

    /// An array by its number; `None` if a damaged index has no such array.
    pub(super) fn get(&self, number: usize) -> Option<IndexedArray<'a>> {
        let row = ArrayRow::from_bytes(self.rows.as_chunks::<TABLE_ROW>().0.get(number)?)?;
        let rank = Some(row.rank as usize).filter(|&rank| rank <= MAX_RANK)?;
        let is_grid = row.kind == RowKind::Grid;
        let dims = if is_grid { 2 * rank } else { rank };
        let first = usize::try_from(row.dims).ok()?;
        let dims = self.dims.as_chunks::<8>().0.get(first..first.checked_add(dims)?)?;
        let mut shape: Vec<u64> = dims.iter().map(|length| u64::from_le_bytes(*length)).collect();
        let cell = if is_grid { shape.split_off(rank) } else { shape.clone() };
        let cells = match row.has_cells() {
            true => {
                let first = usize::try_from(row.start).ok()?;
                let count = usize::try_from(row.cells).ok()?;
                self.cells.as_chunks::<CELL_ROW>().0.get(first..first.checked_add(count)?)?
            }
            false => &[],
        };
        Some(IndexedArray { row, shape, cell, cells })
    }

    /// An array by its number, as an indexer returned it.
    pub(in crate::dataset) fn found(&self, number: usize, facts: &[ArrayFacts]) -> Option<ShardArray> {
        let array = self.get(number)?;
        Some(array.found(facts.get(array.row.facts as usize)?))
    }

    /// Whether all arrays are sorted by group, and are arrays that an indexer can have found. An index with forged
    /// digests can still have arrays in other places than the dataset.
    pub(in crate::dataset) fn is_consistent(&self, groups: u64, facts: &[ArrayFacts]) -> bool {
        let is_found = |number: usize| {
            let array = self.get(number)?;
            let before =
                number.checked_sub(1).and_then(|before| self.key(before)).map_or(0, |(group, _)| group);
            let is_sorted = before <= array.row.group && u64::from(array.row.group) < groups;
            let facts = facts.get(array.row.facts as usize).filter(|_| is_sorted)?;
            check(&array.found(facts), |_| MAX_OFFSET).ok()
        };
        (0..self.len()).all(|number| is_found(number).is_some())
    }
}

impl IndexedArray<'_> {
    /// The shape of the array of one sample; `None` for a dimension in which samples differ.
    pub(super) fn sample_shape(&self, axis: SampleAxis) -> Vec<Option<u64>> {
        let mut shape: Vec<Option<u64>> = self.shape.iter().copied().map(Some).collect();
        match (axis, shape.first_mut()) {
            (SampleAxis::Axis0, Some(rows)) if self.row.kind == RowKind::Rows => *rows = None,
            (SampleAxis::Axis0, Some(_)) => drop(shape.remove(0)),
            _ => {}
        }
        shape
    }

    /// The array as an indexer returned it.
    pub(super) fn found(&self, facts: &ArrayFacts) -> ShardArray {
        let (file, start, chunk) = (self.row.file, self.row.start, self.cell.clone());
        let cells = || self.cells.iter().map(ChunkCell::from_bytes).collect();
        let storage = match self.row.kind {
            RowKind::Run => ArrayStorage::Run { file, start },
            RowKind::Grid => ArrayStorage::Grid { chunk, cells: cells() },
            RowKind::Rows => ArrayStorage::Rows { cells: cells() },
            RowKind::Fill => ArrayStorage::Fill,
        };
        ShardArray { facts: facts.clone(), shape: self.shape.clone(), storage }
    }
}
