//! The values of a page in any encoding, without nulls.

use super::super::gather::{ByteValue, ColumnFault, TableShard, damaged, little_endian};
use super::super::table::CellExtent;
use super::encodings::{DAMAGED, PackedNumbers};
use super::schema::LeafContent;
use std::ops::Range;

#[derive(Debug)]
pub(super) enum PageValues {
    Bools(Vec<bool>),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Bytes(Vec<ByteValue>),
}

pub(super) enum ValueBytes<'a> {
    /// The page was read. If its bytes can be located in the shard, `stored_at` is the offset or address of the first
    /// byte.
    Loaded { bytes: &'a [u8], stored_at: Option<u64> },
    /// The values are in the shard and are not read.
    InFile { offset: u64, end: u64 },
}

/// Ids of encodings, from `parquet.thrift`.
pub(super) const PLAIN: u64 = 0;
const PLAIN_DICTIONARY: u64 = 2;
const RLE: u64 = 3;
const DELTA_BINARY_PACKED: u64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: u64 = 6;
const DELTA_BYTE_ARRAY: u64 = 7;
const RLE_DICTIONARY: u64 = 8;
const BYTE_STREAM_SPLIT: u64 = 9;

pub(super) fn is_by_dictionary(encoding: u64) -> bool {
    matches!(encoding, PLAIN_DICTIONARY | RLE_DICTIONARY)
}

pub(super) struct ValueReader<'a, 'f> {
    pub(super) content: LeafContent,
    /// The number of values in the page, without nulls.
    pub(super) count: usize,
    pub(super) page: u64,
    pub(super) shard: &'a mut TableShard<'f>,
    /// The number of bytes that follow the PLAIN values in the page.
    pub(super) left: u64,
}

impl ValueReader<'_, '_> {
    fn damaged(&self, what: &str) -> ColumnFault {
        damaged(self.page, what).into()
    }

    pub(super) fn by_dictionary(
        &mut self,
        bytes: &[u8],
        dictionary: &PageValues,
    ) -> Result<PageValues, ColumnFault> {
        let numbers = match bytes.split_first() {
            Some((&width, rest)) => PackedNumbers { rest }.runs(u32::from(width), self.count),
            None if self.count == 0 => Ok(Vec::new()),
            None => Err(DAMAGED),
        };
        let numbers = numbers.map_err(|what| self.damaged(what))?;
        let page = self.page;
        let beyond = |()| damaged(page, "a page refers to a value that its dictionary does not have");
        Ok(match dictionary {
            PageValues::Bools(_) => return Err(self.damaged("a column of booleans has a dictionary")),
            PageValues::Integers(values) => PageValues::Integers(pick(&numbers, values).map_err(beyond)?),
            PageValues::Floats(values) => PageValues::Floats(pick(&numbers, values).map_err(beyond)?),
            PageValues::Bytes(values) => {
                let mut picked = Vec::new();
                for number in numbers {
                    let value = values.get(number as usize).ok_or(()).map_err(beyond)?;
                    picked.push(value.duplicate(&mut self.shard.limits)?);
                }
                PageValues::Bytes(picked)
            }
        })
    }

    pub(super) fn read(&mut self, encoding: u64, bytes: ValueBytes<'_>) -> Result<PageValues, ColumnFault> {
        let (bytes, stored_at) = match bytes {
            ValueBytes::Loaded { bytes, stored_at } => (bytes, stored_at),
            ValueBytes::InFile { offset, end } => {
                return self.locate_values(offset, end).map(PageValues::Bytes);
            }
        };
        let mut packed = PackedNumbers { rest: bytes };
        let numbers = match (self.content, encoding) {
            (LeafContent::Bool, PLAIN) => {
                let bit = |place: usize| bytes.get(place / 8).map(|byte| byte >> (place % 8) & 1 == 1);
                let truths = (0..self.count).map(bit).collect::<Option<_>>();
                return truths.map(PageValues::Bools).ok_or_else(|| self.damaged(DAMAGED));
            }
            (LeafContent::Bool, RLE) => {
                // The length of the runs (four bytes) precedes the runs.
                let truths = packed.take(4).and_then(|_| packed.runs(1, self.count));
                let truths = truths.map_err(|what| self.damaged(what))?;
                return Ok(PageValues::Bools(truths.into_iter().map(|bit| bit == 1).collect()));
            }
            (LeafContent::Text | LeafContent::Json | LeafContent::Bytes, _) => {
                return self.byte_arrays(encoding, bytes, stored_at).map(PageValues::Bytes);
            }
            (LeafContent::FixedBytes(length), PLAIN) => {
                return self.fixed(length, bytes, stored_at).map(PageValues::Bytes);
            }
            (LeafContent::Int(_) | LeafContent::UnsignedInt(_), DELTA_BINARY_PACKED) => {
                let deltas = packed.deltas(self.count, 32).map_err(|what| self.damaged(what))?;
                deltas.into_iter().map(|number| u64::from(number as u32)).collect()
            }
            (LeafContent::Long | LeafContent::UnsignedLong, DELTA_BINARY_PACKED) => {
                let deltas = packed.deltas(self.count, 64).map_err(|what| self.damaged(what))?;
                deltas.into_iter().map(|number| number as u64).collect()
            }
            (content, PLAIN | BYTE_STREAM_SPLIT) if width(content).is_some() => {
                self.plain(width(content).unwrap_or(8), bytes, encoding == BYTE_STREAM_SPLIT)?
            }
            _ => return Err(unknown(encoding)),
        };
        self.interpret(numbers)
    }

