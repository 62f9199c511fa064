//! Folds the geometry of one image into one view. Crops, at most one resize, padding and mirroring become a source
//! range, a length after the resize and an offset along each axis, so that every pixel is sampled once. If an image is
//! resized together with padding, the source range is a range of a canvas that contains the image.

use super::transform::MAX_SIDE;
use crate::augment::{Axis, CanvasAxis, Filter, ImageSize, PaddedCanvas, Padding, View};

/// One axis after some steps: the fields of [`Axis`], the current length of the image, and whether it is mirrored.
/// Steps count pixels in the current image, which may be mirrored; the fields count pixels in the direction of the
/// source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FoldedAxis {
    start: u32,
    length: u32,
    resized: u32,
    offset: i64,
    current_length: u32,
    /// (first pixel, number of pixels) of the part of the axis that was resized. The first pixel is counted from the
    /// start of the source range. `None` if this part lies within the source range.
    canvas: Option<(i64, u32)>,
    is_resized: bool,
    is_mirrored: bool,
    /// Whether the axis was already mirrored when it was resized.
    is_resized_mirrored: bool,
}

impl FoldedAxis {
    fn new(length: u32) -> Self {
        Self { length, resized: length, current_length: length, ..Self::default() }
    }

    /// Returns whether the image is still a range of the source's pixels along this axis, neither resized nor padded.
    fn is_source(&self) -> bool {
        !self.is_resized && self.offset == 0 && self.current_length == self.resized
    }

    fn crop(&mut self, first: u32, n: u32) {
        let first = if self.is_mirrored { self.current_length - first - n } else { first };
        if self.is_source() {
            self.start += first;
            (self.length, self.resized) = (n, n);
        } else {
            self.offset += i64::from(first);
        }
        self.current_length = n;
    }

    fn resize(&mut self, n: u32) -> Result<(), String> {
        let end = self.offset + i64::from(self.current_length);
        if self.offset >= 0 && end <= i64::from(self.length) {
            self.start += self.offset as u32;
            self.length = self.current_length;
        } else if self.current_length > MAX_SIDE {
            let length = self.current_length;
            return Err(format!(
                "would resize an image that was padded to {length} pixels, more than {MAX_SIDE} a side: pad less, or \
                 pad after the resize"
            ));
        } else {
            self.canvas = Some((self.offset, self.current_length));
        }
        (self.resized, self.current_length, self.offset, self.is_resized) = (n, n, 0, true);
        self.is_resized_mirrored = self.is_mirrored;
        Ok(())
    }

    fn pad(&mut self, before: u32, after: u32) -> Result<(), String> {
        let (before, after) = if self.is_mirrored { (after, before) } else { (before, after) };
        let is_cut_before = before > 0 && self.offset > 0;
        let end = self.offset + i64::from(self.current_length);
        if is_cut_before || (after > 0 && end < i64::from(self.resized)) {
            return Err("would pad an image that was cropped after a resize: pad before the crop".into());
        }
        let length = u64::from(self.current_length) + u64::from(before) + u64::from(after);
        if length > MAX_PADDED {
            return Err(format!("would pad to {length} pixels a side, must be at most {MAX_PADDED}"));
        }
        self.offset -= i64::from(before);
        self.current_length = length as u32;
        Ok(())
    }

    fn axis(&self) -> Axis {
        let Self { start, length, resized, offset, .. } = *self;
        Axis { start, length, resized, offset: offset as i32, filled: [0; 2] }
    }

    /// Returns the axis as an axis of a canvas, and the position of the image on the canvas.
    fn axis_on_canvas(&self, filter: Filter, padding: Padding) -> (Axis, CanvasAxis) {
        let (from, length) = self.canvas.unwrap_or((0, self.length));
        let mut axis = Axis { start: 0, length, ..self.axis() };
        let mut image = CanvasAxis { first: self.start, length: self.length, at: -from as i32 };
        if padding == Padding::Constant {
            image = image.trimmed(length);
            axis.filled = image.filled(filter, &axis);
        }
        (axis, image)
    }
}

