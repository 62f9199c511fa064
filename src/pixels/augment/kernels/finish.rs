//! Turns resized rows into output: colour conversion, normalisation, cast, store.

use super::VECTOR;
use super::element::{Bf16, ElementType, F16, F32, Streamed, U8};
use super::rows::{ResizedRows, RowSums};
use super::simd::Simd;
use crate::augment::{DType, MemoryFormat, Output};

/// The number of fractional bits of each value in a resized row in the `fast` pass. With 7, the largest grey level
/// (32640 = 255 · 2^7) still fits an `i16`.
pub(in crate::augment) const FRACTION: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Colour {
    /// Y, Cb, Cr with [`FRACTION`] bits after the binary point, to be converted.
    YCbCr,
    /// R, G, B with this many bits after the binary point. With 0 bits, the sums of the vertical resize are also
    /// rounded to integer levels. All three components are the same for a gray image.
    Rgb(u32),
}

/// The smallest image, in bytes, that is written past the caches. A batch of smaller images may stay in the caches
/// until it is read. A batch of larger images does not fit the caches, and each cache line would be read from memory
/// only to be overwritten.
const STREAMED: usize = 1 << 18;

const LINE: usize = 64;

#[derive(Debug, Clone)]
pub(in crate::augment) struct Finish {
    pub colour: Colour,
    /// Whether large images are written past the caches, because they are not read again soon.
    pub streamed: bool,
    width: usize,
    height: usize,
    dtype: DType,
    format: MemoryFormat,
    gain: [f32; 3],
    offset: [f32; 3],
    fill: [f32; 3],
}

/// Returns the gain and the offset of each channel: output value = grey level · gain + offset. `u8` keeps grey levels.
pub(in crate::augment) fn scaling(output: &Output) -> ([f32; 3], [f32; 3]) {
    let (mut gain, mut offset) = ([1.0; 3], [0.0; 3]);
    if output.dtype != DType::U8 {
        for c in 0..3 {
            gain[c] = (1.0 / (255.0 * output.std[c])) as f32;
            offset[c] = (-output.mean[c] / output.std[c]) as f32;
        }
    }
    (gain, offset)
}

/// Returns the output value of each channel for pixels that show no image.
pub(in crate::augment) fn filling(output: &Output) -> [f32; 3] {
    let (gain, offset) = scaling(output);
    std::array::from_fn(|c| f32::from(output.fill[c]) * gain[c] + offset[c])
}

impl Finish {
    pub(in crate::augment) fn new(output: &Output) -> Self {
        let (gain, offset) = scaling(output);
        Self {
            colour: Colour::YCbCr,
            streamed: true,
            width: output.width as usize,
            height: output.height as usize,
            dtype: output.dtype,
            format: output.format,
            gain,
            offset,
            fill: filling(output),
        }
    }

    #[inline(always)]
    fn at(&self, c: usize, row: usize, x: usize) -> usize {
        self.dtype.size()
            * match self.format {
                MemoryFormat::Nchw => (c * self.height + row) * self.width + x,
                MemoryFormat::Nhwc => (row * self.width + x) * 3 + c,
            }
    }

    /// Returns whether the output is written past the caches, with non-temporal stores. The rows must be whole cache
    /// lines and begin at a cache line, so that all vectors are aligned.
    #[inline(always)]
    pub(in crate::augment) fn streams(&self, out: &[u8]) -> bool {
        self.streamed
            && out.len() >= STREAMED
            && (self.width * self.dtype.size()).is_multiple_of(LINE)
            && out.as_ptr().addr().is_multiple_of(LINE)
    }

    /// Returns the bytes of each channel. For NHWC, the first slice has all channels, and the other two slices are
    /// empty.
    #[inline(always)]
    fn whole<'a>(&self, out: &'a mut [u8]) -> [&'a mut [u8]; 3] {
        match self.format {
            MemoryFormat::Nchw => thirds(out),
            MemoryFormat::Nhwc => [out, &mut [], &mut []],
        }
    }

    #[inline(always)]
    fn rows<'a>(&self, row: usize, out: &'a mut [u8]) -> [&'a mut [u8]; 3] {
        self.whole(out).map(|bytes| {
            let length = bytes.len() / self.height;
            &mut bytes[row * length..][..length]
        })
    }
}

