//! The vector operations that kernels use, implemented for each SIMD level.

/// A set of vector instructions. A value of an implementing type exists only in functions that are compiled for these
/// instructions.
///
/// An integer vector has `LANES` lanes of 32 bits, or twice as many of 16 bits. Slices are read and written from their
/// beginning and must be long enough; every access is checked.
pub(super) trait Simd: Copy {
    /// The number of 32-bit lanes of a vector.
    const LANES: usize;
    /// The number of windows of samples that a vector of outputs is picked from; each serves `LANES / WINDOWS` outputs.
    const WINDOWS: usize;
    /// The number of samples of a window.
    const WINDOW: usize;
    /// The number of samples of a wide window, for longer filters.
    const WIDE: usize;
    /// A vector of integers: bytes, 16-bit or 32-bit lanes.
    type I: Copy;
    type Wide: Copy;
    /// A vector of 32-bit floats.
    type F: Copy;

    fn splat(self, value: i32) -> Self::I;
    fn splat16(self, value: i16) -> Self::I;
    fn load(self, from: &[i32]) -> Self::I;
    fn load16(self, from: &[i16]) -> Self::I;
    fn store(self, to: &mut [i32], v: Self::I);
    fn store16(self, to: &mut [i16], v: Self::I);
    /// Loads 4 · LANES bytes without widening them.
    fn load8(self, from: &[u8]) -> Self::I;
    /// Loads 2 · LANES bytes, zero-extended to 16 bits.
    fn widen(self, from: &[u8]) -> Self::I;
    /// Loads LANES bytes, zero-extended to 32 bits.
    fn load_bytes(self, from: &[u8]) -> Self::I;
    /// Stores the vector as it is: 4 · LANES bytes.
    fn store8(self, to: &mut [u8], v: Self::I);
    /// Stores 16-bit lanes as 2 · LANES bytes, clamped to 0..=255.
    fn narrow(self, to: &mut [u8], v: Self::I);
    fn windows(self, row: &[u8], bases: &[u32]) -> Self::I;
    /// Picks two samples for each output from its window, and zero-extends them to 16 bits. `index` has the byte index
    /// of each sample in its window, followed by 0xff.
    fn pick(self, windows: Self::I, index: &[u8]) -> Self::I;
    fn wide_windows(self, row: &[u8], bases: &[u32]) -> Self::Wide;
    /// Picks samples from wide windows as [`Simd::pick`] does from narrow windows.
    fn pick_wide(self, windows: Self::Wide, index: &[u8]) -> Self::I;

    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    fn xor(self, a: Self::I, b: Self::I) -> Self::I;
    /// Adds the products of pairs of 16-bit lanes to 32-bit lanes.
    fn dot_add(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts 32-bit lanes right, with the sign shifted in.
    fn shift_right(self, v: Self::I, by: u32) -> Self::I;
    /// Clamps 32-bit lanes.
    fn limit(self, v: Self::I, least: Self::I, most: Self::I) -> Self::I;
    /// Shifts 32-bit lanes left.
    fn shift_left(self, v: Self::I, by: u32) -> Self::I;

    fn add16(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub16(self, a: Self::I, b: Self::I) -> Self::I;
    /// Computes (a·b + 2^14) / 2^15 of 16-bit lanes, rounded down.
    fn mul_round16(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts 16-bit lanes right, with the sign shifted in.
    fn shift_right16<const BY: i32>(self, v: Self::I) -> Self::I;
    fn shift_left16<const BY: i32>(self, v: Self::I) -> Self::I;

    /// Puts half of the bytes of `a` into the low halves of 16-bit lanes, and half of the bytes of `b` into the high
    /// halves. The choice of the half and its order depend on the level; [`Simd::join8`] restores the order.
    fn split8_first(self, a: Self::I, b: Self::I) -> Self::I;
    /// Does the same as [`Simd::split8_first`] with the remaining half of the bytes of `a` and `b`.
    fn split8_second(self, a: Self::I, b: Self::I) -> Self::I;
    /// Joins the 16-bit lanes of both halves, clamped to 0..=255, to bytes in their original order.
    fn join8(self, first: Self::I, second: Self::I) -> Self::I;
    /// Multiplies unsigned bytes of `weights` by signed bytes of `v`, and adds the products in pairs to 16-bit lanes.
    /// All sums must fit.
    fn dot8(self, weights: Self::I, v: Self::I) -> Self::I;

    fn float(self, v: Self::I) -> Self::F;
    fn splat_f(self, value: f32) -> Self::F;
    fn add_f(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F;
    fn clamp(self, v: Self::F, low: f32, high: f32) -> Self::F;
    /// Interleaves three vectors to r0 g0 b0 r1 g1 b1 …, which fill three vectors.
    fn interleave(self, rgb: [Self::F; 3]) -> [Self::F; 3];

    fn load_f32(self, from: &[u8]) -> Self::F;
    fn store_f32(self, to: &mut [u8], v: Self::F);
    /// Stores the lanes as float16, rounded to nearest even.
    fn store_f16(self, to: &mut [u8], v: Self::F);
    /// Stores the lanes as bfloat16, rounded to nearest even.
    fn store_bf16(self, to: &mut [u8], v: Self::F);
    /// Stores as `store_f32` does, but past the caches. `to` must begin at a multiple of the vector's bytes, and a
    /// [`Simd::fence`] must follow.
    fn stream_f32(self, to: &mut [u8], v: Self::F);
    fn stream_f16(self, to: &mut [u8], v: Self::F);
    fn stream_bf16(self, to: &mut [u8], v: Self::F);
    /// Makes streamed stores visible to every thread that sees a later store.
    fn fence(self);
    /// Stores the lanes as bytes, truncated.
    fn store_u8(self, to: &mut [u8], v: Self::F);

    /// Resizes two rows by filters too long for windows; see [`super::resize_columns`].
    /// `CLAMPED` is `columns.clamped`.
    fn resize_long<const CLAMPED: bool>(
        self,
        rows: [&[u8]; 2],
        columns: &super::ColumnTaps,
        shift: u32,
        out: &mut [i32],
    );
}

/// Defines methods of [`Simd`] that consist of one expression each. For example, the line
/// `fn add(self, a: Self::I, b: Self::I) -> Self::I = op!(_mm256_add_epi32(a, b));` becomes
/// `#[inline(always)] fn add(self, a: Self::I, b: Self::I) -> Self::I { op!(_mm256_add_epi32(a, b)) }`.
macro_rules! inlined {
    ($(
        fn $name:ident $(<const $by:ident: i32>)? ($this:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? =
            $value:expr;
    )+) => {$(
        #[inline(always)]
        fn $name $(<const $by: i32>)? ($this $(, $argument: $type)*) $(-> $result)? {
            $value
        }
    )+};
}
pub(super) use inlined;
