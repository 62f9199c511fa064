//! Views: which part of an image becomes the output, and which source pixels that depends on.

use std::ops::Range;

use super::Output;
use super::weights::Resize;
use crate::decode::Region;
use base::names::named;

/// One axis of a view. The source pixels `start..start+length` are resized to `resized` pixels. The output shows the
/// resized pixels `offset..offset+n`, where n is the output's size. A random crop has `resized = n, offset = 0`; a
/// centre crop shows the middle of the resized image. Output pixels outside of `0..resized` show [`View::padding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// The first source pixel.
    pub start: u32,
    /// The number of source pixels.
    pub length: u32,
    /// The number of pixels after the resize.
    pub resized: u32,
    /// The resized pixel that the first output pixel shows. It is negative if the output begins with padding.
    pub offset: i32,
    /// The number of resized pixels at the beginning and at the end that are filled instead of computed. The filters of
    /// these pixels cover only constant padding: the image was padded before the resize.
    pub filled: [u32; 2],
}

/// The filter of a resize.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The pixel at ⌊o · length / resized⌋ for output pixel o, computed in f32 as torch's `nearest` does.
    Nearest,
    /// The pixel at ⌊(o + ½) · length / resized⌋, as torch's `nearest-exact` computes it.
    NearestExact,
    /// The antialiased triangle filter of PIL's `BILINEAR`.
    #[default]
    Bilinear,
    /// The antialiased cubic filter of PIL's `BICUBIC`, with a = −½.
    Bicubic,
    /// The antialiased windowed sinc of PIL's `LANCZOS`, three lobes wide.
    Lanczos,
}

named!(Filter:
    "nearest" => Nearest,
    "nearest-exact" => NearestExact,
    "bilinear" => Bilinear,
    "bicubic" => Bicubic,
    "lanczos" => Lanczos,
);

/// What output pixels outside of the image show, as torchvision's and NumPy's `pad` define it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Padding {
    /// The colour [`Output::fill`].
    #[default]
    Constant,
    /// The image's nearest pixel.
    Edge,
    /// The image mirrored about its outermost pixels, which are not repeated: c b | a b c | b a.
    Reflect,
    /// The image mirrored about its edges: b a | a b c | c b.
    Symmetric,
}

named!(Padding: "constant" => Constant, "edge" => Edge, "reflect" => Reflect, "symmetric" => Symmetric);

impl Filter {
    pub(super) fn interpolates(self) -> bool {
        !matches!(self, Self::Nearest | Self::NearestExact)
    }

    /// Returns whether results can leave the range of the samples, because some weights are negative.
    pub(super) fn overshoots(self) -> bool {
        matches!(self, Self::Bicubic | Self::Lanczos)
    }
}

impl Padding {
    /// Returns the resized pixel that is shown at index `pixel`, which may be outside of `0..resized`. Returns `None`
    /// if the fill is shown there. `resized` is at most 2^30.
    #[inline]
    pub(super) fn source(self, pixel: i64, resized: u32) -> Option<u32> {
        if (0..i64::from(resized)).contains(&pixel) {
            Some(pixel as u32)
        } else {
            self.outside(pixel, resized)
        }
    }

    fn outside(self, pixel: i64, resized: u32) -> Option<u32> {
        let last = resized - 1;
        // The image and its mirror image are repeated every `period` pixels. `twice` is 1 if the mirror image repeats
        // the border pixels.
        let (period, twice) = match self {
            Self::Constant => return None,
            Self::Reflect if last > 0 => (2 * last, 0),
            Self::Symmetric => (2 * resized, 1),
            Self::Edge | Self::Reflect => return Some(if pixel < 0 { 0 } else { last }),
        };
        let steps = (if pixel < 0 { -pixel - i64::from(twice) } else { pixel }) as u32 % period;
        Some(if steps < resized { steps } else { period - twice - steps })
    }
}

/// A view: which part of an image becomes the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Whether left and right are mirrored, after padding.
    pub flip: bool,
    /// Whether top and bottom are mirrored, after padding.
    pub vertical_flip: bool,
    /// The filter of the resize along both axes.
    pub filter: Filter,
    /// What output pixels outside of the image show.
    pub padding: Padding,
}

impl Axis {
    /// Returns the resized pixels that are computed from the image.
    #[inline]
    fn image(&self) -> Range<u32> {
        self.filled[0]..self.resized - self.filled[1]
    }
}

impl View {
    /// Returns the source pixels that the output depends on: the region to decode. For a random crop, the region is the
    /// crop's box. For a centre crop, the region exceeds the shown part by the pixels that the resize's filter covers
    /// around it.
    pub fn region(&self, output: &Output) -> Region {
        let (x, width) = self.columns(output).support();
        let (y, height) = self.rows(output).support();
        Region { x, y, width, height }
    }

    pub(super) fn columns(&self, output: &Output) -> ViewAxis {
        self.line(self.x, output.width, self.flip)
    }

    /// Returns how the output's rows map to source pixels. Rows are counted as if there were no vertical flip.
    pub(super) fn rows(&self, output: &Output) -> ViewAxis {
        self.line(self.y, output.height, false)
    }

    fn line(&self, axis: Axis, pixels: u32, mirror: bool) -> ViewAxis {
        ViewAxis { axis, pixels, mirror, filter: self.filter, padding: self.padding }
    }
}

/// One axis of a view: how the output's pixels along it map to source pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewAxis {
    pub axis: Axis,
    pub pixels: u32,
    pub mirror: bool,
    pub filter: Filter,
    pub padding: Padding,
}

impl ViewAxis {
    pub(super) fn resize(&self) -> Resize {
        Resize::new(self.filter, self.axis.length, self.axis.resized)
    }