/// The factors of JFIF's conversion to R, G and B: `CR_R` is the factor of Cr in R, `CB_G` that of Cb in G.
const CR_R: f32 = 1.402;
const CB_G: f32 = -0.344_136_3;
const CR_G: f32 = -0.714_136_3;
const CB_B: f32 = 1.772;

/// Implements [`super::finish_row`] with SIMD vectors.
#[inline(always)]
pub(super) fn row<S: Simd>(
    s: S,
    sources: [ResizedRows; 3],
    finish: &Finish,
    row: usize,
    values: &mut Vec<u8>,
    out: &mut [u8],
) {
    // Other element types, NHWC and rows that are not whole blocks are written as floats first and then cast, so that
    // less code is compiled for all these cases.
    let is_final = matches!(finish.dtype, DType::F32 | DType::F16)
        && finish.format == MemoryFormat::Nchw
        && finish.width.is_multiple_of(VECTOR);
    let streams = finish.streams(out);
    let to = if is_final {
        finish.rows(row, out)
    } else {
        values.resize(3 * F32::SIZE * finish.width.next_multiple_of(VECTOR), 0);
        thirds(values)
    };
    match (finish.dtype, is_final, streams) {
        (DType::F32, true, true) => normalised::<S, Streamed<F32>>(s, sources, finish, to),
        (DType::F16, true, true) => normalised::<S, Streamed<F16>>(s, sources, finish, to),
        (DType::F16, true, false) => normalised::<S, F16>(s, sources, finish, to),
        _ => normalised::<S, F32>(s, sources, finish, to),
    }
    match finish.dtype {
        _ if is_final => {}
        DType::F32 if streams => cast::<S, Streamed<F32>>(s, finish, values, row, out),
        DType::F32 => cast::<S, F32>(s, finish, values, row, out),
        DType::F16 if streams => cast::<S, Streamed<F16>>(s, finish, values, row, out),
        DType::F16 => cast::<S, F16>(s, finish, values, row, out),
        DType::Bf16 if streams => cast::<S, Streamed<Bf16>>(s, finish, values, row, out),
        DType::Bf16 => cast::<S, Bf16>(s, finish, values, row, out),
        DType::U8 => cast::<S, U8>(s, finish, values, row, out),
    }
}

/// Writes a row of normalised R, G and B in whole blocks of columns.
#[inline(always)]
fn normalised<S: Simd, E: ElementType>(s: S, sources: [ResizedRows; 3], finish: &Finish, to: [&mut [u8]; 3]) {
    // Most bilinear filters cover two or three pairs of rows; most cubic filters cover up to five pairs.
    match sources.iter().map(ResizedRows::pairs).max().unwrap_or(0) {
        0..=2 => normalised_sums::<S, E, 2>(s, sources, finish, to),
        3 => normalised_sums::<S, E, 3>(s, sources, finish, to),
        4 | 5 => normalised_sums::<S, E, 5>(s, sources, finish, to),
        _ => normalised_sums::<S, E, 0>(s, sources, finish, to),
    }
}

/// Does the work of [`normalised`]. Each source has at most `PAIRS` pairs of rows, or any number if `PAIRS` is 0.
#[inline(always)]
fn normalised_sums<S: Simd, E: ElementType, const PAIRS: usize>(
    s: S,
    [first, second, third]: [ResizedRows; 3],
    finish: &Finish,
    to: [&mut [u8]; 3],
) {
    match finish.colour {
        Colour::YCbCr => {
            let (y, cb, cr) =
                (FixedPointScale::new(&first), FixedPointScale::new(&second), FixedPointScale::new(&third));
            let levels = YcbcrSums::<S, PAIRS> {
                // Chroma is centred while it is an integer, because the difference is exact then.
                y: RowSums::new(s, first, 0),
                cb: RowSums::new(s, second, -(128 << cb.bits)),
                cr: RowSums::new(s, third, -(128 << cr.bits)),
                unit: [y.unit, cb.unit, cr.unit],
            };
            store::<S, E>(s, MemoryFormat::Nchw, &Normalised { finish, levels }, to);
        }
        Colour::Rgb(fraction) => {
            let levels = RgbSums([
                ComponentSums::<S, PAIRS>::new(s, first, fraction),
                ComponentSums::new(s, second, fraction),
                ComponentSums::new(s, third, fraction),
            ]);
            store::<S, E>(s, MemoryFormat::Nchw, &Normalised { finish, levels }, to);
        }
    }
}

