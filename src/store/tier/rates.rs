//! The speed of tiers, for plans: measured on a machine, or given by a scenario.

use serde::{Deserialize, Serialize};

/// The rates at which one tier gives and takes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRates {
    /// Seconds until a file is open. Each file is opened once, so a shard with many samples costs this time only once.
    pub open_seconds: f64,
    /// Seconds from the request for bytes until the first byte arrives.
    pub read_seconds: f64,
    /// The number of requests that the tier serves concurrently.
    pub concurrency: f64,
    /// Bytes per second that the tier gives to all readers together.
    pub read_bandwidth: f64,
    /// Bytes per second that the tier takes; 0 if nothing is written to it.
    #[serde(default)]
    pub write_bandwidth: f64,
}

/// The rates of a machine that decide how long an epoch takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The tier that the dataset is on.
    pub source: TierRates,
    /// The tier that the cache is on.
    pub nvme: TierRates,
    /// Bytes of encoded samples per second that all workers together decode and augment.
    pub decode_bandwidth: f64,
}

impl TierRates {
    /// Returns the minimum time in seconds until `files` files (or extents of open shards) of `bytes` in total arrive
    /// in random order. If `opens`, each file must be opened first. The limits are the concurrency and the bandwidth.
    pub fn random_seconds(&self, files: u64, bytes: u64, opens: bool) -> f64 {
        let latency = self.read_seconds + if opens { self.open_seconds } else { 0.0 };
        let waiting = files as f64 * latency / self.concurrency.max(1.0);
        waiting.max(bytes as f64 / self.read_bandwidth)
    }

    /// Returns the minimum time in seconds until `bytes` arrive in reads of `read_bytes` bytes.
    pub fn sequential_seconds(&self, bytes: u64, read_bytes: u64) -> f64 {
        self.random_seconds(bytes.div_ceil(read_bytes.max(1)), bytes, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_wait_and_large_ones_stream() {
        let pfs = TierRates {
            open_seconds: 2e-3,
            read_seconds: 1e-3,
            concurrency: 16.0,
            read_bandwidth: 1e9,
            write_bandwidth: 0.0,
        };
        // 16 files of 3 ms each, concurrently.
        assert!((pfs.random_seconds(16, 16 * 4096, true) - 3e-3).abs() < 1e-9);
        assert!((pfs.sequential_seconds(1 << 30, 8 << 20) - (1u64 << 30) as f64 / 1e9).abs() < 1e-9);
    }
}
