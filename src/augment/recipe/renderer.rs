//! Planes to the images of a recipe's views.

use super::{DrawnView, Recipe};
use crate::augment::Augmenter;
use crate::decode::Planes;
use crate::simd::Level;

/// Renders the views of a recipe, one image after another; owns tables and scratch memory. One per thread.
#[derive(Debug)]
pub struct Renderer {
    /// Of each list: its views write alike.
    lists: Vec<Augmenter>,
    /// The list of each view.
    list_of: Vec<usize>,
}

impl Renderer {
    /// A renderer of `recipe`, with the instructions of `level` or the best below it that this processor has.
    pub fn new(recipe: &Recipe, level: Level) -> Self {
        let mut lists: Vec<Augmenter> = Vec::new();
        let mut list_of = Vec::new();
        for view in recipe.views() {
            let list = view.id[0] as usize;
            if list == lists.len() {
                lists.push(Augmenter::new(view.output.clone(), level));
            }
            list_of.push(list);
        }
        Self { lists, list_of }
    }

    /// Writes the image of view number `view`, which was `drawn`, to `out`: exactly [`Output::bytes`] bytes of
    /// [`RecipeView::output`], all of which are written.
    ///
    /// [`Output::bytes`]: crate::augment::Output::bytes
    /// [`RecipeView::output`]: super::RecipeView::output
    ///
    /// # Panics
    /// As [`Augmenter::render`], when `planes` do not hold [`DrawnViews::region`](super::DrawnViews::region), or there is
    /// no such view.
    pub fn render(&mut self, view: usize, planes: &Planes, drawn: &DrawnView, out: &mut [u8]) {
        let augmenter = &mut self.lists[self.list_of[view]];
        augmenter.set_size(drawn.height, drawn.width);
        augmenter.render(planes, &drawn.view, out);
    }
}