/// The longest side of an image with its padding, before it is cropped. With this limit, every later coordinate fits an
/// i32.
const MAX_PADDED: u64 = 1 << 30;

/// The geometry of an image after some steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fold {
    x: FoldedAxis,
    y: FoldedAxis,
}

impl Fold {
    pub(super) fn new(ImageSize { width, height }: ImageSize) -> Self {
        Self { x: FoldedAxis::new(width), y: FoldedAxis::new(height) }
    }

    pub(super) fn size(&self) -> ImageSize {
        ImageSize { width: self.x.current_length, height: self.y.current_length }
    }

    /// Mirrors left and right.
    pub(super) fn mirror(&mut self) {
        self.x.is_mirrored = !self.x.is_mirrored;
    }

    /// Mirrors top and bottom.
    pub(super) fn mirror_vertically(&mut self) {
        self.y.is_mirrored = !self.y.is_mirrored;
    }

    /// Crops the image to [left, top, width, height], which must be inside of it.
    pub(super) fn crop(&mut self, [left, top, width, height]: [u32; 4]) {
        self.x.crop(left, width);
        self.y.crop(top, height);
    }

    /// Resamples to this size.
    ///
    /// # Errors
    /// Why the resize cannot be folded into the steps so far. The message continues the transform's name.
    pub(super) fn resize(&mut self, ImageSize { width, height }: ImageSize) -> Result<(), String> {
        self.x.resize(width)?;
        self.y.resize(height)
    }

    /// Returns whether left and right were mirrored when the image was resized, and whether top and bottom were
    /// mirrored then.
    pub(super) fn is_resized_mirrored(&self) -> [bool; 2] {
        [self.x.is_resized_mirrored, self.y.is_resized_mirrored]
    }

    /// Adds [left, top, right, bottom] pixels of padding.
    ///
    /// # Errors
    /// Why the image cannot be padded after the steps so far. The message continues the transform's name.
    pub(super) fn pad(
        &mut self,
        [left, top, right, bottom]: [u32; 4],
        padding: Padding,
    ) -> Result<(), String> {
        for (side, added) in [(&self.x, left.max(right)), (&self.y, top.max(bottom))] {
            let (most, kind) = match padding {
                Padding::Constant | Padding::Edge => continue,
                Padding::Reflect => (side.current_length - 1, "reflect"),
                Padding::Symmetric => (side.current_length, "symmetric"),
            };
            if added > most {
                let length = side.current_length;
                return Err(format!(
                    "would pad a side of {length} pixels by {added}, but padding_mode=\"{kind}\" allows at most {most}"
                ));
            }
        }
        self.x.pad(left, right)?;
        self.y.pad(top, bottom)
    }