/// Computes R, G and B of the vector of columns that begins at column `x` of a block of [`VECTOR`].
///
/// This is a trait instead of a closure. If a function is inlined into a function with vector instructions, its
/// closures do not get these instructions. Then every operation can become a call that passes vectors through memory,
/// if the compiler does not inline the closure.
trait RgbSource<S: Simd> {
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3];
}

struct Normalised<'a, L> {
    finish: &'a Finish,
    levels: L,
}

impl<S: Simd, L: RgbSource<S>> RgbSource<S> for Normalised<'_, L> {
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3] {
        let Finish { gain, offset, .. } = self.finish;
        let [r, g, b] = self.levels.at(s, block, x);
        [
            s.add_f(s.mul_f(r, s.splat_f(gain[0])), s.splat_f(offset[0])),
            s.add_f(s.mul_f(g, s.splat_f(gain[1])), s.splat_f(offset[1])),
            s.add_f(s.mul_f(b, s.splat_f(gain[2])), s.splat_f(offset[2])),
        ]
    }
}

/// Converts sums of Y, Cb and Cr to levels of R, G and B. `unit` has the level that a sum of 1 stands for, for each
/// component.
struct YcbcrSums<'a, S: Simd, const PAIRS: usize> {
    y: RowSums<'a, S, PAIRS>,
    cb: RowSums<'a, S, PAIRS>,
    cr: RowSums<'a, S, PAIRS>,
    unit: [f32; 3],
}

impl<S: Simd, const PAIRS: usize> RgbSource<S> for YcbcrSums<'_, S, PAIRS> {
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3] {
        let y = s.mul_f(s.float(self.y.at(s, block, x)), s.splat_f(self.unit[0]));
        let cb = s.float(self.cb.at(s, block, x));
        let cr = s.float(self.cr.at(s, block, x));
        let r = s.add_f(y, s.mul_f(cr, s.splat_f(CR_R * self.unit[2])));
        let g = s.add_f(y, s.mul_f(cb, s.splat_f(CB_G * self.unit[1])));
        let g = s.add_f(g, s.mul_f(cr, s.splat_f(CR_G * self.unit[2])));
        let b = s.add_f(y, s.mul_f(cb, s.splat_f(CB_B * self.unit[1])));
        [s.clamp(r, 0.0, 255.0), s.clamp(g, 0.0, 255.0), s.clamp(b, 0.0, 255.0)]
    }
}

/// The scale of a sum of Y, Cb or Cr: the number of its fractional bits, and the grey level that a sum of 1 stands for.
struct FixedPointScale {
    bits: u32,
    unit: f32,
}

impl FixedPointScale {
    #[inline(always)]
    fn new(source: &ResizedRows) -> Self {
        let bits = FRACTION + source.rows.taps.bits;
        Self { bits, unit: 1.0 / (1u64 << bits) as f32 }
    }
}

struct RgbSums<'a, S: Simd, const PAIRS: usize>([ComponentSums<'a, S, PAIRS>; 3]);

impl<S: Simd, const PAIRS: usize> RgbSource<S> for RgbSums<'_, S, PAIRS> {
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3] {
        [self.0[0].at(s, block, x), self.0[1].at(s, block, x), self.0[2].at(s, block, x)]
    }
}

struct ComponentSums<'a, S: Simd, const PAIRS: usize> {
    sums: RowSums<'a, S, PAIRS>,
    shift: u32,
    unit: f32,
}

impl<'a, S: Simd, const PAIRS: usize> ComponentSums<'a, S, PAIRS> {
    /// `fraction` is the number of bits after the binary point of the values in `source`. If it is 0, sums are rounded
    /// to integer grey levels, as PIL does between and after its passes.
    #[inline(always)]
    fn new(s: S, source: ResizedRows<'a>, fraction: u32) -> Self {
        let bits = source.rows.taps.bits;
        let (half, shift, unit) = match fraction {
            0 => (1 << (bits - 1), bits, 1.0),
            _ => (0, 0, 1.0 / (1u64 << (bits + fraction)) as f32),
        };
        Self { sums: RowSums::new(s, source, half), shift, unit }
    }

