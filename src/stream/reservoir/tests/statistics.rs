//! Chi-squared tests of observed counts, for the tests of this module.

/// The probability that a chi-squared variable of `degrees` degrees of freedom is `value` or more: the regularised
/// incomplete gamma function Q(degrees / 2, value / 2), by its series or its continued fraction (Abramowitz and Stegun,
/// 6.5.29 and 6.5.31).
pub(super) fn chi_squared_tail(value: f64, degrees: usize) -> f64 {
    let (a, x) = (degrees as f64 / 2.0, value / 2.0);
    if x <= 0.0 {
        return 1.0;
    }
    let scale = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - scale * sum;
    }
    // Lentz's method evaluates a continued fraction from its front.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for i in 1..100_000 {
        let numerator = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    scale * fraction
}

/// Fails if the counts differ so much from the expected ones that chance explains it only once in ten thousand times.
/// The counts are of independent draws.
pub(super) fn assert_follows(what: &str, counts: &[u64], expected: &[f64]) {
    let sum: u64 = counts.iter().sum();
    assert!(expected.iter().all(|&expected| expected >= 5.0), "{what}: too few for the test: {expected:?}");
    assert!((sum as f64 - expected.iter().sum::<f64>()).abs() < 1e-6 * sum as f64, "{what}");
    let value = counts.iter().zip(expected).map(|(&n, expected)| (n as f64 - expected).powi(2) / expected);
    assert_likely(what, value.sum(), counts.len() - 1);
}

/// Fails if the counts are so uneven that chance explains it only once in ten thousand times. In each of `times`
/// rounds, `taken` items were drawn without replacement; each count says how often one item was drawn. The counts are
/// not independent: drawing one item makes other items rarer in the same round. The statistic corrects this.
pub(super) fn assert_uniform(what: &str, counts: &[u64], taken: usize, times: u64) {
    let (all, times) = (counts.len() as f64, times as f64);
    let share = taken as f64 / all;
    assert_eq!(counts.iter().sum::<u64>(), taken as u64 * times as u64, "{what}");
    let variance = times * share * (1.0 - share) * all / (all - 1.0);
    let value: f64 = counts.iter().map(|&n| (n as f64 - times * share).powi(2) / variance).sum();
    assert_likely(what, value, counts.len() - 1);
}

fn assert_likely(what: &str, value: f64, degrees: usize) {
    let p = chi_squared_tail(value, degrees);
    println!("{what}: chi-squared {value:.1} of {degrees} degrees, p = {p:.4}");
    assert!(p > 1e-4 && p < 1.0 - 1e-4, "{what}: chi-squared {value:.1} of {degrees} degrees, p = {p}");
}

/// Compares the tail with tables (Abramowitz and Stegun, table 26.8).
#[test]
fn the_tail_of_chi_squared_is_that_of_tables() {
    let table = [
        (3.841_46, 1, 0.05),
        (18.307, 10, 0.05),
        (23.209_3, 10, 0.01),
        (74.221_9, 100, 0.975),
        (149.449, 100, 1e-3),
    ];
    for (value, degrees, expected) in table {
        let found = chi_squared_tail(value, degrees);
        assert!((found / expected - 1.0).abs() < 1e-4, "{value} of {degrees}: {found}, expected {expected}");
    }
}
