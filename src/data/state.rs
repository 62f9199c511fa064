//! How far a training has come with its data: what a checkpoint keeps of a loader, and whether it fits the loader at
//! hand. All of it is pure.

use crate::schedule::{LastBatch, Schedule};
use base::error::{Error, Result};
use base::names::NamedValue;
use serde::{Deserialize, Serialize};

/// The version of the state's fields and of the order they stand for; a new generator of random numbers is a new
/// version too.
pub const VERSION: u32 = 1;

/// A global batch with more samples than any training has.
const LARGEST_BATCH: u64 = 1 << 40;

/// What the order of samples depends on: with the same, any number of ranks gets the same global batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderIdentity {
    /// The dataset's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// The seed of order and augmentation.
    pub seed: u64,
    /// The number of samples that an epoch draws.
    pub epoch_size: u64,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// The digest of the stretches by which they are, in hexadecimal; `None` where the order is by samples.
    pub blocks: Option<String>,
    /// What becomes of the samples that do not fill the last batch.
    pub last_batch: LastBatch,
    /// The digest of what an epoch draws from, in hexadecimal; `None` when every sample is drawn once.
    pub selection: Option<String>,
    /// How many times in a row each sample comes.
    pub repeats: u32,
    /// How images are mixed, in JSON; `None` when nothing is.
    pub mix: Option<String>,
}

impl OrderIdentity {
    /// What each of these is called where they are compared, and its value in words.
    pub fn values(&self) -> [(&'static str, String); 9] {
        [
            ("the dataset's fingerprint", self.fingerprint.clone()),
            ("seed", self.seed.to_string()),
            ("shuffle", self.shuffle.to_string()),
            ("blocks", or_none(&self.blocks)),
            ("last_batch", self.last_batch.name().into()),
            ("the selection of samples", selection_text(&self.selection)),
            ("epoch_size", self.epoch_size.to_string()),
            ("repeats", self.repeats.to_string()),
            ("mix", or_none(&self.mix)),
        ]
    }
}

fn selection_text(selection: &Option<String>) -> String {
    selection.clone().unwrap_or_else(|| "every sample once".into())
}

fn or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "None".into())
}

/// How far an epoch has come. The state is the same on every rank but for `errors`, and a few hundred bytes as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The dataset's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// The seed of order and augmentation.
    pub seed: u64,
    /// The epoch's number.
    pub epoch: u64,
    /// The number of samples of the epoch's order that the consumers of all ranks have had.
    pub position: u64,
    /// The number of samples that all ranks together take in a step.
    pub global_batch: u64,
    /// The number of samples that an epoch draws.
    pub epoch_size: u64,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// The digest of the stretches by which they are, in hexadecimal; `None` where the order is by samples.
    #[serde(default)]
    pub blocks: Option<String>,
    /// The number of ranks that the stretches were divided among.
    #[serde(default)]
    pub shuffle_ranks: Option<u32>,
    /// What becomes of the samples that do not fill the last batch, by name.
    pub last_batch: String,
    /// The digest of what an epoch draws from, in hexadecimal; `None` when every sample is drawn once.
    pub selection: Option<String>,
    /// How many times in a row each sample comes; once in states that do not say.
    #[serde(default = "once")]
    pub repeats: u32,
    /// How images are mixed, in JSON; `None` when nothing is, as in states that do not say.
    #[serde(default)]
    pub mix: Option<String>,
    /// The number of failures so far in this epoch, on the rank whose state this is: the one field that differs between
    /// ranks. Each rank that goes on from the state has spent as many of its `max_errors`.
    pub errors: u64,
}

fn once() -> u32 {
    1
}

impl State {
    /// The state of `epoch` after `steps` steps of `schedule`, with `errors` failures.
    pub fn new(identity: &OrderIdentity, epoch: u64, schedule: &Schedule, steps: u64, errors: u64) -> Self {
        Self {
            version: VERSION,
            fingerprint: identity.fingerprint.clone(),
            seed: identity.seed,
            epoch,
            position: steps.saturating_mul(schedule.global_batch()).min(identity.epoch_size),
            global_batch: schedule.global_batch(),
            epoch_size: identity.epoch_size,
            shuffle: identity.shuffle,
            blocks: identity.blocks.clone(),
            shuffle_ranks: schedule.order().parts(),
            last_batch: identity.last_batch.name().into(),
            selection: identity.selection.clone(),
            repeats: identity.repeats,
            mix: identity.mix.clone(),
            errors,
        }
    }

