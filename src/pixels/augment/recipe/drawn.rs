//! The draws for one image: what each view shows, and which region must be decoded for all views.

use super::RecipeView;
use crate::augment::ops::{Erasure, PixelOp};
use crate::augment::{Axis, CanvasAxis, Fidelity, ImageToDraw, PaddedCanvas, View};
use crate::decode::{Region, Turn};

/// The part of an image that one view shows, and how the view shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnView {
    /// The mapping from source pixels to output pixels.
    pub view: View,
    /// The same view of the planes from which it is rendered, and whether the columns of these planes are the rows of
    /// the view, for an image that is stored rotated or mirrored. `None`: `view`, and they are not.
    pub of_planes: Option<(View, bool)>,
    /// The number of columns of the output.
    pub width: u32,
    /// The number of rows of the output.
    pub height: u32,
    /// Whether left and right, and whether top and bottom, were mirrored before the image was resized. Masks need this,
    /// because the nearest pixels of a mirrored image are different pixels.
    pub is_resized_mirrored: [bool; 2],
    /// The position of the image on the canvas of `view`, if the image was padded before it was resized. Otherwise
    /// `view` is a view of the image itself.
    pub canvas: Option<PaddedCanvas>,
    /// For each of the sample's boxes, whether a transform has dropped it. Boxes after the end of this list are kept.
    pub dropped: Vec<bool>,
    /// The operations on the image's grey levels, in order.
    pub ops: Vec<PixelOp>,
    /// The rectangles that are overwritten in the finished image, in order.
    pub erasures: Vec<Erasure>,
}

/// The part of one image that each view of a recipe shows, and the region that must be decoded for all views.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnViews {
    views: Vec<DrawnView>,
    stored: (u32, u32),
    turn: Turn,
    needs_upright_planes: bool,
    region: Region,
    atlas: Option<CanvasAtlas>,
}

/// One picture with the canvases of all views of an image, one canvas below the other, so that all views are rendered
/// from the same planes. Each canvas is reduced to the part that its view needs.
#[derive(Debug, Clone, PartialEq)]
struct CanvasAtlas {
    whole: Region,
    parts: Vec<Region>,
}

/// The maximum number of pixels of all canvases of an image together, so that sides and sizes of planes fit 32 bits.
const MAX_PIXELS: u64 = 1 << 28;

impl DrawnView {
    /// Returns the view of the planes from which the image is rendered.
    pub fn planes_view(&self) -> &View {
        self.of_planes.as_ref().map_or(&self.view, |(view, _)| view)
    }

    /// Returns whether the rows of the planes are the columns of [`DrawnView::planes_view`].
    pub(in crate::augment) fn has_transposed_planes(&self) -> bool {
        self.of_planes.as_ref().is_some_and(|(_, transposed)| *transposed)
    }

    /// Returns the first column and row of the source that are resized.
    pub fn first_pixel(&self) -> [u32; 2] {
        let axis = |of: fn(&PaddedCanvas) -> &CanvasAxis, start| {
            self.canvas.as_ref().map_or(start, |on| of(on).first)
        };
        [axis(|on| &on.x, self.view.x.start), axis(|on| &on.y, self.view.y.start)]
    }

    /// Returns the number of columns and the number of rows of the source that are resized, without padding around
    /// them.
    pub fn source_pixels(&self) -> [u32; 2] {
        let axis =
            |of: fn(&PaddedCanvas) -> &CanvasAxis, n| self.canvas.as_ref().map_or(n, |on| of(on).length);
        [axis(|on| &on.x, self.view.x.length), axis(|on| &on.y, self.view.y.length)]
    }

    /// Returns how many pixels are added to the source pixels before the resize: left, top, right, bottom. A number is
    /// negative if pixels are cut off at that side, but mirrored padding at the other side shows copies of them.
    pub fn added_before_resize(&self) -> [i64; 4] {
        let Some(PaddedCanvas { x, y, .. }) = &self.canvas else { return [0; 4] };
        let pixels_after =
            |on: &CanvasAxis, length| i64::from(length) - i64::from(on.at) - i64::from(on.length);
        let View { x: across, y: down, .. } = &self.view;
        [x.at.into(), y.at.into(), pixels_after(x, across.length), pixels_after(y, down.length)]
    }
}

