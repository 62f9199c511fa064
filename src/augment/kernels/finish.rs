//! From resized rows to the output: the vertical half of the resize, colour conversion, normalisation, cast, store.

use super::simd::Simd;
use crate::augment::weights::Taps;
use crate::augment::{DType, MemoryFormat, Output};

/// The bits after the binary point of a resized row in the `fast` pass: 255 just fits 16 signed bits.
pub(in crate::augment) const FRACTION: u32 = 7;

/// The taps of the output's rows, in pairs of source rows.
#[derive(Debug, Default)]
pub(in crate::augment) struct RowTaps {
    pub(in crate::augment) taps: Taps,
    /// The first pair of source rows and the range in `weights` of each output row.
    spans: Vec<RowSpan>,
    /// For each pair of source rows its two weights.
    weights: Vec<i32>,
    /// The number of pairs of source rows that must be kept at a time.
    pub(in crate::augment) depth: usize,
}

/// The pairs of source rows under an output row.
#[derive(Debug, Clone, Copy)]
struct RowSpan {
    first: usize,
    /// No later row needs a pair before this one.
    keep: usize,
    weights: (usize, usize),
}

impl RowTaps {
    /// Lays out `taps`, which were just built. Pairs are counted from row `taps.reach.start`.
    pub(in crate::augment) fn lay_out(&mut self) {
        self.spans.clear();
        self.weights.clear();
        for o in 0..self.taps.start.len() {
            let from = self.taps.start[o].saturating_sub(self.taps.reach.start) as usize;
            let begin = self.weights.len();
            let taps = self.taps.of(o);
            // If the first row is odd, it is the second of its pair.
            let odd = from % 2;
            let at = |i: usize| if i >= odd && i - odd < taps.len() { taps[i - odd] } else { 0 };
            self.weights.extend(
                (0..(taps.len() + odd).div_ceil(2)).map(|p| super::columns::couple(at(2 * p), at(2 * p + 1))),
            );
            self.spans.push(RowSpan { first: from / 2, keep: 0, weights: (begin, self.weights.len()) });
        }
        // Rows come in order, but rounding may let a filter begin a little before that of the row above.
        let mut keep = usize::MAX;
        for span in self.spans.iter_mut().rev() {
            keep = keep.min(span.first);
            span.keep = keep;
        }
        (self.depth, keep) = (1, 0);
        for span in &self.spans {
            keep = keep.max(span.first + span.weights.1 - span.weights.0);
            self.depth = self.depth.max(keep - span.keep);
        }
    }

    /// The number of pairs of source rows that must have been resized before output row `o`.
    pub(in crate::augment) fn needed(&self, o: usize) -> usize {
        let span = self.spans[o];
        span.first + span.weights.1 - span.weights.0
    }
}

/// The resized rows of one component: a ring of the latest pairs.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment) struct ResizedRows<'a> {
    /// The ring. Pair p lies at `(p % capacity) * stride`; each word holds the values of two rows.
    pub ring: &'a [i32],
    /// The pairs that the ring holds, a power of two.
    pub capacity: usize,
    /// The words of a pair of rows.
    pub stride: usize,
    /// The taps of the view's rows.
    pub rows: &'a RowTaps,
    /// The row of the view that is made of them.
    pub row: usize,
}

/// The meaning of the resized components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Colour {
    /// Y, Cb, Cr with [`FRACTION`] bits after the point, to be converted.
    YCbCr,
    /// One component, to be stored three times, with this many bits after the point, which may be 0 after the resize,
    /// too.
    Gray(u32),
    /// R, G, B, with as many bits as `Gray` says.
    Rgb(u32),
}

/// How rows become output.
#[derive(Debug, Clone)]
pub(in crate::augment) struct Finish {
    pub colour: Colour,
    /// Whether a resize can have left the range of grey levels, so that they must be clamped.
    pub clamped: bool,
    width: usize,
    height: usize,
    dtype: DType,
    format: MemoryFormat,
    /// The gain of each channel: output value = grey level * gain + offset.
    gain: [f32; 3],
    offset: [f32; 3],
    /// Output values where there is no image.
    fill: [f32; 3],
}

