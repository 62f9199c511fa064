//! Writes units: measures each block, chooses the width of its remainders, and writes the bits.

use super::coefficients::{CodedBlock, ImageBlocks};
use super::masks::{BlockMasks, MaskWork, PlainMasks, Remainders};
use super::unit::{BLOCK_BITS, DC_BITS, DIFFERENCE_BITS, ESCAPE, HEAD_BITS, LAST_BITS, MAX_MAGNITUDE, UNIT};
use base::simd::Level;

/// The largest number of bytes of a unit: 63 coefficients in each of its blocks, each with a remainder of 7 bits and an
/// escape of two bytes, plus the bytes of one store.
const MAX_BYTES: usize = 4096;

/// The cost in bits that is added for each escape when widths are compared, because readers handle escapes separately.
const ESCAPE_PRICE: u32 = 8;

/// Error: a coefficient exceeds the range of 8-bit images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The write position in a unit, lowest bit first. It is a separate value, so that it stays in registers.
#[derive(Clone, Copy, Default)]
struct UnitCursor {
    at: usize,
    window: u64,
    filled: u32,
}

impl UnitCursor {
    /// Appends the lowest `count` bits of `bits`, at most 56. The other bits must be zero.
    #[inline(always)]
    fn put(&mut self, buffer: &mut UnitBuffer, bits: u64, count: u32) {
        self.window |= bits << self.filled;
        self.filled += count;
        if let Some(bytes) = buffer.get_mut(self.at..self.at + 8) {
            bytes.copy_from_slice(&self.window.to_le_bytes());
        }
        self.at += (self.filled / 8) as usize;
        self.window >>= self.filled & 56;
        self.filled &= 7;
    }

    /// Appends the lowest `count` bits of `bits`, at most 63. The other bits must be zero.
    #[inline(always)]
    fn put_long(&mut self, buffer: &mut UnitBuffer, bits: u64, count: u32) {
        let first = count.min(32);
        self.put(buffer, bits & !(u64::MAX << first), first);
        self.put(buffer, bits >> first, count - first);
    }
}

type UnitBuffer = [u8; MAX_BYTES];

#[derive(Debug, Clone, Copy)]
struct MeasuredBlock {
    nonzero: u64,
    /// One bit for each nonzero coefficient, lowest first: whether the coefficient is negative.
    negative: u64,
    /// One bit for each nonzero coefficient, lowest first: whether the magnitude is greater than 1.
    large: u64,
    width: u32,
    rests: [u16; 64],
    /// The largest of the block's remainders (magnitude minus 2); 0 if there are none.
    most: u16,
}

#[derive(Debug)]
pub(super) struct UnitWriter {
    buffer: Box<UnitBuffer>,
    blocks: Box<[MeasuredBlock; UNIT]>,
    escapes: Vec<u16>,
}

impl Default for UnitWriter {
    fn default() -> Self {
        let block = MeasuredBlock { nonzero: 0, negative: 0, large: 0, width: 0, rests: [0; 64], most: 0 };
        Self { buffer: Box::new([0; MAX_BYTES]), blocks: Box::new([block; UNIT]), escapes: Vec::new() }
    }
}

