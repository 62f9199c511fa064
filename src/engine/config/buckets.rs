//! The bucket of each draw: the sizes of all selected images are read from their headers once, when a loader is made.
//!
//! The sizes of packed images are in the index. For any other image, the first bytes of its file or member are read,
//! and the whole only if its header does not end there, or if `orientation="apply"` needs the end of the file.

use super::{LoaderConfig, frames::Bucket};
use base::error::{Error, Result};
use base::threads::caught;
use data::dataset::{DatasetIndex, Extent, MemberBytes};
use data::schedule::BucketTable;
use pixels::decode::packed::PackedHeaderSummary;
use pixels::decode::{Orientation, Turn, image_size, orientation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use store::io::read_blocking;

/// The numbers of bytes at the beginning of an image of which the header is read, before the whole image.
const HEADS: [u32; 2] = [8 << 10, 128 << 10];

/// The first bytes of a JPEG.
const JPEG: [u8; 2] = [0xff, 0xd8];

/// The number of draws that a thread measures at a time.
const RUN: usize = 256;

/// The largest number of threads. They mostly wait for storage.
const MOST_THREADS: usize = 32;

impl LoaderConfig {
    /// Finds the bucket of each draw of an epoch.
    ///
    /// # Errors
    /// [`Error::Config`] if batches have no images.
    pub(super) fn find_buckets(&mut self, index: &DatasetIndex) -> Result<()> {
        let Some(Bucket { sizes, .. }) = &self.bucket else { return Ok(()) };
        let Some(image) = self.images.first() else {
            return Err(Error::config(
                "buckets",
                "are for images, but none of the fields is an image: remove the setting",
            ));
        };
        let member = self.fields.list[self.images.list()[image].field].member.filter(|_| self.decoded);
        let draws = self.selection.draws();
        let draws = u32::try_from(draws).map_err(|_| {
            Error::config("buckets", format!("are for fewer than 2**32 samples, but an epoch draws {draws}"))
        })?;
        // Decoding such an image fails, whatever the size of its batch is.
        let middle = (sizes.list().len() / 2) as u8;
        let unreadable = AtomicU64::new(0);
        let is_applied = self.orientation == Orientation::Apply;
        let bucket = |draw: u64| match shown_size(index, self.selection.member(draw), member, is_applied) {
            Some((width, height)) => sizes.nearest(width, height),
            None => {
                unreadable.fetch_add(1, Ordering::Relaxed);
                middle
            }
        };
        let buckets = measured(draws as usize, self.queue_depth, bucket)?;
        let unreadable = unreadable.into_inner();
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

/// Returns a property of the image of each draw, which up to `most` threads find by `of`.
pub(super) fn measured<T: Copy + Default + Send>(
    draws: usize,
    most: usize,
    of: impl Fn(u64) -> T + Sync,
) -> Result<Vec<T>> {
    let mut all = vec![T::default(); draws];
    let next = AtomicUsize::new(0);
    let threads = most.min(MOST_THREADS).clamp(1, draws / RUN + 1);
    let measure = || {
        let mut found: Vec<(usize, Vec<T>)> = Vec::new();
        loop {
            let first = next.fetch_add(RUN, Ordering::Relaxed);
            if first >= draws {
                return Ok(found);
            }
            let run = first..(first + RUN).min(draws);
            found.push((first, run.map(|draw| of(draw as u64)).collect()));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| caught("measuring images", measure))).collect();
        for worker in workers {
            let ended = |_| Error::Internal("a thread that measures images has ended".into());
            for (first, run) in worker.join().map_err(ended)?? {
                all[first..first + run.len()].copy_from_slice(&run);
            }
        }
        Ok(())
    })?;
    Ok(all)
}

/// Returns the size of the image of a sample, as it is shown if orientations are applied, else as it is stored; `None`
/// if it cannot be read.
pub(super) fn shown_size(
    index: &DatasetIndex,
    sample: u64,
    member: Option<usize>,
    is_applied: bool,
) -> Option<(u32, u32)> {
    let whole = index.extent(sample);
    let extent = match member.map_or(MemberBytes::WholeExtent, |member| index.member(sample, member)) {
        MemberBytes::WholeExtent => {
            if let Some(summary) = index.header_summary(sample).and_then(PackedHeaderSummary::read) {
                match summary.turn() {
                    _ if !is_applied => return Some(summary.size()),
                    Some(turn) => return Some(turn.shown(summary.size())),
                    None => {}
                }
            }
            whole
        }
        MemberBytes::InExtent(range) => {
            Extent { offset: whole.offset + range.start as u64, length: range.len() as u32, ..whole }
        }
        MemberBytes::Separate(extent) => extent,
        MemberBytes::Absent | MemberBytes::Ambiguous => return None,
    };
    let heads = HEADS.into_iter().filter(|head| *head < extent.length).chain([extent.length]);
    let size_in = |length: u32| {
        let bytes = read_blocking(index, Extent { length, ..extent }).ok()?;
        // The orientation is before a JPEG's size, but at the end of other files.
        if is_applied && length < extent.length && !bytes.starts_with(&JPEG) {
            return None;
        }
        let size = image_size(&bytes).ok()?;
        Some(if is_applied { Turn::of_exif(orientation(&bytes)).shown(size) } else { size })
    };
    heads.into_iter().find_map(size_in)
}
