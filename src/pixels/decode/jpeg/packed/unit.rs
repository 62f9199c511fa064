//! A unit: up to sixteen neighbouring blocks of a row, encoded together. `docs/packed-image.md` specifies its layout.

use super::corrupt;
use base::error::DecodeError;

pub(super) const UNIT: usize = 16;

/// The number of bits in which a unit stores its first DC coefficient.
pub(super) const DC_BITS: u32 = 12;
/// The number of bits in which a unit stores the width of its DC differences.
pub(super) const DIFFERENCE_BITS: u32 = 4;
/// The number of bits of a unit's head: the two fields above, and the flag for long escapes.
pub(super) const HEAD_BITS: usize = (DC_BITS + DIFFERENCE_BITS + 1) as usize;

/// The number of bits in which a block's header stores the index of the last nonzero coefficient.
pub(super) const LAST_BITS: u32 = 6;
/// The number of bits in which a block's header stores the width of the remainders.
pub(super) const WIDTH_BITS: u32 = 3;
pub(super) const BLOCK_BITS: usize = (LAST_BITS + WIDTH_BITS) as usize;

/// The escape code, by the width of remainders in bits. A remainder (magnitude minus 2) of this value means that an
/// escape, a number at the unit's end, must be added to it. For seven bits it is 126, one less than the largest value
/// of seven bits. So every coefficient without an escape has a magnitude of at most 127 and fits in a byte.
pub(super) const ESCAPE: [u8; 8] = [u8::MAX, 1, 3, 7, 15, 31, 63, 126];

/// The largest magnitude of an AC coefficient: 8-bit images have at most ten bits (ITU T.81, F.1.2.2.1).
pub(super) const MAX_MAGNITUDE: i16 = 1023;

/// The smallest number of bytes that a unit of `count` blocks takes in its row, including the two bytes of the unit's
/// length.
pub(super) fn min_row_bytes(count: usize) -> usize {
    2 + (HEAD_BITS + count * BLOCK_BITS).div_ceil(8)
}

/// The contents of a unit's blocks, except the remainders and escapes, which are read later.
#[derive(Debug, Default)]
pub(super) struct UnitBlocks {
    pub(super) dc: [i16; UNIT],
    /// The masks of nonzero AC coefficients: bit k stands for coefficient k in coding order.
    pub(super) nonzero: [u64; UNIT],
    /// One bit for each nonzero coefficient, lowest first: whether the coefficient is negative.
    pub(super) negative: [u64; UNIT],
    /// One bit for each nonzero coefficient, lowest first: whether the magnitude is greater than 1.
    pub(super) large: [u64; UNIT],
    pub(super) width: [u8; UNIT],
    /// The bit offset in the unit at which a block's remainders start.
    pub(super) rest: [u32; UNIT],
    /// The number of bytes of an escape: 1 or 2.
    escape_bytes: usize,
    escapes: bool,
}

/// The largest number of bits of a unit without its escapes: the unit's head, and for each block the DC difference, the
/// block's header, the masks and the remainders.
const MAX_BITS: usize = HEAD_BITS + UNIT * (15 + BLOCK_BITS + 62 + 2 * 63 + 63 * 7);

/// A power of two that is greater than the size in bytes of a unit without its escapes, plus [`LOAD`].
const MAX_BYTES: usize = 2048;
const _: () = assert!(MAX_BITS / 8 + LOAD < MAX_BYTES);

const LOAD: usize = 64;

/// A unit's bytes, followed by other bytes of the image or zeros, which are never used. The length of a window is
/// fixed, so that loads of a block's bits need no bounds check.
pub(super) type UnitWindow = [u8; MAX_BYTES + LOAD];

pub(super) const NO_BYTES: UnitWindow = [0; MAX_BYTES + LOAD];

#[derive(Debug, Clone, Copy)]
pub(super) struct UnitBytes<'a> {
    /// All bytes of the image from the unit's first byte on.
    pub(super) bytes: &'a [u8],
    pub(super) length: usize,
}

