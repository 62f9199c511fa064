//! The only source of randomness: a counter-based generator. Every number is a pure function of (seed, epoch, sample,
//! occurrence, use, field, view, transform), so no thread, rank or restart can change it. → `tests/load/pipeline.rs`,
//! `tests/load/mixing.rs`, `tests/load/locality.rs`
//!
//! The generator is Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11). Users rely
//! on the numbers staying the same: [`VERSION`] is part of every key, and tests compare golden values. A change of the
//! numbers needs a new version.

use sha2::{Digest, Sha256};

/// The version of all random streams, which is part of each key.
pub const VERSION: u32 = 1;

/// The purpose of a random stream. Different uses of one (seed, epoch, sample) never share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Use {
    /// The order of the epoch.
    Order = 0,
    /// The draws of transforms for a sample. Each transform has its own [part](RandomKey::part).
    Augment = 1,
    /// The choice of a substitute for a failed sample.
    Substitute = 2,
    /// The size of a sample in a simulated dataset.
    Size = 3,
    /// The number that selects the stratum of samples for a draw of a weighted epoch.
    Slice = 4,
    /// In a weighted epoch: the choice of a stratum's samples for the last round, if the round does not draw all of
    /// them.
    Round = 5,
    /// The mixing of images in a global batch.
    Mix = 6,
    /// The owner nodes of samples.
    Owner = 7,
    /// The pauses between the attempts of a request to a server.
    Pause = 8,
    /// The order of the read units in a block-shuffled epoch.
    ReadUnit = 9,
    /// The order of the samples in a phase of a block-shuffled epoch.
    Phase = 10,
    /// The samples of a stream that a rehearsal buffer keeps.
    Keep = 11,
    /// The samples of the rehearsal buffer that a step uses.
    Rehearse = 12,
    /// The choice of stream samples to drop if more arrive than are used.
    Drop = 13,
    /// The order of the draws of a bucket.
    Bucket = 14,
    /// The order of the global batches of all buckets.
    BucketOrder = 15,
}

/// The key of all streams of one (dataset, seed, epoch, use).
///
/// The key is a hash, never `seed + epoch`: epoch 1 of seed 0 must share nothing with epoch 0 of seed 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomKey {
    words: [u32; 2],
    domain: [u32; 2],
}

impl RandomKey {
    /// Makes the key of (fingerprint, seed, epoch, usage). The fingerprint is empty for streams that do not depend on a
    /// dataset.
    pub fn new(fingerprint: &[u8], seed: u64, epoch: u64, usage: Use) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"foreload rng");
        hash.update(VERSION.to_le_bytes());
        hash.update((usage as u32).to_le_bytes());
        hash.update(seed.to_le_bytes());
        hash.update(epoch.to_le_bytes());
        hash.update(fingerprint);
        Self::of(hash)
    }

    /// Makes the key of one transform for one `view` of an image: the `nth` transform of its `kind` in a list.
    /// Different keys share no numbers, so adding a transform changes no other transform's numbers.
    pub fn part(&self, view: [u32; 2], kind: &str, nth: u32) -> Self {
        let mut hash = self.hashed(b"foreload rng part");
        for word in [view[0], view[1], nth] {
            hash.update(word.to_le_bytes());
        }
        hash.update(kind);
        Self::of(hash)
    }

    /// Makes the key for the same use in another image field. The first image field uses this key itself, so adding a
    /// field changes no other field's numbers.
    pub fn of_field(&self, name: &str) -> Self {
        Self::of(self.hashed(b"foreload rng field").chain_update(name))
    }

    fn hashed(&self, purpose: &[u8]) -> Sha256 {
        let mut hash = Sha256::new_with_prefix(purpose);
        for word in [self.words, self.domain].as_flattened() {
            hash.update(word.to_le_bytes());
        }
        hash
    }

    fn of(hash: Sha256) -> Self {
        let digest = hash.finalize();
        let word = |i: usize| u32::from_le_bytes(digest[4 * i..4 * i + 4].try_into().expect("four bytes"));
        Self { words: [word(0), word(1)], domain: [word(2), word(3)] }
    }

    /// The random stream of the sample, or of the position in the epoch, with this index.
    pub fn stream(&self, index: u64) -> RandomStream {
        RandomStream { key: *self, index, block: 0, buffer: [0; 4], used: 4 }
    }

    /// The stream for the `occurrence`-th draw of sample `index`. [`RandomKey::stream`] is the stream of occurrence 0.
    pub fn stream_of(&self, index: u64, occurrence: u32) -> RandomStream {
        let mut key = *self;
        // No other code changes this word of the counter, so two occurrences share no numbers.
        key.domain[1] ^= occurrence;
        key.stream(index)
    }

    /// Runs the generator once: returns the four random words of the counter (`index`, `block`).
    // Not inlined in debug builds: test code is less optimised than this crate (Cargo.toml), so a copy inlined into a
    // test would take ten times as long.
    #[cfg_attr(debug_assertions, inline(never))]
    pub fn block(&self, index: u64, block: u32) -> [u32; 4] {
        let counter = [index as u32, (index >> 32) as u32, block ^ self.domain[0], self.domain[1]];
        philox4x32_10(counter.map(|word| [word]), self.words).map(|[word]| word)
    }

    /// Computes block 0 of [`RandomKey::block`] for `N` consecutive indexes, beginning with `first`. Word `w` of the
    /// `i`-th index is in `[w][i]`. The compiler can vectorise the loop.
    pub fn blocks<const N: usize>(&self, first: u64) -> [[u32; N]; 4] {
        let index = |i: usize| first + i as u64;
        let low = std::array::from_fn(|i| index(i) as u32);
        let high = std::array::from_fn(|i| (index(i) >> 32) as u32);
        philox4x32_10([low, high, [self.domain[0]; N], [self.domain[1]; N]], self.words)
    }
}

