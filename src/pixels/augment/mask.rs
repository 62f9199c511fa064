//! Renders a mask by the view of its image. Each output value is the nearest value of the mask, never a mixture.

use super::ops::PixelOp;
use super::weights::Resize;
use super::{Axis, CanvasAxis, DrawnView, Filter, View};

/// For each output pixel of an axis, returns the source pixel that it shows, or `None` if it shows the fill. `image` is
/// the position of the image on its canvas, or `None` if there is no canvas.
fn sources(
    (axis, image): (&Axis, Option<&CanvasAxis>),
    view: &View,
    n: u32,
    mirror: bool,
    is_resized_mirrored: bool,
    nearest: Filter,
) -> Vec<Option<u32>> {
    let resize = Resize::new(nearest, axis.length, axis.resized);
    let source = |o: u32| {
        let o = if mirror { n - 1 - o } else { o };
        let pixel = view.padding.source(i64::from(o) + i64::from(axis.offset), axis.resized)?;
        // Without a resize, the nearest filter would choose `pixel` itself, so the filter is not computed.
        let first = match is_resized_mirrored {
            _ if axis.length == axis.resized => pixel,
            false => resize.bounds(pixel).start,
            true => axis.length - 1 - resize.bounds(axis.resized - 1 - pixel).start,
        };
        match image {
            None => Some(axis.start + first),
            Some(image) => image.source(view.padding, first),
        }
    };
    (0..n).map(source).collect()
}

/// Calls `put` with the index and the value of each output pixel. `values` is a whole mask with `width` values in each
/// row. The mask gets the same view and the same moves of pixels as its image, `drawn`, but is resized by
/// [`Filter::Nearest`] or [`Filter::NearestExact`]. The value is `fill` where the image shows constant padding, or
/// where an operation moved in pixels from outside of the image.
pub fn render_mask(
    values: &[u16],
    width: u32,
    drawn: &DrawnView,
    nearest: Filter,
    fill: u16,
    mut put: impl FnMut(usize, u16),
) {
    if !drawn.ops.iter().any(PixelOp::moves_pixels) {
        return render_view(values, width, drawn, nearest, fill, put);
    }
    let size = (drawn.width, drawn.height);
    let mut shown = vec![fill; drawn.width as usize * drawn.height as usize];
    render_view(values, width, drawn, nearest, fill, |at, value| shown[at] = value);
    for op in &drawn.ops {
        op.move_mask(&mut shown, size, fill);
    }
    shown.into_iter().enumerate().for_each(|(at, value)| put(at, value));
}

/// Does the work of [`render_mask`] except for operations that move pixels.
fn render_view(
    values: &[u16],
    width: u32,
    drawn: &DrawnView,
    nearest: Filter,
    fill: u16,
    mut put: impl FnMut(usize, u16),
) {
    let view = &drawn.view;
    let [across, down] = drawn.is_resized_mirrored;
    let (x, y) = (drawn.canvas.as_ref().map(|on| &on.x), drawn.canvas.as_ref().map(|on| &on.y));
    let columns = sources((&view.x, x), view, drawn.width, view.flip, across, nearest);
    let rows = sources((&view.y, y), view, drawn.height, view.vertical_flip, down, nearest);
    let mut at = 0;
    for row in rows {
        let row = row.map(|row| &values[row as usize * width as usize..][..width as usize]);
        for column in &columns {
            let value = match (row, column) {
                (Some(row), Some(column)) => row[*column as usize],
                _ => fill,
            };
            put(at, value);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::Padding;

    fn render(axes: [Axis; 2], flip: bool, padding: Padding, nearest: Filter, size: (u32, u32)) -> Vec<u16> {
        let [x, y] = axes;
        let view = View { x, y, flip, vertical_flip: false, filter: Filter::Bilinear, padding };
        let drawn = DrawnView {
            view,
            of_planes: None,
            width: size.0,
            height: size.1,
            is_resized_mirrored: [false; 2],
            canvas: None,
            dropped: Vec::new(),
            ops: Vec::new(),
            erasures: Vec::new(),
        };
        let mut out = vec![0; (size.0 * size.1) as usize];
        let values: Vec<u16> = (0..12).collect();
        render_mask(&values, 4, &drawn, nearest, 99, |at, value| out[at] = value);
        out
    }

    /// As in torchvision, a mask that is mirrored before its resize is also sampled in mirrored order, so other values
    /// are nearest than without mirroring.
    #[test]
    fn a_mask_that_is_mirrored_first_is_sampled_mirrored() {
        let long = Axis { start: 1, length: 10, resized: 5, offset: 0, filled: [0; 2] };
        let short = Axis { start: 0, length: 1, resized: 1, offset: 0, filled: [0; 2] };
        let values: Vec<u16> = (0..12).collect();
        let (filter, padding) = (Filter::Bilinear, Padding::Constant);
        let across = View { x: long, y: short, flip: true, vertical_flip: false, filter, padding };
        let down = View { x: short, y: long, flip: false, vertical_flip: true, filter, padding };
        for (view, mask_width, [width, height]) in [(across, 12, [5, 1]), (down, 1, [1, 5])] {
            let seen = |is_resized_mirrored| {
                let (of_planes, canvas, dropped, ops, erasures) = Default::default();
                let drawn = DrawnView {
                    view,
                    of_planes,
                    width,
                    height,
                    is_resized_mirrored,
                    canvas,
                    dropped,
                    ops,
                    erasures,
                };
                let mut line = [0; 5];
                render_mask(&values, mask_width, &drawn, Filter::Nearest, 0, |at, value| line[at] = value);
                line
            };
            // Without `is_resized_mirrored`, every second value of 1 to 10 is sampled, and the samples are mirrored.
            // With `is_resized_mirrored`, every second value of 10 to 1 is sampled.
            assert_eq!(seen([false; 2]), [9, 7, 5, 3, 1]);
            assert_eq!(seen([true; 2]), [10, 8, 6, 4, 2]);
        }
    }

    #[test]
    fn a_mask_is_seen_as_its_image_is() {
        let axis = |start, length, full, window| Axis {
            start,
            length,
            resized: full,
            offset: window,
            filled: [0; 2],
        };
        let crop = [axis(1, 2, 2, 0), axis(0, 2, 2, 0)];
        assert_eq!(render(crop, false, Padding::Constant, Filter::Nearest, (2, 2)), [1, 2, 5, 6]);
        assert_eq!(render(crop, true, Padding::Constant, Filter::Nearest, (2, 2)), [2, 1, 6, 5]);
        // Four columns are resized to three. `Nearest` takes the pixels at 0, 1.33 and 2.67; `NearestExact` the pixels
        // at 0.67, 2 and 3.33.
        let resized = [axis(0, 4, 3, 0), axis(2, 1, 1, 0)];
        assert_eq!(render(resized, false, Padding::Constant, Filter::Nearest, (3, 1)), [8, 9, 10]);
        assert_eq!(render(resized, false, Padding::Constant, Filter::NearestExact, (3, 1)), [8, 10, 11]);
        let padded = [axis(0, 4, 4, -2), axis(0, 1, 1, 0)];
        assert_eq!(render(padded, false, Padding::Constant, Filter::Nearest, (4, 1)), [99, 99, 0, 1]);
    }
}
