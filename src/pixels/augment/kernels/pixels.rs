//! Turns samples into pixels: libjpeg's chroma upsampling and colour conversion, in 16-bit integers.

use super::simd::Simd;

/// How sums of samples become twice as many pixels: (3·this + neighbour + bias) / divisor. The bias alternates so that
/// halves are rounded up as often as down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Blend {
    /// The sums are samples of one row (libjpeg's `h2v1_fancy_upsample`).
    OneRow,
    /// The sums are 3·near + next of two rows (`h2v2_fancy_upsample`).
    TwoRows,
}

/// Implements [`super::sum_rows`] with SIMD vectors.
#[inline(always)]
pub(super) fn sum_rows<S: Simd>(s: S, near: &[u8], next: Option<&[u8]>, count: usize, out: &mut [i16]) {
    let step = 2 * S::LANES;
    for x in (0..count).step_by(step) {
        let near = s.widen(&near[x..]);
        let sum = match next {
            Some(next) => s.add16(three(s, near), s.widen(&next[x..])),
            None => near,
        };
        s.store16(&mut out[x..], sum);
    }
}

#[inline(always)]
fn three<S: Simd>(s: S, v: S::I) -> S::I {
    s.add16(v, s.add16(v, v))
}

/// Implements [`super::blend_rows`] with SIMD vectors.
#[inline(always)]
pub(super) fn blend_rows<S: Simd>(s: S, near: &[u8], next: &[u8], bias: i16, out: &mut [u8]) {
    let step = 2 * S::LANES;
    let bias = s.splat16(bias);
    for (i, out) in out.chunks_exact_mut(step).enumerate() {
        let (near, next) = (s.widen(&near[i * step..]), s.widen(&next[i * step..]));
        let sum = s.add16(three(s, near), s.add16(next, bias));
        s.narrow(out, s.shift_right16::<2>(sum));
    }
}

/// Implements [`super::blend_columns`] with SIMD vectors.
#[inline(always)]
pub(super) fn blend_columns<S: Simd>(s: S, sums: &[i16], blend: Blend, out: &mut [u8]) {
    match blend {
        Blend::OneRow => blend_by::<S, 2>(s, sums, [1, 2], out),
        Blend::TwoRows => blend_by::<S, 4>(s, sums, [8, 7], out),
    }
}

#[inline(always)]
fn blend_by<S: Simd, const SHIFT: i32>(s: S, sums: &[i16], bias: [i16; 2], out: &mut [u8]) {
    let step = 2 * S::LANES;
    let (even_bias, odd_bias) = (s.splat16(bias[0]), s.splat16(bias[1]));
    for (i, out) in out.chunks_exact_mut(2 * step).enumerate() {
        let sums = &sums[i * step..];
        let this = s.load16(&sums[1..]);
        let this = three(s, this);
        let even = s.add16(s.add16(this, s.load16(sums)), even_bias);
        let odd = s.add16(s.add16(this, s.load16(&sums[2..])), odd_bias);
        // `even` and `odd` fit a byte, so a 16-bit lane holds two neighbouring pixels in order.
        let odd = s.shift_left16::<8>(s.shift_right16::<SHIFT>(odd));
        s.store8(out, s.or(s.shift_right16::<SHIFT>(even), odd));
    }
}

