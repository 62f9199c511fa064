//! Gathers a box of a chunk into a box of a row. Either may have any strides, so this also transposes.
//!
//! Dimensions that are contiguous on both sides are merged first. What remains is a list of planes, each of two
//! dimensions, which are converted in tiles of at most [`BLOCK`] elements.

use super::convert::{BLOCK, ChannelRun, NumberConversion, WorkSpace};
use base::error::DecodeError;

/// A corner of a box in memory: its indices, and the distances in elements between neighbours along each dimension.
#[derive(Debug, Clone, Copy)]
pub struct BoxCorner<'a> {
    /// The indices, outermost first.
    pub at: &'a [u64],
    /// The strides: see [`MemoryOrder::strides`](super::MemoryOrder::strides).
    pub strides: &'a [u64],
}

impl BoxCorner<'_> {
    /// Returns the places of the first and of the last element of a box of these lengths, none of which is 0.
    fn ends(&self, lengths: &[u64]) -> Option<[u64; 2]> {
        let mut ends = [0u64; 2];
        for ((&at, &stride), &length) in self.at.iter().zip(self.strides).zip(lengths) {
            let first = at.checked_mul(stride)?;
            let last = first.checked_add((length - 1).checked_mul(stride)?)?;
            ends = [ends[0].checked_add(first)?, ends[1].checked_add(last)?];
        }
        Some(ends)
    }
}

/// A box that is in a chunk and in a row. All lists have one entry for each dimension.
#[derive(Debug, Clone, Copy)]
pub struct GatheredBox<'a> {
    /// The lengths of the box.
    pub lengths: &'a [u64],
    /// Where the box is in the chunk.
    pub chunk: BoxCorner<'a>,
    /// Where the box is in the row.
    pub row: BoxCorner<'a>,
    /// The box's first index in the whole array along [`Arithmetic::axis`](super::Arithmetic::axis). It selects the
    /// means and standard deviations, and is ignored if they do not differ.
    pub channel: u64,
}

/// Converts the elements of a box of `chunk` and writes them to `row`. No other byte of `row` changes.
///
/// # Errors
/// [`DecodeError::Damaged`] if the chunk or the row does not contain the box, or an integer does not fit the type of
/// the row.
pub fn gather(
    chunk: &[u8],
    row: &mut [u8],
    of: &GatheredBox,
    with: &NumberConversion,
) -> Result<(), DecodeError> {
    if of.lengths.contains(&0) {
        return Ok(());
    }
    let start = checked_start(chunk.len(), row.len(), of, with).ok_or_else(|| {
        let shape = of.lengths;
        DecodeError::Damaged(format!(
            "has too few bytes for its shape: a part of shape {shape:?} exceeds them"
        ))
    })?;
    let mut planes = merged(of, with, start.channel);
    let inner = planes.pop().unwrap_or(GatherAxis::ONE);
    // If another dimension is closer together in the chunk, tiles go along both, so that cache lines are used whole.
    let closest = (0..planes.len()).rev().min_by_key(|&axis| planes[axis].chunk);
    let transposed = closest.filter(|&axis| planes[axis].chunk < inner.chunk);
    let outer =
        transposed.or(planes.len().checked_sub(1)).map_or(GatherAxis::ONE, |axis| planes.remove(axis));
    let starts = (0..planes.iter().map(|axis| axis.length).product::<usize>()).map(|number| {
        let (mut place, mut rest) = (start, number);
        for axis in planes.iter().rev() {
            place = place.moved(axis, rest % axis.length);
            rest /= axis.length;
        }
        place
    });
    if with.is_copy() && inner.chunk == 1 && inner.row == 1 {
        let size = with.to.size();
        for start in starts {
            for place in (0..outer.length).map(|index| start.moved(&outer, index)) {
                row[place.row * size..][..inner.length * size]
                    .copy_from_slice(&chunk[place.chunk * size..][..inner.length * size]);
            }
        }
        return Ok(());
    }
    let [rows, columns] = tile_shape(&outer, &inner, start.channel, with);
    let mut tiles = Tiles {
        chunk,
        row,
        axes: [outer, inner],
        with,
        picked: [0; 8 * BLOCK],
        converted: [0; 8 * BLOCK],
        space: WorkSpace::new(),
    };
    for start in starts {
        for column in (0..inner.length).step_by(columns) {
            for line in (0..outer.length).step_by(rows) {
                let shape = [rows.min(outer.length - line), columns.min(inner.length - column)];
                tiles.convert(start.moved(&outer, line).moved(&inner, column), shape)?;
            }
        }
    }
    Ok(())
}