/// The gain and the offset of each channel: output value = grey level · gain + offset. `u8` keeps grey levels.
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

/// The value of each channel where the output is filled.
pub(in crate::augment) fn filling(output: &Output) -> [f32; 3] {
    let (gain, offset) = scaling(output);
    std::array::from_fn(|c| f32::from(output.fill[c]) * gain[c] + offset[c])
}

impl Finish {
    pub(in crate::augment) fn new(output: &Output) -> Self {
        let (gain, offset) = scaling(output);
        Self {
            colour: Colour::YCbCr,
            clamped: false,
            width: output.width as usize,
            height: output.height as usize,
            dtype: output.dtype,
            format: output.format,
            gain,
            offset,
            fill: filling(output),
        }
    }

    /// The byte offset of channel `c` at (row, x) if it were stored alone.
    #[inline(always)]
    fn at(&self, c: usize, row: usize, x: usize) -> usize {
        self.dtype.size()
            * match self.format {
                MemoryFormat::Nchw => (c * self.height + row) * self.width + x,
                MemoryFormat::Nhwc => (row * self.width + x) * 3 + c,
            }
    }
}

/// JFIF's conversion has four factors: the shares of Cr in R, of Cb and Cr in G, of Cb in B.
const CR_R: f32 = 1.402;
const CB_G: f32 = -0.344_136_3;
const CR_G: f32 = -0.714_136_3;
const CB_B: f32 = 1.772;

/// The kernel of [`super::finish_row`].
#[inline(always)]
pub(super) fn row<S: Simd>(
    s: S,
    sources: [ResizedRows; 3],
    finish: &Finish,
    row: usize,
    sums: &mut [Vec<i32>; 3],
    out: &mut [u8],
) {
    match finish.colour {
        Colour::YCbCr => {
            let bits = [0, 1, 2].map(|c| FRACTION + sources[c].rows.taps.bits);
            // Chroma is centred before it becomes a float, since then the difference is exact.
            weigh(s, &sources[0], 0, &mut sums[0]);
            weigh(s, &sources[1], -(128 << bits[1]), &mut sums[1]);
            weigh(s, &sources[2], -(128 << bits[2]), &mut sums[2]);
            chunks(s, finish, row, Converted { sums, unit: bits.map(|b| 1.0 / (1u64 << b) as f32) }, out);
        }
        Colour::Gray(fraction) => {
            let plane = Planar::new(&sources[0], fraction);
            weigh(s, &sources[0], plane.half, &mut sums[0]);
            levels(s, finish, row, Repeated { sums: &sums[0], plane }, out);
        }
        Colour::Rgb(fraction) => {
            let planes = [0, 1, 2].map(|c| Planar::new(&sources[c], fraction));
            for c in 0..3 {
                weigh(s, &sources[c], planes[c].half, &mut sums[c]);
            }
            levels(s, finish, row, Separate { sums, planes }, out);
        }
    }
}

/// The kernel of [`super::store_row`].
#[inline(always)]
pub(super) fn stored<S: Simd>(s: S, rows: [&[u8]; 3], finish: &Finish, row: usize, out: &mut [u8]) {
    let size = finish.dtype.size();
    if finish.format == MemoryFormat::Nhwc || finish.width < S::LANES {
        return chunks(s, finish, row, Whole(rows), out);
    }
    // Planes need no other, so that each is walked alone. The last vector may store some columns a second time.
    for (c, levels) in rows.into_iter().enumerate() {
        let (gain, offset) = (s.splat_f(finish.gain[c]), s.splat_f(finish.offset[c]));
        let to = &mut out[finish.at(c, row, 0)..][..finish.width * size];
        let last = finish.width - S::LANES;
        for x in (0..last).step_by(S::LANES).chain([last]) {
            let value = s.add_f(s.mul_f(s.float(s.load_bytes(&levels[x..])), gain), offset);
            put(s, finish.dtype, &mut to[x * size..], value);
        }
    }
}

