//! The inverse DCT with AVX-512: like `avx2.rs`, but transforms two blocks at a time, one in each half of a register.
//! Blocks are in coding order.

use std::arch::x86_64::*;

use super::{
    CENTRE, EVEN, IdctBlock, InverseDct, ODD, ONE, OutOfRange, PLACES, PortableIdct, QUICK, Quantisation,
};

/// For each index in a block that is stored for the transform, the index of the same coefficient in coding order.
pub(in super::super) static ORDER: [u16; 64] = {
    let mut order = [0; 64];
    let mut k = 0;
    while k < 64 {
        order[PLACES[k] as usize] = k as u16;
        k += 1;
    }
    order
};

/// The samples of two blocks. The first register has rows 0 to 3 of both blocks, the second has rows 4 to 7. Each lane
/// of 128 bits has a row of the first block, then the same row of the second block.
#[derive(Clone, Copy)]
pub(in super::super) struct PairSamples([__m512i; 2]);

impl PairSamples {
    /// Writes the samples of the first (0) or second `block` to `out`, rows `stride` apart.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    pub(in super::super) unsafe fn write(self, block: usize, out: &mut [u8], stride: usize) {
        let out = out[..7 * stride + 8].as_mut_ptr();
        for (samples, row) in self.0.into_iter().zip([0, 4]) {
            // SAFETY: rows 0..8 of 8 bytes are inside `out`; the caller guarantees that the processor has the
            // instructions.
            unsafe {
                let place = |number: usize| out.add((row + number) * stride).cast();
                let samples = if block == 0 { samples } else { _mm512_unpackhi_epi64(samples, samples) };
                _mm_storel_epi64(place(0), _mm512_castsi512_si128(samples));
                _mm_storel_epi64(place(1), _mm512_extracti32x4_epi32::<1>(samples));
                _mm_storel_epi64(place(2), _mm512_extracti32x4_epi32::<2>(samples));
                _mm_storel_epi64(place(3), _mm512_extracti32x4_epi32::<3>(samples));
            }
        }
    }

    /// Writes the samples of both blocks to `out`, rows `stride` apart, the second block to the right of the first.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    pub(in super::super) unsafe fn write_side_by_side(self, out: &mut [u8], stride: usize) {
        let out = out[..7 * stride + 16].as_mut_ptr();
        for (samples, row) in self.0.into_iter().zip([0, 4]) {
            // SAFETY: rows 0..8 of 16 bytes are inside `out`; the caller guarantees that the processor has the
            // instructions.
            unsafe {
                let place = |number: usize| out.add((row + number) * stride).cast();
                _mm_storeu_si128(place(0), _mm512_castsi512_si128(samples));
                _mm_storeu_si128(place(1), _mm512_extracti32x4_epi32::<1>(samples));
                _mm_storeu_si128(place(2), _mm512_extracti32x4_epi32::<2>(samples));
                _mm_storeu_si128(place(3), _mm512_extracti32x4_epi32::<3>(samples));
            }
        }
    }
}

