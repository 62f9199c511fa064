//! Caches of one node, simulated access by access: LRU, never-evict, Belady, and Foreload's own (by
//! [`store::tier::plan`]).

use super::access::{AccessTrace, NEVER};
use super::scenario::Scenario;
use std::collections::{BTreeMap, BinaryHeap};
use store::tier::plan::{Admission, GroupId, RetentionRule, TierPlan};

/// A cache that one node fills with the samples that it reads.
pub trait NodeCache {
    /// Processes the access with index `access`: decides which samples are kept and evicted. Returns the index of the
    /// cache that has the sample, or `None` if the sample comes from the slow tier.
    fn access(&mut self, trace: &AccessTrace, access: usize) -> Option<u8>;
}

/// Free space in each cache of a node, the preferred cache first.
#[derive(Debug, Clone)]
pub struct CacheSpace {
    free: Vec<f64>,
    largest: f64,
}

impl CacheSpace {
    /// Makes the empty caches of a node of `scenario`.
    pub fn of(scenario: &Scenario, node: u32) -> Self {
        Self::new(scenario.capacities(node))
    }

    /// Makes empty caches of these capacities, in bytes.
    pub fn new(capacities: Vec<f64>) -> Self {
        Self { largest: capacities.iter().copied().fold(0.0, f64::max), free: capacities }
    }

    /// Puts `bytes` into the first cache with enough space. Returns the index of that cache.
    pub fn put(&mut self, bytes: f64) -> Option<u8> {
        let cache = self.free.iter().position(|free| *free >= bytes)?;
        self.free[cache] -= bytes;
        Some(cache as u8)
    }

    /// Gives `bytes` of a cache back to the free space.
    pub fn take(&mut self, cache: u8, bytes: f64) {
        self.free[usize::from(cache)] += bytes;
    }

    fn fits(&self, bytes: f64) -> bool {
        bytes <= self.largest
    }

    fn has_space(&self, bytes: f64) -> bool {
        self.free.iter().any(|free| *free >= bytes)
    }
}

const NOT_CACHED: u8 = u8::MAX;

fn held(place: u8) -> Option<u8> {
    (place != NOT_CACHED).then_some(place)
}

/// A cache that keeps the first samples until it is full, and evicts nothing.
#[derive(Debug)]
pub struct NeverEvict {
    space: CacheSpace,
    places: Vec<u8>,
}

impl NeverEvict {
    /// Makes an empty cache for the samples of `trace`.
    pub fn new(space: CacheSpace, trace: &AccessTrace) -> Self {
        Self { space, places: vec![NOT_CACHED; trace.samples.len()] }
    }
}

impl NodeCache for NeverEvict {
    fn access(&mut self, trace: &AccessTrace, access: usize) -> Option<u8> {
        let id = trace.ids[access] as usize;
        let found = held(self.places[id]);
        if found.is_none() {
            self.places[id] = self.space.put(f64::from(trace.bytes[id])).unwrap_or(NOT_CACHED);
        }
        found
    }
}

/// A cache that evicts the least recently used sample (LRU).
#[derive(Debug)]
pub struct Lru {
    space: CacheSpace,
    places: Vec<u8>,
    used: Vec<u32>,
    /// The accesses before this one need no search: their samples were evicted, or have been used again since.
    oldest: usize,
}

impl Lru {
    /// Makes an empty cache for the samples of `trace`.
    pub fn new(space: CacheSpace, trace: &AccessTrace) -> Self {
        let ids = trace.samples.len();
        Self { space, places: vec![NOT_CACHED; ids], used: vec![NEVER; ids], oldest: 0 }
    }
}

impl NodeCache for Lru {
    fn access(&mut self, trace: &AccessTrace, access: usize) -> Option<u8> {
        let id = trace.ids[access] as usize;
        let bytes = f64::from(trace.bytes[id]);
        let found = held(self.places[id]);
        self.used[id] = access as u32;
        if found.is_none() && self.space.fits(bytes) {
            // The list of accesses is the queue. Advance `oldest` until it is the last access to a cached sample, and
            // evict that sample.
            while !self.space.has_space(bytes) && self.oldest < access {
                let old = trace.ids[self.oldest] as usize;
                if self.used[old] as usize == self.oldest && self.places[old] != NOT_CACHED {
                    self.space.take(
                        std::mem::replace(&mut self.places[old], NOT_CACHED),
                        f64::from(trace.bytes[old]),
                    );
                }
                self.oldest += 1;
            }
            self.places[id] = self.space.put(bytes).unwrap_or(NOT_CACHED);
        }
        found
    }
}

/// A cache that evicts the sample with the most distant next use. If the next use of the new sample is even more
/// distant, the new sample is not cached (bypass). See Belady, "A study of replacement algorithms for a virtual-storage
/// computer", 1966, which has no bypass.
#[derive(Debug)]
pub struct Belady {
    space: CacheSpace,
    places: Vec<u8>,
    next: Vec<u32>,
    /// Pairs of (next use, id), the most distant on top. A pair is outdated, and skipped, if the sample is no longer
    /// cached or has another next use now.
    farthest: BinaryHeap<(u32, u32)>,
}

impl Belady {
    /// Makes an empty cache for the samples of `trace`.
    pub fn new(space: CacheSpace, trace: &AccessTrace) -> Self {
        let ids = trace.samples.len();
        Self { space, places: vec![NOT_CACHED; ids], next: vec![NEVER; ids], farthest: BinaryHeap::new() }
    }

