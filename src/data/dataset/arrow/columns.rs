//! The cells of a column of Arrow tables: the values from the buffers of each batch, and which values are missing.

use super::super::gather::{ByteValue, CollectedCells, ColumnFault, TableShard};
use super::super::gather::{damaged, float, little_endian};
use super::super::table::{CellExtent, TableCells};
use super::super::unpack::{BlockSource, LARGEST_BLOCK};
use super::messages::{ArrowBatch, BatchUse};
use super::schema::{ArrowColumn, ArrowContent, BufferPlace};
use super::views;
use crate::source::Malformed;

/// The values of a dictionary are the only column of a dictionary batch.
const DICTIONARY: BufferPlace = BufferPlace { node: 0, buffer: 0, variadic: 0 };

/// Reads a column: all values in its buffers. For columns of bytes, reads only the locations of the values.
///
/// # Errors
/// [`ColumnFault`]: the column cannot be used, or the shard is damaged.
pub(super) fn read(
    column: &ArrowColumn,
    batches: &[ArrowBatch],
    shard: &mut TableShard<'_>,
) -> Result<TableCells, ColumnFault> {
    let content = column.content.clone().map_err(ColumnFault::Refused)?;
    let (mut cells, mut dictionary) = (no_cells(content), no_cells(content));
    shard.limits.begin_column(&column.path);
    for batch in batches {
        let mut reader = BatchReader { batch, shard };
        match (batch.what, column.dictionary) {
            (BatchUse::Rows, None) => {
                let present = reader.present(column)?;
                reader.append(content, column.place, present.as_deref(), &mut cells)?;
            }
            (BatchUse::Rows, Some((_, content))) => {
                let mut numbers = no_cells(content);
                let present = reader.present(column)?;
                reader.append(content, column.place, present.as_deref(), &mut numbers)?;
                reader.pick(numbers, &dictionary, &mut cells)?;
            }
            (BatchUse::Dictionary { id, is_delta }, Some((own, _))) if id == own => {
                if !is_delta {
                    dictionary = no_cells(content);
                }
                let present = reader.bitmap(DICTIONARY)?;
                reader.append(content, DICTIONARY, present.as_deref(), &mut dictionary)?;
            }
            (BatchUse::Dictionary { .. }, _) => {}
        }
    }
    cells.finish(content.is_text(), shard)
}