    /// Returns the levels, clamped because some filters overshoot.
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> S::F {
        let sums = s.shift_right(self.sums.at(s, block, x), self.shift);
        s.clamp(s.mul_f(s.float(sums), s.splat_f(self.unit)), 0.0, 255.0)
    }
}

struct BytePlanes<'a>([&'a [[u8; VECTOR]]; 3]);

impl<S: Simd> RgbSource<S> for BytePlanes<'_> {
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3] {
        let [r, g, b] = [&self.0[0][block], &self.0[1][block], &self.0[2][block]];
        [s.float(s.load_bytes(&r[x..])), s.float(s.load_bytes(&g[x..])), s.float(s.load_bytes(&b[x..]))]
    }
}

struct FloatRows<'a>([&'a [[u8; FLOATS]]; 3]);

const FLOATS: usize = F32::SIZE * VECTOR;

impl<S: Simd> RgbSource<S> for FloatRows<'_> {
    #[inline(always)]
    fn at(&self, s: S, block: usize, x: usize) -> [S::F; 3] {
        let [r, g, b] = [&self.0[0][block], &self.0[1][block], &self.0[2][block]];
        let x = F32::SIZE * x;
        [s.load_f32(&r[x..]), s.load_f32(&g[x..]), s.load_f32(&b[x..])]
    }
}

/// Casts one row of floats to `E` and stores it as row `row` of `out`. `values` has the bytes of the floats: first all
/// of R, then G, then B, each padded to whole blocks.
#[inline(always)]
fn cast<S: Simd, E: ElementType>(s: S, finish: &Finish, values: &[u8], row: usize, out: &mut [u8]) {
    let length = values.len() / 3;
    let values = [0, 1, 2].map(|c| values[c * length..][..length].as_chunks().0);
    store::<S, E>(s, finish.format, &FloatRows(values), finish.rows(row, out));
    if !finish.width.is_multiple_of(VECTOR) {
        let last = values.map(|blocks| &blocks[blocks.len() - 1..]);
        store_rest::<S, E>(s, finish.format, &FloatRows(last), finish.rows(row, out));
    }
}

/// Implements [`super::store`] with SIMD vectors.
#[inline(always)]
pub(super) fn stored<S: Simd>(s: S, levels: [&[u8]; 3], finish: &Finish, out: &mut [u8]) {
    match finish.dtype {
        DType::F32 => scale::<S, F32>(s, finish, levels, out),
        DType::F16 => scale::<S, F16>(s, finish, levels, out),
        DType::Bf16 => scale::<S, Bf16>(s, finish, levels, out),
        DType::U8 => scale::<S, U8>(s, finish, levels, out),
    }
}

#[inline(always)]
fn scale<S: Simd, E: ElementType>(s: S, finish: &Finish, levels: [&[u8]; 3], out: &mut [u8]) {
    if finish.streams(out) {
        scale_to::<S, Streamed<E>>(s, finish, levels, out);
    } else {
        scale_to::<S, E>(s, finish, levels, out);
    }
}

#[inline(always)]
fn scale_to<S: Simd, E: ElementType>(s: S, finish: &Finish, levels: [&[u8]; 3], out: &mut [u8]) {
    let planes = levels.map(<[u8]>::as_chunks);
    let levels = BytePlanes(planes.map(|(blocks, _)| blocks));
    match finish.format {
        // Writing one plane after the other is the fastest order for memory.
        MemoryFormat::Nchw => {
            for (c, to) in thirds(out).into_iter().enumerate() {
                let (gain, offset) = (s.splat_f(finish.gain[c]), s.splat_f(finish.offset[c]));
                for (levels, to) in planes[c].0.iter().zip(to.chunks_exact_mut(E::SIZE * VECTOR)) {
                    for x in (0..VECTOR).step_by(S::LANES) {
                        let value = s.add_f(s.mul_f(s.float(s.load_bytes(&levels[x..])), gain), offset);
                        E::put(s, &mut to[E::SIZE * x..], value);
                    }
                }
            }
        }
        MemoryFormat::Nhwc => {
            store::<S, E>(s, finish.format, &Normalised { finish, levels }, finish.whole(out));
        }
    }
    let rest = planes.map(|(_, rest)| rest);
    if !rest[0].is_empty() {
        let mut blocks = [[[0; VECTOR]]; 3];
        for (block, rest) in blocks.iter_mut().zip(rest) {
            block[0][..rest.len()].copy_from_slice(rest);
        }
        let levels = BytePlanes(blocks.each_ref().map(|block| &block[..]));
        store_rest::<S, E>(s, finish.format, &Normalised { finish, levels }, finish.whole(out));
    }
}

