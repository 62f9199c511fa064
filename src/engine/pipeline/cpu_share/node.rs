//! Counts the loaders of this user on this node that share the processors.
//!
//! While an epoch runs, each loader locks one byte of a file that all loaders open. The kernel drops the lock when the
//! process and its forked children have exited, so a killed loader is not counted.

use base::error::Result;
use base::node::{LockKind, RangeLocks, RuntimeDirectory};
use std::ops::Range;

const PURPOSE: &str = "cpu";
const FILE: &str = "loaders";

const LOCK_BYTES: Range<u64> = 0..1 << 16;

#[derive(Default)]
pub(super) struct NodeMembership {
    /// The lock file, opened at the first use; `Some(None)` if there is no directory for it.
    locks: Option<Option<RangeLocks>>,
    lock_byte: Option<Range<u64>>,
}

impl NodeMembership {
    /// Returns the lock file. If there is none, passes the reason to `unavailable`.
    fn locks(&mut self, unavailable: &dyn Fn(&str)) -> Option<&RangeLocks> {
        let open = || -> Result<RangeLocks> { RuntimeDirectory::open(PURPOSE)?.locks(FILE) };
        let opened = self.locks.get_or_insert_with(|| match open() {
            Ok(locks) => Some(locks),
            Err(error) => {
                unavailable(&error.to_string());
                None
            }
        });
        opened.as_ref()
    }

    /// Joins the loaders that share the processors. Returns their number, including this loader. If nothing can be
    /// locked, returns 1.
    pub(super) fn share(&mut self, unavailable: &dyn Fn(&str)) -> u32 {
        let mut lock_byte = self.lock_byte.clone();
        let Some(locks) = self.locks(unavailable) else { return 1 };
        let Ok(mut others) = locks.locked_by_others(LOCK_BYTES) else { return 1 };
        if lock_byte.is_none() {
            others.sort_by_key(|range| range.start);
            let taken = |at: u64| others.iter().any(|range| range.contains(&at));
            let mut free = LOCK_BYTES.filter(|at| !taken(*at)).map(|at| at..at + 1);
            // Another loader may lock the byte first.
            lock_byte = free
                .find(|lock_byte| locks.try_lock(lock_byte.clone(), LockKind::Exclusive).unwrap_or(false));
            others = locks.locked_by_others(LOCK_BYTES).unwrap_or(others);
        }
        self.lock_byte = lock_byte;
        let seats: u64 = others.iter().map(|range| range.end - range.start).sum();
        u32::try_from(seats).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn leave(&mut self) {
        if let (Some(lock_byte), Some(Some(locks))) = (self.lock_byte.take(), &self.locks) {
            let _ = locks.unlock(lock_byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    fn place(path: &Path) -> NodeMembership {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        NodeMembership { locks: Some(Some(RangeLocks::new(file.unwrap()))), ..NodeMembership::default() }
    }

    #[test]
    fn all_that_share_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let (mut one, mut two, mut three) = (place(&path), place(&path), place(&path));
        let never = |why: &str| panic!("{why}");
        assert_eq!((one.share(&never), two.share(&never), three.share(&never)), (1, 2, 3));
        assert_eq!((one.share(&never), two.share(&never)), (3, 3));
        one.leave();
        assert_eq!((two.share(&never), three.share(&never)), (2, 2));
        drop(two);
        assert_eq!((three.share(&never), one.share(&never), three.share(&never)), (1, 2, 2));
    }

    #[test]
    fn a_loader_without_locks_counts_as_alone() {
        let mut place = NodeMembership { locks: Some(None), ..NodeMembership::default() };
        assert_eq!(place.share(&|_| {}), 1);
        place.leave();
    }
}
