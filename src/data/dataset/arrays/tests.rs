//! Random arrays in every kind of storage: every element of a window is where its slab says, found element by element.

use super::filters::ChunkFilter;
use super::*;
use crate::dataset::blocks::APART;
use crate::dataset::{Extent, FileId, SampleAxis};
use base::rng::{RandomKey, RandomStream, Use};
use pixels::arrays::{MemoryOrder, Number, StoredType};
use std::collections::{BTreeMap, BTreeSet};

const FILL: u32 = u32::MAX;

/// An array whose elements are their own numbers in row-major order, with the bytes of its file. "Compressed" chunks
/// are stored backwards.
struct Case {
    array: ShardArray,
    axis: SampleAxis,
    file: Vec<u8>,
    /// The chunks as decoded.
    chunks: Vec<Vec<u8>>,
}

fn product(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// The row-major number of an index.
fn number(index: &[u64], shape: &[u64]) -> u64 {
    index.iter().zip(shape).fold(0, |number, (index, length)| number * length + index)
}

/// All indices of an array, row-major.
fn all(shape: &[u64]) -> Vec<Vec<u64>> {
    let of = |mut number: u64| {
        let mut index = vec![0; shape.len()];
        for (at, length) in shape.iter().enumerate().rev() {
            (index[at], number) = (number % length, number / length);
        }
        index
    };
    (0..product(shape)).map(of).collect()
}

fn bytes(elements: impl Iterator<Item = u64>) -> Vec<u8> {
    elements.flat_map(|element| (element as u32).to_le_bytes()).collect()
}

/// The elements of each chunk of a grid. Elements after the end of the array are zero.
fn chunks(shape: &[u64], chunk: &[u64]) -> Vec<Vec<u8>> {
    let counts: Vec<u64> = shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
    let element = |grid: &Vec<u64>, within: Vec<u64>| {
        let index: Vec<u64> = (0..grid.len()).map(|of| grid[of] * chunk[of] + within[of]).collect();
        let is_in = index.iter().zip(shape).all(|(index, length)| index < length);
        if is_in { number(&index, shape) } else { 0 }
    };
    let cell = |grid: Vec<u64>| bytes(all(chunk).into_iter().map(|within| element(&grid, within)));
    all(&counts).into_iter().map(cell).collect()
}

fn case(random: &mut RandomStream) -> Case {
    let axis = if random.below(3) == 0 { SampleAxis::File } else { SampleAxis::Axis0 };
    let rank = random.below(4) + u64::from(axis == SampleAxis::Axis0);
    let mut shape: Vec<u64> = (0..rank).map(|_| random.below(6) + u64::from(random.below(9) > 0)).collect();
    let chunk: Vec<u64> = shape.iter().map(|length| random.below(length + 1) + 1).collect();
    let mut file = vec![7; random.below(50) as usize];
    let stored = StoredType { number: Number::Unsigned(4), swapped: false };
    let (name, fill) = ("x".to_owned(), FILL.to_le_bytes().to_vec());
    let mut facts =
        ArrayFacts { name, stored, order: MemoryOrder::RowMajor, filters: Vec::new(), fill, cf: None };
    let kind = random.below(6);
    let mut decoded = Vec::new();
    let start = file.len() as u64;
    let storage = match kind {
        0 => ArrayStorage::Fill,
        1 => {
            let is_column_major = random.below(2) == 0 && (axis == SampleAxis::File || rank == 1);
            let mut indices = all(&shape);
            if is_column_major {
                facts.order = MemoryOrder::ColumnMajor;
                indices.sort_by_key(|index| index.iter().rev().copied().collect::<Vec<u64>>());
            }
            file.extend(bytes(indices.into_iter().map(|index| number(&index, &shape))));
            ArrayStorage::Run { file: 0, start }
        }
        2 if axis == SampleAxis::Axis0 => {
            let rest = product(&shape[1..]);
            if rest == 0 {
                shape.truncate(1);
            }
            let mut cells = Vec::new();
            for row in 0..shape[0] {
                let length = random.below(4) * product(&shape[1..]);
                let offset = file.len() as u64;
                file.extend(bytes((0..length).map(|element| row * 1000 + element)));
                cells.push(ChunkCell { file: 0, offset, length: 4 * length as u32, mask: 0, version: 0 });
            }
            ArrayStorage::Rows { cells }
        }
        _ => {
            decoded = chunks(&shape, &chunk);
            if kind == 4 {
                facts.filters = vec![ChunkFilter::Zlib, ChunkFilter::Shuffle { size: 4 }];
            }
            let mut cells = Vec::new();
            for chunk in &decoded {
                if kind > 3 && random.below(5) == 0 {
                    cells.push(ChunkCell::absent());
                    continue;
                }
                let mut chunk = chunk.clone();
                let mask = if kind == 4 { random.below(4) as u32 } else { 0 };
                if kind == 4 && mask != 3 {
                    chunk.reverse();
                }
                if kind > 3 {
                    file.extend(vec![9; random.below(9) as usize]);
                }
                let (offset, length) = (file.len() as u64, chunk.len() as u32);
                file.extend(chunk);
                cells.push(ChunkCell { file: 0, offset, length, mask, version: 0 });
            }
            ArrayStorage::Grid { chunk, cells }
        }
    };
    Case { array: ShardArray { facts, shape, storage }, axis, file, chunks: decoded }
}

/// The sections of an index with one group that has these arrays.
struct Sections {
    facts: Vec<ArrayFacts>,
    rows: Vec<u8>,
    dims: Vec<u8>,
    cells: Vec<u8>,
}

impl Sections {
    fn of(arrays: &[ShardArray]) -> Self {
        let (mut table, mut cells, mut spilled) = (FactsTable::default(), Vec::new(), Vec::new());
        for array in arrays {
            let (one, bytes) = table.add(array, cells.len() as u64);
            cells.extend(bytes);
            spilled.push(one);
        }
        let facts = serde_json::from_str(&table.json()).unwrap();
        let rows = table.rows(std::iter::once(&spilled[..])).concat();
        let dims = spilled.iter().flat_map(SpilledArray::dim_bytes).collect();
        Self { facts, rows, dims, cells }
    }

    fn table(&self) -> ArrayTable<'_> {
        ArrayTable { rows: &self.rows, dims: &self.dims, cells: &self.cells }
    }

    fn selection(&self) -> ArraySelection {
        ArraySelection::new(self.table(), self.facts.clone(), 1, &["x".to_owned()])
    }
}

