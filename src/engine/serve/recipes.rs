//! The recipes by which a producer makes batches of the same samples: its own, and those of consumers that came since.
//!
//! What a further recipe means is found out on a thread of its own, because the labels of millions of samples may have
//! to be read for it, and consumers take who does not answer for gone.

use super::tasks::TaskThread;
use super::window::RecipeNumber;
use crate::config::{Device, GivenSettings, LoaderConfig, LoaderKind, LoaderOptions};
use crate::pipeline::Pipeline;
use crate::sharing::Bell;
use base::error::{Error, Result};
use base::notices;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most recipes of a producer at a time, and the most that are looked at. Whoever has a further one goes elsewhere.
const MOST_RECIPES: usize = 64;

/// The most recipes of which it is remembered that they do not fit.
const MOST_REFUSED: usize = 256;

/// The number of the pipeline's own recipe.
const OWN: RecipeNumber = 0;

/// All recipes, and the pipeline that makes batches by them.
pub(super) struct Recipes {
    pipeline: Arc<Pipeline>,
    /// The settings of the producer, with its own recipe.
    settings: GivenSettings,
    /// What each recipe says.
    known: BTreeMap<RecipeNumber, String>,
    /// What those say that are being looked at, one after another.
    looked_at: VecDeque<String>,
    looks: TaskThread<GivenSettings, LoaderConfig>,
    /// What those say that do not fit.
    refused: BTreeSet<String>,
}

/// What became of looking for a recipe.
pub(super) enum RecipeFound {
    /// Batches can be made by it.
    Number(RecipeNumber),
    /// It is new. What it says is what [`Recipes::seen`] tells of later.
    Later(String),
    /// Batches are not made by it: it does not fit the settings of this producer, such as its `memory`, or too many are
    /// looked at.
    Never,
}

impl Recipes {
    /// The recipes of a producer with these settings. The `bell` is rung when it is known of a recipe what it means.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that do not fit; [`Error::Unavailable`] when no thread can be started.
    pub(super) fn new(pipeline: Arc<Pipeline>, settings: &GivenSettings, bell: Arc<Bell>) -> Result<Self> {
        let known = BTreeMap::from([(OWN, settings.recipe_text(LoaderKind::Images)?)]);
        let own = pipeline.clone();
        let looks = TaskThread::start("foreload-recipes", bell, move |settings| config(&own, &settings))?;
        let (settings, looked_at, refused) = (settings.clone(), VecDeque::new(), BTreeSet::new());
        Ok(Self { pipeline, settings, known, looked_at, looks, refused })
    }

    /// Looks for a recipe.
    pub(super) fn find(&mut self, recipe: &GivenSettings) -> RecipeFound {
        let settings = self.settings.with_recipe(recipe);
        let Ok(text) = settings.recipe_text(LoaderKind::Images) else { return RecipeFound::Never };
        if let Some((number, _)) = self.known.iter().find(|(_, known)| **known == text) {
            return RecipeFound::Number(*number);
        }
        if !self.looked_at.contains(&text) {
            if self.looked_at.len() >= MOST_RECIPES || self.refused.contains(&text) {
                return RecipeFound::Never;
            }
            self.looked_at.push_back(text.clone());
            self.looks.give(settings);
        }
        RecipeFound::Later(text)
    }

    /// The next recipe of which it is known by now what it means: what it says, and its number if batches can be made
    /// by it. Those that are not `in_use` are forgotten then.
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
            if self.refused.len() >= MOST_REFUSED {
                self.refused.clear();
            }
            self.refused.insert(text.clone());
        }
        let config = config.filter(|_| self.known.len() < MOST_RECIPES);
        let number = config.map(|config| self.pipeline.add_recipe(config));
        if let Some(number) = number {
            self.known.insert(number, text.clone());
        }
        Some((text, number))
    }
}

/// What these settings mean for the producer's pipeline, from whose own they differ by the recipe.
///
/// # Errors
/// [`Error::Config`] that names the setting.
fn config(pipeline: &Pipeline, settings: &GivenSettings) -> Result<LoaderConfig> {
    let own = pipeline.config();
    // The loader that has this recipe hears the same of it, and nobody else needs to.
    let config = notices::unheard(|| options(settings)?.validate()?.check(pipeline.index()))?;
    if config.label_columns != own.label_columns {
        let message = "is not what it was when this process began to share its batches";
        return Err(Error::config("labels", message));
    }
    let (selection, label_columns) = (own.selection.clone(), own.label_columns.clone());
    Ok(LoaderConfig { selection, label_columns, stretches: own.stretches.clone(), ..config })
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
