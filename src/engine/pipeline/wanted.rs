//! Chooses which bytes of a sample are read, if only some are needed. For a packed image, these are the header and the
//! rows of MCUs that its views touch.
//!
//! The views of an image depend only on the seed, the epoch, the sample and the image's size. The header summaries of
//! packed images are known before the read: the index has the summaries of a packed dataset, and a cache has the
//! summaries of the images that it packed. The whole sample is read if anything but a decoder of packed images needs
//! its bytes. That is so for fields other than images, for consumers of files (`decoded=False`, nvJPEG), and for
//! samples that a cache tier will keep, because tiers keep whole samples.
//!
//! A slot holds each part at its offset in the sample. Code that uses the slot as the whole sample panics, and the
//! decoder refuses rows that were not read.
//!
//! With `orientation="apply"`, images are read in parts only if their header summary says that they are stored upright:
//! the orientation of other images is in the last bytes of a packed image, which are not read with the parts.

use super::{context::SampleContext, notify, run::EpochRun};
use crate::config::{CpuDecode, Device, FieldContent, ImageField};
use base::parts::{SummarizedBytes, WantedBytes};
use data::dataset::{Extent, MemberBytes};
use data::schedule::Draw;
use pixels::augment::ImageToDraw;
use pixels::decode::packed::PackedHeaderSummary;
use pixels::decode::{Orientation, Turn};

/// The smallest number of bytes that is worth leaving out of a read. Drives and the page cache deliver pages of half
/// this size.
const WORTHWHILE: u32 = 8 << 10;

/// Returns the parts of a sample's `extent`, or of its copy in a tier, that all `draws` need together. `None` if the
/// whole sample must be read.
pub(crate) fn wanted_parts(
    run: &EpochRun,
    extent: Extent,
    draws: impl Iterator<Item = Draw>,
) -> Option<(WantedBytes, SummarizedBytes)> {
    let context = &run.context;
    if !reads_only_wanted_rows(context) {
        return None;
    }
    let mut draws = draws.peekable();
    let sample = draws.peek()?.sample;
    let summarized = match context.source.cache.get() {
        // A sample that no tier holds yet is read from the source and then kept in a tier, so it is read whole.
        Some(cache) => cache.summary_of_copy(sample)?,
        None => {
            SummarizedBytes { header_summary: *context.index.header_summary(sample)?, length: extent.length }
        }
    };
    let header_summary =
        PackedHeaderSummary::read(&summarized.header_summary).filter(|_| summarized.length > WORTHWHILE)?;
    let is_turned = header_summary.turn() != Some(Turn::UPRIGHT);
    match (context.config.orientation, header_summary.turn()) {
        (Orientation::Apply, _) if is_turned => return None,
        (Orientation::Warn, Some(turn)) if is_turned => notify::rotated(context, 0, sample, turn.exif()),
        _ => {}
    }
    let mut wanted: Option<WantedBytes> = None;
    for draw in draws {
        let config = &context.config;
        for (image, ImageField { field, .. }) in config.images.list().iter().enumerate() {
            let member = config.fields.list[*field].member?;
            // An image that is one of several members is not the whole sample, and is not read in parts.
            if !matches!(context.index.member(sample, member), MemberBytes::WholeExtent) {
                return None;
            }
            // A transform that does not fit the image fails when the image is decoded.
            let of = ImageToDraw { stored: header_summary.size(), turn: Turn::UPRIGHT, boxes: &[] };
            let views = context.draw_views(&run.keys, image, draw, &of).ok()?;
            let parts = header_summary.parts(views.region(), summarized.length)?;
            wanted = Some(wanted.map_or(parts, |others| others.union(parts)));
        }
    }
    let parts = wanted.filter(|parts| summarized.length - parts.bytes() >= WORTHWHILE)?;
    Some((parts, summarized))
}

/// Returns whether the bytes of samples go only to decoders that need only the wanted rows of packed images.
fn reads_only_wanted_rows(context: &SampleContext) -> bool {
    let config = &context.config;
    let is_image = |content| matches!(content, FieldContent::Images { .. });
    let are_images =
        || config.fields.list.iter().all(|field| field.member.is_none() || is_image(field.content));
    config.decoded
        && match config.device {
            Device::Cpu => are_images(),
            // If the CPU may not decode images that the kernels refuse, nvJPEG gets the file, which is rebuilt from the
            // whole image.
            Device::Cuda { .. } => config.fields.is_image_alone() && config.cpu_decode != CpuDecode::Never,
        }
}