impl Case {
    /// The bytes of an extent of a record, in the file or in a chunk that samples share.
    fn read(&self, extent: Extent) -> Vec<u8> {
        let Extent { file, offset, length } = extent;
        assert_eq!(file, FileId(0));
        let range = |start: u64| start as usize..start as usize + length as usize;
        let Some(address) = offset.checked_sub(CHUNKS) else { return self.file[range(offset)].to_vec() };
        let step = self.chunks[0].len() as u64 + APART;
        self.chunks[(address / step) as usize][range(address % step)].to_vec()
    }

    /// The elements of the sample's array by their indices, or the fill value for an absent chunk.
    fn expected(&self, row: Option<u64>, shape: &[u64]) -> BTreeMap<Vec<u64>, u32> {
        let ShardArray { shape: whole, storage, .. } = &self.array;
        let element = |index: &Vec<u64>| {
            let full: Vec<u64> = row.into_iter().chain(index.iter().copied()).collect();
            match storage {
                ArrayStorage::Rows { .. } => (row.unwrap() * 1000 + number(index, shape)) as u32,
                ArrayStorage::Fill => FILL,
                ArrayStorage::Grid { chunk, cells } => {
                    let counts: Vec<u64> =
                        whole.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
                    let grid: Vec<u64> = full.iter().zip(chunk).map(|(index, chunk)| index / chunk).collect();
                    let is_absent = cells[number(&grid, &counts) as usize].is_absent();
                    if is_absent { FILL } else { number(&full, whole) as u32 }
                }
                _ => number(&full, whole) as u32,
            }
        };
        all(shape).into_iter().map(|index| (index.clone(), element(&index))).collect()
    }
}

