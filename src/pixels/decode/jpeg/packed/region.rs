//! Decodes a region of a packed image to planes. Only the rows of MCUs and the units that the region touches are read.

use super::super::RegionLayout;
use super::super::idct::{IdctBlock, InverseDct, OutOfRange, PortableIdct, Quantisation, SMALL, dc_only};
use super::head::{BlockGrid, PackedHead, grids};
use super::unit::{NO_BYTES, UNIT, UnitBlocks, UnitBytes, UnitWindow};
use super::values::{Expand, PortableExpander};
use super::{corrupt, corrupt_row};
use crate::decode::{Plane, Planes};
use base::crc::checksum;
use base::error::DecodeError;
use base::simd::Level;
use std::marker::PhantomData;
use std::ops::Range;

struct RegionJob<'a> {
    packed: &'a [u8],
    head: &'a PackedHead,
    layout: &'a RegionLayout,
    quantisation: Vec<Quantisation>,
    grids: Vec<BlockGrid>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SamplePlace {
    /// The index of the component and of its plane.
    pub(super) component: usize,
    pub(super) at: usize,
}

pub(super) struct BlockTarget<'a> {
    pub(super) quantisation: &'a [Quantisation],
    pub(super) planes: &'a mut [Plane],
}

impl BlockTarget<'_> {
    /// Returns (the quantisation table of a place, the plane's bytes from this place on, the stride in bytes).
    #[inline(always)]
    pub(super) fn at(&mut self, place: SamplePlace) -> (&Quantisation, &mut [u8], usize) {
        let plane = &mut self.planes[place.component];
        (&self.quantisation[place.component], &mut plane.data[place.at..], plane.stride)
    }

    #[inline(always)]
    pub(super) fn write_dc(&mut self, dc: i16, place: SamplePlace) -> Result<(), OutOfRange> {
        let (quantisation, out, stride) = self.at(place);
        dc_only(dc, quantisation, out, stride)
    }
}

pub(super) struct UnitDecoder<'a> {
    pub(super) bytes: UnitBytes<'a>,
    pub(super) window: &'a UnitWindow,
    pub(super) blocks: &'a UnitBlocks,
    /// The number of bytes at the unit's end that contain the escapes of previous blocks.
    pub(super) escapes: usize,
    /// Whether damaged data gave a coefficient that exceeds the range of 8-bit images.
    pub(super) is_damaged: bool,
}

impl<'a> UnitDecoder<'a> {
    pub(super) fn new(
        bytes: UnitBytes<'a>,
        window: &'a UnitWindow,
        blocks: &'a UnitBlocks,
        escapes: usize,
    ) -> Self {
        Self { bytes, window, blocks, escapes, is_damaged: false }
    }
}

/// Turns the blocks of a unit into samples, for one instruction set.
pub(super) trait UnitSink {
    fn new() -> Self;

    /// Prepares the `wanted` blocks of a unit, which are then passed to `put`.
    fn open(&mut self, window: &UnitWindow, blocks: &UnitBlocks, wanted: Range<usize>);

    /// Computes the samples of block `number` of the unit, at once or in a later call of `put` or `flush`.
    fn put(
        &mut self,
        unit: &mut UnitDecoder,
        number: usize,
        target: &mut BlockTarget,
        place: SamplePlace,
    ) -> Result<(), OutOfRange>;

    fn flush(&mut self, target: &mut BlockTarget) -> Result<(), OutOfRange>;
}

struct ByBlock<E: Expand, T> {
    prepared: E::Prepared,
    block: IdctBlock,
    by: PhantomData<T>,
}

impl<E: Expand, T: InverseDct> UnitSink for ByBlock<E, T> {
    fn new() -> Self {
        Self { prepared: E::new(), block: IdctBlock::new(), by: PhantomData }
    }

    #[inline(always)]
    fn open(&mut self, window: &UnitWindow, blocks: &UnitBlocks, wanted: Range<usize>) {
        E::prepare(&mut self.prepared, window, blocks, wanted);
    }

    #[inline(always)]
    fn put(
        &mut self,
        unit: &mut UnitDecoder,
        number: usize,
        target: &mut BlockTarget,
        place: SamplePlace,
    ) -> Result<(), OutOfRange> {
        if unit.blocks.nonzero[number] == 0 {
            return target.write_dc(unit.blocks.dc[number], place);
        }
        let block = &mut self.block;
        E::expand(&self.prepared, unit, number, block);
        let (quantisation, out, stride) = target.at(place);
        if unit.blocks.nonzero[number] & !SMALL == 0 {
            T::small_block(block, quantisation, out, stride)
        } else {
            T::block(block, quantisation, out, stride)
        }
    }

    #[inline(always)]
    fn flush(&mut self, _: &mut BlockTarget) -> Result<(), OutOfRange> {
        Ok(())
    }
}

