//! The recipes by which a producer makes batches of the same samples: its own, and those of consumers that came since.

use super::window::RecipeNumber;
use crate::config::{Device, GivenSettings, LoaderConfig, LoaderKind, LoaderOptions};
use crate::error::{Error, Result};
use crate::notices::Notice;
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
    notices: Vec<Notice>,
}

impl Recipes {
    /// # Errors
    /// [`Error::Config`] for settings that do not fit.
    pub(super) fn new(pipeline: Arc<Pipeline>, settings: &GivenSettings) -> Result<Self> {
        let known = BTreeMap::from([(OWN, settings.recipe_text(LoaderKind::Images)?)]);
        Ok(Self { pipeline, known, settings: settings.clone(), notices: Vec::new() })
    }

    /// The number of a recipe, by which batches can be made from now on. `None` where there are too many, and for one
    /// that does not fit the settings of this producer, such as its `memory`. Those that are not `in_use` are
    /// forgotten.
    pub(super) fn number(
        &mut self,
        recipe: &GivenSettings,
        in_use: &BTreeSet<RecipeNumber>,
    ) -> Option<RecipeNumber> {
        let settings = self.settings.with_recipe(recipe);
        let text = settings.recipe_text(LoaderKind::Images).ok()?;
        if let Some((number, _)) = self.known.iter().find(|(_, known)| **known == text) {
            return Some(*number);
        }
        let is_kept = |number| number == OWN || in_use.contains(&number);
        self.known.retain(|number, _| is_kept(*number));
        self.pipeline.keep_recipes(is_kept);
        if self.known.len() >= MOST_RECIPES {
            return None;
        }
        let config = self.config(&settings).ok()?;
        let number = self.pipeline.add_recipe(config);
        self.known.insert(number, text);
        Some(number)
    }

    /// What these settings mean, which differ from the producer's by the recipe.
    fn config(&mut self, settings: &GivenSettings) -> Result<LoaderConfig> {
        let (index, own) = (self.pipeline.index(), self.pipeline.config());
        let heard = || std::iter::from_fn(|| index.notices().next());
        self.notices.extend(heard());
        let config = options(settings)?.validate()?.check(index);
        // The loader that has this recipe has heard the same of it, and nobody else needs to.
        heard().for_each(drop);
        let config = config?;
        if config.label_columns != own.label_columns {
            let message = "is not what it was when this process began to share its batches";
            return Err(Error::config("labels", message));
        }
        let (selection, label_columns) = (own.selection.clone(), own.label_columns.clone());
        Ok(LoaderConfig { selection, label_columns, stretches: own.stretches.clone(), ..config })
    }

    /// What was to be told when a recipe came.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
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