impl<'a> UnitBytes<'a> {
    /// Returns the unit's bytes as a window. Copies them to `scratch` if the image ends before the window would end.
    #[inline(always)]
    pub(super) fn window(self, scratch: &'a mut UnitWindow) -> &'a UnitWindow {
        match self.bytes.first_chunk() {
            Some(window) => window,
            None => {
                let (own, behind) = scratch.split_at_mut(self.bytes.len());
                own.copy_from_slice(self.bytes);
                behind.fill(0);
                scratch
            }
        }
    }
}

/// `N` bytes of a window, at most [`LOAD`], starting at byte `at`.
#[inline(always)]
pub(super) fn load<const N: usize>(window: &UnitWindow, at: usize) -> &[u8; N] {
    const { assert!(N <= LOAD) };
    window[at % MAX_BYTES..].first_chunk().expect("a load's bytes")
}

/// The number of bits that [`bits`] always returns.
const LOAD_BITS: u32 = 57;

/// For each width of remainders, the first bit of every remainder that fits in [`LOAD_BITS`].
const FIRST_BITS: [u64; 8] = {
    let mut bits = [0; 8];
    let mut width = 1;
    while width < 8 {
        let mut at = 0;
        while at + width <= LOAD_BITS as usize {
            bits[width] |= 1 << at;
            at += width;
        }
        width += 1;
    }
    bits
};

/// At least [`LOAD_BITS`] bits, starting at bit `at`. The first bit is the lowest.
#[inline(always)]
pub(super) fn bits(window: &UnitWindow, at: usize) -> u64 {
    u64::from_le_bytes(*load(window, at / 8)) >> (at % 8)
}

/// `count` bits, at most 63, starting at bit `at`.
#[inline(always)]
fn mask(window: &UnitWindow, at: usize, count: u32) -> u64 {
    // Without a branch, which would be mispredicted: almost half of all masks of luminance exceed [`LOAD_BITS`].
    let last = u64::from(load::<9>(window, at / 8)[8]);
    lowest(bits(window, at) | last << 1 << (63 - at % 8), count)
}

/// Does the same as [`mask`], faster if few masks have more than [`LOAD_BITS`] bits.
#[inline(always)]
fn short_mask(window: &UnitWindow, at: usize, count: u32) -> u64 {
    if count > LOAD_BITS { mask(window, at, count) } else { lowest(bits(window, at), count) }
}

/// The lowest `count` bits of `bits`; `count` is at most 63.
#[inline(always)]
pub(super) fn lowest(bits: u64, count: u32) -> u64 {
    bits & ((1 << count) - 1)
}

/// The lowest `count` bits as a signed number; `count` is at most 63.
#[inline(always)]
fn signed(bits: u64, count: u32) -> i16 {
    let sign = 1 << count >> 1;
    ((lowest(bits, count) ^ sign) as i16).wrapping_sub(sign as i16)
}

impl UnitBlocks {
    /// Reads the headers and masks of the first `wanted` of a unit's `count` blocks.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        window: &UnitWindow,
        length: usize,
        count: usize,
        wanted: usize,
    ) -> Result<(), DecodeError> {
        let head = bits(window, 0);
        let mut dc = signed(head, DC_BITS);
        let width = lowest(head >> DC_BITS, DIFFERENCE_BITS) as u32;
        self.escape_bytes = 1 + (head >> (HEAD_BITS - 1) & 1) as usize;
        self.dc[0] = dc;
        let mut at = HEAD_BITS;
        // One load has three differences of at most fifteen bits, or six block headers.
        for places in self.dc[1..count].chunks_mut(3) {
            let mut differences = bits(window, at);
            at += places.len() * width as usize;
            for place in places {
                dc = dc.wrapping_add(signed(differences, width));
                *place = dc;
                differences >>= width;
            }
        }
        let mut mask_at = at + count * BLOCK_BITS;
        let mut ones = 0;
        let places = self.width[..count].chunks_mut(6).zip(self.nonzero[..count].chunks_mut(6));
        for (widths, masks) in places {
            let mut header_bits = bits(window, at);
            at += widths.len() * BLOCK_BITS;
            for (width, nonzero) in widths.iter_mut().zip(masks) {
                let last = lowest(header_bits, LAST_BITS) as u32;
                *width = lowest(header_bits >> LAST_BITS, WIDTH_BITS) as u8;
                header_bits >>= BLOCK_BITS;
                let below = last.saturating_sub(1);
                // Bit 0 belongs to the DC coefficient.
                *nonzero = (mask(window, mask_at, below) << 1 | 1 << last) & !1;
                mask_at += below as usize;
                ones += nonzero.count_ones() as usize;
            }
        }
        let mut rest_at = mask_at + 2 * ones;
        for number in 0..wanted {
            let ones = self.nonzero[number].count_ones();
            self.negative[number] = short_mask(window, mask_at, ones);
            let large = short_mask(window, mask_at + ones as usize, ones);
            self.large[number] = large;
            mask_at += 2 * ones as usize;
            self.rest[number] = rest_at as u32;
            rest_at += (large.count_ones() * u32::from(self.width[number])) as usize;
        }
        if rest_at > length * 8 {
            return Err(corrupt("a unit is shorter than its contents"));
        }
        // If no block has an escape, less than a byte is left after the remainders. With unread blocks, this is not
        // known.
        self.escapes = wanted < count || length * 8 - rest_at >= 8;
        Ok(())
    }

