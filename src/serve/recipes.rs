//! The recipes by which a producer makes batches of the same samples: its own, and those of consumers that came since.

use super::window::RecipeNumber;
use crate::config::{Device, GivenSettings, LoaderKind, LoaderOptions};
use crate::error::Result;
use crate::pipeline::Pipeline;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most recipes of a producer at a time. Whoever has a further one goes elsewhere.
const MOST_RECIPES: usize = 64;

/// The number of the pipeline's own recipe.
const OWN: RecipeNumber = 0;

/// All recipes, and the pipeline that makes batches by them.
pub(super) struct Recipes {
    pipeline: Arc<Pipeline>,
    /// The settings of the producer, with its own recipe.
    settings: GivenSettings,
    /// What each recipe says.
    known: BTreeMap<RecipeNumber, String>,
}

impl Recipes {
    /// # Errors
    /// [`Error::Config`] for settings that do not fit.
    pub(super) fn new(pipeline: Arc<Pipeline>, settings: &GivenSettings) -> Result<Self> {
        let known = BTreeMap::from([(OWN, settings.recipe_text(LoaderKind::Images)?)]);
        Ok(Self { pipeline, known, settings: settings.clone() })
    }

    /// The number of a recipe, by which batches can be made from now on; `None` where there are too many. Those that
    /// are not `in_use` are forgotten.
    ///
    /// # Errors
    /// Those of a loader with this recipe.
    pub(super) fn number(
        &mut self,
        recipe: &GivenSettings,
        in_use: &BTreeSet<RecipeNumber>,
    ) -> Result<Option<RecipeNumber>> {
        let settings = self.settings.with_recipe(recipe);
        let text = settings.recipe_text(LoaderKind::Images)?;
        if let Some((number, _)) = self.known.iter().find(|(_, known)| **known == *text) {
            return Ok(Some(*number));
        }
        let config = options(&settings)?.validate()?.check(self.pipeline.index())?;
        let is_kept = |number| number == OWN || in_use.contains(&number);
        self.known.retain(|number, _| is_kept(*number));
        self.pipeline.keep_recipes(is_kept);
        if self.known.len() >= MOST_RECIPES {
            return Ok(None);
        }
        let number = self.pipeline.add_recipe(config);
        self.known.insert(number, text);
        Ok(Some(number))
    }
}

/// The options of a producer with these settings.
///
/// # Errors
/// [`Error::Config`] that names the setting.
pub(super) fn options(settings: &GivenSettings) -> Result<LoaderOptions> {
    let mut options = settings.options(LoaderKind::Images)?;
    options.progress = false;
    // The window is what a consumer of this pipeline keeps.
    options.keep = options.shared_window.saturating_add(super::RESERVE);
    options.device = Device::Cpu.to_string();
    Ok(options)
}
