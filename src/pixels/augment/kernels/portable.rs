//! The kernels' operations on arrays, for any processor.

use std::array::from_fn;

use super::simd::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

const N: usize = 8;

#[inline(always)]
fn halves(v: [i32; N]) -> [i16; 2 * N] {
    from_fn(|i| (v[i / 2] >> (16 * (i % 2))) as i16)
}

#[inline(always)]
fn bytes(v: [i32; N]) -> [u8; 4 * N] {
    from_fn(|i| (v[i / 4] >> (8 * (i % 4))) as u8)
}

#[inline(always)]
fn join(f: impl Fn(usize) -> i16) -> [i32; N] {
    from_fn(|i| super::columns::pack_pair(f(2 * i), f(2 * i + 1)))
}

impl Simd for Portable {
    const LANES: usize = N;
    // Windows are not used: picking samples from them is no faster than a loop over the taps.
    const WINDOWS: usize = 0;
    const WINDOW: usize = 0;
    const WIDE: usize = 0;
    type I = [i32; N];
    type Wide = [i32; N];
    type F = [f32; N];

    super::simd::inlined! {
        fn splat(self, value: i32) -> Self::I = [value; N];
        fn splat16(self, value: i16) -> Self::I = join(|_| value);
        fn load(self, from: &[i32]) -> Self::I = from_fn(|i| from[..N][i]);
        fn load16(self, from: &[i16]) -> Self::I = join(|i| from[..2 * N][i]);
        fn store(self, to: &mut [i32], v: Self::I) = to[..N].copy_from_slice(&v);
        fn store16(self, to: &mut [i16], v: Self::I) = to[..2 * N].copy_from_slice(&halves(v));
        fn widen(self, from: &[u8]) -> Self::I = join(|i| i16::from(from[..2 * N][i]));
        fn load_bytes(self, from: &[u8]) -> Self::I = from_fn(|i| i32::from(from[i]));
        fn add(self, a: Self::I, b: Self::I) -> Self::I = from_fn(|i| a[i].wrapping_add(b[i]));
        fn or(self, a: Self::I, b: Self::I) -> Self::I = from_fn(|i| a[i] | b[i]);
        fn xor(self, a: Self::I, b: Self::I) -> Self::I = from_fn(|i| a[i] ^ b[i]);
        fn shift_right(self, v: Self::I, by: u32) -> Self::I = v.map(|v| v >> by);
        fn limit(self, v: Self::I, least: Self::I, most: Self::I) -> Self::I =
            from_fn(|i| v[i].max(least[i]).min(most[i]));
        fn shift_left(self, v: Self::I, by: u32) -> Self::I = v.map(|v| v << by);
        fn float(self, v: Self::I) -> Self::F = v.map(|v| v as f32);
        fn splat_f(self, value: f32) -> Self::F = [value; N];
        fn add_f(self, a: Self::F, b: Self::F) -> Self::F = from_fn(|i| a[i] + b[i]);
        fn mul_f(self, a: Self::F, b: Self::F) -> Self::F = from_fn(|i| a[i] * b[i]);
        fn load_f32(self, from: &[u8]) -> Self::F =
            from_fn(|i| f32::from_ne_bytes(std::array::from_fn(|b| from[..4 * N][4 * i + b])));
        fn stream_f32(self, to: &mut [u8], v: Self::F) = self.store_f32(to, v);
        fn stream_f16(self, to: &mut [u8], v: Self::F) = self.store_f16(to, v);
    }

