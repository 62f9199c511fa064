//! Two invertible permutations of `0..n`: a table shuffled by Fisher–Yates, and a Feistel network without memory.

use base::rng::{RandomKey, RandomStream};

/// A Fisher–Yates shuffle stored as a table, with its inverse.
#[derive(Debug)]
pub(super) struct Shuffle {
    samples: Vec<u32>,
    positions: Vec<u32>,
}

impl Shuffle {
    pub(super) fn new(key: &RandomKey, len: u32) -> Self {
        Self::new_in(&mut key.stream(0), len)
    }

    pub(super) fn new_in(stream: &mut RandomStream, len: u32) -> Self {
        let mut samples: Vec<u32> = (0..len).collect();
        for i in (1..samples.len()).rev() {
            samples.swap(i, stream.below(i as u64 + 1) as usize);
        }
        let mut positions = vec![0; samples.len()];
        for (position, &sample) in samples.iter().enumerate() {
            positions[sample as usize] = position as u32;
        }
        Self { samples, positions }
    }

    pub(super) fn sample(&self, position: u64) -> u64 {
        u64::from(self.samples[position as usize])
    }

    pub(super) fn position(&self, sample: u64) -> u64 {
        u64::from(self.positions[sample as usize])
    }
}

/// A Feistel network over mixed radices (generalised Feistel as in Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", CT-RSA 2002).
///
/// A number below `a·b` is a pair (left below `a`, right below `b`). Each round adds a keyed hash of one half to the
/// other, modulo that half's radix. With `a = ⌈√n⌉` and `b = ⌈n/a⌉`, fewer than `a` numbers of the domain are outside
/// `0..n`. If the result is one of these, the network is applied again until the result is inside (cycle walking). This
/// keeps it a permutation of `0..n`.
#[derive(Debug)]
pub(super) struct Feistel {
    len: u64,
    a: u64,
    b: u64,
    keys: [RoundKey; ROUNDS],
}

/// Number of rounds. Tests of statistics of lags and positions fail clearly with four rounds, and narrowly with six.
const ROUNDS: usize = 8;

#[derive(Debug, Clone, Copy)]
struct RoundKey {
    add: u64,
    multiply: u64,
}

impl RoundKey {
    /// Returns a uniform number below `radix` that depends on `half` and the key. Two rounds of multiply and fold are
    /// enough: the network needs a uniform keyed hash, not one that resists an attacker. The top bits of the product
    /// choose the number (multiply-shift), so the radix costs no division.
    #[inline(always)]
    fn hash(self, half: u64, radix: u64) -> u64 {
        let mut h = half.wrapping_add(self.add).wrapping_mul(self.multiply);
        h ^= h >> 32;
        // The multiplier of Stafford's "mix 13" finaliser.
        h = h.wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 29;
        ((u128::from(h.wrapping_mul(self.multiply)) * u128::from(radix)) >> 64) as u64
    }
}

impl Feistel {
    pub(super) fn new(stream: &mut RandomStream, len: u64) -> Self {
        // Multipliers are odd, so that multiplication is invertible.
        let keys =
            std::array::from_fn(|_| RoundKey { add: stream.next_u64(), multiply: stream.next_u64() | 1 });
        let a = match len.isqrt() {
            root if root * root == len => root,
            root => root + 1,
        };
        let b = len.div_ceil(a.max(1));
        Self { len, a, b, keys }
    }

    pub(super) fn forward(&self, mut x: u64) -> u64 {
        loop {
            let (mut left, mut right) = (x / self.b, x % self.b);
            for pair in self.keys.chunks_exact(2) {
                left = add(left, pair[0].hash(right, self.a), self.a);
                right = add(right, pair[1].hash(left, self.b), self.b);
            }
            x = left * self.b + right;
            if x < self.len {
                return x;
            }
        }
    }

    pub(super) fn backward(&self, mut x: u64) -> u64 {
        loop {
            let (mut left, mut right) = (x / self.b, x % self.b);
            for pair in self.keys.rchunks_exact(2) {
                right = subtract(right, pair[1].hash(left, self.b), self.b);
                left = subtract(left, pair[0].hash(right, self.a), self.a);
            }
            x = left * self.b + right;
            if x < self.len {
                return x;
            }
        }
    }
}

#[inline(always)]
fn add(x: u64, y: u64, radix: u64) -> u64 {
    let sum = x + y;
    if sum >= radix { sum - radix } else { sum }
}

#[inline(always)]
fn subtract(x: u64, y: u64, radix: u64) -> u64 {
    if x >= y { x - y } else { x + radix - y }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Use;

    #[test]
    fn the_network_permutes_every_small_domain() {
        for len in 1..300u64 {
            let feistel = Feistel::new(&mut RandomKey::new(b"small", len, 0, Use::Order).stream(0), len);
            assert!(feistel.a * feistel.b >= len && feistel.a * feistel.b < len + feistel.a);
            let mut seen = vec![false; len as usize];
            for x in 0..len {
                let y = feistel.forward(x);
                assert!(!std::mem::replace(&mut seen[y as usize], true), "{y} twice of {len}");
                assert_eq!(feistel.backward(y), x, "of {len}");
            }
        }
    }

    #[test]
    fn the_largest_domain_does_not_overflow() {
        let feistel = Feistel::new(&mut RandomKey::new(b"large", 0, 0, Use::Order).stream(0), u64::MAX);
        for x in [0, 1, u64::MAX / 2, u64::MAX - 2, u64::MAX - 1] {
            assert_eq!(feistel.backward(feistel.forward(x)), x);
        }
    }
}
