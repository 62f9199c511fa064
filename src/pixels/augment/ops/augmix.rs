//! AugMix: the weighted sum of an image and of the results of chains of operations.

use super::arithmetic::truncate;
use crate::level::vectorised;

/// Returns the weight of the image itself and the weights of the chains, in float32 as in torch.
pub(in crate::augment) fn shares(weights: &[f64]) -> (f32, Vec<f32>) {
    let of_image = 1.0 - weights.iter().sum::<f64>();
    (of_image as f32, weights.iter().map(|&weight| weight as f32).collect())
}

/// Replaces `levels` by the weighted sum of `levels` and the `chains`. Each product is rounded to float32. The products
/// are added in the order of `chains`, and each intermediate sum is rounded to float32. The final sum is truncated to
/// an integer.
pub(super) fn mix(level: base::simd::Level, levels: &mut [u8], chains: &[Vec<u8>], weights: &[f64]) {
    const BLOCK: usize = 256;
    let (of_image, weights) = shares(weights);
    let mut sums = [0.0; BLOCK];
    for (block, levels) in levels.chunks_mut(BLOCK).enumerate() {
        let sums = &mut sums[..levels.len()];
        scale(level, levels, of_image, sums);
        for (chain, &weight) in chains.iter().zip(&weights) {
            add(level, &chain[block * BLOCK..][..sums.len()], weight, sums);
        }
        store(level, sums, levels);
    }
}

vectorised! {
    fn scale(levels: &[u8], weight: f32, sums: &mut [f32]) {
        for (&level, sum) in levels.iter().zip(sums) {
            *sum = f32::from(level) * weight;
        }
    }
}

vectorised! {
    fn add(levels: &[u8], weight: f32, sums: &mut [f32]) {
        for (&level, sum) in levels.iter().zip(sums) {
            *sum += f32::from(level) * weight;
        }
    }
}

vectorised! {
    fn store(sums: &[f32], levels: &mut [u8]) {
        for (&sum, level) in sums.iter().zip(levels) {
            *level = truncate(sum);
        }
    }
}