    /// Decodes numbers of `width` bytes. If `is_split`, the first bytes of all numbers are stored first, then the
    /// second bytes of all numbers, and so on.
    fn plain(&mut self, width: usize, bytes: &[u8], is_split: bool) -> Result<Vec<u64>, ColumnFault> {
        let bytes = self.take(width, bytes)?;
        if !is_split {
            return Ok(bytes.chunks_exact(width).map(little_endian).collect());
        }
        let number =
            |place| (0..width).rev().fold(0, |all, at| all << 8 | u64::from(bytes[at * self.count + place]));
        Ok((0..self.count).map(number).collect())
    }

    fn interpret(&self, bits: Vec<u64>) -> Result<PageValues, ColumnFault> {
        let bits = bits.into_iter();
        Ok(match self.content {
            LeafContent::Int(width) => {
                let most = 1_i64 << (width - 1);
                self.within(bits.map(|bits| i64::from(bits as u32 as i32)), -most..most)?
            }
            LeafContent::UnsignedInt(width) => {
                self.within(bits.map(|bits| i64::from(bits as u32)), 0..1 << width)?
            }
            LeafContent::UnsignedLong => {
                let numbers = bits.map(i64::try_from).collect::<Result<_, _>>();
                PageValues::Integers(numbers.map_err(|_| too_large())?)
            }
            LeafContent::Half => {
                PageValues::Floats(bits.map(|bits| half::f16::from_bits(bits as u16).to_f64()).collect())
            }
            LeafContent::Float => {
                PageValues::Floats(bits.map(|bits| f64::from(f32::from_bits(bits as u32))).collect())
            }
            LeafContent::Double => PageValues::Floats(bits.map(f64::from_bits).collect()),
            _ => PageValues::Integers(bits.map(|bits| bits as i64).collect()),
        })
    }

    fn within(
        &self,
        numbers: impl Iterator<Item = i64>,
        of_type: Range<i64>,
    ) -> Result<PageValues, ColumnFault> {
        let number = |number| of_type.contains(&number).then_some(number);
        let numbers = numbers.map(number).collect::<Option<_>>();
        let wrong = || self.damaged("an integer is outside the range of its type");
        numbers.map(PageValues::Integers).ok_or_else(wrong)
    }

    fn value(&mut self, bytes: &[u8], at: usize, stored_at: Option<u64>) -> Result<ByteValue, ColumnFault> {
        match (stored_at, u32::try_from(bytes.len())) {
            (Some(stored_at), Ok(length)) => {
                Ok(ByteValue::Stored(CellExtent { offset: stored_at + at as u64, length }))
            }
            _ => ByteValue::text(bytes, &mut self.shard.limits),
        }
    }