/// Transforms a single block in coding order, with any coefficients, and clears it.
#[cold]
#[inline(never)]
pub(in super::super) fn transform_single(
    block: &mut IdctBlock,
    quantisation: &Quantisation,
    out: &mut [u8],
    stride: usize,
) -> Result<(), OutOfRange> {
    let mut placed = IdctBlock::new();
    for (&place, value) in PLACES.iter().zip(&mut block.0[..64]) {
        placed.0[usize::from(place)] = std::mem::take(value);
    }
    PortableIdct::block(&mut placed, quantisation, out, stride)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn factors(low: i32, high: i32) -> __m512i {
    _mm512_set1_epi32((low & 0xFFFF) | high << 16)
}

/// Transforms one dimension. `x` has the inputs (0, 4), (2, 6), (1, 3), (5, 7) as pairs of 16 bits, for eight columns
/// of each block. The outputs are 32 bits wide, divided by 2^SHIFT and rounded. `start` has what rounds them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pass<const SHIFT: u32>(x: [__m512i; 4], start: __m512i) -> [__m512i; 8] {
    let sum = _mm512_add_epi32(_mm512_madd_epi16(x[0], factors(ONE, ONE)), start);
    let difference = _mm512_add_epi32(_mm512_madd_epi16(x[0], factors(ONE, -ONE)), start);
    let outer = _mm512_madd_epi16(x[1], factors(EVEN[0][0], EVEN[0][1]));
    let inner = _mm512_madd_epi16(x[1], factors(EVEN[1][0], EVEN[1][1]));
    let even = [
        _mm512_add_epi32(sum, outer),
        _mm512_add_epi32(difference, inner),
        _mm512_sub_epi32(difference, inner),
        _mm512_sub_epi32(sum, outer),
    ];
    let mut y = [start; 8];
    for i in 0..4 {
        let odd = _mm512_add_epi32(
            _mm512_madd_epi16(x[2], factors(ODD[i][0], ODD[i][1])),
            _mm512_madd_epi16(x[3], factors(ODD[i][2], ODD[i][3])),
        );
        y[i] = _mm512_srai_epi32::<SHIFT>(_mm512_add_epi32(even[i], odd));
        y[7 - i] = _mm512_srai_epi32::<SHIFT>(_mm512_sub_epi32(even[i], odd));
    }
    y
}

/// A block's coefficients in the order of [`PLACES`].
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(in super::super) struct PlacedBlock(pub(in super::super) [i16; 64]);

impl PlacedBlock {
    pub(in super::super) const fn new() -> Self {
        Self([0; 64])
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) fn load(&self) -> PlacedRows {
        halves(&self.0)
    }
}

/// Rows 0 and 4, 2 and 6 of a block in the first register, rows 1 and 3, 5 and 7 in the second.
type PlacedRows = [__m512i; 2];

#[inline]
#[target_feature(enable = "avx512f")]
fn halves(values: &[i16; 64]) -> PlacedRows {
    let values = values.as_ptr();
    // SAFETY: each load covers 32 of the 64 values of 2 bytes.
    unsafe { [_mm512_loadu_si512(values.cast()), _mm512_loadu_si512(values.add(32).cast())] }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn placed(block: &IdctBlock) -> PlacedRows {
    // SAFETY: the first pointer covers 64 values of 2 bytes, the second 256.
    unsafe {
        let (order, block) = (ORDER.as_ptr(), block.0.as_ptr());
        let (low, high) = (_mm512_loadu_si512(block.cast()), _mm512_loadu_si512(block.add(32).cast()));
        [0, 32].map(|at| _mm512_permutex2var_epi16(low, _mm512_loadu_si512(order.add(at).cast()), high))
    }
}

/// Transforms both blocks and clears them. Returns `None`, without any change, if a coefficient is too large.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(in super::super) fn transform(
    blocks: &mut [IdctBlock; 2],
    quantisation: [&Quantisation; 2],
) -> Option<PairSamples> {
    let samples = transform_placed([placed(&blocks[0]), placed(&blocks[1])], quantisation)?;
    for block in blocks {
        block.0[..64].fill(0);
    }
    Some(samples)
}

/// For each 16-bit lane of a register that has two rows of both blocks: the lane of the 32-bit value, of a register of
/// the first or (from 32 on) of the second row. A block's first lane of 128 bits has the first row.
static PAIRED: [u16; 32] = {
    let mut lanes = [0; 32];
    let mut at = 0;
    while at < 32 {
        let (block, row, column) = (at / 16, at / 8 % 2, at % 8);
        lanes[at] = (32 * row + 16 * block + 2 * column) as u16;
        at += 1;
    }
    lanes
};

/// For each byte of [`PairSamples`], its index in the registers of columns 0 to 3 and (from 64 on) of columns 4 to 7. A
/// lane of these has rows 0, 2, 4, 6 or 1, 3, 5, 7 of a block, column after column.
static ROWS: [[u8; 64]; 2] = {
    let mut rows = [[0; 64]; 2];
    let mut at = 0;
    while at < 128 {
        let (row, block, column) = (at / 16, at / 8 % 2, at % 8);
        let lane = 2 * block + row % 2;
        rows[at / 64][at % 64] = (64 * (column / 4) + 16 * lane + 4 * (column % 4) + row / 2) as u8;
        at += 1;
    }
    rows
};

