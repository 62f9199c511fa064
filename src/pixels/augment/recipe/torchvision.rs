//! torchvision's formulas for sizes and places, with exactly its rounding (`_geometry.py` and `RandomResizedCrop` of
//! `torchvision.transforms.v2`).

use crate::augment::ImageSize;
use base::rng::RandomStream;

/// The number of attempts at a random crop before the centre crop is taken.
const TRIES: usize = 10;

/// The longest side after a resize, so that every later coordinate fits an i32.
const MAX_RESIZED_SIDE: u32 = i32::MAX as u32 / 2;

/// Draws left, top, width and height of RandomResizedCrop's random crop, or of the centre crop if no try fits.
///
/// Each try draws one uniform number for the area and one for the ratio. For the first try that fits into the image,
/// the row and then the column are drawn.
pub(super) fn random_resized_crop(
    stream: &mut RandomStream,
    ImageSize { width, height }: ImageSize,
    scale: (f64, f64),
    ratio: (f64, f64),
) -> [u32; 4] {
    let area = f64::from(width) * f64::from(height);
    // The functions of libm, unlike the system's, give the same crop on all machines.
    let log_ratio = (libm::log(ratio.0), libm::log(ratio.1));
    for _ in 0..TRIES {
        let target = area * stream.uniform(scale.0, scale.1);
        let aspect = libm::exp(stream.uniform(log_ratio.0, log_ratio.1));
        // `as` saturates, so absurd settings only make a try fail.
        let w = (target * aspect).sqrt().round_ties_even() as u32;
        let h = (target / aspect).sqrt().round_ties_even() as u32;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let (left, top) = random_place(stream, (width - w, height - h));
            return [left, top, w, h];
        }
    }
    let (w, h) = (f64::from(width), f64::from(height));
    let (w, h) = if w / h < ratio.0 {
        (width, (w / ratio.0).round_ties_even() as u32)
    } else if w / h > ratio.1 {
        ((h * ratio.1).round_ties_even() as u32, height)
    } else {
        (width, height)
    };
    let (w, h) = (w.clamp(1, width), h.clamp(1, height));
    [(width - w) / 2, (height - h) / 2, w, h]
}

/// Draws left and top of a crop that can move by at most `room_x` and `room_y` pixels. The top is drawn first, as in
/// torchvision.
pub(super) fn random_place(stream: &mut RandomStream, (room_x, room_y): (u32, u32)) -> (u32, u32) {
    let top = stream.below(u64::from(room_y) + 1) as u32;
    let left = stream.below(u64::from(room_x) + 1) as u32;
    (left, top)
}

/// Returns the size after Resize: the shorter side becomes `short`, and the longer side is limited to `longest`.
/// Without `short`, the longer side becomes `longest`.
pub(super) fn resized(
    ImageSize { width, height }: ImageSize,
    short: Option<u32>,
    longest: Option<u32>,
) -> ImageSize {
    let (a, b) = if width <= height { (width, height) } else { (height, width) };
    // Products of lengths are exact in f64. So this truncates the f64 that is nearest to the true quotient, as Python
    // does. A side has at least one pixel.
    let scaled = |to: u32, of: u32, by: u32| {
        ((f64::from(to) * f64::from(of) / f64::from(by)) as u32).clamp(1, MAX_RESIZED_SIDE)
    };
    let (a, b) = match (short, longest) {
        (Some(short), longest) => {
            let long = scaled(short, b, a);
            match longest {
                Some(longest) if long > longest => (scaled(longest, short, long), longest),
                _ => (short, long),
            }
        }
        (None, Some(longest)) => (scaled(longest, a, b), longest),
        (None, None) => (a, b),
    };
    let (width, height) = if width <= height { (a, b) } else { (b, a) };
    ImageSize { width, height }
}

/// Returns the smallest size with the aspect ratio of an image that covers `target`. One side is that of the target,
/// and the other side is rounded half up. (torchvision has no such resize.)
pub(super) fn covering(ImageSize { width, height }: ImageSize, target: ImageSize) -> ImageSize {
    let [w, h, tw, th] = [width, height, target.width, target.height].map(u64::from);
    let side = |of: u64, by: u64| ((2 * of + by) / (2 * by)).min(u64::from(MAX_RESIZED_SIDE)) as u32;
    match tw * h >= th * w {
        true => ImageSize { width: target.width, height: side(h * tw, w).max(target.height) },
        false => ImageSize { width: side(w * th, h).max(target.width), height: target.height },
    }
}

/// Returns the size after RandomShortestSize: the shorter side becomes `short`, and both sides shrink if the longer
/// side would exceed `longest`. Both sides are truncated products with the same factor, so rounding can make the
/// shorter side one pixel shorter than `short`.
pub(super) fn with_short_side(
    ImageSize { width, height }: ImageSize,
    short: u32,
    longest: Option<u32>,
) -> ImageSize {
    let of = |to: u32, side: u32| f64::from(to) / f64::from(side);
    let factor = of(short, width.min(height));
    let factor = longest.map_or(factor, |longest| factor.min(of(longest, width.max(height))));
    let side = |side: u32| ((f64::from(side) * factor) as u32).clamp(1, MAX_RESIZED_SIDE);
    ImageSize { width: side(width), height: side(height) }
}