    /// Reads a state from JSON.
    ///
    /// # Errors
    /// [`Error::Config`] for `state` when the text is no state, or of another version.
    pub fn from_json(text: &str) -> Result<Self> {
        // The version is read first, for another version may have other fields.
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u32>,
        }
        let unusable =
            |error: serde_json::Error| Error::config("state", format!("is no loader's state: {error}"));
        match serde_json::from_str(text).map_err(unusable)? {
            Versioned { version: Some(VERSION) } => {}
            Versioned { version: None } => {
                return Err(Error::config("state", "is no loader's state: it has no version"));
            }
            Versioned { version: Some(other) } => {
                let message = format!("is of version {other}, this Foreload reads and writes {VERSION}");
                return Err(Error::config("state", message));
            }
        }
        let state: Self = serde_json::from_str(text).map_err(unusable)?;
        let sound = (1..=LARGEST_BATCH).contains(&state.global_batch) && state.position <= state.epoch_size;
        if !sound || !(state.is_through() || state.position.is_multiple_of(state.global_batch)) {
            let message = format!(
                "is damaged: position {} of {} samples, global batches of {}",
                state.position, state.epoch_size, state.global_batch
            );
            return Err(Error::config("state", message));
        }
        Ok(state)
    }

    /// The state as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }

    /// Checks that the state is of one of the orders that `here` makes.
    ///
    /// # Errors
    /// [`Error::Config`] that names every difference.
    pub fn check(&self, here: &OrderIdentity) -> Result<()> {
        let saved = [
            self.fingerprint.clone(),
            self.seed.to_string(),
            self.shuffle.to_string(),
            or_none(&self.blocks),
            self.last_batch.clone(),
            selection_text(&self.selection),
            self.epoch_size.to_string(),
            self.repeats.to_string(),
            or_none(&self.mix),
        ];
        let differences: Vec<String> = std::iter::zip(saved, here.values())
            .filter(|(saved, (_, here))| saved != here)
            .map(|(saved, (what, here))| format!("{what} was {saved} and is {here}"))
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!(
            "is of another order of samples: {}; use what it was saved with, or begin a new training",
            differences.join(", ")
        );
        Err(Error::config("state", message))
    }

    /// Whether the epoch has ended.
    pub fn is_through(&self) -> bool {
        let next = if self.last_batch == LastBatch::Drop.name() { self.global_batch } else { 1 };
        self.position.saturating_add(next) > self.epoch_size
    }

    /// The state itself, if it is the one after `at_step` steps.
    ///
    /// # Errors
    /// [`Error::Config`] for `at_step` when it is not.
    pub fn at_step(self, at_step: Option<u64>) -> Result<Self> {
        let steps = self.position.div_ceil(self.global_batch);
        if at_step.is_none_or(|step| step == steps) {
            return Ok(self);
        }
        let message =
            format!("is {}, but no batch was yielded since step {steps}", at_step.unwrap_or_default());
        Err(Error::config("at_step", message))
    }

    /// The step of `schedule` that begins where the state ends.
    ///
    /// # Errors
    /// [`Error::Config`] for `batch_size` or `world_size`, with values that fit, when the epoch was begun with other
    /// global batches.
    pub fn first_step(&self, schedule: &Schedule) -> Result<u64> {
        if self.position == 0 {
            return Ok(0);
        }
        if self.is_through() {
            return Ok(schedule.steps());
        }
        if let (Some(begun), Some(here)) = (self.shuffle_ranks, schedule.order().parts())
            && begun != here
        {
            let message = format!(
                "is {here}, but the epoch was begun with blocks divided among {begun} ranks: set {begun}, on every rank"
            );
            return Err(Error::config("shuffle_ranks", message));
        }
        let (saved, here) = (self.global_batch, schedule.global_batch());
        let (batch_size, world_size) = (schedule.batch_size(), u64::from(schedule.world_size()));
        if saved != here {
            let begun = format!(
                "{batch_size} on each of {world_size} ranks is {here}, but the epoch was begun with {saved} in a step"
            );
            return Err(match saved % world_size {
                0 => Error::config("batch_size", format!("{begun}: set {}", saved / world_size)),
                _ => Error::config(
                    "world_size",
                    format!(
                        "{begun}, which does not divide among them; it does among {}",
                        divisors(saved, world_size)
                    ),
                ),
            });
        }
        Ok(self.position / here)
    }
}

/// The divisors of `number` in words; where there are many, those around `near`.
fn divisors(number: u64, near: u64) -> String {
    let pairs = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let mut all: Vec<u64> = pairs.flat_map(|divisor| [divisor, number / divisor]).collect();
    all.sort_unstable();
    all.dedup();
    let at = all.partition_point(|divisor| *divisor < near);
    let shown: Vec<String> =
        all[at.saturating_sub(4)..(at + 4).min(all.len())].iter().map(u64::to_string).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests;