/// Returns where the bytes of a box begin in the chunk and in the row, and their number, if they are contiguous on both
/// sides and [`gather`] would only copy them. Returns `None` otherwise, and for everything that [`gather`] refuses.
pub fn copied_bytes(
    [chunk_bytes, row_bytes]: [usize; 2],
    of: &GatheredBox,
    with: &NumberConversion,
) -> Option<[usize; 3]> {
    if !with.is_copy() || of.lengths.contains(&0) {
        return None;
    }
    let start = checked_start(chunk_bytes, row_bytes, of, with)?;
    let length = match merged(of, with, start.channel)[..] {
        [] => 1,
        [GatherAxis { length, chunk: 1, row: 1, .. }] => length,
        _ => return None,
    };
    Some([start.chunk, start.row, length].map(|elements| elements * with.to.size()))
}

/// Fills a box of a row with one element: the fill value of an absent chunk, or padding. `element` is in the byte order
/// of stored elements and is converted like them. The box's place in a chunk is ignored.
///
/// # Errors
/// The errors of [`gather`].
pub fn fill(
    element: &[u8],
    row: &mut [u8],
    of: &GatheredBox,
    with: &NumberConversion,
) -> Result<(), DecodeError> {
    let zeros = vec![0; of.lengths.len()];
    gather(element, row, &GatheredBox { chunk: BoxCorner { at: &zeros, strides: &zeros }, ..*of }, with)
}

/// A dimension of the box, or several that are contiguous on both sides.
#[derive(Debug, Clone, Copy)]
struct GatherAxis {
    length: usize,
    /// The strides in the chunk and in the row.
    chunk: usize,
    row: usize,
    /// Whether each next index has the next mean and standard deviation.
    has_channels: bool,
}

impl GatherAxis {
    const ONE: Self = Self { length: 1, chunk: 1, row: 1, has_channels: false };
}

/// The place of an element in the chunk and in the row, and its channel. A channel beyond the last begins again at the
/// first.
#[derive(Debug, Clone, Copy)]
struct ElementPlace {
    chunk: usize,
    row: usize,
    channel: usize,
}

impl ElementPlace {
    fn moved(self, axis: &GatherAxis, by: usize) -> Self {
        Self {
            chunk: self.chunk + by * axis.chunk,
            row: self.row + by * axis.row,
            channel: self.channel + if axis.has_channels { by } else { 0 },
        }
    }
}

/// Returns where the box begins; `None` if the lists differ in length, or the bytes do not contain the box.
fn checked_start(
    chunk_bytes: usize,
    row_bytes: usize,
    of: &GatheredBox,
    with: &NumberConversion,
) -> Option<ElementPlace> {
    let rank = of.lengths.len();
    let lists = [of.chunk.at, of.chunk.strides, of.row.at, of.row.strides];
    let [chunk, last_in_chunk] = of.chunk.ends(of.lengths)?;
    let [row, last_in_row] = of.row.ends(of.lengths)?;
    let mut is_inside = lists.iter().all(|list| list.len() == rank)
        && last_in_chunk < (chunk_bytes / with.from.number.size()) as u64
        && last_in_row < (row_bytes / with.to.size()) as u64;
    if with.channels > 1 {
        let end = of.channel.checked_add(*of.lengths.get(with.axis)?)?;
        is_inside &= end <= with.channels as u64;
    }
    let channel = if with.channels > 1 { of.channel as usize } else { 0 };
    is_inside.then_some(ElementPlace { chunk: chunk as usize, row: row as usize, channel })
}

