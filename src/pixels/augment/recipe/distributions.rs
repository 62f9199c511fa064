//! Random numbers of distributions other than the uniform one, computed from the uniform numbers of a stream.
//!
//! Logarithms and cosines come from libm instead of the system, so that all machines get the same last digit.

use base::rng::RandomStream;

/// Draws a standard normal number (Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958).
pub(super) fn normal(stream: &mut RandomStream) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - stream.unit())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * stream.unit())
}

/// Draws weights from the symmetric Dirichlet distribution with parameter `alpha`, above 0. The weights are Gamma
/// variates divided by their sum, so they add up to 1.
pub(super) fn dirichlet(stream: &mut RandomStream, alpha: f64, count: usize) -> Vec<f64> {
    let logs: Vec<f64> = (0..count).map(|_| log_gamma_variate(stream, alpha)).collect();
    // With a small alpha all variates may underflow, so they are compared by their logarithms.
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logs.iter().map(|log| libm::exp(log - largest)).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}

/// Draws the logarithm of a number from the Gamma distribution with this shape (Marsaglia and Tsang, "A Simple Method
/// for Generating Gamma Variables", 2000). For a shape below 1, uses the paper's formula with a power of a uniform
/// number.
fn log_gamma_variate(stream: &mut RandomStream, shape: f64) -> f64 {
    if shape < 1.0 {
        let uniform = 1.0 - stream.unit();
        return log_gamma_variate(stream, shape + 1.0) + libm::log(uniform) / shape;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(stream);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && libm::log(1.0 - stream.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return libm::log(d * v);
        }
    }
}

/// Shuffles `items`; all orders are equally likely (Fisher and Yates).
pub(super) fn shuffle<T>(stream: &mut RandomStream, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, stream.below(last as u64 + 1) as usize);
    }
}
