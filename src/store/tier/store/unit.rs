//! Locks on units of staging. They decide which process stages which shard.

use super::shared::StoreShared;
use base::locks::lock;
use base::node::LockKind;
use std::ops::Range;
use std::sync::Arc;

/// The exclusive right to stage one unit (a shard, by number). It ends when this value is dropped, or with the process.
pub struct UnitLock {
    shared: Arc<StoreShared>,
    unit: u64,
}

impl UnitLock {
    pub(super) fn take(shared: &Arc<StoreShared>, unit: u64) -> Option<Self> {
        let directory = &shared.directory;
        let mut units = lock(&directory.units);
        // The kernel's lock excludes other processes; `units` excludes other locks of this process.
        if !directory.is_ours() || !directory.writable || units.contains(&unit) {
            return None;
        }
        match directory.marker.try_lock(byte(unit), LockKind::Exclusive) {
            Ok(true) => {
                units.insert(unit);
                Some(Self { shared: shared.clone(), unit })
            }
            Ok(false) => None,
            Err(error) => {
                shared.failed(format!("lock unit {unit} of the cache: {error}"));
                None
            }
        }
    }

    /// Returns the number of the unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }
}

impl Drop for UnitLock {
    fn drop(&mut self) {
        let directory = &self.shared.directory;
        if directory.is_ours() {
            lock(&directory.units).remove(&self.unit);
            let _ = directory.marker.unlock(byte(self.unit));
        }
    }
}

/// Returns the byte of the marker file that stands for a unit. Byte 0 marks the dataset as in use.
fn byte(unit: u64) -> Range<u64> {
    unit + 1..unit + 2
}
