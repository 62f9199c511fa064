//! The recipes by which a producer makes batches of the same samples: its own, and those of consumers that came since.

use super::window::RecipeNumber;
use crate::config::{Device, GivenSettings, LoaderKind, LoaderOptions};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use std::sync::Arc;

/// The most recipes of a producer. Whoever has a further one goes elsewhere.
const MOST_RECIPES: usize = 64;

/// All recipes, and the pipeline that makes batches by them.
pub(super) struct Recipes {
    pipeline: Arc<Pipeline>,
    /// The settings of the producer, with its own recipe.
    settings: GivenSettings,
    /// What each recipe says, by its number.
    known: Vec<Vec<u8>>,
}

impl Recipes {
    /// # Errors
    /// [`Error::Config`] for settings that do not fit.
    pub(super) fn new(pipeline: Arc<Pipeline>, settings: &GivenSettings) -> Result<Self> {
        Ok(Self { pipeline, known: vec![text(settings)?], settings: settings.clone() })
    }

    /// The number of a recipe, by which batches can be made from now on; `None` where there are too many.
    ///
    /// # Errors
    /// Those of a loader with this recipe.
    pub(super) fn number(&mut self, recipe: &GivenSettings) -> Result<Option<RecipeNumber>> {
        let settings = self.settings.with_recipe(recipe);
        let text = text(&settings)?;
        if let Some(number) = self.known.iter().position(|known| *known == text) {
            return Ok(Some(number));
        }
        if self.known.len() >= MOST_RECIPES {
            return Ok(None);
        }
        let config = options(&settings)?.validate()?.check(self.pipeline.index())?;
        self.known.push(text);
        Ok(Some(self.pipeline.add_recipe(config)))
    }
}

/// What the recipe of these settings says, the same for the same recipe in whatever words.
fn text(settings: &GivenSettings) -> Result<Vec<u8>> {
    let recipe = settings.recipe(LoaderKind::Images)?;
    serde_json::to_vec(&recipe).map_err(|error| Error::Internal(error.to_string()))
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
