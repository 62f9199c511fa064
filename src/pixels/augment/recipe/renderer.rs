//! Renders the images of a recipe's views from decoded planes.

use super::{DrawnView, Recipe, RecipeView};
use crate::augment::Augmenter;
use crate::augment::ops::{PixelPass, erase};
use crate::decode::Planes;
use base::simd::Level;

/// Renders the views of a recipe, one image after another. A renderer owns tables and scratch memory, so each thread
/// has its own renderer.
#[derive(Debug)]
pub struct Renderer {
    /// A renderer for each list of views.
    lists: Vec<ListRenderer>,
    /// For each view, the index of its list in `lists`.
    list_of: Vec<usize>,
}

#[derive(Debug)]
struct ListRenderer {
    level: Level,
    augmenter: Augmenter,
    levels: Option<LevelsRenderer>,
}

/// Renders the grey levels that operations change, between the resize and the output.
#[derive(Debug)]
struct LevelsRenderer {
    augmenter: Augmenter,
    pass: PixelPass,
}

impl Renderer {
    /// Creates a renderer of `recipe`, with the instructions of `level`, or of the best level below it that this
    /// processor supports.
    pub fn new(recipe: &Recipe, level: Level) -> Self {
        let mut lists: Vec<ListRenderer> = Vec::new();
        let mut list_of = Vec::new();
        for view in recipe.views() {
            let list = view.id[0] as usize;
            if list == lists.len() {
                lists.push(ListRenderer::new(view, level));
            }
            list_of.push(list);
        }
        Self { lists, list_of }
    }

    /// Sets whether images stay in the caches because they are read again soon. Otherwise large images are written past
    /// the caches.
    #[must_use]
    pub fn kept_in_caches(mut self, kept: bool) -> Self {
        for list in &mut self.lists {
            list.augmenter.keep_in_caches(kept);
        }
        self
    }

    /// Writes the image of the view at index `view`, as it was `drawn`, to `out`. `out` has exactly
    /// [`Output::bytes`](crate::augment::Output::bytes) bytes of [`RecipeView::output`], and all of them are written.
    ///
    /// # Panics
    /// If `planes` do not hold [`DrawnViews::region`](super::DrawnViews::region), or if there is no such view.
    pub fn render(&mut self, view: usize, planes: &Planes, drawn: &DrawnView, out: &mut [u8]) {
        self.lists[self.list_of[view]].render(planes, drawn, out);
    }
}

impl ListRenderer {
    fn new(view: &RecipeView, level: Level) -> Self {
        let output = view.output.clone();
        let levels =
            |levels| LevelsRenderer { augmenter: Augmenter::new(levels, level), pass: PixelPass::new(level) };
        Self { level, augmenter: Augmenter::new(output, level), levels: view.levels().map(levels) }
    }

    fn render(&mut self, planes: &Planes, drawn: &DrawnView, out: &mut [u8]) {
        let DrawnView { width, height, ops, erasures, .. } = drawn;
        let (view, transposed) = (drawn.planes_view(), drawn.has_transposed_planes());
        self.augmenter.set_size(*height, *width);
        if let Some(LevelsRenderer { augmenter, pass }) = &mut self.levels {
            augmenter.set_size(*height, *width);
            augmenter.render_turned(
                planes,
                view,
                transposed,
                pass.levels(*width as usize * *height as usize),
            );
            self.augmenter.store(pass.run(ops, (*width, *height)), out);
        } else {
            self.augmenter.render_turned(planes, view, transposed, out);
        }
        erase(self.level, erasures, self.augmenter.output(), out);
    }
}
