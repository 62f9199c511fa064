//! A cache of lookup tables for recently seen Huffman codes.

use std::sync::Arc;

use super::huffman::{AcTable, DcTable, MAX_AC_SIZE, Spec};
use super::pairs::PairTable;
use base::error::DecodeError;

/// The most recently built tables. Files with the codes of annex K share tables. Nearly all photographs of ImageNet
/// have their own codes, so tables are built for each file and replace the oldest tables.
#[derive(Debug, Default)]
pub(super) struct TableCache {
    dc: Recent<DcTable>,
    ac: Recent<AcTable>,
    pairs: Recent<PairTable>,
}

impl TableCache {
    pub(super) fn dc(&mut self, spec: &Spec) -> Result<Arc<DcTable>, DecodeError> {
        Ok(self.dc.get(spec.check_dc()?, DcTable::new))
    }

    pub(super) fn ac(&mut self, spec: &Spec) -> Arc<AcTable> {
        self.ac.get(spec, |spec| AcTable::new(spec, MAX_AC_SIZE))
    }

    pub(super) fn pairs(&mut self, spec: &Spec) -> Arc<PairTable> {
        self.pairs.get(spec, PairTable::new)
    }
}

#[derive(Debug)]
struct Recent<T>(Vec<(Spec, Arc<T>)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Recent<T> {
    const CAPACITY: usize = 8;

    fn get(&mut self, spec: &Spec, build: impl FnOnce(&Spec) -> T) -> Arc<T> {
        let at = self.0.iter().position(|(known, _)| known == spec).unwrap_or_else(|| {
            self.0.truncate(Self::CAPACITY - 1);
            self.0.push((spec.clone(), Arc::new(build(spec))));
            self.0.len() - 1
        });
        self.0[..=at].rotate_right(1);
        self.0[0].1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_returns_what_it_built_and_forgets_the_oldest() {
        let mut cache = TableCache::default();
        let spec = |symbol| Spec::new([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[symbol]).unwrap();
        let first = cache.ac(&spec(1));
        assert!(Arc::ptr_eq(&first, &cache.ac(&spec(1))));
        for symbol in 2..=9 {
            cache.ac(&spec(symbol));
        }
        assert!(!Arc::ptr_eq(&first, &cache.ac(&spec(1))));
        assert!(cache.dc(&spec(16)).is_err());
    }
}
