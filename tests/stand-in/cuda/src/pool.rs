//! The bookkeeping of memory pools.

use crate::status::{OUT_OF_MEMORY, Status};

/// The size of the chunks in which the driver reserves memory.
const CHUNK: u64 = 2 << 20;

/// A pool of one device.
#[derive(Debug)]
pub struct Pool {
    pub device: i32,
    /// The most bytes that the pool may reserve; 0 means the memory of the device.
    pub most: u64,
    pub threshold: u64,
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    /// Whether it was destroyed; some of its memory may still be in use.
    pub destroyed: bool,
}

impl Pool {
    pub fn new(device: i32, most: u64) -> Self {
        Self {
            device,
            most,
            threshold: 0,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            destroyed: false,
        }
    }

    /// Takes `bytes` of a device that has `left` unreserved bytes.
    pub fn take(&mut self, bytes: u64, left: u64) -> Result<(), Status> {
        let used = self.used.checked_add(bytes).ok_or(OUT_OF_MEMORY)?;
        let reserved = self.reserved.max(used.next_multiple_of(CHUNK));
        if reserved - self.reserved > left || (self.most != 0 && reserved > self.most) {
            return Err(OUT_OF_MEMORY);
        }
        self.used = used;
        self.used_high = self.used_high.max(used);
        self.reserved = reserved;
        self.reserved_high = self.reserved_high.max(reserved);
        Ok(())
    }

    /// Takes bytes back. Memory above the threshold is released to the system at once.
    pub fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
        let kept = self.used.next_multiple_of(CHUNK).max(self.threshold);
        self.reserved = self.reserved.min(kept);
        if self.destroyed {
            self.reserved = self.used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_what_its_threshold_says() {
        let mut pool = Pool::new(0, 0);
        pool.take(3 << 20, 1 << 30).unwrap();
        assert_eq!((pool.used, pool.reserved), (3 << 20, 4 << 20));
        pool.give_back(3 << 20);
        assert_eq!((pool.used, pool.reserved, pool.reserved_high), (0, 0, 4 << 20));
        pool.threshold = u64::MAX;
        pool.take(3 << 20, 1 << 30).unwrap();
        pool.give_back(3 << 20);
        assert_eq!((pool.used, pool.reserved), (0, 4 << 20));
        assert_eq!(pool.take(8 << 20, 1 << 20), Err(OUT_OF_MEMORY));
        pool.most = 4 << 20;
        assert_eq!(pool.take(5 << 20, 1 << 30), Err(OUT_OF_MEMORY));
    }
}
