//! Renders the images of a recipe's views from decoded planes.

use super::colour::ColourStep;
use super::{DrawnView, Recipe, RecipeView};
use crate::augment::Augmenter;
use crate::decode::Planes;
use crate::simd::Level;

/// Renders the views of a recipe, one image after another; owns tables and scratch memory. Each thread has one.
#[derive(Debug)]
pub(crate) struct Renderer {
    /// A renderer for each list of views.
    lists: Vec<ListRenderer>,
    /// The list of each view.
    list_of: Vec<usize>,
}

/// Renders the views of one list.
#[derive(Debug)]
struct ListRenderer {
    /// Writes the output.
    augmenter: Augmenter,
    /// Of lists that change colours.
    colours: Option<ColourPass>,
}

/// Where an image's colours are changed: between the resize and the output, as whole grey levels.
#[derive(Debug)]
struct ColourPass {
    /// Writes the levels, a plane of each colour.
    augmenter: Augmenter,
    steps: Vec<ColourStep>,
    levels: Vec<u8>,
}

impl Renderer {
    /// A renderer of `recipe`, with the instructions of `level` or the best below it that this processor has.
    pub(crate) fn new(recipe: &Recipe, level: Level) -> Self {
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

    /// Writes the image of view number `view`, which was `drawn`, to `out`: exactly
    /// [`Output::bytes`](crate::augment::Output::bytes) bytes of [`RecipeView::output`], all of which are written.
    ///
    /// # Panics
    /// As [`Augmenter::render`], when `planes` do not hold [`DrawnViews::region`](super::DrawnViews::region), or
    /// there is no such view.
    pub(crate) fn render(&mut self, view: usize, planes: &Planes, drawn: &DrawnView, out: &mut [u8]) {
        self.lists[self.list_of[view]].render(planes, drawn, out);
    }
}

impl ListRenderer {
    fn new(view: &RecipeView, level: Level) -> Self {
        let output = view.output.clone();
        let colours = view.levels().map(|levels| ColourPass {
            augmenter: Augmenter::new(levels, level),
            steps: view.colour.clone(),
            levels: Vec::new(),
        });
        Self { augmenter: Augmenter::new(output, level), colours }
    }

    fn render(&mut self, planes: &Planes, drawn: &DrawnView, out: &mut [u8]) {
        let DrawnView { view, width, height, .. } = *drawn;
        self.augmenter.set_size(height, width);
        let Some(colours) = &mut self.colours else {
            return self.augmenter.render(planes, &view, out);
        };
        let pixels = width as usize * height as usize;
        // The levels need not be cleared, because every one is written.
        colours.levels.resize(3 * pixels, 0);
        colours.augmenter.set_size(height, width);
        colours.augmenter.render(planes, &view, &mut colours.levels);
        for step in &colours.steps {
            let (red, others) = colours.levels.split_at_mut(pixels);
            let (green, blue) = others.split_at_mut(pixels);
            step.apply([red, green, blue]);
        }
        self.augmenter.store(&colours.levels, out);
    }
}