fn no_cells(content: ArrowContent) -> CollectedCells {
    match content {
        ArrowContent::Bool => CollectedCells::Bools(Vec::new()),
        ArrowContent::Integer { .. } => CollectedCells::Integers(Vec::new()),
        ArrowContent::Float { .. } => CollectedCells::Floats(Vec::new()),
        ArrowContent::Bytes { .. } | ArrowContent::Views { .. } | ArrowContent::FixedBytes(_) => {
            CollectedCells::Bytes(Vec::new())
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum BufferBytes {
    Uncompressed {
        offset: u64,
        length: u64,
    },
    /// The bytes are in a compressed block. `packed` is its compressed size.
    Packed {
        block: BlockSource,
        packed: u64,
    },
}

pub(super) struct BatchReader<'a, 'f> {
    pub(super) batch: &'a ArrowBatch,
    pub(super) shard: &'a mut TableShard<'f>,
}

impl BatchReader<'_, '_> {
    pub(super) fn damaged(&self, what: &str) -> ColumnFault {
        damaged(self.batch.offset, what).into()
    }

    pub(super) fn buffer(&mut self, place: BufferPlace, number: usize) -> Result<BufferBytes, ColumnFault> {
        let further = self.batch.variadic.get(..place.variadic);
        let further = further.and_then(|counts| {
            let sum = counts.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count))?;
            usize::try_from(sum).ok()
        });
        let at = further.and_then(|further| (place.buffer + number).checked_add(further));
        let Some(&(offset, length)) = at.and_then(|at| self.batch.buffers.get(at)) else {
            return Err(self.damaged("a batch has fewer buffers than its columns need"));
        };
        let codec = self.batch.codec.clone().map_err(|name| {
            ColumnFault::Refused(format!("its buffers are compressed with {name}, which cannot be read"))
        })?;
        let Some(codec) = codec.filter(|_| length > 0) else {
            return Ok(BufferBytes::Uncompressed { offset, length });
        };
        let Some(packed) = length.checked_sub(8) else {
            return Err(self.damaged("a compressed buffer states no valid length"));
        };
        let stated = self.shard.file.read(offset, 8)?;
        let stated = stated.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        match (stated, u64::try_from(stated)) {
            (-1, _) => Ok(BufferBytes::Uncompressed { offset: offset + 8, length: packed }),
            (_, Ok(unpacked)) => {
                Ok(BufferBytes::Packed { block: BlockSource { offset: offset + 8, unpacked, codec }, packed })
            }
            _ => Err(self.damaged("a compressed buffer states no valid length")),
        }
    }

    fn read(&mut self, place: BufferPlace, number: usize, size: u64) -> Result<Vec<u8>, ColumnFault> {
        let bytes = match self.buffer(place, number)? {
            BufferBytes::Uncompressed { offset, length } if size <= length => {
                self.shard.file.read(offset, size)?
            }
            BufferBytes::Packed { block, packed } if size <= block.unpacked => self.unpack(block, packed)?,
            _ => return Err(self.damaged("a buffer has fewer bytes than its column needs")),
        };
        Ok(bytes)
    }

    /// Adds a compressed buffer of bytes to the blocks. Returns the address of its first byte, and its decompressed
    /// bytes.
    pub(super) fn address(&mut self, block: BlockSource, packed: u64) -> Result<(u64, Vec<u8>), ColumnFault> {
        if packed.max(block.unpacked) > LARGEST_BLOCK {
            let (bytes, most) = (packed.max(block.unpacked), LARGEST_BLOCK >> 20);
            return Err(ColumnFault::Refused(format!(
                "one of its compressed buffers has {bytes} bytes, the limit is {most} MiB: write smaller batches"
            )));
        }
        let bytes = self.packed(block, packed)?;
        // Decompress it now, so that damage is detected here and not when a sample is read.
        let unpacked = block.unpack(&bytes)?;
        Ok((self.shard.blocks.add(block, &bytes)?, unpacked))
    }

    pub(super) fn unpack(&mut self, block: BlockSource, packed: u64) -> Result<Vec<u8>, ColumnFault> {
        Ok(block.unpack(&self.packed(block, packed)?)?)
    }

    fn packed(&mut self, block: BlockSource, packed: u64) -> Result<Vec<u8>, ColumnFault> {
        if packed > LARGEST_BLOCK {
            let most = LARGEST_BLOCK >> 20;
            let message = format!("a compressed buffer of {packed} bytes: the limit is {most} MiB");
            return Err(Malformed { offset: block.offset, message }.into());
        }
        self.shard.limits.take_bytes(packed.saturating_add(block.unpacked), block.offset)?;
        Ok(self.shard.file.read(block.offset, packed)?)
    }

    /// Which values of a field are present; `None` if all are present.
    fn bitmap(&mut self, place: BufferPlace) -> Result<Option<Vec<bool>>, ColumnFault> {
        let Some(&(rows, missing)) = self.batch.nodes.get(place.node) else {
            return Err(self.damaged("a batch has fewer columns than its schema"));
        };
        if rows != self.batch.rows {
            return Err(self.damaged("a column does not have one value for each row"));
        }
        if missing == 0 || rows == 0 {
            return Ok(None);
        }
        self.shard.limits.take_cells(rows, self.batch.offset)?;
        let bytes = self.read(place, 0, rows.div_ceil(8))?;
        Ok(Some(bits(&bytes, rows as usize).collect()))
    }

    /// Which values of a column are present. A value is missing if the struct around it is missing. `None` if all are
    /// present.
    fn present(&mut self, column: &ArrowColumn) -> Result<Option<Vec<bool>>, ColumnFault> {
        let mut present = self.bitmap(column.place)?;
        for &place in column.structs.iter() {
            let outer = self.bitmap(place)?;
            present = match (present, outer) {
                (Some(inner), Some(outer)) => {
                    Some(inner.into_iter().zip(outer).map(|(a, b)| a && b).collect())
                }
                (inner, outer) => inner.or(outer),
            };
        }
        Ok(present)
    }

    fn append(
        &mut self,
        content: ArrowContent,
        place: BufferPlace,
        present: Option<&[bool]>,
        cells: &mut CollectedCells,
    ) -> Result<(), ColumnFault> {
        let rows = self.batch.rows;
        self.shard.limits.take_cells(rows, self.batch.offset)?;
        if rows == 0 {
            return Ok(());
        }
        let there = |row: usize| present.is_none_or(|present| present[row]);
        match (content, cells) {
            (ArrowContent::Bool, CollectedCells::Bools(cells)) => {
                let bytes = self.read(place, 1, rows.div_ceil(8))?;
                cells.extend(
                    bits(&bytes, rows as usize).enumerate().map(|(row, bit)| there(row).then_some(bit)),
                );
            }
            (ArrowContent::Integer { width, signed }, CollectedCells::Integers(cells)) => {
                let bytes = self.read(place, 1, rows * width as u64)?;
                for (row, bytes) in bytes.chunks_exact(width).take(rows as usize).enumerate() {
                    let shift = 64 - 8 * width as u32;
                    let number = little_endian(bytes);
                    let number =
                        if signed { Ok((number << shift) as i64 >> shift) } else { i64::try_from(number) };
                    cells.push(match (there(row), number) {
                        (true, Ok(number)) => Some(number),
                        (true, Err(_)) => {
                            let why = "it holds integers above 2^63 - 1, which int64 cannot represent";
                            return Err(ColumnFault::Refused(why.to_owned()));
                        }
                        (false, _) => None,
                    });
                }
            }
            (ArrowContent::Float { width }, CollectedCells::Floats(cells)) => {
                let bytes = self.read(place, 1, rows * width as u64)?;
                let numbers = bytes.chunks_exact(width).take(rows as usize).map(float);
                cells.extend(numbers.enumerate().map(|(row, number)| there(row).then_some(number)));
            }
            (ArrowContent::Bytes { is_large, is_text }, CollectedCells::Bytes(cells)) => {
                let width = if is_large { 8 } else { 4 };
                let offsets = self.read(place, 1, (rows + 1) * width)?;
                let offsets = offsets.chunks_exact(width as usize).take(rows as usize + 1).map(little_endian);
                self.append_bytes(place, 2, offsets, is_text, present, cells)?;
            }
            (ArrowContent::Views { is_text }, CollectedCells::Bytes(cells)) => {
                views::append(self, place, is_text, present, cells)?;
            }
            (ArrowContent::FixedBytes(length), CollectedCells::Bytes(cells)) => {
                let offsets = (0..=rows).map(|row| row * u64::from(length));
                self.append_bytes(place, 1, offsets, false, present, cells)?;
            }
            _ => unreachable!("the type of the column determines both its values and its cells"),
        }
        Ok(())
    }

    /// Appends the values of a column of bytes or strings. A buffer of offsets says where each value begins and ends.
    fn append_bytes(
        &mut self,
        place: BufferPlace,
        number: usize,
        mut offsets: impl Iterator<Item = u64>,
        is_text: bool,
        present: Option<&[bool]>,
        cells: &mut Vec<Option<ByteValue>>,
    ) -> Result<(), ColumnFault> {
        if present.is_some_and(|present| !present.contains(&true)) {
            cells.extend(present.into_iter().flatten().map(|_| None));
            return Ok(());
        }
        let (stored_at, length, unpacked) = match self.buffer(place, number)? {
            BufferBytes::Uncompressed { offset, length } => (offset, length, None),
            BufferBytes::Packed { block, packed } if is_text => {
                (0, block.unpacked, Some(self.unpack(block, packed)?))
            }
            BufferBytes::Packed { block, packed } => (self.address(block, packed)?.0, block.unpacked, None),
        };
        let mut start = offsets.next().unwrap_or(0);
        for (row, end) in offsets.enumerate() {
            if start > end || end > length {
                return Err(self.damaged("a value extends beyond the end of its buffer"));
            }
            let value = match &unpacked {
                _ if present.is_some_and(|present| !present[row]) => None,
                Some(bytes) => {
                    Some(ByteValue::text(&bytes[start as usize..end as usize], &mut self.shard.limits)?)
                }
                None => {
                    let length = u32::try_from(end - start).map_err(|_| {
                        ColumnFault::Refused(
                            "it holds a value of 4 GiB or more, which cannot be read".to_owned(),
                        )
                    })?;
                    Some(ByteValue::Stored(CellExtent { offset: stored_at + start, length }))
                }
            };
            cells.push(value);
            start = end;
        }
        Ok(())
    }

    fn pick(
        &mut self,
        numbers: CollectedCells,
        dictionary: &CollectedCells,
        cells: &mut CollectedCells,
    ) -> Result<(), ColumnFault> {
        let CollectedCells::Integers(numbers) = numbers else {
            unreachable!("the keys of a dictionary are integers")
        };
        for number in numbers {
            let place = number.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let found = match (&mut *cells, dictionary) {
                (CollectedCells::Bools(cells), CollectedCells::Bools(values)) => copy(cells, values, place),
                (CollectedCells::Integers(cells), CollectedCells::Integers(values)) => {
                    copy(cells, values, place)
                }
                (CollectedCells::Floats(cells), CollectedCells::Floats(values)) => copy(cells, values, place),
                (CollectedCells::Bytes(cells), CollectedCells::Bytes(values)) => {
                    let value = place.map_or(Some(&None), |place| values.get(place));
                    if let Some(value) = value {
                        let limits = &mut self.shard.limits;
                        cells.push(value.as_ref().map(|value| value.duplicate(limits)).transpose()?);
                    }
                    value.is_some()
                }
                _ => unreachable!("the values of a dictionary have the type of the column"),
            };
            if !found {
                return Err(self.damaged("a column refers to a value that its dictionary does not have"));
            }
        }
        Ok(())
    }
}

/// Appends the value at a position; without a position, a missing value. Returns false if the position does not exist.
fn copy<T: Copy>(cells: &mut Vec<Option<T>>, values: &[Option<T>], place: Option<usize>) -> bool {
    let value = place.map_or(Some(None), |place| values.get(place).copied());
    cells.extend(value);
    value.is_some()
}

fn bits(bytes: &[u8], count: usize) -> impl Iterator<Item = bool> + '_ {
    bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).take(count)
}