impl UnitWriter {
    /// Appends row `number` of MCUs to `out`: the lengths of its units, then the units.
    pub(super) fn write_row(
        &mut self,
        image: &ImageBlocks,
        number: usize,
        level: Level,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLarge> {
        match level {
            // SAFETY: the level guarantees that the processor has these instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { self.write_row_avx512(image, number, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { self.write_row_avx2(image, number, out) },
            _ => self.write_row_with::<PlainMasks>(image, number, out),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn write_row_avx512(
        &mut self,
        image: &ImageBlocks,
        number: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLarge> {
        self.write_row_with::<super::blocks_avx512::Avx512Masks>(image, number, out)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn write_row_avx2(
        &mut self,
        image: &ImageBlocks,
        number: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLarge> {
        self.write_row_with::<super::masks::VectorMasks>(image, number, out)
    }

    #[inline(always)]
    fn write_row_with<M: MaskWork>(
        &mut self,
        image: &ImageBlocks,
        number: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLarge> {
        let units: usize = image.components.iter().map(|of| of.grid.rows * of.grid.units()).sum();
        let mut length_at = out.len();
        out.resize(length_at + 2 * units, 0);
        for component in &image.components {
            for y in number * component.grid.rows..(number + 1) * component.grid.rows {
                for unit in component.row(y).chunks(UNIT) {
                    let start = out.len();
                    self.write::<M>(unit, out)?;
                    let length = (out.len() - start) as u16;
                    out[length_at..length_at + 2].copy_from_slice(&length.to_le_bytes());
                    length_at += 2;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn write<M: MaskWork>(&mut self, unit: &[CodedBlock], out: &mut Vec<u8>) -> Result<(), TooLarge> {
        for (block, measured) in unit.iter().zip(self.blocks.iter_mut()) {
            measured.measure::<M>(block)?;
        }
        let blocks = &self.blocks[..unit.len()];
        let is_long = |block: &MeasuredBlock| {
            let escape = u16::from(ESCAPE[block.width as usize]);
            block.width > 0 && block.most > escape + 255
        };
        let long = blocks.iter().any(is_long);
        let (mut bits, buffer) = (UnitCursor::default(), &mut *self.buffer);
        write_dc(&mut bits, buffer, unit, long)?;
        for block in blocks {
            let last = 63 - (block.nonzero | 1).leading_zeros();
            bits.put(buffer, u64::from(last | block.width << LAST_BITS), BLOCK_BITS as u32);
        }
        for block in blocks {
            // The bit of the last nonzero coefficient is not stored, because the block's header has the index of this
            // coefficient.
            let last = 63 - (block.nonzero | 1).leading_zeros();
            bits.put_long(buffer, (block.nonzero & !(1 << last)) >> 1, last.saturating_sub(1));
        }
        for block in blocks {
            let count = block.nonzero.count_ones();
            bits.put_long(buffer, block.negative, count);
            bits.put_long(buffer, block.large, count);
        }
        self.escapes.clear();
        // The escapes of the blocks are stored backwards from the unit's end. Within a block, escapes are in the order
        // of the coefficients.
        for block in blocks {
            let escape = u16::from(ESCAPE[block.width as usize]);
            if block.width == 0 {
                continue;
            }
            write_remainders::<M>(&mut bits, buffer, block, escape);
            if block.most < escape {
                continue;
            }
            let first = self.escapes.len();
            self.escapes
                .extend(block.rests().iter().filter(|&&rest| rest >= escape).map(|rest| rest - escape));
            self.escapes[first..].reverse();
        }
        if bits.filled > 0 {
            bits.put(buffer, 0, 8 - bits.filled);
        }
        out.extend_from_slice(&buffer[..bits.at]);
        for &escape in self.escapes.iter().rev() {
            let bytes = escape.to_le_bytes();
            out.extend_from_slice(&bytes[..if long { 2 } else { 1 }]);
        }
        Ok(())
    }
}

#[inline(always)]
fn write_dc(
    bits: &mut UnitCursor,
    buffer: &mut UnitBuffer,
    unit: &[CodedBlock],
    long: bool,
) -> Result<(), TooLarge> {
    let fits = |block: &CodedBlock| (-2048..=2047).contains(&block[0]);
    if !unit.iter().all(fits) {
        return Err(TooLarge);
    }
    let difference = |pair: &[CodedBlock]| i32::from(pair[1][0]) - i32::from(pair[0][0]);
    // A signed number takes one bit more than its value or, if it is negative, than its bitwise complement.
    let all = unit
        .windows(2)
        .map(difference)
        .fold(0, |all, value| all | (value ^ (value >> 31)) as u32 | u32::from(value != 0) << 31);
    let width = if all == 0 { 0 } else { 33 - (all & i32::MAX as u32).leading_zeros() };
    let head = u64::from(unit[0][0] as u16) & ((1 << DC_BITS) - 1)
        | u64::from(width) << DC_BITS
        | u64::from(long) << (DC_BITS + DIFFERENCE_BITS);
    bits.put(buffer, head, HEAD_BITS as u32);
    for pair in unit.windows(2) {
        bits.put(buffer, difference(pair) as u32 as u64 & ((1 << width) - 1), width);
    }
    Ok(())
}

/// Writes a block's remainders. A remainder that is too large is written as the escape code `escape`.
#[inline(always)]
fn write_remainders<M: MaskWork>(
    bits: &mut UnitCursor,
    buffer: &mut UnitBuffer,
    block: &MeasuredBlock,
    escape: u16,
) {
    // Eight at a time: each remainder takes the lowest bits of a byte; the other bits are dropped.
    let fields = 0x0101_0101_0101_0101 * ((1 << block.width) - 1);
    let mut left = block.large.count_ones();
    for eight in block.rests.as_chunks::<8>().0 {
        if left == 0 {
            break;
        }
        let count = left.min(8);
        left -= count;
        let bytes = u64::from_le_bytes(eight.map(|rest| rest.min(escape) as u8));
        let packed = M::compress(bytes, fields);
        bits.put(buffer, packed & !(u64::MAX << (block.width * count)), block.width * count);
    }
}

impl MeasuredBlock {
    #[inline(always)]
    fn rests(&self) -> &[u16] {
        &self.rests[..self.large.count_ones() as usize & 63]
    }

    #[inline(always)]
    fn measure<M: MaskWork>(&mut self, block: &CodedBlock) -> Result<(), TooLarge> {
        let BlockMasks { nonzero, negative, large } = M::masks(block);
        let Remainders { most, escapes } = M::remainders(block, large, &mut self.rests);
        if most > MAX_MAGNITUDE as u16 {
            return Err(TooLarge);
        }
        let count = large.count_ones();
        // With width 0 all remainders must be zero, that is, no remainder needs an escape at width 1.
        let (mut best, mut width) = (if escapes[1] > 0 { u32::MAX } else { 0 }, 0);
        for candidate in 1..8 {
            let cost = candidate * count + u32::from(escapes[candidate as usize]) * (8 + ESCAPE_PRICE);
            if cost < best {
                (best, width) = (cost, candidate);
            }
        }
        self.nonzero = nonzero;
        self.negative = M::compress(negative, nonzero);
        self.large = M::compress(large, nonzero);
        self.width = width;
        self.most = most - 2;
        Ok(())
    }
}