    /// Returns how many bytes at the unit's end contain the escapes of the blocks before block `number`.
    #[inline(always)]
    pub(super) fn escapes_before(&self, window: &UnitWindow, number: usize) -> usize {
        if !self.escapes {
            0
        } else {
            self.escape_bytes * (0..number).map(|before| self.count_escapes(window, before)).sum::<usize>()
        }
    }

    fn count_escapes(&self, window: &UnitWindow, number: usize) -> usize {
        let (width, mut at) = (u32::from(self.width[number]), self.rest[number] as usize);
        let Some(most) = LOAD_BITS.checked_div(width) else { return 0 };
        // The remainders of one load are compared at once: a bit of `equal` for each that is an escape code.
        let first = FIRST_BITS[width as usize & 7];
        let (code, high) = (first * u64::from(ESCAPE[width as usize & 7]), first << (width - 1));
        let (mut left, mut count) = (self.large[number].count_ones(), 0);
        while left != 0 {
            let these = left.min(most);
            let differ = bits(window, at) ^ code;
            let below = high - first;
            let equal = !(((differ & below) + below) | differ) & high;
            count += lowest(equal, these * width).count_ones() as usize;
            at += (these * width) as usize;
            left -= these;
        }
        count
    }

    /// The magnitude that the escape of a coefficient of block `number` is added to.
    #[inline(always)]
    pub(super) fn escape_base(&self, number: usize) -> i16 {
        2 + i16::from(ESCAPE[usize::from(self.width[number]) & 7])
    }

    /// The `count` escapes of a block, which end `after` bytes before the unit's end. `None` if escapes have two bytes,
    /// or if damaged data lacks some of them.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn short_escapes<'a>(
        &self,
        unit: UnitBytes<'a>,
        after: usize,
        count: usize,
    ) -> Option<&'a [u8]> {
        let start = unit.length.checked_sub(after + count)?;
        if self.escape_bytes == 1 { unit.bytes.get(start..start + count) } else { None }
    }

    /// The magnitude of a coefficient that has an escape: number `index` of the `count` escapes of block `number`. The
    /// block's escapes end `after` bytes before the unit's end. A result above [`MAX_MAGNITUDE`] means damaged data.
    #[inline(always)]
    pub(super) fn escaped_magnitude(
        &self,
        unit: UnitBytes,
        number: usize,
        after: usize,
        (index, count): (usize, usize),
    ) -> i16 {
        let back = after + (count - index) * self.escape_bytes;
        let start = unit.length.checked_sub(back);
        let byte = |at: usize| start.and_then(|start| unit.bytes.get(start + at)).copied();
        let low = byte(0).unwrap_or(0);
        let high = if self.escape_bytes == 2 { byte(1).unwrap_or(0) } else { 0 };
        let magnitude = i32::from(u16::from_le_bytes([low, high])) + i32::from(self.escape_base(number));
        magnitude.min(i32::from(MAX_MAGNITUDE) + 1) as i16
    }

    pub(super) fn escape_length(&self, count: usize) -> usize {
        count * self.escape_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    #[test]
    fn escapes_are_counted_as_one_by_one() {
        let mut stream = RandomKey::new(b"unit", 0, 0, Use::Augment).stream(0);
        let (mut blocks, mut found) = (UnitBlocks::default(), 0);
        for number in 0..2000 {
            let mut window = NO_BYTES;
            // Few zeros, so that escape codes of all widths occur.
            window[..64].iter_mut().for_each(|byte| *byte = (stream.below(256) | stream.below(256)) as u8);
            let (width, count, start) = (1 + number % 7, stream.below(64) as u32, stream.below(8) as usize);
            (blocks.width[0], blocks.large[0], blocks.rest[0]) =
                (width as u8, (1 << count) - 1, start as u32);
            let escape = u64::from(ESCAPE[width]);
            let is_escape = |index| lowest(bits(&window, start + index * width), width as u32) == escape;
            let expected = (0..count as usize).filter(|&index| is_escape(index)).count();
            assert_eq!(
                blocks.count_escapes(&window, 0),
                expected,
                "{count} of width {width} from bit {start}"
            );
            found += expected;
        }
        assert!(found > 1000, "{found}");
    }
}