/// Stores levels that need no conversion, which would otherwise have clamped them.
#[inline(always)]
fn levels<S: Simd>(s: S, finish: &Finish, row: usize, levels: impl Levels, out: &mut [u8]) {
    if finish.clamped {
        chunks(s, finish, row, Clamped(levels), out);
    } else {
        chunks(s, finish, row, levels, out);
    }
}

/// The grey levels of R, G and B for a vector of columns.
///
/// This is a trait and not a closure: a closure in a function that is inlined into one with vector instructions does
/// not have these instructions itself. Unless the compiler happens to inline it too, every operation becomes a call
/// through memory.
trait Levels {
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3];
}

/// The sums of Y, Cb and Cr, and what a unit of each is worth.
struct Converted<'a> {
    sums: &'a [Vec<i32>; 3],
    unit: [f32; 3],
}

impl Levels for Converted<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3] {
        let y = s.mul_f(s.float(s.load(&self.sums[0][x..])), s.splat_f(self.unit[0]));
        let cb = s.float(s.load(&self.sums[1][x..]));
        let cr = s.float(s.load(&self.sums[2][x..]));
        let r = s.add_f(y, s.mul_f(cr, s.splat_f(CR_R * self.unit[2])));
        let g = s.add_f(y, s.mul_f(cb, s.splat_f(CB_G * self.unit[1])));
        let g = s.add_f(g, s.mul_f(cr, s.splat_f(CR_G * self.unit[2])));
        let b = s.add_f(y, s.mul_f(cb, s.splat_f(CB_B * self.unit[1])));
        [s.clamp(r, 0.0, 255.0), s.clamp(g, 0.0, 255.0), s.clamp(b, 0.0, 255.0)]
    }
}

/// The sums of a gray image.
struct Repeated<'a> {
    sums: &'a [i32],
    plane: Planar,
}

impl Levels for Repeated<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3] {
        [self.plane.value(s, &self.sums[x..]); 3]
    }
}

/// The sums of R, G and B.
struct Separate<'a> {
    sums: &'a [Vec<i32>; 3],
    planes: [Planar; 3],
}

impl Levels for Separate<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3] {
        [
            self.planes[0].value(s, &self.sums[0][x..]),
            self.planes[1].value(s, &self.sums[1][x..]),
            self.planes[2].value(s, &self.sums[2][x..]),
        ]
    }
}

/// Rows of R, G and B that are grey levels already.
struct Whole<'a>([&'a [u8]; 3]);

impl Levels for Whole<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3] {
        [level(s, &self.0[0][x..]), level(s, &self.0[1][x..]), level(s, &self.0[2][x..])]
    }
}

/// The levels of a vector of columns, or of those that are left.
#[inline(always)]
fn level<S: Simd>(s: S, levels: &[u8]) -> S::F {
    if levels.len() >= S::LANES {
        return s.float(s.load_bytes(levels));
    }
    let mut whole = [0; super::VECTOR];
    whole[..levels.len()].copy_from_slice(levels);
    s.float(s.load_bytes(&whole))
}

/// Levels that are clamped to 0..=255.
struct Clamped<L>(L);

impl<L: Levels> Levels for Clamped<L> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, x: usize) -> [S::F; 3] {
        let [r, g, b] = self.0.at(s, x);
        [s.clamp(r, 0.0, 255.0), s.clamp(g, 0.0, 255.0), s.clamp(b, 0.0, 255.0)]
    }
}

/// How a weighted sum becomes a grey level that needs no conversion.
#[derive(Clone, Copy)]
struct Planar {
    half: i32,
    shift: u32,
    unit: f32,
}

impl Planar {
    /// Rows without fraction are rounded to whole grey levels again, as PIL does between and after its passes.
    fn new(source: &ResizedRows, fraction: u32) -> Self {
        let bits = source.rows.taps.bits;
        match fraction {
            0 => Self { half: 1 << (bits - 1), shift: bits, unit: 1.0 },
            _ => Self { half: 0, shift: 0, unit: 1.0 / (1u64 << (bits + fraction)) as f32 },
        }
    }

