//! Inverse DCT of a block: libjpeg's accurate integer transform (`islow`), bit for bit.
//!
//! The algorithm is that of Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT algorithms with 11
//! multiplications" (ICASSP 1989), with constants of 13 fractional bits and 2 more bits kept between the passes, as in
//! libjpeg's `jidctint.c`. The sums are exact, so any order of operations gives the same result. Here each output is a
//! dot product, which suits vector units.

use std::ops::{Add, Mul, Shr, Sub};

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(test)]
mod tests;

/// The quantised coefficients of a block. Only the first 64 entries are used; with 256 entries an 8-bit index needs no
/// bounds check.
///
/// The transform clears the block, so all entries are zero before the next block is read. Coefficients are in the order
/// of [`position`], but in coding order for `avx512`.
#[repr(C, align(64))]
pub(super) struct IdctBlock(pub(super) [i16; 256]);

impl IdctBlock {
    pub(super) const fn new() -> Self {
        Self([0; 256])
    }
}

/// The index of the coefficient of vertical frequency `u` and horizontal frequency `j`. Rows that are multiplied
/// together (0 and 4, 2 and 6, 1 and 3, 5 and 7) are interleaved, ready for multiply-and-add of pairs. Columns are in
/// the order of these pairs, ready for the second pass.
const fn position(u: usize, j: usize) -> usize {
    const PAIR: [usize; 8] = [0, 2, 1, 2, 0, 3, 1, 3];
    const HALF: [usize; 8] = [0, 0, 0, 1, 1, 0, 1, 1];
    PAIR[u] * 16 + 2 * (2 * PAIR[j] + HALF[j]) + HALF[u]
}

/// The natural index (8·row + column) of each coefficient in coding order (ITU T.81, figure A.6).
pub(super) const ZIGZAG: [u8; 64] = {
    let mut order = [0; 64];
    let (mut row, mut column, mut k) = (0usize, 0usize, 0);
    while k < 64 {
        order[k] = (8 * row + column) as u8;
        if (row + column).is_multiple_of(2) {
            if column == 7 {
                row += 1;
            } else {
                column += 1;
                row = row.saturating_sub(1);
            }
        } else if row == 7 {
            column += 1;
        } else {
            row += 1;
            column = column.saturating_sub(1);
        }
        k += 1;
    }
    order
};

/// The [`position`] of each coefficient in coding order. Indices beyond 63 map to an entry that is not used.
pub(super) static PLACES: [u8; 256] = {
    let mut places = [64; 256];
    let mut k = 0;
    while k < 64 {
        places[k] = position(ZIGZAG[k] as usize / 8, ZIGZAG[k] as usize % 8) as u8;
        k += 1;
    }
    places
};

/// The quantisation table of a component, in the order of [`position`].
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Quantisation {
    steps: [i16; 64],
    /// For each coefficient, the largest value whose product with the step stays within [`LIMIT`].
    limits: [i16; 64],
    /// Whether the product of a 10-bit coefficient and its step can exceed 16 bits. If so, [`Self::limits`] must be
    /// checked.
    coarse: bool,
    /// The largest DC coefficient whose product with its step stays within 16 bits.
    pub(super) dc_limit: i32,
}

impl Quantisation {
    pub(super) fn new(table: &[u16; 64]) -> Self {
        let (mut steps, mut limits) = ([0; 64], [0; 64]);
        for (k, &step) in table.iter().enumerate() {
            let place = usize::from(PLACES[k]);
            // A step beyond signed 16 bits allows only the coefficient 0, so the value stored here does not matter.
            steps[place] = i16::try_from(step).unwrap_or(1);
            limits[place] = (LIMIT / i32::from(step.max(1))) as i16;
        }
        let coarse = table.iter().any(|&step| i32::from(step) * 1023 > 32767);
        Self { steps, limits, coarse, dc_limit: 32767 / i32::from(table[0].max(1)) }
    }

    /// The sums of the magnitudes of four coefficients that share a column. `None` if a sum exceeds the range of 8-bit
    /// samples.
    fn sums(&self, block: &IdctBlock) -> Option<[i32; 16]> {
        let (mut sums, mut within) = ([0i32; 16], true);
        for place in 0..64 {
            let (value, step) = (i32::from(block.0[place]), i32::from(self.steps[place]));
            within &= !self.coarse || value.abs() <= i32::from(self.limits[place]);
            sums[place % 16] += (value * step).abs();
        }
        (within && sums.iter().all(|&sum| sum <= LIMIT)).then_some(sums)
    }

