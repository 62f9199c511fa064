//! The sizes of images, read from their headers: for buckets, and for the samples that `where` chooses.

use base::error::Result;
use base::threads::caught;
use data::dataset::image_sizes::{ImageSizes, MeasuredSize, Measuring};
use data::dataset::{DatasetIndex, Extent, MemberBytes, SampleSet};
use pixels::decode::packed::PackedHeaderSummary;
use pixels::decode::{Turn, image_size, orientation};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::io::read_beginning;

/// The numbers of bytes at the beginning of an image of which the header is read, before the whole image.
const HEADS: [u32; 2] = [8 << 10, 128 << 10];

/// The first bytes of a JPEG.
const JPEG: [u8; 2] = [0xff, 0xd8];

/// The largest number of threads that read headers. They mostly wait for storage.
const MOST_THREADS: usize = 32;

/// How the headers of images are read.
#[derive(Debug, Clone)]
pub struct HeaderReading {
    /// The member of each sample that is the image (see [`DatasetIndex::member`]).
    pub member: Option<usize>,
    /// Whether orientations are applied.
    pub is_applied: bool,
    /// The number of reads at a time.
    pub queue_depth: usize,
    /// Whether stored sizes are measured again.
    pub rebuild: bool,
    /// Whether a progress bar is shown on stderr, if stderr is a terminal.
    pub progress: bool,
    /// Ends the reading early.
    pub cancel: Arc<AtomicBool>,
}

impl HeaderReading {
    /// Returns the sizes of the images in `index`, or of those in `wanted`. Only images whose sizes are not stored next
    /// to the index are read.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::image_sizes`].
    pub fn sizes(&self, index: &DatasetIndex, wanted: Option<&SampleSet>) -> Result<ImageSizes> {
        let measure = |sample| {
            let size = caught("reading the header of an image", || Ok(self.measure(index, sample)));
            size.unwrap_or(MeasuredSize::UNREADABLE)
        };
        let measuring = Measuring {
            wanted,
            is_applied: self.is_applied,
            measure: &measure,
            threads: self.threads(),
            rebuild: self.rebuild,
            progress: self.progress,
            cancel: &self.cancel,
        };
        index.image_sizes(self.member, &measuring)
    }

    /// Returns the number of threads that read headers.
    pub fn threads(&self) -> usize {
        self.queue_depth.clamp(1, MOST_THREADS)
    }

    /// The size of packed images is in the index. Of any other image, the first bytes of its file or member are read,
    /// and the whole only if its header does not end there, or if its orientation may be stored at the end.
    fn measure(&self, index: &DatasetIndex, sample: u64) -> MeasuredSize {
        let whole = index.extent(sample);
        let found = self.member.map_or(MemberBytes::WholeExtent, |member| index.member(sample, member));
        let extent = match found {
            MemberBytes::WholeExtent => {
                if let Some(summary) = index.header_summary(sample).and_then(PackedHeaderSummary::read)
                    && (summary.turn().is_some() || !self.is_applied)
                {
                    return MeasuredSize::new(summary.size(), summary.turn().map(Turn::transposes));
                }
                whole
            }
            MemberBytes::InExtent(range) => {
                Extent { offset: whole.offset + range.start as u64, length: range.len() as u32, ..whole }
            }
            MemberBytes::Separate(extent) => extent,
            MemberBytes::Absent | MemberBytes::Ambiguous => return MeasuredSize::UNREADABLE,
        };
        let heads = HEADS.into_iter().filter(|head| *head < extent.length).chain([extent.length]);
        for length in heads {
            // An image that cannot be read now may be readable at the next start.
            let Ok(bytes) = read_beginning(index, extent, length) else { return MeasuredSize::UNKNOWN };
            // The orientation is before a JPEG's size, but may be at the end of other files.
            let has_orientation = bytes.len() == extent.length as usize || bytes.starts_with(&JPEG);
            if let Ok(size) = image_size(&bytes)
                && (has_orientation || !self.is_applied)
            {
                let is_transposed = || Turn::of_exif(orientation(&bytes)).transposes();
                return MeasuredSize::new(size, has_orientation.then(is_transposed));
            }
        }
        MeasuredSize::UNREADABLE
    }
}