#[test]
fn every_element_of_a_window_is_where_its_slab_says() {
    for seed in 0..4000 {
        let mut random = RandomKey::new(b"arrays", seed, 0, Use::Order).stream(0);
        let case = case(&mut random);
        check(&case.array, |_| case.file.len() as u64)
            .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let sections = Sections::of(std::slice::from_ref(&case.array));
        let table = sections.table();
        assert!(table.is_consistent(1, &sections.facts), "seed {seed}");
        assert_eq!(table.found(0, &sections.facts).as_ref(), Some(&case.array), "seed {seed}");
        let selection = sections.selection();
        let (mut chunks, mut parts, mut part_bytes) = (BTreeMap::new(), 0, 0);
        let rows = match case.axis {
            SampleAxis::Axis0 => (0..case.array.shape[0]).map(Some).collect(),
            SampleAxis::File => vec![None],
        };
        for row in rows {
            let Some((_, slab)) = selection.slabs(table, 0, row).next() else { panic!("seed {seed}") };
            for extent in slab.extents().filter(|extent| extent.offset >= CHUNKS) {
                let address = extent.offset - CHUNKS;
                let chunk = selection.shared_chunk(table, 0, address).expect("a chunk");
                assert_eq!(selection.shared_chunk(table, 1, address), None, "seed {seed}");
                let end = extent.offset + u64::from(extent.length);
                assert!(end <= chunk.start + u64::from(chunk.bytes), "seed {seed}");
                let ArrayStorage::Grid { cells, .. } = &case.array.storage else { panic!("seed {seed}") };
                let step = case.chunks[0].len() as u64 + APART;
                assert_eq!(cells[(address / step) as usize], chunk.cell, "seed {seed}");
                (parts, part_bytes) = (parts + 1, part_bytes + u64::from(extent.length));
                chunks.insert(chunk.start, chunk);
            }
            let record: Vec<u8> = slab.extents().flat_map(|extent| case.read(extent)).collect();
            assert_eq!(slab.range(), 0..record.len() as u32, "seed {seed}");
            let shape = slab.shape().to_vec();
            let expected = case.expected(row, &shape);
            let window = ArrayRegion {
                start: shape.iter().map(|length| random.below(length + 1)).collect(),
                length: shape.iter().map(|length| random.below(length + 2)).collect(),
            };
            let window = if random.below(3) == 0 { ArrayRegion::whole(&shape) } else { window };
            let touched: Vec<_> = slab.touched(&window).collect();
            let mut found = BTreeMap::new();
            for part in slab.cells(&window) {
                let shown = format!("seed {seed}, row {row:?}, {window:?} of {:?}: {part:?}", case.array);
                let stored = part.record.clone().map(|range| {
                    let is_read = touched.iter().any(|of| of.start <= range.start && range.end <= of.end);
                    assert!(is_read, "{shown}");
                    let mut stored = record[range.start as usize..range.end as usize].to_vec();
                    if let Some(PackedCell { bytes, mask }) = part.packed {
                        assert!(mask != 3 && bytes == stored.len() as u64, "{shown}");
                        stored.reverse();
                    }
                    stored
                });
                // Plain bytes begin with the first element of the part, and end with the last.
                if let (Some(stored), None) = (&stored, part.packed) {
                    let ends = part.overlap.length.iter().zip(slab.strides());
                    let last: u64 = ends.map(|(length, stride)| (length - 1) * stride).sum();
                    assert_eq!((part.first, stored.len() as u64), (0, 4 * last + 4), "{shown}");
                }
                for index in all(&part.overlap.length) {
                    let place: u64 =
                        index.iter().zip(slab.strides()).map(|(index, stride)| index * stride).sum();
                    let at = (part.first + 4 * place) as usize;
                    let value = stored.as_ref().map_or(FILL, |stored| {
                        u32::from_le_bytes(*stored[at..].first_chunk().unwrap_or_else(|| panic!("{shown}")))
                    });
                    let index = index.iter().zip(&part.overlap.start).map(|(index, start)| index + start);
                    assert_eq!(found.insert(index.collect::<Vec<u64>>(), value), None, "{shown}");
                }
            }
            let needed: BTreeSet<u32> = touched.iter().cloned().flatten().collect();
            let clipped = |of: usize| window.length[of].min(shape[of] - window.start[of].min(shape[of]));
            let lengths: Vec<Option<u64>> = (0..shape.len()).map(|of| Some(clipped(of))).collect();
            let (count, ranges) = slab.widest(&lengths);
            let most = count * ranges.into_iter().flatten().count() as u64;
            assert!(needed.len() as u64 <= most, "seed {seed}, row {row:?}, {window:?} of {:?}", case.array);
            let is_in = |index: &Vec<u64>| {
                let mut dimensions = index.iter().zip(window.start.iter().zip(&window.length));
                dimensions.all(|(index, (start, length))| (*start..start + length).contains(index))
            };
            let expected: BTreeMap<_, _> = expected.into_iter().filter(|(index, _)| is_in(index)).collect();
            assert_eq!(found, expected, "seed {seed}, row {row:?}, {window:?} of {:?}", case.array);
        }
        if case.axis == SampleAxis::Axis0 && case.array.shape.iter().all(|&length| length > 0) {
            let uses: Vec<_> = selection.shared_chunks(table).collect();
            let sum = |of: fn(&ChunkUse) -> u64| uses.iter().map(of).sum::<u64>();
            assert_eq!(uses.len(), chunks.len(), "seed {seed}");
            let (samples, bytes) = (sum(|of| of.samples), sum(|of| of.sample_bytes));
            assert_eq!((samples, bytes), (parts, part_bytes), "seed {seed}");
        }
    }
}

