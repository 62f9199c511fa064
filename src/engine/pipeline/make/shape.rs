//! The shapes of images in batches of buckets, on which networks are conditioned.

use crate::batch::Ticket;
use crate::config::LoaderConfig;
use pixels::augment::{Axis, DrawnView, DrawnViews};

/// Writes the original size of an image (height, width), and the place of its first view (top, left) in the resized
/// image, if it is the first image of a batch of a bucket. Both are zero for an image that the sample lacks.
pub(super) fn write_shape(
    config: &LoaderConfig,
    image: usize,
    drawn: Option<&DrawnViews>,
    ticket: &mut Ticket,
) {
    let Some([size, crop]) = config.bucket.as_ref().and_then(|bucket| bucket.columns) else { return };
    if config.images.first() != Some(image) {
        return;
    }
    let (width, height) = drawn.map_or((0, 0), DrawnViews::image_size);
    let place = drawn.and_then(|drawn| Some(crop_place(drawn.views().first()?, [height, width])));
    for (column, pair) in [(size, [height, width].map(i64::from)), (crop, place.unwrap_or_default())] {
        for (bytes, number) in ticket.column(column).chunks_exact_mut(size_of::<i64>()).zip(pair) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
    }
}

/// Returns the number of rows above a view, and of columns at its left, in the resized image as the network sees it: if
/// the view is mirrored, they are counted in the mirrored image.
fn crop_place(drawn: &DrawnView, [height, width]: [u32; 2]) -> [i64; 2] {
    let place = |axis: &Axis, whole: u32, shown: u32, is_mirrored: bool| {
        // A part of the image that was cropped before the resize counts in pixels of the resized image.
        let resized = |pixels: u32| {
            let by = u64::from(axis.length.max(1));
            ((2 * u64::from(pixels) * u64::from(axis.resized) + by) / (2 * by)) as i64
        };
        let first = resized(axis.start) + i64::from(axis.offset);
        if is_mirrored { resized(whole) - first - i64::from(shown) } else { first }
    };
    let view = &drawn.view;
    [place(&view.y, height, drawn.height, view.vertical_flip), place(&view.x, width, drawn.width, view.flip)]
}
