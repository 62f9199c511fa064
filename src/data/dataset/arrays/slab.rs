//! One array of one sample: which parts of its bytes a window touches.
//!
//! The elements of a sample's array are in cells: in the chunks of a grid, or all in one cell. The record of the sample
//! has the cells one after another, in the order of the grid. A cell that must be decoded is needed whole. Of any other
//! cell, a window needs spans of bytes, which are computed here.

use super::rows::{IndexedArray, RowKind, grid_cells};
use super::{ArrayFacts, CELL_ROW, CHUNKS, CHUNKS_OF_ARRAY, ChunkCell};
use crate::dataset::blocks::APART;
use crate::dataset::part::MAX_OFFSET;
use crate::dataset::{Extent, FileId};
use pixels::arrays::MemoryOrder;
use std::ops::Range;

/// Parts of a cell that are at most this many bytes apart are one span. Each span costs about as much as copying this
/// many bytes.
const GAP: u64 = 4 << 10;

/// A box in an array: its first index and its length in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayRegion {
    /// The first index in each dimension.
    pub start: Vec<u64>,
    /// The length in each dimension.
    pub length: Vec<u64>,
}

impl ArrayRegion {
    /// All of an array of this shape.
    pub fn whole(shape: &[u64]) -> Self {
        Self { start: vec![0; shape.len()], length: shape.to_vec() }
    }
}

/// Some elements of a window whose bytes are at one place of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPart {
    /// The bytes in the record; `None` if all elements have the fill value.
    pub record: Option<Range<u32>>,
    /// How the bytes must be decoded; `None` if they are the elements themselves.
    pub packed: Option<PackedCell>,
    /// The offset of the part's first element in these bytes after decoding. The distances to the others are
    /// [`Slab::strides`].
    pub first: u64,
    /// The elements, by their indices in the sample's array.
    pub overlap: ArrayRegion,
}

/// How a chunk is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedCell {
    /// The filters that were left out when this chunk was written: bit n stands for filter n.
    pub mask: u32,
    /// The number of bytes after decoding.
    pub bytes: u64,
}

/// A cell of a sample as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredCell {
    pub(super) extent: Extent,
    mask: u32,
    /// Whether the extent is that of a chunk as stored, which a filter was applied to.
    is_packed: bool,
}

