//! What of an image becomes the output, and which source pixels that depends on.

use super::Output;
use super::weights::Triangle;
use crate::decode::Region;

/// One axis of a view: source pixels `start..start+length`, resized to `full` pixels, of which the output is
/// `window..window+n` (n the output's size). Random crops have `full = n, window = 0`; a centre crop looks at the
/// middle of a resized whole. Output pixels outside `0..full` show what [`View::padding`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// First source pixel.
    pub start: u32,
    /// Source pixels.
    pub length: u32,
    /// Pixels after the resize.
    pub full: u32,
    /// First of them that the output shows.
    pub window: i32,
}

impl Axis {
    /// The output pixels, of `n`, that show image and not padding.
    pub(super) fn shown(&self, n: u32) -> std::ops::Range<u32> {
        let clip = |edge: i64| edge.clamp(0, i64::from(n)) as u32;
        let first = -i64::from(self.window);
        clip(first)..clip(first + i64::from(self.full)).max(clip(first))
    }

    /// The pixel of the resized axis that output pixel `o` shows; `None` where that is the fill of
    /// [`Padding::Constant`].
    pub(super) fn pixel(&self, o: u32, padding: Padding) -> Option<u32> {
        let (at, full) = (i64::from(o) + i64::from(self.window), i64::from(self.full));
        let inside = match padding {
            Padding::Constant => return (0..full).contains(&at).then_some(at as u32),
            Padding::Edge => at.clamp(0, full - 1),
            Padding::Reflect if full == 1 => 0,
            Padding::Reflect => {
                let at = at.rem_euclid(2 * full - 2);
                at.min(2 * full - 2 - at)
            }
            Padding::Symmetric => {
                let at = at.rem_euclid(2 * full);
                at.min(2 * full - 1 - at)
            }
        };
        Some(inside as u32)
    }

    /// First source pixel and number of them that the `n` output pixels depend on; at least one.
    fn support(&self, n: u32) -> (u32, u32) {
        let shown = self.shown(n);
        if shown.is_empty() {
            return (self.start, 1);
        }
        let filter = Triangle::new(self.length, self.full);
        let at = |o: u32| filter.bounds((i64::from(o) + i64::from(self.window)) as u32);
        let (first, last) = (at(shown.start).start, at(shown.end - 1).end);
        (self.start + first, last - first)
    }
}

/// How the pixels of an image are resampled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The pixel at ⌊o · length / full⌋ for output pixel o, computed in f32 as torch's `nearest` does.
    Nearest,
    /// The pixel at ⌊(o + ½) · length / full⌋, as torch's `nearest-exact`.
    NearestExact,
    /// The antialiased triangle filter of PIL's `BILINEAR`.
    #[default]
    Bilinear,
    /// The antialiased cubic filter of PIL's `BICUBIC`, with a = −½.
    Bicubic,
}

/// What output pixels outside of the image show, as torchvision's and NumPy's `pad` define it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Padding {
    /// [`Output::fill`].
    #[default]
    Constant,
    /// The image's nearest pixel.
    Edge,
    /// The image mirrored about its outermost pixels, which are not repeated: c b | a b c | b a.
    Reflect,
    /// The image mirrored about its edges: b a | a b c | c b.
    Symmetric,
}

/// What of an image becomes the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Columns.
    pub x: Axis,
    /// Rows.
    pub y: Axis,
    /// Mirror left and right.
    pub flip: bool,
    /// How pixels are resampled, along both axes.
    pub filter: Filter,
    /// What lies outside of the image.
    pub padding: Padding,
}

impl View {
    /// The source pixels the output depends on: what the decoder is asked for. A random crop's is its box; a centre
    /// crop's reaches as far outside the window as the resize's filter does.
    pub fn region(&self, output: &Output) -> Region {
        let (x, width) = self.x.support(output.width);
        let (y, height) = self.y.support(output.height);
        Region { x, y, width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crop_needs_its_box_and_a_centre_crop_its_filters_reach() {
        let crop = Axis { start: 7, length: 400, full: 224, window: 0 };
        assert_eq!(crop.support(224), (7, 400));
        assert_eq!(Axis { length: 10, ..crop }.support(224), (7, 10));
        // Halved: output pixel j covers source pixels 2j-1 to 2j+2.
        let half = Axis { start: 0, length: 512, full: 256, window: 16 };
        assert_eq!(half.support(224), (31, 450));
        // Nothing but padding.
        assert_eq!(Axis { window: 300, ..half }.support(224), (0, 1));
    }

    #[test]
    fn padding_is_not_shown() {
        let axis = Axis { start: 0, length: 9, full: 10, window: -3 };
        assert_eq!(axis.shown(16), 3..13);
        assert_eq!(Axis { window: 4, ..axis }.shown(4), 0..4);
        assert_eq!(Axis { window: 12, ..axis }.shown(4), 0..0);
        assert_eq!(Axis { window: -20, ..axis }.shown(16), 16..16);
    }
}
