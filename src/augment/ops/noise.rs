//! Normal numbers for the values of an image: each is a function of a key and of the value's index alone, and needs
//! only what the CPU and a GPU compute to the same bits.

use crate::rng::noise_words;

/// The normal number of the value with this index: channel, row and column, counted like the values of an NCHW image.
pub(in crate::augment) fn normal(key: [u32; 2], index: u64) -> f32 {
    normal_of(noise_words(key, index / 4)[(index % 4) as usize])
}

/// The standard normal number of 32 uniform bits: of the highest 24, which give an odd number of 2^-24 between -1 and
/// 1, √2 times the inverse of the error function. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011),
/// with its single precision coefficients.
#[inline(always)]
fn normal_of(bits: u32) -> f32 {
    let x = ((bits >> 8) as i32 * 2 + 1 - (1 << 24)) as f32 * (1.0 / (1 << 24) as f32);
    let w = -log((1.0 - x) * (1.0 + x));
    let centre = w - 2.5;
    let tail = w.sqrt() - 3.0;
    let (mut near, mut far) = (NEAR[0], FAR[0]);
    for i in 1..NEAR.len() {
        near = near * centre + NEAR[i];
        far = far * tail + FAR[i];
    }
    let factor = if w < 5.0 { near } else { far };
    factor * x * std::f32::consts::SQRT_2
}

/// Giles' polynomial where w < 5, in w - 2.5, from the highest power.
const NEAR: [f32; 9] = [
    2.810_226_4e-8,
    3.432_739_4e-7,
    -3.523_387_7e-6,
    -4.391_506_6e-6,
    0.000_218_580_87,
    -0.001_253_725,
    -0.004_177_681_6,
    0.246_640_73,
    1.501_409_4,
];

/// Giles' polynomial elsewhere, in √w - 3, from the highest power.
const FAR: [f32; 9] = [
    -0.000_200_214_26,
    0.000_100_950_56,
    0.001_349_343_2,
    -0.003_673_428_4,
    0.005_739_507_7,
    -0.007_622_461_3,
    0.009_438_870_5,
    1.001_674_1,
    2.832_976_8,
];

/// The natural logarithm of a normal number between 0 and 1, within 2 units of its last place: its exponent times ln 2, and
/// 2 artanh((m - 1) / (m + 1)) of its mantissa m between √½ and √2, by the artanh's series.
#[inline(always)]
fn log(value: f32) -> f32 {
    let bits = value.to_bits();
    // The exponent that leaves a mantissa from √½ on.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (shifted as i32) >> 23;
    let mantissa = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = ((((1.0 / 9.0) * square + 1.0 / 7.0) * square + 0.2) * square + 1.0 / 3.0) * square + 1.0;
    exponent as f32 * std::f32::consts::LN_2 + 2.0 * ratio * series
}