    #[inline(always)]
    fn value<S: Simd>(self, s: S, sums: &[i32]) -> S::F {
        s.mul_f(s.float(s.shift_right(s.load(sums), self.shift)), s.splat_f(self.unit))
    }
}

/// Computes weighted sums of the source rows under a row of the view, over `start`.
#[inline(always)]
fn weigh<S: Simd>(s: S, source: &ResizedRows, start: i32, sums: &mut Vec<i32>) {
    let span = source.rows.spans[source.row];
    sums.resize(source.stride, 0);
    sums.fill(start);
    let mut pairs = source.rows.weights[span.weights.0..span.weights.1].iter().enumerate().map(|(p, &w)| {
        let slot = (span.first + p) & (source.capacity - 1);
        (&source.ring[slot * source.stride..][..source.stride], w)
    });
    // Most filters cover two or three pairs of rows; one walk along the columns takes as many at once.
    while let Some(first) = pairs.next() {
        match (pairs.next(), pairs.next()) {
            (Some(second), Some(third)) => accumulate(s, [first, second, third], sums),
            (Some(second), None) => accumulate(s, [first, second], sums),
            _ => accumulate(s, [first], sums),
        }
    }
}

#[inline(always)]
fn accumulate<S: Simd, const N: usize>(s: S, pairs: [(&[i32], i32); N], sums: &mut [i32]) {
    for (i, sums) in sums.chunks_exact_mut(S::LANES).enumerate() {
        let mut sum = s.load(sums);
        for (row, w) in pairs {
            sum = s.add(sum, s.dot(s.load(&row[i * S::LANES..]), s.splat(w)));
        }
        s.store(sums, sum);
    }
}

/// Normalises and stores every vector of columns of `levels`.
#[inline(always)]
fn chunks<S: Simd>(s: S, finish: &Finish, row: usize, levels: impl Levels, out: &mut [u8]) {
    let size = finish.dtype.size();
    let (gain, offset) = (&finish.gain, &finish.offset);
    for x in (0..finish.width).step_by(S::LANES) {
        let [r, g, b] = levels.at(s, x);
        let values = [
            s.add_f(s.mul_f(r, s.splat_f(gain[0])), s.splat_f(offset[0])),
            s.add_f(s.mul_f(g, s.splat_f(gain[1])), s.splat_f(offset[1])),
            s.add_f(s.mul_f(b, s.splat_f(gain[2])), s.splat_f(offset[2])),
        ];
        let columns = S::LANES.min(finish.width - x);
        match finish.format {
            MemoryFormat::Nchw => {
                for (c, v) in values.into_iter().enumerate() {
                    let to = &mut out[finish.at(c, row, x)..][..columns * size];
                    if columns == S::LANES {
                        put(s, finish.dtype, to, v);
                    } else {
                        let mut whole = [0; 4 * super::VECTOR];
                        put(s, finish.dtype, &mut whole, v);
                        to.copy_from_slice(&whole[..to.len()]);
                    }
                }
            }
            MemoryFormat::Nhwc => {
                let to = &mut out[finish.at(0, row, x)..][..3 * columns * size];
                let values = s.interleave(values);
                if columns == S::LANES {
                    for (to, v) in to.chunks_exact_mut(S::LANES * size).zip(values) {
                        put(s, finish.dtype, to, v);
                    }
                } else {
                    let mut whole = [0; 12 * super::VECTOR];
                    for (to, v) in whole.chunks_exact_mut(S::LANES * size).zip(values) {
                        put(s, finish.dtype, to, v);
                    }
                    to.copy_from_slice(&whole[..to.len()]);
                }
            }
        }
    }
}

#[inline(always)]
fn put<S: Simd>(s: S, dtype: DType, to: &mut [u8], v: S::F) {
    match dtype {
        DType::F32 => s.store_f32(to, v),
        DType::F16 => s.store_f16(to, v),
        DType::Bf16 => s.store_bf16(to, v),
        DType::U8 => s.store_u8(to, s.add_f(v, s.splat_f(0.5))),
    }
}

/// Fills the pixels of `columns` in `rows`.
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
