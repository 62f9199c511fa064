//! Chunks that several samples share and that must be decoded. Readers decode each of them once, as a block from which
//! they copy the part of each sample.

use super::filters::{ChunkScratch, most_packed, unpack_owned};
use super::rows::{IndexedArray, RowKind, grid_cells};
use super::selection::NO_ARRAY;
use super::{ArrayFacts, ArraySelection, ArrayTable, CELL_ROW, CHUNKS, CHUNKS_OF_ARRAY, ChunkCell};
use crate::dataset::blocks::APART;
use crate::dataset::unpack::LARGEST_BLOCK;
use std::cell::RefCell;
use std::sync::Arc;

/// A chunk that several samples share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedChunk {
    /// The facts of its array.
    pub facts: Arc<ArrayFacts>,
    /// The address of its first decoded byte.
    pub start: u64,
    /// Where it is stored.
    pub cell: ChunkCell,
    /// The number of bytes after decoding.
    pub bytes: u32,
}

/// What it costs to read a chunk that several samples share.
pub(in crate::dataset) struct ChunkUse {
    pub(in crate::dataset) packed: u64,
    pub(in crate::dataset) unpacked: u64,
    /// The number of samples, and the number of bytes that all of them have in the chunk.
    pub(in crate::dataset) samples: u64,
    pub(in crate::dataset) sample_bytes: u64,
}

thread_local! {
    static SCRATCH: RefCell<ChunkScratch> = RefCell::default();
}

impl SharedChunk {
    /// Decodes the chunk from its stored bytes.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub(in crate::dataset) fn unpack(&self, stored: &[u8]) -> Result<Vec<u8>, String> {
        let Self { facts, cell, bytes, .. } = self;
        let unpacked = SCRATCH.with_borrow_mut(|scratch| {
            unpack_owned(&facts.filters, cell.mask, stored, *bytes as usize, scratch)
        });
        unpacked.map_err(|why| format!("a chunk of the array {:?} cannot be read: {why}", facts.name))
    }
}

/// The chunks of an array whose chunks are shared.
struct SharedGrid<'a> {
    cells: &'a [[u8; CELL_ROW]],
    /// The number of samples.
    length: u64,
    /// The number of samples in a chunk.
    rows: u64,
    /// The number of chunks with the same samples.
    across: u64,
    /// The number of bytes of a decoded chunk.
    bytes: u64,
}

impl<'a> SharedGrid<'a> {
    /// The chunks of an array; `None` if they are not shared, or need no decoding.
    fn of(facts: &ArrayFacts, array: &IndexedArray<'a>) -> Option<Self> {
        let (&[rows, ref rest @ ..], [length, shape @ ..]) = (&array.cell[..], &array.shape[..]) else {
            return None;
        };
        let bytes =
            array.cell.iter().fold(facts.element_bytes(), |bytes, length| bytes.saturating_mul(*length));
        let is_shared = array.row.kind == RowKind::Grid && rows > 1 && !facts.filters.is_empty();
        let (cells, length, across) = (array.cells, *length, grid_cells(shape, rest).max(1));
        is_shared.then_some(Self { cells, length, rows, across, bytes })
    }

    fn uses(self) -> impl Iterator<Item = ChunkUse> {
        (0..).zip(self.cells).filter_map(move |(number, cell)| {
            let cell = ChunkCell::from_bytes(cell);
            let before = number / self.across * self.rows;
            let samples = self.rows.min(self.length.saturating_sub(before));
            let sample_bytes = self.bytes / self.rows * samples;
            let (packed, unpacked) = (cell.length.into(), self.bytes);
            (!cell.is_absent()).then_some(ChunkUse { packed, unpacked, samples, sample_bytes })
        })
    }
}

impl ArraySelection {
    /// The chunk in `file` that has this address, which is counted from [`CHUNKS`]; `None` if no shared chunk has it.
    pub(in crate::dataset) fn shared_chunk(
        &self,
        table: ArrayTable<'_>,
        file: u32,
        address: u64,
    ) -> Option<SharedChunk> {
        // Most chunks are in the file of the shard to which the array belongs.
        let usual = table.of_group(file).nth((address / CHUNKS_OF_ARRAY) as usize);
        usual.into_iter().chain(self.numbers()).find_map(|number| self.chunk_of(table, number, file, address))
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        self.arrays.iter().filter(|number| **number != NO_ARRAY).map(|number| *number as usize)
    }

    fn chunk_of(&self, table: ArrayTable<'_>, number: usize, file: u32, address: u64) -> Option<SharedChunk> {
        let array = table.get(number)?;
        let group = array.row.group;
        if table.of_group(group).nth((address / CHUNKS_OF_ARRAY) as usize) != Some(number) {
            return None;
        }
        let facts = self.facts.get(array.row.facts as usize)?;
        let grid = SharedGrid::of(facts, &array)?;
        let (within, step) = (address % CHUNKS_OF_ARRAY, grid.bytes.saturating_add(APART));
        let cell = ChunkCell::from_bytes(grid.cells.get(usize::try_from(within / step).ok()?)?);
        let is_in =
            !cell.is_absent() && file.checked_sub(group) == Some(cell.file) && within % step < grid.bytes;
        // Never allocate memory by the sizes in a damaged index.
        let is_chunk = grid.bytes <= LARGEST_BLOCK && u64::from(cell.length) <= most_packed(LARGEST_BLOCK);
        let (facts, start, bytes) = (facts.clone(), CHUNKS + address - within % step, grid.bytes as u32);
        (is_in && is_chunk).then_some(SharedChunk { facts, start, cell, bytes })
    }

    /// All chunks of selected arrays that several rows share.
    pub(in crate::dataset) fn shared_chunks<'a>(
        &'a self,
        table: ArrayTable<'a>,
    ) -> impl Iterator<Item = ChunkUse> + 'a {
        let grid = move |number| {
            let array = table.get(number)?;
            SharedGrid::of(self.facts.get(array.row.facts as usize)?, &array)
        };
        self.numbers().filter_map(grid).flat_map(SharedGrid::uses)
    }
}
