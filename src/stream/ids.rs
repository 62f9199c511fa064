//! Tables and sets by samples' ids. These are bits of hashes already, so that nothing is gained by hashing them again.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Takes an id for its hash.
#[derive(Debug, Clone, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        unreachable!("{} bytes are no id", bytes.len());
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A table by ids.
pub(super) type IdTable<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;
/// A set of ids.
pub(super) type IdSet = HashSet<u64, BuildHasherDefault<IdHasher>>;