/// Where the cells of a sample are.
enum CellPlaces<'a> {
    Nothing,
    /// All in one place.
    One(Extent),
    /// Chunks of the sample alone, or the row of a ragged array.
    Own(&'a [[u8; CELL_ROW]]),
    /// The bytes of the sample in unfiltered chunks that several samples share: their offset and length in a chunk.
    Within(&'a [[u8; CELL_ROW]], u64, u32),
    /// The bytes of the sample in chunks that several samples share and that must be decompressed: the address in the
    /// first chunk, the distance of chunks, and the length.
    Shared(&'a [[u8; CELL_ROW]], u64, u64, u32),
}

/// One array of one sample.
pub struct Slab<'a> {
    facts: &'a ArrayFacts,
    shape: Vec<u64>,
    cell: Vec<u64>,
    places: CellPlaces<'a>,
    /// The number of the shard's own file.
    file: u32,
    /// Where the cells begin in the record.
    at: u64,
    /// The number of rows in the same cells, from this row on; 1 if the sample is not a row.
    rows_left: u64,
}

/// The number of bytes of an array of this shape. Damaged numbers give the largest number.
fn bytes_of(facts: &ArrayFacts, shape: &[u64]) -> u64 {
    shape.iter().fold(facts.element_bytes(), |bytes, length| bytes.saturating_mul(*length))
}

fn short(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl<'a> Slab<'a> {
    /// The part of an array that belongs to a sample: row `row` of the array, or all of it. The array has the index
    /// `number` in its shard, whose own file has the number `file`. Its bytes in the record begin at `at`.
    pub(super) fn of(
        facts: &'a ArrayFacts,
        array: IndexedArray<'a>,
        row: Option<u64>,
        (file, number): (u32, u64),
        at: u64,
    ) -> Self {
        let IndexedArray { row: found, mut shape, mut cell, cells } = array;
        let offset = |start: u64, number: u64, stride: u64| {
            start.saturating_add(number.saturating_mul(stride)).min(MAX_OFFSET)
        };
        let one = |offset, bytes| {
            let file = FileId(file.saturating_add(found.file));
            CellPlaces::One(Extent { file, offset, length: short(bytes) })
        };
        let Some(row) = row else {
            let places = match found.kind {
                RowKind::Run => one(offset(found.start, 0, 0), bytes_of(facts, &cell)),
                RowKind::Grid | RowKind::Rows => CellPlaces::Own(cells),
                RowKind::Fill => CellPlaces::Nothing,
            };
            return Self { facts, shape, cell, places, file, at, rows_left: 1 };
        };
        let [rows_of_cell, rest @ ..] = &cell[..] else {
            return Self { facts, shape, cell, places: CellPlaces::Nothing, file, at, rows_left: 1 };
        };
        let (rows_of_cell, in_cell) = ((*rows_of_cell).max(1), row % (*rows_of_cell).max(1));
        let bytes = bytes_of(facts, rest);
        shape.remove(0);
        cell.remove(0);
        let count = grid_cells(&shape, &cell);
        let first = (row / rows_of_cell).saturating_mul(count);
        let own = || {
            let first = usize::try_from(first).unwrap_or(usize::MAX);
            let end = first.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)).min(cells.len());
            cells.get(first.min(end)..end).unwrap_or_default()
        };
        let places = match found.kind {
            RowKind::Fill => CellPlaces::Nothing,
            RowKind::Run => one(offset(found.start, row, bytes), bytes),
            RowKind::Rows => {
                let row =
                    usize::try_from(row).ok().and_then(|row| cells.get(row..)?.get(..1)).unwrap_or_default();
                let length = row.first().map_or(0, |cell| u64::from(ChunkCell::from_bytes(cell).length));
                shape.insert(0, length / bytes.max(1));
                cell.clone_from(&shape);
                CellPlaces::Own(row)
            }
            RowKind::Grid if rows_of_cell == 1 => CellPlaces::Own(own()),
            RowKind::Grid if facts.filters.is_empty() => {
                CellPlaces::Within(own(), offset(0, in_cell, bytes), short(bytes))
            }
            RowKind::Grid => {
                let step = bytes.saturating_mul(rows_of_cell).saturating_add(APART);
                let address = offset(offset(CHUNKS, number, CHUNKS_OF_ARRAY), first, step);
                CellPlaces::Shared(own(), offset(address, in_cell, bytes), step, short(bytes))
            }
        };
        Self { facts, shape, cell, places, file, at, rows_left: rows_of_cell - in_cell }
    }

    /// What the array has in common with those of other samples.
    pub fn facts(&self) -> &ArrayFacts {
        self.facts
    }

    /// The shape of the sample's array.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The distance between neighbouring elements of a cell in each dimension, in elements.
    pub fn strides(&self) -> Vec<u64> {
        self.facts.order.strides(&self.cell)
    }

    fn innermost_first(&self) -> Vec<usize> {
        let all = 0..self.cell.len();
        match self.facts.order {
            MemoryOrder::RowMajor => all.rev().collect(),
            MemoryOrder::ColumnMajor => all.collect(),
        }
    }

    /// The number of cells in the record.
    fn cells_in_record(&self) -> u64 {
        match &self.places {
            CellPlaces::Nothing => 0,
            CellPlaces::One(_) => grid_cells(&self.shape, &self.cell),
            CellPlaces::Own(cells) | CellPlaces::Within(cells, ..) | CellPlaces::Shared(cells, ..) => {
                cells.len() as u64
            }
        }
    }

    /// The number of samples, from this one on, in whose records the array has equally many bytes, in as many pieces of
    /// the same files.
    pub(in crate::dataset) fn alike(&self) -> u64 {
        match self.places {
            CellPlaces::Nothing | CellPlaces::One(_) => u64::MAX,
            CellPlaces::Own(_) => 1,
            CellPlaces::Within(..) | CellPlaces::Shared(..) => self.rows_left,
        }
    }

    /// A cell of the sample; `None` if it is absent, or if a damaged index has no such cell.
    fn stored(&self, number: u64) -> Option<StoredCell> {
        let cell = |cells: &[[u8; CELL_ROW]]| {
            let cell = ChunkCell::from_bytes(cells.get(usize::try_from(number).ok()?)?);
            (!cell.is_absent()).then_some(cell)
        };
        let of_file = |cell: ChunkCell| FileId(self.file.saturating_add(cell.file));
        let plain = |extent| Some(StoredCell { extent, mask: 0, is_packed: false });
        match self.places {
            CellPlaces::Nothing => None,
            CellPlaces::One(extent) => plain(extent),
            CellPlaces::Own(cells) => {
                let cell = cell(cells)?;
                let is_packed =
                    (0..self.facts.filters.len().min(32)).any(|filter| cell.mask >> filter & 1 == 0);
                let (file, offset) = (of_file(cell), cell.offset.min(MAX_OFFSET));
                let extent = Extent { file, offset, length: cell.length };
                Some(StoredCell { extent, mask: cell.mask, is_packed })
            }
            CellPlaces::Within(cells, within, length) => {
                let cell = cell(cells)?;
                let offset = cell.offset.saturating_add(within).min(MAX_OFFSET);
                plain(Extent { file: of_file(cell), offset, length })
            }
            CellPlaces::Shared(cells, address, step, length) => {
                let cell = cell(cells)?;
                let offset = address.saturating_add(number.saturating_mul(step)).min(MAX_OFFSET);
                plain(Extent { file: of_file(cell), offset, length })
            }
        }
    }

    /// The number of bytes of the array in the record. It may be more than a record can have.
    pub(in crate::dataset) fn bytes(&self) -> u64 {
        match &self.places {
            CellPlaces::Nothing => 0,
            // The length of an extent is limited to 4 GiB, so it is not used here.
            CellPlaces::One(_) => bytes_of(self.facts, &self.cell),
            _ => self.extents().map(|extent| u64::from(extent.length)).sum(),
        }
    }

    /// The extents of the array's cells in the order of the record.
    pub(in crate::dataset) fn extents(&self) -> impl Iterator<Item = Extent> {
        (0..self.cells_in_record()).filter_map(|number| Some(self.stored(number)?.extent))
    }

    /// The range of the record that holds the array.
    pub(in crate::dataset) fn range(&self) -> Range<u32> {
        short(self.at)..short(self.at.saturating_add(self.bytes()))
    }

    /// The ranges of the record that a window needs.
    pub fn touched(&self, window: &ArrayRegion) -> impl Iterator<Item = Range<u32>> {
        self.cells(window).filter_map(|part| part.record)
    }

    /// Returns how many cells a window of these lengths touches at most, and the ranges that it needs at most of one
    /// cell. Those of other cells may be elsewhere in the record. `None` is a dimension that is read whole.
    pub fn widest(&self, lengths: &[Option<u64>]) -> (u64, Vec<Range<u32>>) {
        let (mut count, mut one) = (1, ArrayRegion::whole(&self.shape));
        for (of, (whole, cell)) in self.shape.iter().zip(&self.cell).enumerate() {
            let length = lengths.get(of).copied().flatten().map_or(*whole, |length| length.min(*whole));
            let cell = (*cell).max(1);
            // A window that begins with the last element of a cell touches the most cells.
            let start = (cell - 1).min(whole - length);
            let touched = start.saturating_add(length).div_ceil(cell) - start / cell;
            count = touched.saturating_mul(count);
            one.length[of] = length.min(cell);
        }
        if let CellPlaces::One(_) = self.places {
            return (count, self.touched(&one).collect());
        }
        let largest = self.extents().map(|extent| extent.length).max();
        let range = |length: u32| short(self.at)..short(self.at.saturating_add(length.into()));
        (count, largest.map(range).into_iter().collect())
    }

    /// The parts of a window, which is clipped to the array. Together they have every element of it once. A record of
    /// which the ranges of [`Slab::touched`] were read has the bytes of all parts.
    pub fn cells(&self, window: &ArrayRegion) -> impl Iterator<Item = CellPart> {
        let clipped = |dimension: usize| {
            let shape = self.shape[dimension];
            let start = window.start.get(dimension).map_or(0, |&start| start.min(shape));
            let length = window.length.get(dimension).map_or(shape, |&length| length.min(shape - start));
            (start, length)
        };
        let (start, length): (Vec<u64>, Vec<u64>) = (0..self.shape.len()).map(clipped).unzip();
        let cell = |dimension: usize| self.cell[dimension].max(1);
        let first = |of: usize| start[of] / cell(of);
        let count = |of: usize| match length[of] {
            0 => 0,
            length => (start[of] + length - 1) / cell(of) - first(of) + 1,
        };
        let (first, counts) = (0..start.len()).map(|of| (first(of), count(of))).unzip();
        let grid = ArrayRegion { start: first, length: counts };
        let window = ArrayRegion { start, length };
        // The number of the next cell, and where it begins in the record.
        let (mut next, mut at) = (0, self.at);
        let innermost_first: Vec<usize> = (0..self.shape.len()).rev().collect();
        indices(grid, innermost_first).flat_map(move |index| {
            let number = self.number(&index);
            // Cells have different sizes, so add up those of the cells in between.
            for passed in next..number.min(self.cells_in_record()) {
                at += self.stored(passed).map_or(0, |stored| u64::from(stored.extent.length));
            }
            next = number;
            self.parts(&index, number, at, &window)
        })
    }

    /// The number of a cell in the order of the grid.
    fn number(&self, index: &[u64]) -> u64 {
        let counts = self.shape.iter().zip(&self.cell).map(|(length, cell)| length.div_ceil((*cell).max(1)));
        index
            .iter()
            .zip(counts)
            .fold(0, |number: u64, (index, count)| number.saturating_mul(count).saturating_add(*index))
    }

    /// The parts of a window in the cell at `index`, which begins at `at` in the record.
    fn parts(
        &self,
        index: &[u64],
        number: u64,
        at: u64,
        window: &ArrayRegion,
    ) -> impl Iterator<Item = CellPart> + use<> {
        let origin: Vec<u64> =
            index.iter().zip(&self.cell).map(|(index, cell)| index * (*cell).max(1)).collect();
        let overlap = |of: usize| {
            let start = window.start[of].max(origin[of]);
            let end =
                (window.start[of] + window.length[of]).min(origin[of].saturating_add(self.cell[of].max(1)));
            (start, end.saturating_sub(start))
        };
        let (start, length) = (0..index.len()).map(overlap).unzip();
        let overlap = ArrayRegion { start, length };
        let (strides, each) = (self.strides(), self.facts.element_bytes());
        let place = move |start: &[u64]| {
            let steps = (0..start.len()).map(|of| (start[of] - origin[of]).saturating_mul(strides[of]));
            steps.fold(0, u64::saturating_add).saturating_mul(each)
        };
        let range = move |from: u64, bytes: u64| {
            let start = at.saturating_add(from);
            Some(short(start)..short(start.saturating_add(bytes)))
        };
        let stored = self.stored(number);
        let whole = match stored {
            None => Some((None, None, 0)),
            Some(StoredCell { extent, mask, is_packed: true }) => {
                let packed = PackedCell { mask, bytes: bytes_of(self.facts, &self.cell) };
                Some((range(0, extent.length.into()), Some(packed), place(&overlap.start)))
            }
            Some(_) => None,
        };
        let whole = whole.map(|(record, packed, first)| {
            let overlap = overlap.clone();
            CellPart { record, packed, first, overlap }
        });
        // The innermost dimensions whose bytes are near each other make one span, and each index of the other
        // dimensions makes another span.
        let (mut span, mut outer) = (each, self.innermost_first());
        let strides = self.strides();
        while let Some(&dimension) = outer.first() {
            let (length, step) = (overlap.length[dimension], strides[dimension].saturating_mul(each));
            if length > 1 && step > span.saturating_add(GAP) {
                break;
            }
            span = span.saturating_add(length.saturating_sub(1).saturating_mul(step));
            outer.remove(0);
        }
        let mut spans = ArrayRegion { start: overlap.start.clone(), length: vec![1; overlap.length.len()] };
        outer.iter().for_each(|&dimension| spans.length[dimension] = overlap.length[dimension]);
        let spans = whole.is_none().then(|| indices(spans, outer.clone()));
        let part = move |start: Vec<u64>| {
            let mut overlap = ArrayRegion { start, length: overlap.length.clone() };
            outer.iter().for_each(|&dimension| overlap.length[dimension] = 1);
            CellPart { record: range(place(&overlap.start), span), packed: None, first: 0, overlap }
        };
        whole.into_iter().chain(spans.into_iter().flatten().map(part))
    }
}

/// All indices in a region, those that differ only in the first of `dimensions` one after another. Dimensions that are
/// not in the list keep the region's first index.
fn indices(region: ArrayRegion, dimensions: Vec<usize>) -> impl Iterator<Item = Vec<u64>> {
    let is_empty = region.length.contains(&0);
    let mut next = (!is_empty).then(|| region.start.clone());
    std::iter::from_fn(move || {
        let now = next.take()?;
        let mut index = now.clone();
        for &dimension in &dimensions {
            index[dimension] += 1;
            if index[dimension] - region.start[dimension] < region.length[dimension] {
                next = Some(index);
                break;
            }
            index[dimension] = region.start[dimension];
        }
        Some(now)
    })
}