/// Returns the dimensions of more than one element, those merged that are contiguous on both sides.
fn merged(of: &GatheredBox, with: &NumberConversion, channel: usize) -> Vec<GatherAxis> {
    let mut axes: Vec<GatherAxis> = Vec::with_capacity(of.lengths.len());
    let strides = of.chunk.strides.iter().zip(of.row.strides);
    for (index, (&length, (&chunk, &row))) in of.lengths.iter().zip(strides).enumerate() {
        if length == 1 {
            continue;
        }
        let has_channels = with.channels > 1 && index == with.axis;
        let axis =
            GatherAxis { length: length as usize, chunk: chunk as usize, row: row as usize, has_channels };
        // A dimension of all channels may become the inner part of a longer one, in which the channels repeat.
        let keeps_channels = !has_channels || channel == 0 && axis.length == with.channels;
        match axes.last_mut() {
            Some(outer)
                if !outer.has_channels
                    && keeps_channels
                    && outer.chunk == axis.length * axis.chunk
                    && outer.row == axis.length * axis.row =>
            {
                *outer = GatherAxis { length: outer.length * axis.length, ..axis };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// Returns the numbers of rows and columns of a tile. With several rows, all rows of a tile have the same channels, and
/// the channels of consecutive elements continue from row to row.
fn tile_shape(outer: &GatherAxis, inner: &GatherAxis, channel: usize, with: &NumberConversion) -> [usize; 2] {
    const NARROW: usize = 32;
    let transposed = outer.chunk < inner.chunk;
    let repeats = channel == 0 && inner.length.is_multiple_of(with.channels) && !transposed;
    let may_join = !outer.has_channels && (!inner.has_channels || repeats);
    let columns = inner.length.min(if transposed && may_join { NARROW } else { BLOCK });
    // Long rows that need no copy are converted where they are.
    let in_place = inner.chunk == 1 && inner.row == 1 && columns > NARROW;
    let joined = may_join && (transposed || columns == inner.length && !in_place);
    [if joined { outer.length.min(BLOCK / columns) } else { 1 }, columns]
}

/// Converts tiles of planes with the dimensions `axes`.
struct Tiles<'a> {
    chunk: &'a [u8],
    row: &'a mut [u8],
    axes: [GatherAxis; 2],
    with: &'a NumberConversion,
    picked: [u8; 8 * BLOCK],
    converted: [u8; 8 * BLOCK],
    space: WorkSpace,
}

impl Tiles<'_> {
    fn convert(&mut self, place: ElementPlace, shape: [usize; 2]) -> Result<(), DecodeError> {
        let Self { chunk, row, axes: [outer, inner], with, picked, converted, space } = self;
        let (from, to) = (with.from.number.size(), with.to.size());
        let count = shape[0] * shape[1];
        let raw = if shape[0] == 1 && inner.chunk == 1 {
            &chunk[place.chunk * from..][..count * from]
        } else {
            pick(from, &chunk[place.chunk * from..], [outer.chunk, inner.chunk], shape, picked);
            &picked[..count * from]
        };
        let channel = place.channel % with.channels;
        let channel = if inner.has_channels { ChannelRun::From(channel) } else { ChannelRun::Same(channel) };
        let row = &mut row[place.row * to..];
        if shape[0] == 1 && inner.row == 1 {
            return with.block(raw, channel, space, &mut row[..count * to]);
        }
        with.block(raw, channel, space, &mut converted[..count * to])?;
        put(to, &converted[..count * to], [outer.row, inner.row], shape, row);
        Ok(())
    }
}

/// Calls a function with the size of elements as a constant.
macro_rules! of_size {
    ($size:expr, $function:ident($($argument:expr),*)) => {
        match $size {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            4 => $function::<4>($($argument),*),
            _ => $function::<8>($($argument),*),
        }
    };
}

/// Copies a tile of strided elements to the beginning of `to`.
fn pick(size: usize, from: &[u8], strides: [usize; 2], shape: [usize; 2], to: &mut [u8]) {
    fn sized<const N: usize>(from: &[u8], strides: [usize; 2], [rows, columns]: [usize; 2], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        for (row, to) in to.chunks_exact_mut(columns).take(rows).enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to = from[row * strides[0] + column * strides[1]];
            }
        }
    }
    of_size!(size, sized(from, strides, shape, to));
}

/// Copies the elements of a tile to strided places.
fn put(size: usize, from: &[u8], strides: [usize; 2], shape: [usize; 2], to: &mut [u8]) {
    fn sized<const N: usize>(from: &[u8], strides: [usize; 2], [rows, columns]: [usize; 2], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        for (row, from) in from.chunks_exact(columns).take(rows).enumerate() {
            for (column, from) in from.iter().enumerate() {
                to[row * strides[0] + column * strides[1]] = *from;
            }
        }
    }
    of_size!(size, sized(from, strides, shape, to));
}
