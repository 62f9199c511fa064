//! Tests of the inverse DCT: all implementations, compared with each other and with the definition.

use super::*;
use base::rng::{RandomKey, Use};

/// The definition of the inverse DCT (ITU T.81, A.3.3) in floating point.
fn reference(coefficients: &[[f64; 8]; 8]) -> [[f64; 8]; 8] {
    let scale = |k: usize| if k == 0 { 0.5f64.sqrt() } else { 1.0 };
    let cosine = |x: usize, k: usize| ((2 * x + 1) as f64 * k as f64 * std::f64::consts::PI / 16.0).cos();
    std::array::from_fn(|y| {
        std::array::from_fn(|x| {
            let mut sum = 0.0;
            for (v, row) in coefficients.iter().enumerate() {
                for (u, value) in row.iter().enumerate() {
                    sum += scale(u) * scale(v) / 4.0 * value * cosine(x, u) * cosine(y, v);
                }
            }
            sum + 128.0
        })
    })
}

fn samples() -> impl Iterator<Item = ([i16; 64], [u16; 64])> {
    (0..3000).map(|index| {
        let mut stream = RandomKey::new(b"idct", 0, 0, Use::Augment).stream(index);
        let (coarse, reach, count) =
            (1 + stream.below(300), 1 + stream.below(400), 1 + stream.below(64) as usize);
        let mut table = [0; 64];
        table.iter_mut().for_each(|step| *step = 1 + stream.below(coarse) as u16);
        let mut coefficients = [0i16; 64];
        for value in &mut coefficients[..count] {
            *value = (stream.below(2 * reach) as i32 - reach as i32) as i16 / (1 + coarse as i16 / 8);
        }
        (coefficients, table)
    })
}

type Transformed = (Result<(), OutOfRange>, Vec<u8>);

fn run<T: InverseDct>(coefficients: &[i16; 64], table: &[u16; 64]) -> Transformed {
    run_by(T::block, coefficients, table)
}

fn run_by(
    transform: fn(&mut IdctBlock, &Quantisation, &mut [u8], usize) -> Result<(), OutOfRange>,
    coefficients: &[i16; 64],
    table: &[u16; 64],
) -> Transformed {
    let mut block = IdctBlock::new();
    for (k, &value) in coefficients.iter().enumerate() {
        block.0[usize::from(PLACES[k])] = value;
    }
    let mut out = vec![0; 7 * 13 + 8];
    let result = transform(&mut block, &Quantisation::new(table), &mut out, 13);
    assert!(block.0[..64].iter().all(|&value| value == 0));
    (result, out)
}

#[test]
fn coding_order_is_the_zigzag() {
    assert_eq!(ZIGZAG[..16], [0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5]);
    assert_eq!(ZIGZAG[56..], [53, 60, 61, 54, 47, 55, 62, 63]);
    let mut places = PLACES[..64].to_vec();
    places.sort();
    assert_eq!(places, (0..64).collect::<Vec<u8>>());
}

