//! Checks that the file system has space for the output.

use super::PackOptions;
use crate::dataset::DatasetIndex;
use base::error::{Error, Result};
use std::ops::Range;

/// Checks that there is space for the `missing` shards: `times` the bytes of their samples, plus `per_sample` bytes per
/// sample.
///
/// # Errors
/// [`Error::Config`] if there is too little space, except if [`PackOptions::force`] is set.
pub(super) fn check(
    index: &DatasetIndex,
    shards: &[Range<u64>],
    missing: &[usize],
    (times, per_sample): (f64, u64),
    options: &PackOptions,
) -> Result<()> {
    let samples = missing.iter().flat_map(|&number| shards[number].clone());
    let bytes = |(count, bytes), sample| (count + 1, bytes + index.packing_bytes(sample));
    let (count, bytes): (u64, u64) = samples.fold((0, 0), bytes);
    let wanted = (times * bytes as f64) as u64 + per_sample * count;
    let path = &options.into;
    // If the file system does not report its free space, write until it is full.
    let Ok(found) = rustix::fs::statvfs(path) else { return Ok(()) };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free < wanted && !options.force {
        let message = format!(
            "{} has {free} bytes free, but packing may need {wanted} ({times} times the {bytes} bytes still to be \
             packed, plus {per_sample} bytes a sample): free some space, choose another directory, or use --force",
            path.display()
        );
        return Err(Error::config("DST", message));
    }
    Ok(())
}