    /// Returns the steps so far as one view. If the steps resize padding, also returns the view's canvas, whose colour
    /// is `fill`.
    pub(super) fn view(
        &self,
        filter: Filter,
        padding: Padding,
        fill: [u8; 3],
    ) -> (View, Option<PaddedCanvas>) {
        let (flip, vertical_flip) = (self.x.is_mirrored, self.y.is_mirrored);
        let view = |x, y| View { x, y, flip, vertical_flip, filter, padding };
        if self.x.canvas.or(self.y.canvas).is_none() {
            return (view(self.x.axis(), self.y.axis()), None);
        }
        let [(across, x), (down, y)] = [self.x, self.y].map(|side| side.axis_on_canvas(filter, padding));
        (view(across, down), Some(PaddedCanvas { x, y, padding, fill }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, RandomStream, Use};

    /// For each pixel of the output, the source pixel that it shows, computed step by step; -1 for padding.
    struct Steps {
        rows: Vec<Vec<(i64, i64)>>,
    }

    impl Steps {
        fn new(width: u32, height: u32) -> Self {
            let row = |y| (0..i64::from(width)).map(|x| (x, y)).collect();
            Self { rows: (0..i64::from(height)).map(row).collect() }
        }

        fn crop(&mut self, [left, top, width, height]: [u32; 4]) {
            let [left, top, width, height] = [left, top, width, height].map(|n| n as usize);
            self.rows = self.rows[top..top + height].iter().map(|r| r[left..left + width].to_vec()).collect();
        }

        fn pad(&mut self, [left, top, right, bottom]: [u32; 4]) {
            let none = |n: u32| vec![(-1, -1); n as usize];
            for row in &mut self.rows {
                *row = [none(left), row.clone(), none(right)].concat();
            }
            let width = self.rows[0].len() as u32;
            let rows = |n: u32| vec![none(width); n as usize];
            self.rows = [rows(top), self.rows.clone(), rows(bottom)].concat();
        }

        fn mirror(&mut self) {
            self.rows.iter_mut().for_each(|row| row.reverse());
        }

        fn mirror_vertically(&mut self) {
            self.rows.reverse();
        }
    }

    /// Returns the source pixel that each pixel of the view shows, for an image that is not resized.
    fn shown(fold: &Fold) -> Vec<Vec<(i64, i64)>> {
        let ImageSize { width, height } = fold.size();
        let (view, _) = fold.view(Filter::default(), Padding::default(), [0; 3]);
        let at = |axis: &Axis, o: u32| {
            let resized = i64::from(o) + i64::from(axis.offset);
            let inside = (0..i64::from(axis.resized)).contains(&resized);
            assert_eq!(axis.resized, axis.length);
            inside.then(|| i64::from(axis.start) + resized)
        };
        let row = |o: u32| {
            let y = if view.vertical_flip { height - 1 - o } else { o };
            let pixel = |o: u32| {
                let o = if view.flip { width - 1 - o } else { o };
                at(&view.x, o).zip(at(&view.y, y)).unwrap_or((-1, -1))
            };
            (0..width).map(pixel).collect()
        };
        (0..height).map(row).collect()
    }

    fn size(width: u32, height: u32) -> ImageSize {
        ImageSize { width, height }
    }

    fn up_to(random: &mut RandomStream, most: u32) -> u32 {
        random.below(u64::from(most) + 1) as u32
    }

    /// Random crops and mirrorings, then paddings, then crops give the same pixels whether they are folded into one
    /// view or applied step by step.
    #[test]
    fn crops_padding_and_mirroring_are_what_they_are_one_after_another() {
        let seed = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("FORELOAD_SEED={seed}");
        for case in 0..2000 {
            let random = &mut RandomKey::new(b"fold", seed, 0, Use::Augment).stream(case);
            let (width, height) = (1 + up_to(random, 12), 1 + up_to(random, 12));
            let (mut fold, mut steps) = (Fold::new(size(width, height)), Steps::new(width, height));
            for phase in 0..6 {
                let ImageSize { width, height } = fold.size();
                if random.below(2) == 0 {
                    fold.mirror();
                    steps.mirror();
                }
                if random.below(2) == 0 {
                    fold.mirror_vertically();
                    steps.mirror_vertically();
                }
                if phase == 2 || phase == 3 {
                    let margins = [0; 4].map(|_| up_to(random, 5));
                    fold.pad(margins, Padding::Constant).unwrap();
                    steps.pad(margins);
                } else {
                    let (w, h) = (1 + up_to(random, width - 1), 1 + up_to(random, height - 1));
                    let part = [up_to(random, width - w), up_to(random, height - h), w, h];
                    fold.crop(part);
                    steps.crop(part);
                }
                assert_eq!(shown(&fold), steps.rows, "case {case}, phase {phase}");
            }
        }
    }

    #[test]
    fn a_crop_before_the_resize_is_a_range_of_the_source_and_one_behind_it_a_window() {
        let mut fold = Fold::new(size(100, 80));
        fold.mirror();
        fold.crop([10, 5, 60, 40]);
        fold.resize(size(30, 20)).unwrap();
        fold.crop([1, 2, 16, 16]);
        let (view, canvas) = fold.view(Filter::Bicubic, Padding::Edge, [0; 3]);
        assert_eq!(canvas, None);
        // The image is mirrored: the source range ends 10 pixels from the right edge, and the output ends 1 pixel from
        // the right edge of the resized image.
        assert_eq!(view.x, Axis { start: 30, length: 60, resized: 30, offset: 13, filled: [0; 2] });
        assert_eq!(view.y, Axis { start: 5, length: 40, resized: 20, offset: 2, filled: [0; 2] });
        assert_eq!((view.flip, view.filter, view.padding), (true, Filter::Bicubic, Padding::Edge));
    }

    /// On a canvas of 24×20 pixels, the mirrored image begins 4 pixels from the left. The first two columns are
    /// cropped, and the next 20 columns are resized.
    #[test]
    fn padding_before_the_resize_makes_a_canvas() {
        let mut fold = Fold::new(size(14, 20));
        fold.mirror();
        fold.crop([0, 0, 12, 20]);
        fold.pad([4, 0, 8, 0], Padding::Constant).unwrap();
        fold.crop([2, 0, 20, 20]);
        fold.resize(size(10, 10)).unwrap();
        fold.crop([0, 1, 10, 8]);
        let (view, canvas) = fold.view(Filter::Nearest, Padding::Constant, [1, 2, 3]);
        // The canvas is not mirrored, so the pixels of the right margin come first.
        let x = CanvasAxis { first: 2, length: 12, at: 6 };
        let y = CanvasAxis { first: 0, length: 20, at: 0 };
        assert_eq!(canvas, Some(PaddedCanvas { x, y, padding: Padding::Constant, fill: [1, 2, 3] }));
        assert_eq!(view.x, Axis { start: 0, length: 20, resized: 10, offset: 0, filled: [3, 1] });
        assert_eq!(view.y, Axis { start: 0, length: 20, resized: 10, offset: 1, filled: [0; 2] });
        assert!(view.flip);
        let mut inside = Fold::new(size(14, 20));
        inside.pad([4; 4], Padding::Constant).unwrap();
        inside.crop([6, 7, 8, 9]);
        inside.resize(size(10, 10)).unwrap();
        let (view, canvas) = inside.view(Filter::Bilinear, Padding::Constant, [0; 3]);
        assert_eq!((canvas, view.x.start, view.x.length), (None, 2, 8));
        assert_eq!((view.y.start, view.y.length), (3, 9));
    }

    #[test]
    fn what_one_view_cannot_show_is_refused() {
        let mut padded = Fold::new(size(20_000, 20));
        padded.pad([1, 0, 0, 0], Padding::Constant).unwrap();
        assert!(padded.resize(size(10, 10)).unwrap_err().contains("padded to 20001 pixels"));
        padded.pad([1 << 30, 0, 0, 0], Padding::Constant).unwrap_err();
        let mut cut = Fold::new(size(20, 20));
        cut.resize(size(40, 40)).unwrap();
        cut.crop([0, 0, 30, 40]);
        assert!(cut.pad([0, 0, 1, 0], Padding::Constant).unwrap_err().contains("pad before the crop"));
        cut.pad([1, 1, 0, 1], Padding::Constant).unwrap();
        let mut small = Fold::new(size(4, 9));
        assert!(small.pad([4, 0, 0, 0], Padding::Reflect).unwrap_err().contains("at most 3"));
        small.pad([3, 4, 0, 0], Padding::Reflect).unwrap();
        let mut small = Fold::new(size(4, 9));
        assert!(small.pad([0, 10, 0, 0], Padding::Symmetric).unwrap_err().contains("at most 9"));
        small.pad([4, 9, 4, 9], Padding::Symmetric).unwrap();
    }
}