/// The random numbers of one sample, in order. A stream is cheap to create, and 2^34 words long.
#[derive(Debug, Clone)]
pub struct RandomStream {
    key: RandomKey,
    index: u64,
    block: u32,
    buffer: [u32; 4],
    used: usize,
}

impl RandomStream {
    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.buffer = self.key.block(self.index, self.block);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// A uniform number in [0, 1) with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform number in [low, high).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A standard normal number (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        // 1 - u is never 0.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A uniform integer in [0, bound), without bias (Lemire, "Fast Random Integer Generation in an Interval", 2019).
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no integer is below 0");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }
}

/// Returns the random words for the noise on an image; the GPU computes the same words. `key` is drawn for each image.
/// Each counter gives four words, for four consecutive values of the image. The result is for `N` counters from `first`
/// on: word `w` of the `i`-th counter is in `[w][i]`.
#[inline(always)]
pub fn noise_words<const N: usize>(key: [u32; 2], first: u64) -> [[u32; N]; 4] {
    let number = |run: usize| first + run as u64;
    let low = std::array::from_fn(|run| number(run) as u32);
    let high = std::array::from_fn(|run| (number(run) >> 32) as u32);
    philox4x32_10([low, high, [0; N], [0; N]], key)
}

/// Runs Philox4x32-10 for `N` counters at once. The counters are stored word by word, so that the compiler can
/// vectorise the loop.
#[inline(always)]
fn philox4x32_10<const N: usize>(mut counters: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let [first, second, third, fourth] = &mut counters;
        for (((first, second), third), fourth) in first.iter_mut().zip(second).zip(third).zip(fourth) {
            let a = u64::from(M[0]) * u64::from(*first);
            let b = u64::from(M[1]) * u64::from(*third);
            *first = (b >> 32) as u32 ^ *second ^ key[0];
            *third = (a >> 32) as u32 ^ *fourth ^ key[1];
            (*second, *fourth) = (b as u32, a as u32);
        }
        key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    // Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
    #[test]
    fn philox_answers_as_its_authors_say() {
        let philox =
            |counter: [u32; 4], key| philox4x32_10(counter.map(|word| [word; 3]), key).map(|words| words[2]);
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn blocks_in_a_row_are_those_one_by_one() {
        let (key, first) = (RandomKey::new(b"d", 3, 1, Use::Owner), u64::from(u32::MAX) - 2);
        let words = key.blocks::<8>(first);
        for (i, index) in (0..8).zip(first..) {
            assert_eq!(words.map(|word| word[i]), key.block(index, 0));
        }
    }

    #[test]
    fn seed_and_epoch_do_not_add_up() {
        let a = RandomKey::new(b"d", 0, 1, Use::Order);
        let b = RandomKey::new(b"d", 1, 0, Use::Order);
        assert_ne!(a, b);
        assert_ne!(a, RandomKey::new(b"d", 0, 1, Use::Augment));
        assert_ne!(a.stream(3).next_u64(), b.stream(3).next_u64());
    }

    #[test]
    fn parts_share_nothing_and_stay_what_they_were_promised() {
        let key = RandomKey::new(b"", 11, 2, Use::Augment);
        let parts = [
            key.part([0, 0], "RandomResizedCrop", 0),
            key.part([0, 1], "RandomResizedCrop", 0),
            key.part([1, 0], "RandomResizedCrop", 0),
            key.part([0, 0], "RandomHorizontalFlip", 0),
            key.part([0, 0], "RandomHorizontalFlip", 1),
            key.of_field("right.jpg").part([0, 0], "RandomResizedCrop", 0),
            key.of_field("right.jpg"),
            key.of_field("left.jpg"),
            key,
        ];
        for (i, a) in parts.iter().enumerate() {
            assert!(parts[..i].iter().all(|b| a.words != b.words && a.domain != b.domain));
        }
        assert_eq!(parts[0].stream(5).next_u64(), 10_247_350_395_721_390_403);
        assert_eq!(parts[4].stream_of(5, 1).next_u64(), 3_993_625_700_716_946_848);
        assert_eq!(parts[5].stream(5).next_u64(), 1_405_999_400_054_653_344);
    }

    #[test]
    fn below_is_in_range_and_reaches_every_value() {
        let mut stream = RandomKey::new(b"", 7, 0, Use::Substitute).stream(0);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[stream.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