pub(super) fn decode(
    packed: &[u8],
    head: &PackedHead,
    layout: &RegionLayout,
    level: Level,
    out: &mut Planes,
) -> Result<(), DecodeError> {
    layout.describe(&head.frame, out);
    layout.shape(&mut out.planes);
    let job =
        RegionJob { packed, head, layout, quantisation: head.quantisation(), grids: grids(&head.frame).0 };
    // If two blocks are transformed together, damage is detected late. So an image that fails is decoded again, block
    // by block, to find the position of the damage.
    match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            decode_avx512(&job, &mut out.planes).or_else(|_| decode_avx2(&job, &mut out.planes))
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { decode_avx2(&job, &mut out.planes) },
        _ => decode_with::<ByBlock<PortableExpander, PortableIdct>>(&job, &mut out.planes),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn decode_avx512(job: &RegionJob, planes: &mut [Plane]) -> Result<(), DecodeError> {
    decode_with::<super::avx512::Avx512Expander>(job, planes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn decode_avx2(job: &RegionJob, planes: &mut [Plane]) -> Result<(), DecodeError> {
    decode_with::<ByBlock<super::avx2::Avx2Expander, super::super::idct::avx2::Avx2Idct>>(job, planes)
}

#[inline(always)]
fn decode_with<S: UnitSink>(job: &RegionJob, planes: &mut [Plane]) -> Result<(), DecodeError> {
    let mut sink = S::new();
    let (mut blocks, mut scratch) = (UnitBlocks::default(), NO_BYTES);
    let mut target = BlockTarget { quantisation: &job.quantisation, planes };
    let rows = job.rows();
    prefetch(job.packed.get(job.head.row(rows.start)).unwrap_or_default());
    for number in rows.start..rows.end {
        let row = McuRow::open(job.packed, job.head, number, &job.grids)?;
        let mut units = row.units();
        for (component, (grid, part)) in job.grids.iter().zip(&job.layout.parts).enumerate() {
            let stride = target.planes[component].stride;
            let dc_limit = job.quantisation[component].dc_limit;
            for y in number * grid.rows..(number + 1) * grid.rows {
                let is_wanted = part.rows.contains(&(y as u32));
                for unit in 0..grid.units() {
                    let bytes = units.next().ok_or_else(|| corrupt_row(number))??;
                    // While this row is decoded, prefetch the next row, which has about the same length.
                    if number + 1 < rows.end {
                        prefetch(bytes.bytes.get(row.length..row.length + bytes.length).unwrap_or_default());
                    }
                    let first = unit * UNIT;
                    let count = grid.blocks(unit);
                    let wanted = (part.columns.start as usize).max(first)
                        ..(part.columns.end as usize).min(first + count);
                    if !is_wanted || wanted.is_empty() {
                        continue;
                    }
                    let window = bytes.window(&mut scratch);
                    blocks.read(window, bytes.length, count, wanted.end - first)?;
                    let escapes = blocks.escapes_before(window, wanted.start - first);
                    sink.open(window, &blocks, wanted.start - first..wanted.end - first);
                    let mut open = UnitDecoder::new(bytes, window, &blocks, escapes);
                    let row_at = 8 * (y - part.rows.start as usize) * stride;
                    for x in wanted {
                        let at = row_at + 8 * (x - part.columns.start as usize);
                        if i32::from(blocks.dc[x - first]).abs() > dc_limit {
                            return Err(out_of_range(number));
                        }
                        sink.put(&mut open, x - first, &mut target, SamplePlace { component, at })
                            .map_err(|OutOfRange| out_of_range(number))?;
                    }
                    if open.is_damaged {
                        return Err(out_of_range(number));
                    }
                }
            }
        }
    }
    sink.flush(&mut target).map_err(|OutOfRange| out_of_range(rows.end))
}

#[inline(always)]
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

fn out_of_range(row: usize) -> DecodeError {
    corrupt(&format!("a coefficient out of range, near row {row} of MCUs"))
}

impl RegionJob<'_> {
    fn rows(&self) -> Range<usize> {
        self.layout.rows_of_mcus(&self.grids, self.head.rows.len())
    }
}

/// A row of MCUs with a verified checksum.
pub(super) struct McuRow<'a> {
    /// The lengths of the row's units, two bytes each.
    lengths: &'a [u8],
    /// The bytes of the row's units, and all bytes after them.
    bytes: &'a [u8],
    length: usize,
    number: usize,
}

impl<'a> McuRow<'a> {
    /// Finds row `number` of MCUs, and verifies the row's checksum.
    pub(super) fn open(
        packed: &'a [u8],
        head: &PackedHead,
        number: usize,
        grids: &[BlockGrid],
    ) -> Result<Self, DecodeError> {
        let place = head.row(number);
        let row = packed.get(place.clone()).ok_or_else(|| corrupt_row(number))?;
        if checksum(row) != head.rows[number].crc {
            return Err(corrupt_row(number));
        }
        let units: usize = grids.iter().map(|grid| grid.rows * grid.units()).sum();
        let (lengths, units) = row.split_at_checked(2 * units).ok_or_else(|| corrupt_row(number))?;
        Ok(Self { lengths, bytes: &packed[place.end - units.len()..], length: units.len(), number })
    }

    #[inline(always)]
    pub(super) fn units(&self) -> impl Iterator<Item = Result<UnitBytes<'a>, DecodeError>> {
        let (mut bytes, mut left, number) = (self.bytes, self.length, self.number);
        self.lengths.as_chunks().0.iter().map(move |length| {
            let length = usize::from(u16::from_le_bytes(*length));
            left = left.checked_sub(length).ok_or_else(|| corrupt_row(number))?;
            let unit = UnitBytes { bytes, length };
            bytes = &bytes[length..];
            Ok(unit)
        })
    }
}
