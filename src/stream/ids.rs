//! Hash tables and sets keyed by sample ids. Ids are hashes already, so they are used as hash values unchanged.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher that returns the id itself.
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

/// A table keyed by sample ids.
pub(super) type IdTable<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;
/// A set of sample ids.
pub(super) type IdSet = HashSet<u64, BuildHasherDefault<IdHasher>>;
