//! The flag `foreload index --decode`: every image is read and decoded whole, on all processors, and damaged ones are
//! listed.

use crate::cli::output;
use crate::config::LoaderOptions;
use crate::dataset::DatasetIndex;
use crate::decode::{Damaged as Handling, Decoder, Planes, Region};
use crate::error::{Error, Result};
use crate::io::read_blocking;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The number of samples that a thread takes at a time. They are neighbours, so that shards are read in order.
const AT_ONCE: u64 = 16;

/// The damaged images of a dataset, each list by number.
#[derive(Debug, Serialize)]
pub(super) struct DamagedImages {
    /// The images that cannot become part of a batch.
    pub(super) damaged: Vec<DamagedImage>,
    /// The images that become part of a batch nevertheless, unless `damaged="refuse"` is asked for.
    pub(super) concealed: Vec<DamagedImage>,
}

/// A damaged image.
#[derive(Debug, Serialize)]
pub(super) struct DamagedImage {
    /// The image's number in the index.
    sample_id: u64,
    /// The image's file, or the shard that holds it.
    path: PathBuf,
    /// The offset of the image's bytes in that file.
    offset: u64,
    /// The number of the image's bytes.
    bytes: u32,
    /// What is wrong with the image.
    reason: String,
}

impl DamagedImage {
    /// Describes the image in one line.
    pub(super) fn describe(&self) -> String {
        format!("{}, bytes {}+{}: {}", self.path.display(), self.offset, self.bytes, self.reason)
    }
}

/// Finds the images of `index` that cannot be read or decoded whole.
///
/// # Errors
/// [`Error::Unavailable`] if no thread can be started.
pub(super) fn damaged(index: &DatasetIndex, threads: usize) -> Result<DamagedImages> {
    let bar = output::bar(index.len(), "images decoded");
    let (next, found) = (AtomicU64::new(0), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        let max_pixels = LoaderOptions::default().max_pixels;
        let mut decoder = Decoder::new(max_pixels).with_damaged(Handling::Conceal);
        let mut planes = Planes::default();
        loop {
            let first = next.fetch_add(AT_ONCE, Relaxed);
            let block = first..index.len().min(first.saturating_add(AT_ONCE));
            if block.is_empty() {
                return;
            }
            for sample in block {
                let decoded = decode(index, sample, &mut decoder, &mut planes);
                let found = || found.lock().unwrap_or_else(PoisonError::into_inner);
                match decoded {
                    Ok(None) => {}
                    Ok(Some(reason)) => found().1.push(describe(index, sample, reason)),
                    Err(error) => found().0.push(describe(index, sample, error.to_string())),
                }
                bar.inc(1);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..threads.max(1) {
            let thread = std::thread::Builder::new().name(format!("foreload-decode-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                // Fewer threads do the same work, but none cannot.
                return if number == 0 {
                    Err(Error::Unavailable(format!("no thread could be started: {error}")))
                } else {
                    Ok(())
                };
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let (mut damaged, mut concealed) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    for list in [&mut damaged, &mut concealed] {
        list.sort_unstable_by_key(|one: &DamagedImage| one.sample_id);
    }
    Ok(DamagedImages { damaged, concealed })
}

/// Decodes an image; returns what was concealed if it is damaged and can be decoded.
fn decode(
    index: &DatasetIndex,
    sample: u64,
    decoder: &mut Decoder,
    planes: &mut Planes,
) -> Result<Option<String>> {
    let bytes = read_blocking(index, index.extent(sample))?;
    Ok(decoder.decode(&bytes, |width, height| Region { x: 0, y: 0, width, height }, planes)?.concealed)
}

fn describe(index: &DatasetIndex, sample: u64, reason: String) -> DamagedImage {
    let extent = index.extent(sample);
    DamagedImage {
        sample_id: sample,
        path: index.path(extent.file),
        offset: extent.offset,
        bytes: extent.length,
        reason,
    }
}