/// Transforms two blocks in registers. Returns `None` if a coefficient is too large.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(in super::super) fn transform_placed(
    blocks: [PlacedRows; 2],
    tables: [&Quantisation; 2],
) -> Option<PairSamples> {
    let mut products = blocks;
    // Check the limits separately from the sums: a product that wraps to -32768 stays negative in 16 bits, and would
    // lower a sum that is already too large.
    let mut beyond = 0;
    for (block, table) in products.iter_mut().zip(tables) {
        let (steps, limits) = (halves(&table.steps), halves(&table.limits));
        for (i, rows) in block.iter_mut().enumerate() {
            if table.coarse {
                beyond |= _mm512_cmpgt_epi16_mask(_mm512_abs_epi16(*rows), limits[i]);
            }
            *rows = _mm512_mullo_epi16(*rows, steps[i]);
        }
    }
    let [[a01, a23], [b01, b23]] = products;
    // The pairs of rows (0, 4), (2, 6), (1, 3), (5, 7) of both blocks.
    let x = [
        _mm512_shuffle_i64x2::<0b01_00_01_00>(a01, b01),
        _mm512_shuffle_i64x2::<0b11_10_11_10>(a01, b01),
        _mm512_shuffle_i64x2::<0b01_00_01_00>(a23, b23),
        _mm512_shuffle_i64x2::<0b11_10_11_10>(a23, b23),
    ];
    let mut sums = _mm512_setzero_si512();
    for x in x {
        sums = _mm512_adds_epi16(sums, _mm512_abs_epi16(x));
    }
    if beyond | _mm512_cmpgt_epi16_mask(sums, _mm512_set1_epi16(QUICK as i16)) != 0 {
        return None;
    }

    // The first pass transforms columns: y[i] is row i. The second pass transforms rows; its input needs pairs of
    // columns, as the first pass needed pairs of rows. The values fit in 16 bits.
    // Column 0 is the first lane of each block.
    let start = _mm512_mask_set1_epi32(_mm512_set1_epi32(1 << 10), 0x0101, (1 << 10) + (CENTRE << 11));
    let y = pass::<11>(x, start);
    // SAFETY: the table has 32 values of 2 bytes.
    let lanes = unsafe { _mm512_loadu_si512(PAIRED.as_ptr().cast()) };
    let paired = |a, b| _mm512_permutex2var_epi16(a, lanes, b);
    let (r01, r23, r45, r67) =
        (paired(y[0], y[1]), paired(y[2], y[3]), paired(y[4], y[5]), paired(y[6], y[7]));
    let (low0, low1) = (_mm512_unpacklo_epi32(r01, r23), _mm512_unpacklo_epi32(r45, r67));
    let (high0, high1) = (_mm512_unpackhi_epi32(r01, r23), _mm512_unpackhi_epi32(r45, r67));
    // A block's first lane has rows 0, 2, 4, 6 and its second lane has rows 1, 3, 5, 7.
    let x = [
        _mm512_unpacklo_epi64(low0, low1),
        _mm512_unpackhi_epi64(low0, low1),
        _mm512_unpacklo_epi64(high0, high1),
        _mm512_unpackhi_epi64(high0, high1),
    ];
    let y = pass::<18>(x, _mm512_setzero_si512());
    // Now y[i] is column i. Saturating packs clamp the values; each lane then has four columns of four rows.
    let columns = |a, b, c, d| _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    let (left, right) = (columns(y[0], y[1], y[2], y[3]), columns(y[4], y[5], y[6], y[7]));
    // SAFETY: each table has 64 bytes.
    let rows = |table: &[u8; 64]| unsafe {
        _mm512_permutex2var_epi8(left, _mm512_loadu_si512(table.as_ptr().cast()), right)
    };
    let (first, second) = (rows(&ROWS[0]), rows(&ROWS[1]));
    Some(PairSamples([first, second]))
}