#[test]
fn a_window_of_a_large_array_touches_only_its_own_bytes() {
    let stored = StoredType { number: Number::Float(4), swapped: false };
    let (name, order) = ("x".to_owned(), MemoryOrder::RowMajor);
    let facts = ArrayFacts { name, stored, order, filters: Vec::new(), fill: Vec::new(), cf: None };
    let array = |shape: &[u64]| {
        let storage = ArrayStorage::Run { file: 0, start: 128 };
        ShardArray { facts: facts.clone(), shape: shape.to_vec(), storage }
    };
    let touched = |shape: &[u64], start: &[u64], length: &[u64]| {
        let sections = Sections::of(&[array(shape)]);
        let selection = sections.selection();
        let Some((_, slab)) = selection.slabs(sections.table(), 0, None).next() else { panic!("an array") };
        let window = ArrayRegion { start: start.to_vec(), length: length.to_vec() };
        slab.touched(&window).collect::<Vec<_>>()
    };
    // A row of the raster has 40 000 bytes, so the rows of a window are read one by one.
    let ranges = touched(&[10_000, 10_000], &[2, 5], &[3, 100]);
    assert_eq!(ranges, [80_020..80_420, 120_020..120_420, 160_020..160_420]);
    // Rows of 2048 bytes are near each other, so the rows of each plane are read at once.
    let ranges = touched(&[4, 512, 512], &[1, 10, 100], &[2, 20, 50]);
    let plane = |start: u32| start..start + 19 * 2048 + 200;
    assert_eq!(ranges, [plane((512 + 10) * 2048 + 400), plane((2 * 512 + 10) * 2048 + 400)]);
    // Whole planes are one range.
    let planes = 1 << 20..3 << 20;
    assert_eq!(touched(&[4, 512, 512], &[1, 0, 0], &[2, 512, 512]), std::slice::from_ref(&planes));
}

#[test]
fn damaged_sections_cause_no_panic() {
    for seed in 0..3000 {
        let mut random = RandomKey::new(b"damage", seed, 0, Use::Order).stream(0);
        let case = case(&mut random);
        let mut sections = Sections::of(&[case.array]);
        for _ in 0..random.below(4) + 1 {
            let parts = [&mut sections.rows, &mut sections.dims, &mut sections.cells];
            let Some(part) = parts.into_iter().nth(random.below(3) as usize) else { continue };
            if part.is_empty() {
                continue;
            }
            let at = random.below(part.len() as u64) as usize;
            part[at] = random.below(256) as u8;
            if random.below(20) == 0 {
                part.truncate(at);
            }
        }
        let table = sections.table();
        // The index is refused unless it is consistent.
        if !table.is_consistent(1, &sections.facts) {
            continue;
        }
        let selection = sections.selection();
        for row in [None, Some(0), Some(1), Some(u64::MAX)] {
            for (_, slab) in selection.slabs(table, 0, row) {
                slab.touched(&ArrayRegion { start: vec![1; 3], length: vec![2; 3] }).for_each(drop);
                slab.widest(&[Some(2); 3]);
                slab.cells(&ArrayRegion::whole(slab.shape())).take(1000).for_each(drop);
                slab.extents().take(1000).for_each(drop);
            }
        }
    }
}