#[test]
fn samples_are_those_of_the_definition() {
    let mut compared = 0;
    for (coefficients, table) in samples() {
        let (result, out) = run::<PortableIdct>(&coefficients, &table);
        if result.is_err() {
            continue;
        }
        let mut natural = [[0.0; 8]; 8];
        for k in 0..64 {
            let at = usize::from(ZIGZAG[k]);
            natural[at / 8][at % 8] = f64::from(coefficients[k]) * f64::from(table[k]);
        }
        for (y, row) in reference(&natural).iter().enumerate() {
            for (x, value) in row.iter().enumerate() {
                let difference = f64::from(out[13 * y + x]) - value.clamp(0.0, 255.0);
                assert!(difference.abs() < 0.7, "{difference} at {x}, {y}");
            }
        }
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn a_lone_dc_needs_no_transform() {
    for dc in -1100..1100 {
        let mut coefficients = [0; 64];
        coefficients[0] = dc;
        let (result, whole) = run::<PortableIdct>(&coefficients, &[3; 64]);
        let mut out = vec![0; 7 * 13 + 8];
        let quick = dc_only(dc, &Quantisation::new(&[3; 64]), &mut out, 13);
        assert_eq!((quick, quick.is_ok().then_some(out)), (result, result.is_ok().then_some(whole)));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn all_levels_agree() {
    if base::simd::Level::available().all(|level| level < base::simd::Level::Avx2) {
        return;
    }
    let mut failed = 0;
    for (coefficients, table) in samples() {
        let expected = run::<PortableIdct>(&coefficients, &table);
        let (result, out) = run::<avx2::Avx2Idct>(&coefficients, &table);
        assert_eq!(result, expected.0);
        if result.is_ok() {
            assert_eq!(out, expected.1);
        } else {
            failed += 1;
        }
    }
    assert!((10..2900).contains(&failed), "{failed}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn small_blocks_are_transformed_as_all_others() {
    if base::simd::Level::available().all(|level| level < base::simd::Level::Avx2) {
        return;
    }
    let mut failed = 0;
    for (mut coefficients, table) in samples() {
        for (k, value) in coefficients.iter_mut().enumerate() {
            *value *= (SMALL >> k & 1) as i16;
        }
        let expected = run::<PortableIdct>(&coefficients, &table);
        let (result, out) = run_by(avx2::Avx2Idct::small_block, &coefficients, &table);
        assert_eq!(result, expected.0);
        if result.is_ok() {
            assert_eq!(out, expected.1);
        } else {
            failed += 1;
        }
    }
    assert!((10..2900).contains(&failed), "{failed}");
}

/// Transforms two blocks together with AVX-512, or each alone if they cannot be transformed together. Returns the
/// results, and whether they were transformed together.
#[cfg(target_arch = "x86_64")]
fn run_two(two: [&([i16; 64], [u16; 64]); 2]) -> ([Transformed; 2], bool) {
    let tables = two.map(|(_, table)| Quantisation::new(table));
    let mut blocks = two.map(|(coefficients, _)| {
        let mut block = IdctBlock::new();
        block.0[..64].copy_from_slice(coefficients);
        block
    });
    // SAFETY: the caller has detected AVX-512.
    let together = unsafe { avx512::transform(&mut blocks, tables.each_ref()) };
    let is_together = together.is_some();
    let done = [0, 1].map(|number| {
        let mut out = vec![0; 7 * 13 + 8];
        let result = match together {
            Some(samples) => {
                // SAFETY: as above.
                unsafe { samples.write(number, &mut out, 13) };
                Ok(())
            }
            None => avx512::transform_single(&mut blocks[number], &tables[number], &mut out, 13),
        };
        (result, out)
    });
    assert!(blocks.iter().all(|block| block.0[..64].iter().all(|&value| value == 0)));
    (done, is_together)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn two_blocks_together_are_as_each_alone() {
    if base::simd::Level::available().all(|level| level < base::simd::Level::Avx512) {
        return;
    }
    let samples: Vec<_> = samples().collect();
    let (mut together, mut failed) = (0, 0);
    for (number, first) in samples.iter().enumerate() {
        // Neighbours have different quantisation tables. Distant blocks also have different coefficients.
        for second in [&samples[(number + 1) % samples.len()], &samples[(7 * number) % samples.len()]] {
            let (found, is_together) = run_two([first, second]);
            let expected = [first, second].map(|(block, table)| run::<PortableIdct>(block, table));
            for (found, expected) in found.into_iter().zip(expected) {
                assert_eq!(found.0, expected.0);
                if found.0.is_ok() {
                    assert_eq!(found.1, expected.1);
                } else {
                    failed += 1;
                }
            }
            together += usize::from(is_together);
        }
    }
    assert!((500..5500).contains(&together) && failed > 100, "{together} {failed}");
}

#[test]
fn products_that_wrap_are_out_of_range_on_all_levels() {
    for (coefficient, step) in [(512, 64), (256, 128), (128, 256), (384, 256), (512, 192), (1023, 33)] {
        for (k, sign) in (1..64).flat_map(|k| [(k, 1), (k, -1)]) {
            let mut coefficients = [0i16; 64];
            coefficients[k] = sign * coefficient;
            let portable = run::<PortableIdct>(&coefficients, &[step; 64]).0;
            assert_eq!(portable, Err(OutOfRange), "{coefficient} of {step} at {k}");
            #[cfg(target_arch = "x86_64")]
            if base::simd::Level::available().any(|level| level >= base::simd::Level::Avx2) {
                let avx2 = run::<avx2::Avx2Idct>(&coefficients, &[step; 64]).0;
                assert_eq!(avx2, portable, "{coefficient} of {step} at {k}");
            }
            #[cfg(target_arch = "x86_64")]
            if base::simd::Level::available().any(|level| level >= base::simd::Level::Avx512) {
                let (damaged, plain) = ((coefficients, [step; 64]), ([1; 64], [1; 64]));
                for two in [[&damaged, &plain], [&plain, &damaged]] {
                    let (found, is_together) = run_two(two);
                    let number = usize::from(std::ptr::eq(two[1], &damaged));
                    assert_eq!(
                        (is_together, found[number].0),
                        (false, portable),
                        "{coefficient} of {step} at {k}"
                    );
                }
            }
        }
    }
}