    /// Returns the bytes of all values, each of `width` bytes, and sets `left` to the number of bytes after them.
    fn take<'b>(&mut self, width: usize, bytes: &'b [u8]) -> Result<&'b [u8], ColumnFault> {
        let size = self.count.checked_mul(width);
        let taken = size.and_then(|size| bytes.get(..size)).ok_or_else(|| self.damaged(DAMAGED))?;
        self.left = (bytes.len() - taken.len()) as u64;
        Ok(taken)
    }

    fn fixed(
        &mut self,
        length: u32,
        bytes: &[u8],
        stored_at: Option<u64>,
    ) -> Result<Vec<ByteValue>, ColumnFault> {
        let bytes = self.take(length as usize, bytes)?;
        let chunks = bytes.chunks_exact(length as usize).enumerate();
        chunks.map(|(number, bytes)| self.value(bytes, number * length as usize, stored_at)).collect()
    }

    fn byte_arrays(
        &mut self,
        encoding: u64,
        bytes: &[u8],
        stored_at: Option<u64>,
    ) -> Result<Vec<ByteValue>, ColumnFault> {
        let mut packed = PackedNumbers { rest: bytes };
        let mut values = Vec::new();
        match encoding {
            PLAIN => {
                for _ in 0..self.count {
                    let length = packed.take(4).map_err(|what| self.damaged(what))?;
                    let length = little_endian(length) as usize;
                    let at = bytes.len() - packed.rest.len();
                    let value = packed.take(length).map_err(|what| self.damaged(what))?;
                    values.push(self.value(value, at, stored_at)?);
                }
                self.left = packed.rest.len() as u64;
            }
            DELTA_LENGTH_BYTE_ARRAY => {
                for length in packed.deltas(self.count, 32).map_err(|what| self.damaged(what))? {
                    let at = bytes.len() - packed.rest.len();
                    let value =
                        usize::try_from(length).map_err(|_| DAMAGED).and_then(|length| packed.take(length));
                    let value = value.map_err(|what| self.damaged(what))?;
                    values.push(self.value(value, at, stored_at)?);
                }
            }
            DELTA_BYTE_ARRAY => {
                let prefixes = packed.deltas(self.count, 32).map_err(|what| self.damaged(what))?;
                let suffixes = packed.deltas(self.count, 32).map_err(|what| self.damaged(what))?;
                let mut text = Vec::new();
                for (prefix, suffix) in prefixes.into_iter().zip(suffixes) {
                    let prefix = usize::try_from(prefix).ok().filter(|&prefix| prefix <= text.len());
                    let suffix =
                        usize::try_from(suffix).map_err(|_| DAMAGED).and_then(|length| packed.take(length));
                    let (Some(prefix), Ok(suffix)) = (prefix, suffix) else {
                        return Err(self.damaged(DAMAGED));
                    };
                    text.truncate(prefix);
                    text.extend_from_slice(suffix);
                    values.push(ByteValue::text(&text, &mut self.shard.limits)?);
                }
            }
            _ => return Err(unknown(encoding)),
        }
        Ok(values)
    }

    /// Locates byte arrays in the shard. Each array is stored after its length. Only the lengths are read.
    fn locate_values(&mut self, mut offset: u64, end: u64) -> Result<Vec<ByteValue>, ColumnFault> {
        let mut values = Vec::new();
        let beyond =
            |offset| ColumnFault::from(damaged(offset, "a value extends beyond the end of its page"));
        for _ in 0..self.count {
            if end.saturating_sub(offset) < 4 {
                return Err(beyond(offset));
            }
            let length = little_endian(&self.shard.file.read(offset, 4)?) as u32;
            if u64::from(length) > end - offset - 4 {
                return Err(beyond(offset));
            }
            values.push(ByteValue::Stored(CellExtent { offset: offset + 4, length }));
            offset += 4 + u64::from(length);
        }
        self.left = end - offset;
        Ok(values)
    }
}

fn width(content: LeafContent) -> Option<usize> {
    match content {
        LeafContent::Half => Some(2),
        LeafContent::Int(_) | LeafContent::UnsignedInt(_) | LeafContent::Float => Some(4),
        LeafContent::Long | LeafContent::UnsignedLong | LeafContent::Double => Some(8),
        _ => None,
    }
}

fn too_large() -> ColumnFault {
    ColumnFault::Refused("it holds integers above 2^63 - 1, which int64 cannot represent".to_owned())
}

fn unknown(encoding: u64) -> ColumnFault {
    ColumnFault::Refused(format!(
        "its values have Parquet's encoding {encoding}, which is not supported for this type: write it with the \
         encoding PLAIN"
    ))
}

fn pick<T: Copy>(numbers: &[u32], values: &[T]) -> Result<Vec<T>, ()> {
    numbers.iter().map(|&number| values.get(number as usize).copied().ok_or(())).collect()
}