/// Implements [`super::convert`] with SIMD vectors. libjpeg rounds 1.402·cr, 1.772·cb and -0.34414·cb - 0.71414·cr in
/// fixed point, with 16 bits after the binary point. This function splits the first two factors into an integer (1 and
/// 2) and a remainder that fits 16 signed bits. With 15 bits after the binary point, the results are rounded as in
/// libjpeg for all values of a byte.
#[inline(always)]
pub(super) fn convert<S: Simd>(s: S, [y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    let conversion = ColourConversion::new(s);
    let step = 4 * S::LANES;
    let out = r.chunks_exact_mut(step).zip(g.chunks_exact_mut(step)).zip(b.chunks_exact_mut(step));
    for (i, ((r, g), b)) in out.enumerate() {
        let x = i * step;
        let y = s.load8(&y[x..]);
        // Flipping the top bit subtracts 128: the byte becomes signed and centred.
        let [cb, cr] = [cb, cr].map(|from| s.xor(s.load8(&from[x..]), conversion.sign));
        let zero = s.splat(0);
        let first = conversion.colours(
            s,
            s.split8_first(y, zero),
            [s.split8_first(zero, cb), s.split8_first(zero, cr)],
            s.split8_first(cb, cr),
        );
        let second = conversion.colours(
            s,
            s.split8_second(y, zero),
            [s.split8_second(zero, cb), s.split8_second(zero, cr)],
            s.split8_second(cb, cr),
        );
        for (to, c) in [r, g, b].into_iter().zip(0..) {
            s.store8(to, s.join8(first[c], second[c]));
        }
    }
}

struct ColourConversion<S: Simd> {
    /// The top bit of each byte.
    sign: S::I,
    /// The factors of Cr in R and of Cb in B, without their integer parts (1 and 2), in units of 2^-15.
    cr_r: S::I,
    cb_b: S::I,
    /// The factors of Cb and Cr, in units of 2^-15, whose products are subtracted from G. `high` has the high bytes of
    /// both factors, and `low` has the low bytes.
    high: S::I,
    low: S::I,
    half: S::I,
}

impl<S: Simd> ColourConversion<S> {
    #[inline(always)]
    fn new(s: S) -> Self {
        const fn fixed(factor: f64) -> i16 {
            (factor * 32_768.0 + if factor < 0.0 { -0.5 } else { 0.5 }) as i16
        }
        // libjpeg's factors, 22554 and 46802 in units of 2^-16, are even, so 15 bits are exact.
        const CB_G: i16 = fixed(0.344_14);
        const CR_G: i16 = fixed(0.714_14);
        Self {
            sign: s.splat16(i16::from_ne_bytes([0x80; 2])),
            cr_r: s.splat16(fixed(1.402 - 1.0)),
            cb_b: s.splat16(fixed(1.772 - 2.0)),
            high: s.splat16(CB_G >> 8 | CR_G & !0xff),
            low: s.splat16(CB_G & 0xff | CR_G << 8),
            half: s.splat16(1 << 14),
        }
    }

    /// Returns R, G and B from 16-bit Y, centred Cb and Cr times 256, and pairs of centred Cb and Cr as bytes.
    #[inline(always)]
    fn colours(&self, s: S, y: S::I, [cb, cr]: [S::I; 2], pairs: S::I) -> [S::I; 3] {
        let (cb, cr) = (s.shift_right16::<8>(cb), s.shift_right16::<8>(cr));
        let r = s.add16(s.add16(y, cr), s.mul_round16(cr, self.cr_r));
        let b = s.add16(s.add16(y, s.add16(cb, cb)), s.mul_round16(cb, self.cb_b));
        // The subtracted value is 256 · high + low, which exceeds 16 bits. Rounding down in two steps gives the same
        // result as in one step.
        let low = s.shift_right16::<8>(s.sub16(self.half, s.dot8(self.low, pairs)));
        let g = s.shift_right16::<7>(s.sub16(low, s.dot8(self.high, pairs)));
        [r, s.add16(y, g), b]
    }
}

#[cfg(test)]
mod tests {
    use crate::augment::kernels;
    use base::simd::Level;

    /// libjpeg's `ycc_rgb_convert` (jdcolor.c), which looks the products up in tables.
    fn expected(y: u8, cb: u8, cr: u8) -> [u8; 3] {
        let fixed = |factor: f64| (factor * 65_536.0 + 0.5) as i32;
        let (cb, cr, half) = (i32::from(cb) - 128, i32::from(cr) - 128, 1 << 15);
        [
            (fixed(1.402) * cr + half) >> 16,
            (-fixed(0.344_14) * cb - fixed(0.714_14) * cr + half) >> 16,
            (fixed(1.772) * cb + half) >> 16,
        ]
        .map(|colour| (i32::from(y) + colour).clamp(0, 255) as u8)
    }

    #[test]
    fn all_chroma_is_converted_as_by_libjpeg() {
        let all: Vec<u8> = (0..=255).collect();
        for level in Level::available() {
            for y in [0, 1, 77, 128, 254, 255] {
                for cr in 0..=255 {
                    let mut pixels = [const { [0; 256] }; 3];
                    let to = pixels.each_mut().map(|colour| &mut colour[..]);
                    kernels::convert(level, [&[y; 256], &all, &[cr; 256]], to);
                    for cb in 0..=255 {
                        let got = pixels.map(|colour| colour[usize::from(cb)]);
                        assert_eq!(got, expected(y, cb, cr), "{} ({y}, {cb}, {cr})", level.name());
                    }
                }
            }
        }
    }
}
