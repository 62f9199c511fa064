//! Arrays with one number for each sample. The index keeps a copy of the numbers as a column, so that they can be
//! labels, weights and fields like the columns of tables.

use super::filters::{ChunkFilter, ChunkScratch, unpack_chunk};
use super::{ArrayStorage, ShardArray};
use crate::dataset::SampleAxis;
use crate::dataset::gather::{float, little_endian};
use crate::dataset::table::{TableCells, TableColumn};
use crate::source::{Malformed, ReadAt, Window};
use pixels::arrays::Number;

/// The largest size of such an array, and of one of its chunks, in bytes.
const LARGEST: u64 = 64 << 20;

/// All elements of a list as they are stored, if they are few and in the shard itself, which has these `bytes`. The
/// list has `count` elements of `each` bytes, and its bounds must have been checked.
///
/// # Errors
/// [`Malformed`] if the shard cannot be read, or a chunk is damaged.
pub(in crate::dataset) fn elements(
    storage: &ArrayStorage,
    (filters, fill): (&[ChunkFilter], &[u8]),
    (count, each): (u64, u64),
    bytes: &dyn ReadAt,
) -> Result<Option<Vec<u8>>, Malformed> {
    let size = count.saturating_mul(each);
    if size > LARGEST {
        return Ok(None);
    }
    let filled = || if fill.is_empty() { vec![0; size as usize] } else { fill.repeat(count as usize) };
    let mut file = Window::new(bytes);
    match storage {
        ArrayStorage::Run { file: 0, start } => file.read(*start, size).map(Some),
        ArrayStorage::Fill => Ok(Some(filled())),
        ArrayStorage::Grid { chunk, cells } if cells.iter().all(|cell| cell.file == 0) => {
            let chunk = chunk.iter().fold(each, |bytes, length| bytes.saturating_mul(*length));
            if chunk > LARGEST {
                return Ok(None);
            }
            let (mut all, mut scratch) = (filled(), ChunkScratch::default());
            for (cell, place) in cells.iter().zip(all.chunks_mut(chunk.max(1) as usize)) {
                if cell.is_absent() {
                    continue;
                }
                let packed = file.read(cell.offset, cell.length.into())?;
                let unpacked = unpack_chunk(filters, cell.mask, &packed, chunk as usize, &mut scratch);
                let damaged = |why| Malformed { offset: cell.offset, message: format!("a chunk: {why}") };
                // The last chunk is stored whole.
                place.copy_from_slice(&unpacked.map_err(damaged)?[..place.len()]);
            }
            Ok(Some(all))
        }
        _ => Ok(None),
    }
}

/// The column of an array's numbers, if the array has one number for each sample and is stored in the shard, which has
/// these `bytes`. The array must have been checked.
///
/// # Errors
/// [`Malformed`] if the shard cannot be read, or a chunk is damaged.
pub(in crate::dataset) fn column(
    array: &ShardArray,
    bytes: &dyn ReadAt,
    axis: SampleAxis,
) -> Result<Option<TableColumn>, Malformed> {
    let ShardArray { facts, shape, storage } = array;
    let count = match (axis, &shape[..]) {
        (SampleAxis::Axis0, &[count]) => count,
        (SampleAxis::File, []) => 1,
        _ => return Ok(None),
    };
    let found = elements(storage, (&facts.filters, &facts.fill), (count, facts.element_bytes()), bytes);
    let in_array =
        |fault: Malformed| Malformed { message: format!("{:?}: {}", facts.name, fault.message), ..fault };
    let Some(mut numbers) = found.map_err(in_array)? else { return Ok(None) };
    let stored = facts.stored;
    if stored.swapped {
        numbers.chunks_exact_mut(stored.number.size()).for_each(<[u8]>::reverse);
    }
    let numbers = || numbers.chunks_exact(stored.number.size());
    let cells = match stored.number {
        Number::Bool => TableCells::Bools(numbers().map(|byte| Some(byte != [0])).collect()),
        Number::Signed(_) => {
            let integer = |bytes: &[u8]| {
                let unused = 64 - 8 * bytes.len() as u32;
                Some((little_endian(bytes) << unused).cast_signed() >> unused)
            };
            TableCells::Integers(numbers().map(integer).collect())
        }
        Number::Unsigned(_) => {
            // The index has no larger integers, so such an array is no column.
            let cells = numbers().map(|bytes| i64::try_from(little_endian(bytes)).ok().map(Some));
            let Some(cells) = cells.collect() else { return Ok(None) };
            TableCells::Integers(cells)
        }
        // Tables have no bfloat16 either.
        Number::Brain => return Ok(None),
        Number::Float(_) => TableCells::Floats(numbers().map(|bytes| Some(float(bytes))).collect()),
    };
    let (name, kind) = (facts.name.clone(), cells.kind());
    Ok(Some(TableColumn { name, kind, classes: Vec::new(), cells }))
}
