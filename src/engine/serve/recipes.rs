//! The recipes (lists of transforms) of a producer, for batches of the same samples: its own recipe, and those of
//! consumers.
//!
//! A new recipe is checked on a separate thread. The check may have to read the labels of millions of samples, and
//! consumers treat a producer that does not answer as lost.

use super::tasks::TaskThread;
use super::window::RecipeNumber;
use crate::config::{Device, GivenSettings, LoaderConfig, LoaderKind, LoaderOptions};
use crate::pipeline::Pipeline;
use crate::sharing::WakeEvent;
use base::error::{Error, Result};
use base::notices;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most recipes of a producer at a time, and most recipes in the queue to be checked. Consumers with further recipes
/// are sent to another producer.
const MAX_RECIPES: usize = 64;

/// Most recipes that are remembered as unsuitable.
const MAX_REFUSED: usize = 256;

/// Number of the pipeline's own recipe.
const OWN: RecipeNumber = 0;

/// All recipes, and the pipeline that makes batches by them.
pub(super) struct Recipes {
    pipeline: Arc<Pipeline>,
    /// The settings of the producer, with its own recipe.
    settings: GivenSettings,
    /// The text of each recipe.
    known: BTreeMap<RecipeNumber, String>,
    /// The texts of the recipes that are being checked, in order.
    looked_at: VecDeque<String>,
    looks: TaskThread<GivenSettings, LoaderConfig>,
    /// The texts of unsuitable recipes.
    refused: BTreeSet<String>,
}

/// Result of looking up a recipe.
pub(super) enum RecipeFound {
    /// The recipe is usable.
    Number(RecipeNumber),
    /// The recipe is new, with this text. [`Recipes::seen`] reports it later.
    Later(String),
    /// The recipe is not usable: it does not fit the settings of this producer, such as its `memory`, or too many
    /// recipes are being checked.
    Never,
}

impl Recipes {
    /// Makes the recipes of a producer with these settings. The `bell` rings when a recipe has been checked.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that do not fit; [`Error::Unavailable`] if the thread cannot be started.
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        settings: &GivenSettings,
        bell: Arc<WakeEvent>,
    ) -> Result<Self> {
        let known = BTreeMap::from([(OWN, settings.recipe_text(LoaderKind::Images)?)]);
        let own = pipeline.clone();
        let looks = TaskThread::start("foreload-recipes", bell, move |settings| config(&own, &settings))?;
        let (settings, looked_at, refused) = (settings.clone(), VecDeque::new(), BTreeSet::new());
        Ok(Self { pipeline, settings, known, looked_at, looks, refused })
    }

    /// Looks up a recipe, and queues a new one to be checked.
    pub(super) fn find(&mut self, recipe: &GivenSettings) -> RecipeFound {
        let settings = self.settings.with_recipe(recipe);
        let Ok(text) = settings.recipe_text(LoaderKind::Images) else { return RecipeFound::Never };
        if let Some((number, _)) = self.known.iter().find(|(_, known)| **known == text) {
            return RecipeFound::Number(*number);
        }
        if !self.looked_at.contains(&text) {
            if self.looked_at.len() >= MAX_RECIPES || self.refused.contains(&text) {
                return RecipeFound::Never;
            }
            self.looked_at.push_back(text.clone());
            self.looks.give(settings);
        }
        RecipeFound::Later(text)
    }

    /// Returns the text of the next recipe that has been checked, and its number if batches can be made by it. Also
    /// removes the recipes that are not `in_use`.
    pub(super) fn seen(
        &mut self,
        in_use: impl FnOnce() -> BTreeSet<RecipeNumber>,
    ) -> Option<(String, Option<RecipeNumber>)> {
        let config = self.looks.take()?.ok();
        let text = self.looked_at.pop_front()?;
        let in_use = in_use();
        let is_kept = |number| number == OWN || in_use.contains(&number);
        self.known.retain(|number, _| is_kept(*number));
        self.pipeline.keep_recipes(is_kept);
        if config.is_none() {
            if self.refused.len() >= MAX_REFUSED {
                self.refused.clear();
            }
            self.refused.insert(text.clone());
        }
        let config = config.filter(|_| self.known.len() < MAX_RECIPES);
        let number = config.map(|config| self.pipeline.add_recipe(config));
        if let Some(number) = number {
            self.known.insert(number, text.clone());
        }
        Some((text, number))
    }
}

/// Resolves these settings for the producer's pipeline. They differ from its own settings only by the recipe.
///
/// # Errors
/// [`Error::Config`] that names the setting.
fn config(pipeline: &Pipeline, settings: &GivenSettings) -> Result<LoaderConfig> {
    let own = pipeline.config();
    // Warnings are dropped here: the loader with this recipe shows the same ones.
    let config = notices::without_notices(|| options(settings)?.validate()?.check(pipeline.index()))?;
    let (asked, had) = (&config.label_columns, &own.label_columns);
    if asked.len() != had.len() || !asked.iter().zip(&**had).all(|(asked, had)| asked.is_same_as(had)) {
        let message =
            "has changed since the process that makes the shared batches began: make the loaders again";
        return Err(Error::config("labels", message));
    }
    let (selection, label_columns) = (own.selection.clone(), own.label_columns.clone());
    Ok(LoaderConfig { selection, label_columns, neighbour_blocks: own.neighbour_blocks.clone(), ..config })
}

/// Returns the options of a producer with these settings.
///
/// # Errors
/// [`Error::Config`] that names the setting.
pub(super) fn options(settings: &GivenSettings) -> Result<LoaderOptions> {
    let mut options = settings.options(LoaderKind::Images)?;
    options.progress = false;
    // The pipeline must be able to keep all batches of the window.
    options.keep = options.shared_window.saturating_add(super::RESERVE);
    options.device = Device::Cpu.to_string();
    Ok(options)
}
