//! Hash tables and sets keyed by sample ids. Ids are hashes already, so they are used as hash values unchanged.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

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

pub(super) type IdTable<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;
pub(super) type IdSet = HashSet<u64, BuildHasherDefault<IdHasher>>;