    /// Whether `block`, in coding order, is in the range that the transform supports. `self` was made from `table`,
    /// whose steps must not exceed 32767.
    #[inline(always)]
    pub(super) fn allows(&self, block: &[i16; 64], table: &[i16; 64]) -> bool {
        // First a quick check, which most blocks pass: the sum of the magnitudes of all coefficients is below the
        // limit. Magnitudes of at most ten bits keep the sum within 32 bits.
        let (mut sum, mut most) = (0, 0);
        for (&value, &step) in block.iter().zip(table) {
            let magnitude = value.unsigned_abs();
            most = magnitude.max(most);
            sum += i32::from(magnitude.min(1023) as i16) * i32::from(step);
        }
        if sum <= LIMIT && most <= 1023 {
            return true;
        }
        let mut placed = IdctBlock::new();
        block.iter().zip(&PLACES).for_each(|(&value, &place)| placed.0[usize::from(place)] = value);
        i32::from(block[0]).abs() <= self.dc_limit && self.sums(&placed).is_some()
    }
}

/// A bound on the sum of the magnitudes of four coefficients that share a column: rows 0, 2, 1, 5 and rows 4, 6, 3, 7.
///
/// In an image of 8-bit samples, these sums stay below 2048 + 510 (Parseval, and half a quantisation step of 255 for
/// each coefficient). A larger sum means damaged data.
const LIMIT: i32 = 2950;

/// If no sum (see [`LIMIT`]) is larger than this, the transform does not overflow. Values between the passes fit in 16
/// bits (8240 · 1.387 · 4 / 2 + [`CENTRE`] < 2^15). Values in the second pass fit in 32 bits (16 · 2060 · 4 · 1.387² ·
/// 2^13 + 2^13 · [`CENTRE`] < 2^31).
const QUICK: i32 = 2060;

/// What vector code adds to column 0 between the passes. It becomes the second pass's rounding and 128, the sample of
/// coefficients that are all zero.
#[cfg(target_arch = "x86_64")]
const CENTRE: i32 = ((1 << 17) + (128 << 18)) / ONE;

/// Error: the coefficients of a block exceed the range of 8-bit samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfRange;

pub(super) trait InverseDct {
    /// Transforms a block, clears it, and writes 8×8 samples to `out`, rows `stride` apart.
    fn block(
        block: &mut IdctBlock,
        quantisation: &Quantisation,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), OutOfRange>;

    /// Does the same for a block that is zero outside of its first four rows and columns ([`SMALL`]).
    #[inline(always)]
    fn small_block(
        block: &mut IdctBlock,
        quantisation: &Quantisation,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), OutOfRange> {
        Self::block(block, quantisation, out, stride)
    }
}

/// The mask of the coefficients of the first four rows and columns: bit k stands for coefficient k in coding order.
pub(super) const SMALL: u64 = {
    let (mut mask, mut k) = (0, 0);
    while k < 64 {
        mask |= ((ZIGZAG[k] % 8 < 4 && ZIGZAG[k] < 32) as u64) << k;
        k += 1;
    }
    mask
};

/// Transforms a block whose only nonzero coefficient is `dc`, which is not yet multiplied by its quantisation step.
/// Writes 8×8 samples to `out`, rows `stride` apart.
#[inline(always)]
pub(super) fn dc_only(
    dc: i16,
    quantisation: &Quantisation,
    out: &mut [u8],
    stride: usize,
) -> Result<(), OutOfRange> {
    let dc = i32::from(dc) * i32::from(quantisation.steps[0]);
    if dc.abs() > LIMIT {
        return Err(OutOfRange);
    }
    let sample = ((((dc << 2) + 16) >> 5) + 128).clamp(0, 255) as u8;
    for row in out[..7 * stride + 8].chunks_mut(stride) {
        row[..8].fill(sample);
    }
    Ok(())
}

