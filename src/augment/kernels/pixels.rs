//! From samples to pixels: libjpeg's chroma upsampling and colour conversion, in 16-bit integers.

use super::simd::Simd;

/// How sums of samples become pixels twice as dense: (3·this + neighbour + bias) / divisor. The bias alternates so that
/// halves are rounded up as often as down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Blend {
    /// The sums are samples of one row (libjpeg's `h2v1_fancy_upsample`).
    OneRow,
    /// The sums are 3·near + next of two rows (`h2v2_fancy_upsample`).
    TwoRows,
}

/// The kernel of [`super::sum_rows`].
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

/// The kernel of [`super::blend_rows`].
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

/// The kernel of [`super::blend_columns`].
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
        // Both fit a byte: side by side they are the pixels in order.
        let odd = s.shift_left16::<8>(s.shift_right16::<SHIFT>(odd));
        s.store_bytes(out, s.or(s.shift_right16::<SHIFT>(even), odd));
    }
}

/// The kernel of [`super::convert`]. libjpeg rounds 1.402·cr, 1.772·cb and -0.34414·cb - 0.71414·cr in 16-bit fixed
/// point; whole multiples are split off so that the rest of each factor fits 16 signed bits.
#[inline(always)]
pub(super) fn convert<S: Simd>(s: S, [y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    const fn fixed(factor: f64) -> i32 {
        (factor * 65_536.0 + 0.5) as i32
    }
    const CR_R: i16 = (fixed(1.402) - 65_536) as i16;
    const CB_B: i16 = (fixed(1.772) - 131_072) as i16;
    const CB_G: i16 = -fixed(0.344_14) as i16;
    const CR_G: i16 = (65_536 - fixed(0.714_14)) as i16;
    let step = 2 * S::LANES;
    let (centre, one) = (s.splat16(128), s.splat16(1));
    let (cr_r, cb_b) = (s.splat16(CR_R), s.splat16(CB_B));
    let out = r.chunks_exact_mut(step).zip(g.chunks_exact_mut(step)).zip(b.chunks_exact_mut(step));
    for (i, ((r, g), b)) in out.enumerate() {
        let x = i * step;
        let y = s.widen(&y[x..]);
        let cb = s.sub16(s.widen(&cb[x..]), centre);
        let cr = s.sub16(s.widen(&cr[x..]), centre);
        s.narrow(r, s.add16(s.add16(y, cr), scaled(s, cr, cr_r, one)));
        s.narrow(g, s.add16(s.sub16(y, cr), s.weigh16(cb, cr, CB_G, CR_G)));
        s.narrow(b, s.add16(s.add16(y, s.add16(cb, cb)), scaled(s, cb, cb_b, one)));
    }
}

/// Computes (factor·v + 2^15) >> 16 by way of the high half of factor·2v.
#[inline(always)]
fn scaled<S: Simd>(s: S, v: S::I, factor: S::I, one: S::I) -> S::I {
    s.shift_right16::<1>(s.add16(s.mul_high16(s.add16(v, v), factor), one))
}
