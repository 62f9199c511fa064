//! The order of an epoch in which all samples of a global batch are of one bucket.
//!
//! Each bucket has draws `0..n` of its own, in a seeded permutation, which is cut into global batches. The full batches
//! of all buckets come in a seeded permutation. After them comes a batch for each bucket that has a rest, in a random
//! order. So no plan is stored: only the bucket of each draw, and counts of each 4 096 draws. A step belongs to a
//! position, `position / global batch`, so an order has more positions than draws if a rest does not fill its batch.
//! (→ tests/data/buckets.rs)

use super::permutation::{Feistel, Shuffle};
use super::{LastBatch, TABLE_LIMIT};
use base::rng::RandomKey;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The number of draws whose buckets are counted together. A search reads at most so many bytes.
const BLOCK: usize = 4096;

/// The bucket of each draw of an epoch, by the number of the draw.
#[derive(Debug)]
pub struct BucketTable {
    buckets: Vec<u8>,
    /// The number of buckets.
    len: usize,
    /// For each block, and for the end, the number of draws of each bucket before it.
    before: Vec<u32>,
    digest: [u8; 32],
}

impl BucketTable {
    /// Makes a table of draws, fewer than 2³², each of which is in a bucket below `len`. `sizes` are the bytes that
    /// identify the sizes of the buckets.
    ///
    /// # Panics
    /// If a bucket is not below `len`.
    pub fn new(buckets: Vec<u8>, len: usize, sizes: &[u8]) -> Self {
        let mut before = Vec::with_capacity((buckets.len().div_ceil(BLOCK) + 1) * len);
        let mut counts = vec![0u32; len];
        for block in buckets.chunks(BLOCK) {
            before.extend_from_slice(&counts);
            for &bucket in block {
                counts[usize::from(bucket)] += 1;
            }
        }
        before.extend_from_slice(&counts);
        let digest = Sha256::new().chain_update(sizes).chain_update(&buckets).finalize().into();
        Self { buckets, len, before, digest }
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.len
    }

    /// Returns the number of draws of a bucket.
    pub fn count(&self, bucket: usize) -> u64 {
        u64::from(self.before[self.before.len() - self.len + bucket])
    }

    /// Returns the digest of the table and of the sizes of its buckets.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the number of the draw that is number `nth` of its bucket.
    fn select(&self, bucket: usize, nth: u64) -> u64 {
        let (mut first, mut end) = (0, self.before.len() / self.len - 1);
        while end - first > 1 {
            let middle = usize::midpoint(first, end);
            match u64::from(self.before[middle * self.len + bucket]) <= nth {
                true => first = middle,
                false => end = middle,
            }
        }
        let rest = nth - u64::from(self.before[first * self.len + bucket]);
        let block = self.buckets.iter().enumerate().skip(first * BLOCK);
        let mut of_bucket = block.filter(|(_, of)| usize::from(**of) == bucket);
        of_bucket.nth(rest as usize).map_or(0, |(draw, _)| draw as u64)
    }

    /// Returns the bucket of a draw, and the draw's number in it.
    fn rank(&self, draw: u64) -> (usize, u64) {
        let (draw, bucket) = (draw as usize, self.buckets[draw as usize]);
        let block = draw / BLOCK;
        let within = self.buckets[block * BLOCK..draw].iter().filter(|of| **of == bucket).count();
        let bucket = usize::from(bucket);
        (bucket, u64::from(self.before[block * self.len + bucket]) + within as u64)
    }
}

#[derive(Debug)]
enum Shuffled {
    Not,
    Table(Shuffle),
    Computed(Feistel),
}

impl Shuffled {
    fn new(key: Option<&RandomKey>, part: u64, len: u64, is_small: bool) -> Self {
        match key {
            None => Self::Not,
            Some(key) if is_small => Self::Table(Shuffle::new_in(&mut key.stream(part), len as u32)),
            Some(key) => Self::Computed(Feistel::new(&mut key.stream(part), len)),
        }
    }

    fn forward(&self, place: u64) -> u64 {
        match self {
            Self::Not => place,
            Self::Table(shuffle) => shuffle.sample(place),
            Self::Computed(feistel) => feistel.forward(place),
        }
    }

    fn backward(&self, number: u64) -> u64 {
        match self {
            Self::Not => number,
            Self::Table(shuffle) => shuffle.position(number),
            Self::Computed(feistel) => feistel.backward(number),
        }
    }
}

