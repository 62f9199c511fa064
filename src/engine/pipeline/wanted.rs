//! Chooses which bytes of a sample are read, where that is known in advance: of a packed image the head and the rows of
//! MCUs that its views touch.
//!
//! The views of an image depend only on the seed, the epoch, the sample and the image's size. The header summaries
//! (outlines) of packed images are known: the index has those of a packed dataset, and a cache has those of the images
//! that it packed. The whole sample is read if anything but a decoder of packed images needs its bytes. That is so for
//! fields other than images, for consumers of files (`decoded=False`, nvJPEG), and for samples that a cache tier is to
//! keep, because tiers keep whole samples.
//!
//! A slot holds the parts at their places in the sample. Code that takes them for the whole sample panics, and the
//! decoder refuses rows that were not read.

use super::{context::SampleContext, run::EpochRun};
use crate::config::{CpuDecode, Device, FieldContent, ImageField};
use base::parts::{SummarizedBytes, WantedBytes};
use data::dataset::{Extent, MemberBytes};
use data::schedule::Draw;
use pixels::decode::packed::PackedHeaderSummary;

/// The fewest bytes that are worth leaving out. Drives and the page cache deliver pages of half this size.
const WORTHWHILE: u32 = 8 << 10;

/// Returns the parts of a sample's `extent`, or of its copy in a tier, that all `draws` need together in all recipes of
/// a run. `None` if the whole sample must be read.
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
        // A sample without a copy comes from the source and will be kept, so it is read whole.
        Some(cache) => cache.summary_of_copy(sample)?,
        None => {
            SummarizedBytes { header_summary: *context.index.header_summary(sample)?, length: extent.length }
        }
    };
    let header_summary =
        PackedHeaderSummary::read(&summarized.header_summary).filter(|_| summarized.length > WORTHWHILE)?;
    let mut wanted: Option<WantedBytes> = None;
    for draw in draws {
        let config = &context.config;
        for (image, ImageField { field, .. }) in config.images.list().iter().enumerate() {
            let member = config.fields.list[*field].member?;
            // An image that is one of several members has bytes of its own.
            if !matches!(context.index.member(sample, member), MemberBytes::Whole) {
                return None;
            }
            // A transform that does not fit the image fails when the image is decoded.
            let views = context.draw_views(&run.keys, image, draw, header_summary.size(), &[]).ok()?;
            let parts = header_summary.parts(views.region(), summarized.length)?;
            wanted = Some(wanted.map_or(parts, |others| others.union(parts)));
        }
    }
    let parts = wanted.filter(|parts| summarized.length - parts.bytes() >= WORTHWHILE)?;
    Some((parts, summarized))
}

/// Returns whether only decoders that need nothing but the wanted rows of packed images see the bytes of samples.
fn reads_only_wanted_rows(context: &SampleContext) -> bool {
    let config = &context.config;
    let is_image = |content| matches!(content, FieldContent::Images { .. });
    let are_images =
        || config.fields.list.iter().all(|field| field.member.is_none() || is_image(field.content));
    config.decoded
        && match config.device {
            Device::Cpu => are_images(),
            // If the CPU may not decode what the kernels do not take, nvJPEG gets the file, which is rebuilt from the
            // whole image.
            Device::Cuda { .. } => config.fields.is_image_alone() && config.cpu_decode != CpuDecode::Never,
        }
}
