//! The one place that checks the bounds of an array that an indexer found. Everything after it relies on these checks.

use super::rows::{MAX_RANK, grid_cells};
use super::{ArrayStorage, CHUNKS_OF_ARRAY, ChunkCell, ShardArray};
use crate::dataset::blocks::APART;
use crate::dataset::part::MAX_OFFSET;
use crate::dataset::unpack::LARGEST_BLOCK;
use crate::source::Malformed;
use pixels::arrays::MemoryOrder;

/// The largest number of chunks of an array.
const MAX_CHUNKS: u64 = 1 << 27;

/// Checks that an array is consistent, and that its bytes are inside of its files. `size_of` returns the size of a file
/// in bytes. The files are numbered as in [`ArrayStorage`].
///
/// # Errors
/// [`Malformed`] with the name of the array and what is wrong, for an array that is damaged or too large.
pub fn check(array: &ShardArray, size_of: impl Fn(u32) -> u64) -> Result<(), Malformed> {
    let ShardArray { facts, shape, storage } = array;
    let fail =
        |offset, why: String| Err(Malformed { offset, message: format!("the array {:?} {why}", facts.name) });
    let damaged = |offset, why: &str| fail(offset, format!("{why}: the shard is damaged"));
    let each = facts.element_bytes();
    if shape.len() > MAX_RANK {
        return fail(0, format!("has {} dimensions, but at most {MAX_RANK} can be read", shape.len()));
    }
    let bytes_of = |shape: &[u64]| {
        let product = shape.iter().try_fold(each, |bytes, &length| bytes.checked_mul(length));
        product.filter(|&bytes| bytes <= MAX_OFFSET)
    };
    let Some(bytes) = bytes_of(shape) else {
        return damaged(0, &format!("has the shape {shape:?}, which is too large"));
    };
    if ![0, each].contains(&(facts.fill.len() as u64)) {
        return damaged(0, "has a fill value of another size than its elements");
    }
    if facts.order == MemoryOrder::ColumnMajor && !matches!(storage, ArrayStorage::Run { .. }) {
        return fail(0, "is stored in chunks and in column-major order, which cannot be read".to_owned());
    }
    let is_in = |file, start: u64, bytes: u64| {
        start.checked_add(bytes).is_some_and(|end| end <= size_of(file).min(MAX_OFFSET))
    };
    let outside = |start| damaged(start, "has bytes after the end of its file");
    let chunk_bytes = |chunk: &[u64]| match bytes_of(chunk).filter(|_| chunk.len() == shape.len()) {
        Some(bytes) if bytes > 0 && bytes <= LARGEST_BLOCK => Ok(bytes),
        Some(bytes) if bytes > 0 => Err(format!(
            "has chunks of {bytes} bytes, but at most {LARGEST_BLOCK} bytes can be read: write smaller chunks"
        )),
        _ => Err(format!("of shape {shape:?} has chunks of shape {chunk:?}: the shard is damaged")),
    };
    let check_cell = |cell: &ChunkCell, bytes: Option<u64>| {
        let &ChunkCell { file, offset, length, mask, .. } = cell;
        let is_filtered = (0..facts.filters.len()).any(|filter| mask >> filter & 1 == 0);
        if cell.is_absent() {
            return if length == 0 { Ok(()) } else { damaged(0, "has an absent chunk with bytes") };
        }
        if u64::from(mask).checked_shr(facts.filters.len() as u32).unwrap_or(0) != 0 {
            return damaged(offset, "has a chunk without a filter that the array does not have");
        }
        match bytes {
            Some(bytes) if !is_filtered && u64::from(length) != bytes => {
                return damaged(
                    offset,
                    &format!("has a chunk of {length} bytes, but its shape needs {bytes}"),
                );
            }
            _ if is_filtered && length == 0 => return damaged(offset, "has a chunk without bytes"),
            _ => {}
        }
        if is_in(file, offset, length.into()) { Ok(()) } else { outside(offset) }
    };
    if facts.filters.len() > 32 {
        return fail(0, format!("has {} filters, but at most 32 can be read", facts.filters.len()));
    }
    if !facts.filters.is_empty() && !matches!(storage, ArrayStorage::Grid { .. } | ArrayStorage::Fill) {
        return damaged(0, "has filters, but no chunks");
    }
    match storage {
        ArrayStorage::Fill => Ok(()),
        &ArrayStorage::Run { file, start } if is_in(file, start, bytes) => Ok(()),
        &ArrayStorage::Run { start, .. } => outside(start),
        ArrayStorage::Grid { chunk, cells } => {
            let chunk_bytes = chunk_bytes(chunk).or_else(|why| fail(0, why).map(|()| 0))?;
            let count = grid_cells(shape, chunk);
            let addresses = count.checked_mul(chunk_bytes + APART);
            if count > MAX_CHUNKS || addresses.is_none_or(|addresses| addresses > CHUNKS_OF_ARRAY) {
                return fail(0, format!("has {count} chunks, which are too many: write larger chunks"));
            }
            if count != cells.len() as u64 {
                return damaged(0, &format!("of shape {shape:?} has {} chunks, not {count}", cells.len()));
            }
            cells.iter().try_for_each(|cell| check_cell(cell, Some(chunk_bytes)))
        }
        ArrayStorage::Rows { cells } => {
            let rest = shape.get(1..).and_then(bytes_of).filter(|&rest| rest > 0);
            let Some(rest) = rest.filter(|_| shape.first() == Some(&(cells.len() as u64))) else {
                return damaged(0, &format!("of shape {shape:?} has {} rows", cells.len()));
            };
            if cells.len() as u64 > MAX_CHUNKS {
                return fail(
                    0,
                    format!("has {} rows, which are too many: write several shards", cells.len()),
                );
            }
            if let Some(cell) = cells.iter().find(|cell| !u64::from(cell.length).is_multiple_of(rest)) {
                return damaged(cell.offset, &format!("has a row of {} bytes", cell.length));
            }
            cells.iter().try_for_each(|cell| check_cell(cell, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::arrays::{ArrayFacts, filters::ChunkFilter};
    use pixels::arrays::{Number, StoredType};

    fn array(shape: &[u64], storage: ArrayStorage) -> ShardArray {
        let stored = StoredType { number: Number::Float(4), swapped: false };
        let order = MemoryOrder::RowMajor;
        let (name, filters, fill) = ("x".to_owned(), Vec::new(), Vec::new());
        let facts = ArrayFacts { name, stored, order, filters, fill, cf: None };
        ShardArray { facts, shape: shape.to_vec(), storage }
    }

    fn refused(array: &ShardArray) -> String {
        check(array, |file| 1000 * u64::from(file + 1)).err().map_or(String::new(), |error| error.message)
    }

    #[test]
    fn no_array_has_bytes_outside_of_its_file() {
        let run = |shape: &[u64], file, start| refused(&array(shape, ArrayStorage::Run { file, start }));
        assert_eq!((run(&[10, 5, 5], 0, 0), run(&[10, 5, 5], 1, 1000)), (String::new(), String::new()));
        assert_eq!((run(&[], 0, 996), run(&[0, 7], 0, 1000)), (String::new(), String::new()));
        assert!(run(&[10, 5, 5], 0, 1).contains("the array \"x\" has bytes after the end"));
        assert!(run(&[], 0, u64::MAX).contains("after the end"));
        assert!(run(&[u64::MAX, 2], 0, 0).contains("is too large"));
        assert!(run(&[1; 33], 0, 0).contains("has 33 dimensions"));
    }

    #[test]
    fn chunks_have_the_sizes_that_their_shape_needs() {
        let cell = |offset, length, mask| ChunkCell { file: 0, offset, length, mask, version: 0 };
        let grid = |filters: &[ChunkFilter], cells: &[ChunkCell]| {
            let storage = ArrayStorage::Grid { chunk: vec![2, 2], cells: cells.to_vec() };
            let mut array = array(&[2, 3], storage);
            array.facts.filters = filters.to_vec();
            refused(&array)
        };
        let zlib = &[ChunkFilter::Zlib];
        assert_eq!(grid(&[], &[cell(0, 16, 0), ChunkCell::absent()]), "");
        assert_eq!(grid(zlib, &[cell(0, 7, 0), cell(984, 16, 1)]), "");
        assert!(grid(&[], &[cell(0, 16, 0)]).contains("has 1 chunks, not 2"));
        assert!(grid(&[], &[cell(0, 15, 0); 2]).contains("a chunk of 15 bytes, but its shape needs 16"));
        assert!(grid(zlib, &[cell(0, 15, 1); 2]).contains("a chunk of 15 bytes"));
        assert!(grid(zlib, &[cell(0, 0, 0); 2]).contains("without bytes"));
        assert!(grid(zlib, &[cell(0, 5, 2); 2]).contains("without a filter"));
        assert!(grid(&[], &[cell(985, 16, 0); 2]).contains("after the end"));
        let rows = |shape: &[u64], cells: &[ChunkCell]| {
            refused(&array(shape, ArrayStorage::Rows { cells: cells.to_vec() }))
        };
        assert_eq!(rows(&[3, 2], &[cell(0, 16, 0), cell(5, 0, 0), ChunkCell::absent()]), "");
        assert!(rows(&[2, 2], &[cell(0, 12, 0), cell(5, 0, 0)]).contains("a row of 12 bytes"));
        assert!(rows(&[3], &[cell(0, 16, 0)]).contains("has 1 rows"));
        assert!(rows(&[], &[]).contains("has 0 rows"));
    }
}