    #[inline(always)]
    fn load8(self, from: &[u8]) -> Self::I {
        let (words, _) = from[..4 * N].as_chunks();
        from_fn(|i| i32::from_le_bytes(words[i]))
    }
    #[inline(always)]
    fn store8(self, to: &mut [u8], v: Self::I) {
        for (to, v) in to[..4 * N].chunks_exact_mut(4).zip(v) {
            to.copy_from_slice(&v.to_le_bytes());
        }
    }
    #[inline(always)]
    fn narrow(self, to: &mut [u8], v: Self::I) {
        for (to, v) in to[..2 * N].iter_mut().zip(halves(v)) {
            *to = v.clamp(0, 255) as u8;
        }
    }
    fn windows(self, _row: &[u8], _bases: &[u32]) -> Self::I {
        unreachable!("the portable level has no windows")
    }
    fn pick(self, _windows: Self::I, _index: &[u8]) -> Self::I {
        unreachable!("the portable level has no windows")
    }
    fn wide_windows(self, _row: &[u8], _bases: &[u32]) -> Self::Wide {
        unreachable!("the portable level has no windows")
    }
    fn pick_wide(self, _windows: Self::Wide, _index: &[u8]) -> Self::I {
        unreachable!("the portable level has no windows")
    }
    #[inline(always)]
    fn dot_add(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        let product = |a: i32, b: i32| i32::from(a as i16) * i32::from(b as i16);
        let products = |a: i32, b: i32| product(a, b).wrapping_add(product(a >> 16, b >> 16));
        from_fn(|i| sum[i].wrapping_add(products(a[i], b[i])))
    }
    #[inline(always)]
    fn add16(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (halves(a), halves(b));
        join(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub16(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (halves(a), halves(b));
        join(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn mul_round16(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (halves(a), halves(b));
        join(|i| ((i32::from(a[i]) * i32::from(b[i]) + (1 << 14)) >> 15) as i16)
    }
    #[inline(always)]
    fn shift_right16<const BY: i32>(self, v: Self::I) -> Self::I {
        let v = halves(v);
        join(|i| v[i] >> BY)
    }
    #[inline(always)]
    fn shift_left16<const BY: i32>(self, v: Self::I) -> Self::I {
        let v = halves(v);
        join(|i| v[i] << BY)
    }
    #[inline(always)]
    fn split8_first(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (bytes(a), bytes(b));
        join(|i| i16::from_le_bytes([a[i], b[i]]))
    }
    #[inline(always)]
    fn split8_second(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (bytes(a), bytes(b));
        join(|i| i16::from_le_bytes([a[2 * N + i], b[2 * N + i]]))
    }
    #[inline(always)]
    fn join8(self, first: Self::I, second: Self::I) -> Self::I {
        let (first, second) = (halves(first), halves(second));
        let level = |i: usize| (if i < 2 * N { first[i] } else { second[i - 2 * N] }).clamp(0, 255) as u8;
        from_fn(|i| i32::from_le_bytes(from_fn(|b| level(4 * i + b))))
    }
    #[inline(always)]
    fn dot8(self, weights: Self::I, v: Self::I) -> Self::I {
        let (weights, v) = (bytes(weights), bytes(v));
        let product = |i: usize| i16::from(weights[i]) * i16::from(v[i] as i8);
        join(|i| product(2 * i) + product(2 * i + 1))
    }
    #[inline(always)]
    fn clamp(self, v: Self::F, low: f32, high: f32) -> Self::F {
        // Comparisons instead of `max` choose between +0 and -0 as the vector instructions do.
        v.map(|v| if v > low { v } else { low }).map(|v| if v < high { v } else { high })
    }
    #[inline(always)]
    fn interleave(self, rgb: [Self::F; 3]) -> [Self::F; 3] {
        from_fn(|v| from_fn(|i| rgb[(v * N + i) % 3][(v * N + i) / 3]))
    }
    #[inline(always)]
    fn store_f32(self, to: &mut [u8], v: Self::F) {
        for (to, v) in to[..4 * N].chunks_exact_mut(4).zip(v) {
            to.copy_from_slice(&v.to_ne_bytes());
        }
    }
    #[inline(always)]
    fn stream_bf16(self, to: &mut [u8], v: Self::F) {
        self.store_bf16(to, v);
    }
    fn fence(self) {}
    #[inline(always)]
    fn store_f16(self, to: &mut [u8], v: Self::F) {
        for (to, v) in to[..2 * N].chunks_exact_mut(2).zip(v) {
            to.copy_from_slice(&half::f16::from_f32(v).to_ne_bytes());
        }
    }
    #[inline(always)]
    fn store_bf16(self, to: &mut [u8], v: Self::F) {
        for (to, v) in to[..2 * N].chunks_exact_mut(2).zip(v) {
            to.copy_from_slice(&half::bf16::from_f32(v).to_ne_bytes());
        }
    }
    #[inline(always)]
    fn store_u8(self, to: &mut [u8], v: Self::F) {
        for (to, v) in to[..N].iter_mut().zip(v) {
            *to = v as u8;
        }
    }

    fn resize_long<const CLAMPED: bool>(
        self,
        [first, second]: [&[u8]; 2],
        columns: &super::ColumnTaps,
        shift: u32,
        out: &mut [i32],
    ) {
        let taps = &columns.taps;
        let (half, most) = (1 << (shift - 1), columns.most(shift));
        for (o, out) in out.iter_mut().enumerate() {
            let (start, weights) = (taps.start[o] as usize, taps.of(o));
            let sum = |row: &[u8]| {
                let samples = row[start..].iter().zip(weights);
                let sum = samples.fold(half, |sum, (&v, &w)| sum + i32::from(v) * i32::from(w)) >> shift;
                (if CLAMPED { sum.clamp(0, most) } else { sum }) as i16
            };
            *out = super::columns::pack_pair(sum(first), sum(second));
        }
    }
}
