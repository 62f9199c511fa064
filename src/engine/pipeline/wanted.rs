//! Which bytes of a sample are wanted, where that is known before they are read: of a packed image the head and the
//! rows of MCUs that its views touch.
//!
//! What is drawn depends on the seed, the epoch, the sample and the image's size alone, and the outlines of packed
//! images are known: an index has those of a packed dataset, and a cache those of what it packed. All of a sample is
//! read where anything but a decoder of packed images sees its bytes: fields beside images, whoever wants files
//! (`decoded=False`, nvJPEG), and the tiers of a cache that are to keep it, because they keep whole samples.

use super::{context::SampleContext, run::EpochRun};
use crate::config::{CpuDecode, Device, FieldContent, ImageField};
use base::parts::{ByteParts, OutlinedBytes};
use data::dataset::{Extent, MemberBytes};
use data::schedule::Draw;
use pixels::decode::packed::PackedOutline;

/// The fewest bytes that are worth leaving out: drives and the page cache give pages of half as many.
const WORTHWHILE: u32 = 8 << 10;

/// The parts of a sample's `extent`, or of its copy in a tier, that all `draws` of it need together by all recipes of a
/// run; `None` where all of it is to be read.
pub(crate) fn wanted_parts(
    run: &EpochRun,
    extent: Extent,
    draws: impl Iterator<Item = Draw>,
) -> Option<(ByteParts, OutlinedBytes)> {
    let context = &run.context;
    if !decodes_rows_alone(context) {
        return None;
    }
    let mut draws = draws.peekable();
    let sample = draws.peek()?.sample;
    let outlined = match context.source.cache.get() {
        // What comes from the source is kept, and so is read whole.
        Some(cache) => cache.outline_of_copy(sample)?,
        None => OutlinedBytes { outline: *context.index.outline(sample)?, length: extent.length },
    };
    let outline = PackedOutline::read(&outlined.outline).filter(|_| outlined.length > WORTHWHILE)?;
    let mut wanted: Option<ByteParts> = None;
    for (draw, run) in draws.flat_map(|draw| run.wanted_runs().map(move |run| (draw, run))) {
        let config = &run.context.config;
        for (image, ImageField { field, .. }) in config.images.list().iter().enumerate() {
            let member = config.fields.list[*field].member?;
            // An image that is another member has bytes of its own.
            if !matches!(context.index.member(sample, member), MemberBytes::Whole) {
                return None;
            }
            // A transform that cannot be done to the image fails where it is decoded.
            let views = run.context.draw_views(&run.keys, image, draw, outline.size(), &[]).ok()?;
            let parts = outline.parts(views.region(), outlined.length)?;
            wanted = Some(wanted.map_or(parts, |others| others.union(parts)));
        }
    }
    let parts = wanted.filter(|parts| outlined.length - parts.bytes() >= WORTHWHILE)?;
    Some((parts, outlined))
}

/// Whether nobody sees the bytes of samples but decoders that look at the wanted rows of packed images alone.
fn decodes_rows_alone(context: &SampleContext) -> bool {
    let config = &context.config;
    let is_image = |content| matches!(content, FieldContent::Images { .. });
    let are_images =
        || config.fields.list.iter().all(|field| field.member.is_none() || is_image(field.content));
    config.decoded
        && match config.device {
            Device::Cpu => are_images(),
            // Where the CPU may not decode what the kernels do not take, nvJPEG gets the file, which is rebuilt of the
            // whole image.
            Device::Cuda { .. } => config.fields.is_image_alone() && config.cpu_decode != CpuDecode::Never,
        }
}