// Constants with 13 fractional bits: C_0_541 is libjpeg's `FIX_0_541196100`, which is 0.541196100 · 2^13.
pub(super) const C_0_298: i32 = 2446;
pub(super) const C_0_390: i32 = 3196;
pub(super) const C_0_541: i32 = 4433;
pub(super) const C_0_765: i32 = 6270;
pub(super) const C_0_899: i32 = 7373;
pub(super) const C_1_175: i32 = 9633;
pub(super) const C_1_501: i32 = 12299;
pub(super) const C_1_847: i32 = 15137;
pub(super) const C_1_961: i32 = 16069;
pub(super) const C_2_053: i32 = 16819;
pub(super) const C_2_562: i32 = 20995;
pub(super) const C_3_072: i32 = 25172;
const ONE: i32 = 1 << 13;

/// The factors of inputs 2 and 6 in the even part's rotated outputs.
const EVEN: [[i32; 2]; 2] = [[C_0_541 + C_0_765, C_0_541], [C_0_541, C_0_541 - C_1_847]];

/// Row i has the factors of inputs 1, 3, 5, 7 in the odd part that is added to output i (0 to 3). They are the paper's
/// rotations, multiplied out.
const ODD: [[i32; 4]; 4] = [
    [C_1_501 - C_0_899 - C_0_390 + C_1_175, C_1_175, C_1_175 - C_0_390, C_1_175 - C_0_899],
    [C_1_175, C_3_072 - C_2_562 - C_1_961 + C_1_175, C_1_175 - C_2_562, C_1_175 - C_1_961],
    [C_1_175 - C_0_390, C_1_175 - C_2_562, C_2_053 - C_2_562 - C_0_390 + C_1_175, C_1_175],
    [C_1_175 - C_0_899, C_1_175 - C_1_961, C_1_175, C_0_298 - C_0_899 - C_1_961 + C_1_175],
];

pub(super) struct PortableIdct;

impl InverseDct for PortableIdct {
    fn block(
        block: &mut IdctBlock,
        quantisation: &Quantisation,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), OutOfRange> {
        let Some(sums) = quantisation.sums(block) else {
            block.0[..64].fill(0);
            return Err(OutOfRange);
        };
        if sums.iter().all(|&sum| sum <= QUICK) {
            both_passes::<i32>(block, quantisation, out, stride);
        } else {
            both_passes::<i64>(block, quantisation, out, stride);
        }
        block.0[..64].fill(0);
        Ok(())
    }
}

/// An integer type for the transform: 32 bits suffice except for blocks beyond [`QUICK`].
trait Int:
    Copy + From<i32> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Shr<u32, Output = Self>
{
    fn sample(self) -> u8;
}

impl Int for i32 {
    fn sample(self) -> u8 {
        (self + 128).clamp(0, 255) as u8
    }
}

impl Int for i64 {
    fn sample(self) -> u8 {
        (self + 128).clamp(0, 255) as u8
    }
}

#[inline(always)]
fn both_passes<T: Int>(block: &IdctBlock, quantisation: &Quantisation, out: &mut [u8], stride: usize) {
    let mut columns = [[T::from(0); 8]; 8];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = pass::<11, T>(std::array::from_fn(|u| {
            let place = position(u, j);
            T::from(i32::from(block.0[place]) * i32::from(quantisation.steps[place]))
        }));
    }
    for (y, row) in out[..7 * stride + 8].chunks_mut(stride).enumerate() {
        for (sample, value) in row.iter_mut().zip(pass::<18, T>(columns.map(|column| column[y]))) {
            *sample = value.sample();
        }
    }
}

/// Transforms one dimension; the result is divided by 2^SHIFT and rounded.
#[inline(always)]
fn pass<const SHIFT: u32, T: Int>(x: [T; 8]) -> [T; 8] {
    let times = |value: T, factor: i32| value * T::from(factor);
    let rounding = T::from(1 << (SHIFT - 1));
    let (sum, difference) = (times(x[0] + x[4], ONE) + rounding, times(x[0] - x[4], ONE) + rounding);
    let outer = times(x[2], EVEN[0][0]) + times(x[6], EVEN[0][1]);
    let inner = times(x[2], EVEN[1][0]) + times(x[6], EVEN[1][1]);
    let even = [sum + outer, difference + inner, difference - inner, sum - outer];
    let odd = ODD.map(|f| times(x[1], f[0]) + times(x[3], f[1]) + times(x[5], f[2]) + times(x[7], f[3]));
    std::array::from_fn(|i| {
        let value = if i < 4 { even[i] + odd[i] } else { even[7 - i] - odd[7 - i] };
        value >> SHIFT
    })
}