/// Stores all whole blocks of columns that fit.
#[inline(always)]
fn store<S: Simd, E: ElementType>(
    s: S,
    format: MemoryFormat,
    values: &impl RgbSource<S>,
    to: [&mut [u8]; 3],
) {
    let [first, second, third] = to;
    let bytes = E::SIZE * VECTOR;
    match format {
        MemoryFormat::Nchw => {
            let planes = first.chunks_exact_mut(bytes).zip(second.chunks_exact_mut(bytes));
            for (block, ((r, g), b)) in planes.zip(third.chunks_exact_mut(bytes)).enumerate() {
                for x in (0..VECTOR).step_by(S::LANES) {
                    let [red, green, blue] = values.at(s, block, x);
                    E::put(s, &mut r[E::SIZE * x..], red);
                    E::put(s, &mut g[E::SIZE * x..], green);
                    E::put(s, &mut b[E::SIZE * x..], blue);
                }
            }
        }
        MemoryFormat::Nhwc => {
            for (block, to) in first.chunks_exact_mut(3 * bytes).enumerate() {
                for x in (0..VECTOR).step_by(S::LANES) {
                    let to = &mut to[3 * E::SIZE * x..];
                    for (to, v) in
                        to.chunks_exact_mut(E::SIZE * S::LANES).zip(s.interleave(values.at(s, block, x)))
                    {
                        E::put(s, to, v);
                    }
                }
            }
        }
    }
}

/// Stores the last block of columns, of which only the beginning fits into `to`. `values` has this block only.
#[inline(always)]
fn store_rest<S: Simd, E: ElementType>(
    s: S,
    format: MemoryFormat,
    values: &impl RgbSource<S>,
    to: [&mut [u8]; 3],
) {
    let mut block = [0; 3 * FLOATS];
    let block = &mut block[..3 * E::SIZE * VECTOR];
    let mut rows = match format {
        MemoryFormat::Nchw => thirds(block),
        MemoryFormat::Nhwc => [block, &mut [], &mut []],
    };
    store::<S, E>(s, format, values, rows.each_mut().map(|row| &mut row[..]));
    for (to, row) in to.into_iter().zip(rows) {
        let rest = to.len() - to.len() % row.len().max(1);
        let to = &mut to[rest..];
        to.copy_from_slice(&row[..to.len()]);
    }
}

#[inline(always)]
fn thirds(bytes: &mut [u8]) -> [&mut [u8]; 3] {
    let (first, others) = bytes.split_at_mut(bytes.len() / 3);
    let (second, third) = others.split_at_mut(others.len() / 2);
    [first, second, third]
}

/// Writes the fill value of each channel to the pixels of `columns` in `rows`.
pub(in crate::augment) fn fill(
    finish: &Finish,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    out: &mut [u8],
) {
    for c in 0..3 {
        let value = finish.fill[c];
        let mut bytes = [0; 4];
        match finish.dtype {
            DType::F32 => bytes = value.to_ne_bytes(),
            DType::F16 => bytes[..2].copy_from_slice(&half::f16::from_f32(value).to_ne_bytes()),
            DType::Bf16 => bytes[..2].copy_from_slice(&half::bf16::from_f32(value).to_ne_bytes()),
            DType::U8 => bytes[0] = value as u8,
        }
        let bytes = &bytes[..finish.dtype.size()];
        for row in rows.clone() {
            for x in columns.clone() {
                out[finish.at(c, row, x)..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}
