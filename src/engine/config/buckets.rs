//! The bucket of each draw, by the size of its image.

use super::image_sizes::HeaderReading;
use super::{LoaderConfig, frames::Bucket};
use base::error::{Error, Result};
use data::dataset::{DatasetIndex, SampleSet};
use data::schedule::{BucketSizes, BucketTable, Selection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The bucket of an image of unknown size.
const NONE: u8 = u8::MAX;

impl LoaderConfig {
    /// Finds the bucket of each draw of an epoch.
    ///
    /// # Errors
    /// [`Error::Config`] if batches have no images, and the errors of [`HeaderReading::sizes`].
    pub(super) fn find_buckets(
        &mut self,
        index: &DatasetIndex,
        reading: Option<&HeaderReading>,
    ) -> Result<()> {
        let Some(Bucket { sizes, .. }) = &self.bucket else { return Ok(()) };
        let without = || {
            Error::config("buckets", "are for images, but none of the fields is an image: remove the setting")
        };
        let reading = reading.ok_or_else(without)?;
        let draws = self.selection.draws();
        if draws > u64::from(u32::MAX) {
            let message = format!("are for fewer than 2**32 samples, but an epoch draws {draws}");
            return Err(Error::config("buckets", message));
        }
        let mut buckets = of_draws(&self.selection, of_samples(index, reading, sizes, &self.selection)?);
        // Decoding such an image fails, whatever the size of its batch is.
        let middle = (sizes.list().len() / 2) as u8;
        let mut unreadable = 0;
        for bucket in buckets.iter_mut().filter(|bucket| **bucket == NONE) {
            *bucket = middle;
            unreadable += 1;
        }
        if unreadable > 0 {
            index.notices().warn_once("buckets", || {
                format!(
                    "buckets: the sizes of {unreadable} of {draws} images cannot be read; they are in batches of the \
                     middle size, where decoding them fails (see on_error)"
                )
            });
        }
        let text: String =
            sizes.list().iter().map(|size| format!("{}x{} ", size.width, size.height)).collect();
        let table = BucketTable::new(buckets, sizes.list().len(), text.as_bytes());
        self.bucket_table = Some(Arc::new(table));
        Ok(())
    }
}

pub(super) fn set_of(samples: impl Iterator<Item = u32>, index: &DatasetIndex) -> SampleSet {
    let mut set = SampleSet::among(index.len());
    samples.for_each(|sample| _ = set.insert(sample));
    set
}

/// Returns the bucket of each sample of the dataset; [`NONE`] for samples of unknown size.
fn of_samples(
    index: &DatasetIndex,
    reading: &HeaderReading,
    sizes: &BucketSizes,
    selection: &Selection,
) -> Result<Vec<u8>> {
    let members = || (0..selection.members()).map(|number| selection.member(number) as u32);
    let wanted = (selection.members() < index.len()).then(|| set_of(members(), index));
    let measured = reading.sizes(index, wanted.as_ref())?;
    let buckets: Vec<AtomicU8> = (0..index.len()).map(|_| AtomicU8::new(NONE)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    measured.for_each_chunk(threads, |first, chunk| {
        for (size, bucket) in chunk.iter().zip(&buckets[first as usize..]) {
            if let Some((width, height)) = size.shown(reading.is_applied) {
                bucket.store(sizes.nearest(width, height), Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    Ok(buckets.into_iter().map(AtomicU8::into_inner).collect())
}

fn of_draws(selection: &Selection, of_samples: Vec<u8>) -> Vec<u8> {
    if selection.digest().is_none() {
        return of_samples;
    }
    (0..selection.draws()).map(|draw| of_samples[selection.member(draw) as usize]).collect()
}