/// The permutation of an epoch's draws in which global batches are of one bucket each.
#[derive(Debug)]
pub(super) struct BucketOrder {
    table: Arc<BucketTable>,
    global_batch: u64,
    /// For each bucket, and for the end, the number of full global batches of the buckets before it.
    full_before: Vec<u64>,
    /// The order of the draws of each bucket.
    draws: Vec<Shuffled>,
    /// The order of the full global batches.
    batches: Shuffled,
    /// The buckets whose rests are batches of the epoch, in their order.
    rests: Vec<u8>,
}

impl BucketOrder {
    /// `keys` are those of the draws in buckets and of the batches; `None` for the order of the dataset.
    pub(super) fn new(
        table: Arc<BucketTable>,
        global_batch: u64,
        keys: Option<[RandomKey; 2]>,
        last: LastBatch,
    ) -> Self {
        let mut full_before = vec![0];
        for bucket in 0..table.buckets() {
            full_before.push(full_before[bucket] + table.count(bucket) / global_batch);
        }
        let full = full_before[table.buckets()];
        let [of_draws, of_batches] = match &keys {
            Some([draws, batches]) => [Some(draws), Some(batches)],
            None => [None, None],
        };
        // Tables of all buckets together are at most some MB.
        let has_tables = table.buckets.len() as u64 <= TABLE_LIMIT;
        let of_bucket = |bucket: usize| {
            let len = table.count(bucket);
            Shuffled::new(of_draws, bucket as u64, len, has_tables || len <= BLOCK as u64)
        };
        let draws = (0..table.buckets()).map(of_bucket).collect();
        let has_rest = |bucket: &usize| !table.count(*bucket).is_multiple_of(global_batch);
        let mut rests: Vec<u8> = match last {
            LastBatch::Drop => Vec::new(),
            LastBatch::Pad | LastBatch::Partial => {
                (0..table.buckets()).filter(has_rest).map(|bucket| bucket as u8).collect()
            }
        };
        let batches = Shuffled::new(of_batches, 0, full, full <= TABLE_LIMIT);
        let order = Shuffled::new(of_batches, 1, rests.len() as u64, true);
        rests = (0..rests.len() as u64).map(|place| rests[order.forward(place) as usize]).collect();
        Self { table, global_batch, full_before, draws, batches, rests }
    }

    fn full(&self) -> u64 {
        self.full_before[self.table.buckets()]
    }

    /// Returns the number of positions: the steps of the epoch times the global batch.
    pub(super) fn len(&self) -> u64 {
        (self.full() + self.rests.len() as u64) * self.global_batch
    }

    /// Returns the number of draws that no batch of the epoch has.
    pub(super) fn left_out(&self) -> u64 {
        let rests =
            self.rests.iter().map(|&bucket| self.table.count(usize::from(bucket)) % self.global_batch);
        self.table.buckets.len() as u64 - self.full() * self.global_batch - rests.sum::<u64>()
    }

    /// Returns the bucket of the global batch of `step`, and the number of its batch in the bucket.
    fn batch(&self, step: u64) -> (usize, u64) {
        match step.checked_sub(self.full()) {
            None => {
                let batch = self.batches.forward(step);
                let bucket = self.full_before.partition_point(|before| *before <= batch) - 1;
                (bucket, batch - self.full_before[bucket])
            }
            Some(rest) => {
                let bucket = usize::from(self.rests[rest as usize]);
                (bucket, self.full_before[bucket + 1] - self.full_before[bucket])
            }
        }
    }

    pub(super) fn bucket(&self, step: u64) -> u8 {
        self.batch(step).0 as u8
    }

    /// Returns the number of draws of the global batch of `step`, without padding.
    pub(super) fn batch_len(&self, step: u64) -> u64 {
        if step < self.full() {
            return self.global_batch;
        }
        self.table.count(self.batch(step).0) % self.global_batch
    }

    /// Returns the number of the draw at `position`. The positions after a rest have the first draws of its bucket
    /// again, as padding.
    pub(super) fn number(&self, position: u64) -> u64 {
        let (bucket, batch) = self.batch(position / self.global_batch);
        let place = batch * self.global_batch + position % self.global_batch;
        self.table.select(bucket, self.draws[bucket].forward(place % self.table.count(bucket)))
    }

    /// Returns the position of a draw; `None` if the epoch leaves it out.
    pub(super) fn position(&self, number: u64) -> Option<u64> {
        let (bucket, nth) = self.table.rank(number);
        let place = self.draws[bucket].backward(nth);
        let (batch, within) = (place / self.global_batch, place % self.global_batch);
        let step = match self.full_before[bucket] + batch {
            full if full < self.full_before[bucket + 1] => self.batches.backward(full),
            _ => self.full() + self.rests.iter().position(|rest| usize::from(*rest) == bucket)? as u64,
        };
        Some(step * self.global_batch + within)
    }
}
