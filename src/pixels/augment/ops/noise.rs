//! Normal random numbers for the values of an image. Each depends only on a key and the value's index. The CPU and a
//! GPU compute them to the same bits.

use crate::level::vectorised;
use base::rng::noise_words;

/// The number of groups of four numbers that are computed together.
const RUNS: usize = 16;

vectorised! {
    /// Writes the normal random numbers for the values from index `first` on. Indices count the values of an NCHW
    /// image: by channel, row and column.
    pub(super) fn fill(key: [u32; 2], first: u64, to: &mut [f32]) {
        let (mut run, mut skipped, mut left) = (first / 4, (first % 4) as usize, to);
        while !left.is_empty() {
            let words = noise_words::<RUNS>(key, run);
            let mut numbers = [[0.0; 4]; RUNS];
            for (place, words) in words.iter().enumerate() {
                for (numbers, &word) in numbers.iter_mut().zip(words) {
                    numbers[place] = normal_of(word);
                }
            }
            let numbers = &numbers.as_flattened()[skipped..];
            let count = numbers.len().min(left.len());
            let (now, later) = left.split_at_mut(count);
            now.copy_from_slice(&numbers[..count]);
            (run, skipped, left) = (run + RUNS as u64, 0, later);
        }
    }
}

/// Converts 32 uniform random bits to a standard normal number: √2 times the inverse error function of x. The highest
/// 24 bits give x, an odd multiple of 2^-24 between -1 and 1. Giles, "Approximating the erfinv function" (GPU Computing
/// Gems, 2011), with the paper's single precision coefficients.
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

/// The coefficients of Giles' polynomial in w - 2.5, for w < 5, in descending powers.
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

/// The coefficients of Giles' polynomial in √w - 3, for w ≥ 5, in descending powers.
const FAR: [f32; 9] = [
    -0.000_200_214_26,
    0.000_100_950_56,
    0.001_349_343_2,
    -0.003_673_428_4,
    0.005_739_507_7,
    -0.007_622_461_3,
    0.009_438_870_5,
    1.001_674,
    2.832_976_8,
];

/// Returns the natural logarithm of a normal float between 0 and 1, with a relative error below 3e-7. The result is the
/// exponent times ln 2, plus 2 artanh((m - 1) / (m + 1)) of the mantissa m between √½ and √2, by the artanh's series.
#[inline(always)]
fn log(value: f32) -> f32 {
    let bits = value.to_bits();
    // Chooses the exponent so that the mantissa is at least √½.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (shifted as i32) >> 23;
    let mantissa = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = ((((1.0 / 9.0) * square + 1.0 / 7.0) * square + 0.2) * square + 1.0 / 3.0) * square + 1.0;
    exponent as f32 * std::f32::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::simd::Level;

    fn normals<const N: usize>(key: [u32; 2], first: u64) -> [f32; N] {
        let mut numbers = [0.0; N];
        fill(Level::Portable, key, first, &mut numbers);
        numbers
    }

    #[test]
    fn numbers_depend_on_neither_neighbours_nor_instructions() {
        let all: [f32; 200] = normals([5, 6], 0);
        for level in Level::available() {
            for (first, count) in [(0, 200), (0, 1), (3, 64), (7, 193), (61, 5)] {
                let mut found = vec![0.0; count];
                fill(level, [5, 6], first as u64, &mut found);
                assert_eq!(found, all[first..][..count], "{} from {first}", level.name());
            }
        }
    }

    #[test]
    fn numbers_are_normal() {
        // The Kolmogorov-Smirnov distance of 2^17 random numbers exceeds 1.95 / √n with a probability of one in a
        // thousand. The key is fixed, so the test has the same result in every run.
        let n = 1 << 17;
        let mut numbers = vec![0.0; n];
        fill(Level::detect(), [1, 2], 0, &mut numbers);
        let mut numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
        numbers.sort_by(f64::total_cmp);
        let share = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
        let distance = numbers.iter().zip(0..).map(|(&x, i)| (share(x) - f64::from(i) / n as f64).abs());
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.95 / (n as f64).sqrt(), "{distance}");
    }

    #[test]
    fn every_share_has_its_number() {
        // Tests the extreme bits, the bits of the quartiles, and some in between. The share of the normal distribution
        // below a number must match the bits that the number was made from.
        for bits in [0, 1 << 8, 1 << 12, 1 << 20, 1 << 27, 1 << 30, (1 << 31) - 256] {
            let expected = (f64::from(bits >> 8) + 0.5) / f64::from(1 << 24);
            let found = 0.5 * libm::erfc(-f64::from(normal_of(bits)) / std::f64::consts::SQRT_2);
            assert!((found / expected - 1.0).abs() < 1e-4, "{bits}: {found} for {expected}");
            assert_eq!(normal_of(bits), -normal_of(!bits));
        }
    }

    #[test]
    fn numbers_stay_what_they_are() {
        let found = normals::<5>([7, 9], 0).map(f32::to_bits);
        assert_eq!(found, [0xbda5_b081, 0xbf6a_095e, 0xbf8b_03a1, 0xc00c_18b8, 0xbed5_d511]);
    }

    #[test]
    fn the_logarithm_is_one() {
        for i in 1..1000u16 {
            let value = f32::from(i) / 1001.0;
            let error = f64::from(log(value)) / libm::log(value.into()) - 1.0;
            assert!(error.abs() < 3e-7, "{value}: {error}");
        }
    }
}