/// Returns the size after ScaleJitter: `scale` times the largest size that fits into `target`. torchvision keeps the
/// factor in a tensor, so products are in float32.
pub(super) fn jittered(ImageSize { width, height }: ImageSize, target: ImageSize, scale: f64) -> ImageSize {
    let [across, down] = [target.width, target.height].map(f64::from);
    let fitting = (down / f64::from(height)).min(across / f64::from(width));
    let factor = fitting as f32 * scale as f32;
    let side = |side: u32| ((side as f32 * factor) as u32).clamp(1, MAX_RESIZED_SIDE);
    ImageSize { width: side(width), height: side(height) }
}

/// Draws how many pixels RandomZoomOut adds at the left, top, right and bottom. First the canvas's sides are drawn, as
/// a multiple (between `low` and `high`) of the image's sides. Then the shares of the added pixels at the left and at
/// the top are drawn. torchvision keeps these numbers in tensors, so products are in float32.
pub(super) fn zoomed_out(
    stream: &mut RandomStream,
    ImageSize { width, height }: ImageSize,
    (low, high): (f64, f64),
) -> [u32; 4] {
    let multiple = stream.uniform(low, high) as f32;
    let canvas = |side: u32| (side as f32 * multiple) as u32;
    let (x, y) = (canvas(width).saturating_sub(width), canvas(height).saturating_sub(height));
    let mut part = |of: u32| (of as f32 * stream.unit() as f32) as u32;
    let (left, top) = (part(x).min(x), part(y).min(y));
    [left, top, x - left, y - top]
}

/// Returns the first pixel of CenterCrop along a side that has `excess` pixels more than the crop.
pub(super) fn centred(excess: u32) -> u32 {
    (f64::from(excess) / 2.0).round_ties_even() as u32
}

/// Returns how many pixels CenterCrop adds before and after a side that is `lacking` pixels shorter than the crop.
pub(super) fn centre_padding(lacking: u32) -> (u32, u32) {
    (lacking / 2, lacking.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of((width, height): (u32, u32)) -> ImageSize {
        ImageSize { width, height }
    }

    #[test]
    fn resize_truncates_as_torchvision() {
        // `v2.functional._geometry._compute_resized_output_size` of torchvision 0.29.
        assert_eq!(resized(of((500, 375)), Some(256), None), of((341, 256)));
        assert_eq!(resized(of((375, 500)), Some(256), None), of((256, 341)));
        assert_eq!(resized(of((500, 375)), Some(256), Some(300)), of((300, 225)));
        assert_eq!(resized(of((375, 500)), Some(256), Some(300)), of((225, 300)));
        assert_eq!(resized(of((500, 375)), Some(256), Some(341)), of((341, 256)));
        assert_eq!(resized(of((500, 375)), None, Some(100)), of((100, 75)));
        assert_eq!(resized(of((7, 5000)), None, Some(100)), of((1, 100)));
    }

    #[test]
    fn random_sizes_are_truncated_as_torchvision() {
        // `make_params` of RandomShortestSize and ScaleJitter of torchvision 0.29.
        assert_eq!(with_short_side(of((500, 375)), 256, None), of((341, 256)));
        assert_eq!(with_short_side(of((500, 375)), 256, Some(300)), of((300, 225)));
        assert_eq!(with_short_side(of((375, 500)), 333, None), of((333, 444)));
        assert_eq!(with_short_side(of((333, 500)), 299, None), of((299, 448)));
        assert_eq!(with_short_side(of((641, 479)), 480, None), of((642, 480)));
        assert_eq!(with_short_side(of((640, 427)), 800, Some(1333)), of((1199, 800)));
        assert_eq!(with_short_side(of((103, 200)), 256, None), of((255, 497)));
        assert_eq!(with_short_side(of((1, 9000)), 3, Some(50)), of((1, 50)));
        assert_eq!(jittered(of((500, 375)), of((1024, 1024)), 0.5), of((512, 384)));
        assert_eq!(jittered(of((500, 375)), of((1024, 1024)), 1.0), of((1024, 768)));
        assert_eq!(jittered(of((375, 500)), of((300, 200)), 1.7), of((255, 340)));
        assert_eq!(jittered(of((641, 479)), of((1024, 800)), 0.1), of((102, 76)));
        assert_eq!(jittered(of((333, 500)), of((97, 301)), 0.3), of((29, 43)));
        assert_eq!(jittered(of((3, 2)), of((1, 1)), 0.1), of((1, 1)));
    }

    #[test]
    fn centres_round_half_to_even() {
        // round((341 - 224) / 2) = round(58.5) = 58; round((343 - 224) / 2) = round(59.5) = 60.
        assert_eq!([centred(117), centred(119), centred(0)], [58, 60, 0]);
        assert_eq!([centre_padding(43), centre_padding(2)], [(21, 22), (1, 1)]);
    }
}
