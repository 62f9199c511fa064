//! Which samples go into which shard.

use crate::dataset::DatasetIndex;
use crate::dataset::packed::MAX_SHARDS;
use base::error::{Error, Result};
use std::ops::Range;

/// Maximum number of samples of a shard. It keeps the footer small if files are tiny.
const MAX_SAMPLES: u64 = 1 << 18;

/// Returns the samples of each shard, in order: as many as fit into `shard_size` bytes of the source, and at least one.
/// The result depends only on the index and `shard_size`, so resumed runs make the same shards.
///
/// # Errors
/// [`Error::Config`] for more shards than there are names.
pub(super) fn shards(index: &DatasetIndex, shard_size: u64) -> Result<Vec<Range<u64>>> {
    let mut shards = Vec::new();
    let (mut first, mut bytes) = (0, 0u64);
    for sample in 0..index.len() {
        let own = index.packing_bytes(sample);
        if sample > first && (bytes.saturating_add(own) > shard_size || sample - first == MAX_SAMPLES) {
            shards.push(first..sample);
            (first, bytes) = (sample, 0);
        }
        bytes = bytes.saturating_add(own);
    }
    if first < index.len() {
        shards.push(first..index.len());
    }
    if shards.len() > MAX_SHARDS {
        let message =
            format!("would make {} shards, but at most {MAX_SHARDS} are possible: raise it", shards.len());
        return Err(Error::config("shard-size", message));
    }
    Ok(shards)
}