impl DrawnViews {
    /// Combines the views that were drawn for an image: one view for each of `recipes`.
    ///
    /// # Errors
    /// The reason why the views cannot be rendered together.
    pub(super) fn new(
        mut views: Vec<DrawnView>,
        recipes: &[RecipeView],
        &ImageToDraw { stored, turn, .. }: &ImageToDraw<'_>,
    ) -> Result<Self, String> {
        let is_on_canvas = views.iter().any(|drawn| drawn.canvas.is_some());
        if is_on_canvas {
            views.iter_mut().for_each(DrawnView::convert_to_canvas);
        }
        let is_turned = turn != Turn::UPRIGHT;
        let needs_upright_planes = is_turned
            && (is_on_canvas
                || recipes.iter().any(|recipe| recipe.output.fidelity == Fidelity::Exact)
                || views.iter().any(|drawn| !drawn.view.filter.interpolates()));
        let size = turn.shown(stored);
        if is_turned && !is_on_canvas {
            let mirrors = if needs_upright_planes { [false; 2] } else { turn.mirrors() };
            for (drawn, recipe) in views.iter_mut().zip(recipes) {
                let view = drawn.view.mirrored(mirrors, size, &recipe.output(drawn));
                drawn.of_planes = Some((view, turn.transposes()));
            }
        }
        let of_view =
            |(drawn, recipe): (&DrawnView, &RecipeView)| drawn.planes_view().region(&recipe.output(drawn));
        let mut needed: Vec<Region> = views.iter().zip(recipes).map(of_view).collect();
        let atlas = if is_on_canvas { Some(CanvasAtlas::new(&mut views, &mut needed)?) } else { None };
        let region = needed.into_iter().reduce(Region::union).ok_or("a recipe has no view")?;
        let region = match needs_upright_planes {
            true => turn.stored_region(region, size),
            false => turn.transposed_region(region),
        };
        Ok(Self { views, stored, turn, needs_upright_planes, region, atlas })
    }

    /// Returns the part that each view shows, in the order of the recipe.
    pub fn views(&self) -> &[DrawnView] {
        &self.views
    }

    /// Returns the width and height of the upright image.
    pub fn image_size(&self) -> (u32, u32) {
        self.turn.shown(self.stored)
    }

    /// Returns the width and height of the image in its file.
    pub fn stored_size(&self) -> (u32, u32) {
        self.stored
    }

    /// Returns how the image is turned to be upright.
    pub fn turn(&self) -> Turn {
        self.turn
    }

    /// Returns whether the views need planes in grey or RGB that are not mirrored. Otherwise they are rendered from the
    /// decoded planes.
    pub(in crate::augment) fn needs_upright_planes(&self) -> bool {
        self.needs_upright_planes
    }

    /// Returns whether a [`CanvasPainter`](crate::augment::CanvasPainter) changes the decoded planes before the views
    /// are rendered.
    pub fn is_painted(&self) -> bool {
        self.atlas.is_some() || self.needs_upright_planes || self.turn.transposes()
    }

    /// Returns the region of the stored image that must be decoded for all views.
    pub fn region(&self) -> Region {
        self.region
    }

    /// Returns the picture of all canvases: the region that the views need, and the part for each view. Returns `None`
    /// if the views show the image itself. Either all views have a canvas, or no view has one.
    pub fn canvas(&self) -> Option<(Region, &[Region])> {
        self.atlas.as_ref().map(|atlas| (atlas.whole, atlas.parts.as_slice()))
    }
}

impl DrawnView {
    /// Turns a view of the image into a view of a canvas that holds exactly the part of the image that is resized.
    fn convert_to_canvas(&mut self) {
        if self.canvas.is_none() {
            let View { x, y, padding, .. } = &mut self.view;
            let all_of = |axis: &mut Axis| {
                let first = std::mem::take(&mut axis.start);
                CanvasAxis { first, length: axis.length, at: 0 }
            };
            self.canvas = Some(PaddedCanvas { x: all_of(x), y: all_of(y), padding: *padding, fill: [0; 3] });
        }
    }
}

impl CanvasAtlas {
    /// Places the `needed` part of each view's canvas in the picture of all canvases. Then replaces each region in
    /// `needed` by the region of the image that it shows.
    fn new(views: &mut [DrawnView], needed: &mut [Region]) -> Result<Self, String> {
        // A view's canvas may begin before the part that is needed, but must not begin at a negative index. So the
        // first part is placed at an offset.
        let far = |of: fn(&Region) -> u32| needed.iter().map(of).max().unwrap_or(0);
        let (x, y) = (far(|region| region.x), far(|region| region.y));
        let (width, rows) =
            (far(|region| region.width), needed.iter().map(|region| u64::from(region.height)));
        let rows: u64 = rows.sum();
        if u64::from(width) * rows > MAX_PIXELS {
            return Err(format!(
                "the padded parts of all views would have {width}×{rows} pixels before the resize, more than \
                 {MAX_PIXELS}: pad less, or pad after the resize"
            ));
        }
        let (mut parts, mut end) = (Vec::with_capacity(views.len()), y);
        for (drawn, needed) in views.iter_mut().zip(needed) {
            let part = Region { x, y: end, ..*needed };
            (drawn.view.x.start, drawn.view.y.start) = (part.x - needed.x, part.y - needed.y);
            end += part.height;
            parts.push(part);
            *needed = drawn.canvas.as_ref().map_or(*needed, |canvas| canvas.of_image(needed));
        }
        Ok(Self { whole: Region { x, y, width, height: rows as u32 }, parts })
    }
}