    /// Returns the output pixels that are computed from the image, before a flip. All other output pixels are filled.
    pub(super) fn shown(&self) -> Range<u32> {
        if self.padding != Padding::Constant {
            return 0..self.pixels;
        }
        let clip = |edge: i64| edge.clamp(0, i64::from(self.pixels)) as u32;
        let image = self.axis.image();
        let [first, end] =
            [image.start, image.end].map(|edge| clip(i64::from(edge) - i64::from(self.axis.offset)));
        first..end.max(first)
    }

    /// Returns the pixel of the resized axis that output pixel `o` shows before a flip, or `None` if it shows the fill.
    #[inline]
    pub(super) fn pixel(&self, o: u32) -> Option<u32> {
        let pixel = self.padding.source(i64::from(o) + i64::from(self.axis.offset), self.axis.resized);
        pixel.filter(|pixel| self.axis.image().contains(pixel))
    }

    /// Returns the first source pixel that the output depends on, and the number of source pixels from there (at least
    /// 1).
    fn support(&self) -> (u32, u32) {
        let shown = self.shown();
        let pixels = || shown.clone().filter_map(|o| self.pixel(o));
        let ends = match self.padding {
            // The shown pixels are in ascending order.
            Padding::Constant | Padding::Edge => {
                (self.pixel(shown.start), self.pixel(shown.end.saturating_sub(1)))
            }
            Padding::Reflect | Padding::Symmetric => (pixels().min(), pixels().max()),
        };
        let (Some(first), Some(last)) = ends else { return (self.axis.start, 1) };
        let resize = self.resize();
        let (first, end) = (resize.bounds(first).start, resize.bounds(last).end);
        (self.axis.start + first, end - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(axis: Axis, pixels: u32, padding: Padding) -> ViewAxis {
        ViewAxis { axis, pixels, mirror: false, filter: Filter::Bilinear, padding }
    }

    #[test]
    fn a_crop_needs_its_box_and_a_centre_crop_its_filters_reach() {
        let support = |axis, filter| ViewAxis { filter, ..line(axis, 224, Padding::Constant) }.support();
        let crop = Axis { start: 7, length: 400, resized: 224, offset: 0, filled: [0; 2] };
        assert_eq!(support(crop, Filter::Bilinear), (7, 400));
        assert_eq!(support(Axis { length: 10, ..crop }, Filter::Bilinear), (7, 10));
        // The size is halved. Output pixel j covers source pixels 2j-1 to 2j+2 with the bilinear filter, and 2j-3 to
        // 2j+4 with the bicubic filter.
        let half = Axis { start: 0, length: 512, resized: 256, offset: 16, filled: [0; 2] };
        assert_eq!(support(half, Filter::Bilinear), (31, 450));
        assert_eq!(support(half, Filter::Bicubic), (29, 454));
        assert_eq!(support(half, Filter::Lanczos), (27, 458));
        assert_eq!(support(half, Filter::Nearest), (32, 447));
        assert_eq!(support(half, Filter::NearestExact), (33, 447));
        // The view shows only padding.
        assert_eq!(support(Axis { offset: 300, ..half }, Filter::Bilinear), (0, 1));
    }

    #[test]
    fn padding_is_not_shown() {
        let axis = Axis { start: 0, length: 9, resized: 10, offset: -3, filled: [0; 2] };
        let shown = |offset, n| line(Axis { offset, ..axis }, n, Padding::Constant).shown();
        assert_eq!(shown(-3, 16), 3..13);
        assert_eq!(shown(4, 4), 0..4);
        assert_eq!(shown(12, 4), 0..0);
        assert_eq!(shown(-20, 16), 16..16);
        assert_eq!(line(axis, 16, Padding::Edge).shown(), 0..16);
    }

    /// Expected values are the results of `numpy.pad(numpy.arange(n), …)`, including an image of a single pixel.
    #[test]
    fn paddings_continue_the_image_as_numpy_does() {
        let shown = |resized, offset, n, padding| {
            let line = line(Axis { start: 0, length: resized, resized, offset, filled: [0; 2] }, n, padding);
            (0..n).map(|o| line.pixel(o).map_or(-1, |pixel| pixel as i32)).collect::<Vec<_>>()
        };
        assert_eq!(shown(3, -2, 7, Padding::Constant), [-1, -1, 0, 1, 2, -1, -1]);
        assert_eq!(shown(3, -2, 7, Padding::Edge), [0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(shown(3, -2, 7, Padding::Reflect), [2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(shown(3, -2, 7, Padding::Symmetric), [1, 0, 0, 1, 2, 2, 1]);
        // The padding is wider than the image.
        assert_eq!(shown(3, -5, 13, Padding::Reflect), [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(shown(2, -5, 12, Padding::Symmetric), [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(shown(1, -2, 5, Padding::Reflect), [0; 5]);
        assert_eq!(shown(1, -2, 5, Padding::Symmetric), [0; 5]);
    }

    /// The region contains the pixels that mirrored padding shows, even if the view shows little of the image itself.
    #[test]
    fn padding_needs_what_it_mirrors() {
        let axis = Axis { start: 100, length: 50, resized: 50, offset: 45, filled: [0; 2] };
        let support = |offset, n, padding| {
            ViewAxis { filter: Filter::Nearest, ..line(Axis { offset, ..axis }, n, padding) }.support()
        };
        assert_eq!(support(45, 20, Padding::Constant), (145, 5));
        assert_eq!(support(45, 20, Padding::Edge), (145, 5));
        assert_eq!(support(45, 20, Padding::Reflect), (134, 16));
        assert_eq!(support(45, 20, Padding::Symmetric), (135, 15));
        assert_eq!(support(60, 5, Padding::Edge), (149, 1));
        assert_eq!(support(60, 5, Padding::Symmetric), (135, 5));
    }
}
