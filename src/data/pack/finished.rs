//! Checks a packed dataset that is already finished: whether the packed dataset and its source are unchanged.

use super::PackOptions;
use super::open_shard::OpenPackedShard;
use super::place::PackingRecord;
use super::threads::each_job;
use crate::dataset::DatasetIndex;
use crate::dataset::packed::{PackedManifest, shard_name};
use crate::source;
use base::error::{Error, Result};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Returns the manifest of an existing packed dataset, if it was packed from this source and neither has changed since.
/// Reads only the footers of the shards. Image checksums are checked when images are read.
///
/// # Errors
/// [`Error::Dataset`] if the dataset was packed from another source, if files of the source were written since then,
/// and if a shard is missing or damaged. [`Error::Io`] if a file of the source cannot be inspected.
pub(super) fn finished(
    options: &PackOptions,
    index: &DatasetIndex,
    record: &PackingRecord,
) -> Result<PackedManifest> {
    let into = &options.into;
    let manifest = PackedManifest::find(&*source::at(into)?)?
        .filter(|manifest| manifest.fingerprint == record.fingerprint);
    let manifest = manifest.filter(|manifest| manifest.tally.samples == index.len()).ok_or_else(|| {
        let message = "contains another packed dataset, or the source has changed since it was packed: remove it, or \
                       choose another directory";
        Error::dataset(into, message)
    })?;
    let shards: Vec<_> = (0..manifest.shards.len()).map(|number| manifest.samples_of(number)).collect();
    refuse_changed(options, index, &shards, shard_name, |number| {
        OpenPackedShard::open(into, &manifest, number)?;
        Ok(manifest.shards[number].stamps.clone())
    })?;
    warn(options, index, &manifest);
    Ok(manifest)
}

/// Fails if a shard is incomplete, or if a source file was written after the shard was made. `shards` has the samples
/// of each shard. `look(i)` checks shard `i`, and returns the digest of its source stamps, if it is known.
///
/// # Errors
/// [`Error::Dataset`] for such shards, [`Error::Io`] if a file of the source cannot be inspected.
pub(super) fn refuse_changed(
    options: &PackOptions,
    index: &DatasetIndex,
    shards: &[Range<u64>],
    name: fn(usize) -> String,
    look: impl Fn(usize) -> Result<Option<String>> + Sync,
) -> Result<()> {
    let into = &options.into;
    let numbers: Vec<usize> = (0..shards.len()).collect();
    let changed: Mutex<Vec<usize>> = Mutex::default();
    let not_whole = |error| {
        let message = format!(
            "was finished, but is no longer intact ({error}): remove it and pack again, or choose another directory"
        );
        Error::dataset(into, message)
    };
    each_job(
        options.threads,
        &numbers,
        || (),
        |(), &number, stop| {
            stop.check()?;
            if let Some(stamps) = look(number).map_err(not_whole)?
                && stamps != index.packing_stamps(shards[number].clone())?
            {
                changed.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            }
            Ok(())
        },
    )?;
    let mut changed = changed.into_inner().unwrap_or_else(PoisonError::into_inner);
    changed.sort_unstable();
    let Some(&number) = changed.first() else { return Ok(()) };
    let samples = &shards[number];
    let path = |sample| index.path(index.extent(sample).file);
    let message = format!(
        "is finished, but source files of {} shards were written or replaced since they were packed, first those of \
         {} ({} to {}): remove it and pack again, or choose another directory; if the files were only touched or \
         copied, it can be used unchanged",
        changed.len(),
        name(number),
        path(samples.start).display(),
        path(samples.end.saturating_sub(1)).display(),
    );
    Err(Error::dataset(into, message))
}

/// Warns if the source stamps are unknown, or if the shards were packed with another shard size than requested.
fn warn(options: &PackOptions, index: &DatasetIndex, manifest: &PackedManifest) {
    let notices = index.notices();
    let into = options.into.display();
    if manifest.shards.iter().any(|shard| shard.stamps.is_none()) {
        notices.warn_once("packed without stamps", || {
            format!(
                "{into} was packed by an older version, which did not record when the source files were written: \
                 changes since then that kept a file's size cannot be detected; to be sure, pack into another \
                 directory"
            )
        });
    }
    let (then, now) = (manifest.shard_size, options.shard_size);
    if then != now {
        notices.warn_once("packed with another shard size", || {
            format!(
                "{into} was packed with --shard-size {then}, not {now}, and stays unchanged: for other shards, remove \
                 it and pack again, or choose another directory"
            )
        });
    }
}