    fn leave(&mut self, id: usize, bytes: f32) {
        self.space.take(std::mem::replace(&mut self.places[id], NOT_CACHED), f64::from(bytes));
    }

    /// Evicts samples until `bytes` fit. Returns false if the sample with the most distant next use is used before
    /// `next`.
    fn make_space(&mut self, trace: &AccessTrace, bytes: f64, next: u32) -> bool {
        while !self.space.has_space(bytes) {
            let Some(&(when, id)) = self.farthest.peek() else { return false };
            let id = id as usize;
            if self.places[id] == NOT_CACHED || self.next[id] != when {
                self.farthest.pop();
            } else if when > next {
                self.farthest.pop();
                self.leave(id, trace.bytes[id]);
            } else {
                return false;
            }
        }
        true
    }
}

impl NodeCache for Belady {
    fn access(&mut self, trace: &AccessTrace, access: usize) -> Option<u8> {
        let id = trace.ids[access] as usize;
        let (bytes, next) = (f64::from(trace.bytes[id]), trace.next[access]);
        let found = held(self.places[id]);
        if found.is_none() && next != NEVER && self.space.fits(bytes) && self.make_space(trace, bytes, next) {
            self.places[id] = self.space.put(bytes).unwrap_or(NOT_CACHED);
        }
        if self.places[id] != NOT_CACHED {
            if next == NEVER {
                self.leave(id, trace.bytes[id]);
            } else {
                self.next[id] = next;
                self.farthest.push((next, id as u32));
            }
        }
        found
    }
}

/// Foreload's cache: it follows the decisions of [`TierPlan`], which evicts samples in groups.
#[derive(Debug)]
pub struct PlannedCache {
    plan: TierPlan,
    rule: RetentionRule,
    capacities: Vec<f64>,
    used: Vec<f64>,
    /// For each id: the group, the batch number and the cache of the sample.
    places: Vec<(GroupId, u32, u8)>,
    batches: BTreeMap<GroupId, GroupBytes>,
    made: u32,
    written: f64,
}

/// The samples of one group that are in the caches. If the group is evicted and gets samples again later, it gets a new
/// `number`, so that entries of `places` with the old number are ignored.
#[derive(Debug)]
struct GroupBytes {
    number: u32,
    bytes: Vec<f64>,
}

impl PlannedCache {
    /// Makes empty caches of `capacities` bytes, the preferred one first, with the retention rule `rule`. The rule's
    /// time unit is one access.
    pub fn new(rule: RetentionRule, capacities: Vec<f64>, trace: &AccessTrace) -> Self {
        Self {
            plan: TierPlan::new(rule, capacities.iter().sum::<f64>() as u64),
            rule,
            used: vec![0.0; capacities.len()],
            capacities,
            places: vec![(0, 0, NOT_CACHED); trace.samples.len()],
            batches: BTreeMap::new(),
            made: 0,
            written: 0.0,
        }
    }

    /// Returns the number of bytes written into the caches so far. A sample that is kept for a later use is written
    /// again, into the group of that use.
    pub fn written(&self) -> f64 {
        self.written
    }

    /// Returns the cache that has the sample with this id; `None` if none has it.
    pub fn find(&self, id: usize) -> Option<u8> {
        let (group, number, cache) = self.places[id];
        held(cache).filter(|_| self.batches.get(&group).is_some_and(|batch| batch.number == number))
    }

    /// Puts a sample into the first cache with enough space. If no cache has enough, takes the cache with the most free
    /// space, because the plan considers only the sum of all caches.
    fn put(&mut self, id: usize, group: GroupId, bytes: f64) {
        let free = |cache: &usize| self.capacities[*cache] - self.used[*cache];
        let caches = 0..self.capacities.len();
        let most = || caches.clone().max_by(|a, b| free(a).total_cmp(&free(b))).unwrap_or(0);
        let cache = caches.clone().find(|cache| free(cache) >= bytes).unwrap_or_else(most);
        let batch = self.batches.entry(group).or_insert_with(|| {
            self.made += 1;
            GroupBytes { number: self.made, bytes: vec![0.0; self.capacities.len()] }
        });
        batch.bytes[cache] += bytes;
        self.written += bytes;
        self.used[cache] += bytes;
        self.places[id] = (group, batch.number, cache as u8);
    }

    fn leave(&mut self, group: GroupId) {
        let Some(batch) = self.batches.remove(&group) else { return };
        self.used.iter_mut().zip(batch.bytes).for_each(|(used, bytes)| *used -= bytes);
    }
}

impl NodeCache for PlannedCache {
    fn access(&mut self, trace: &AccessTrace, access: usize) -> Option<u8> {
        let id = trace.ids[access] as usize;
        let found = self.find(id);
        // With [`RetentionRule::Keep`], a sample is stored only once. Under any other rule, each use moves the sample
        // to the group of its next use.
        if found.is_none() || self.rule != RetentionRule::Keep {
            let next = Some(trace.next[access]).filter(|next| *next != NEVER).map(u64::from);
            let bytes = f64::from(trace.bytes[id]);
            let admission = self.plan.admit(bytes as u64, next, access as u64);
            for group in self.plan.take_evicted() {
                self.leave(group);
            }
            if let Admission::Admit { group } = admission {
                self.put(id, group, bytes);
            }
        }
        found
    }
}
