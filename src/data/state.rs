//! Checkpoint state of a loader: how far an epoch has come, and whether the state fits the loader that resumes from it.
//! This module does no I/O.
//!
//! An epoch's order is a permutation, so a position in it says everything about progress. A [`State`] stores this
//! position and the settings that the order depends on. It counts the batches that the consumer got, never samples that
//! were read ahead. The next run starts its schedule at that position, on any number of ranks with the same global
//! batch. A state that does not fit is refused, and the error names the fields that differ.

use crate::schedule::{LastBatch, Schedule};
use base::error::{Error, Result};
use base::names::NamedValue;
use serde::{Deserialize, Serialize};

/// Version of the state's fields and of the sample order. Increase it if the random number generator changes.
pub const VERSION: u32 = 1;

/// Maximum global batch that is plausible. A state with a larger one is damaged.
const LARGEST_BATCH: u64 = 1 << 40;

/// Settings that determine the sample order. If they are equal, any number of ranks gets the same global batches.
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
    /// Digest of the blocks of neighbouring samples, in hexadecimal, if the epoch shuffles blocks; `None` if it
    /// shuffles single samples.
    pub blocks: Option<String>,
    /// What happens to the samples that do not fill the last global batch.
    pub last_batch: LastBatch,
    /// Digest of the selection that an epoch draws its samples from, in hexadecimal; `None` if an epoch draws every
    /// sample once.
    pub selection: Option<String>,
    /// How many times in a row each sample occurs.
    pub repeats: u32,
    /// How images are mixed, in JSON; `None` without mixing.
    pub mix: Option<String>,
    /// Digest of the buckets of all draws, in hexadecimal; `None` without buckets.
    pub buckets: Option<String>,
    /// Digest of the costs of all draws and the budget of a bin, in hexadecimal; `None` without bins.
    pub bins: Option<String>,
}

impl OrderIdentity {
    /// Returns the name of each setting for error messages, and its value as text.
    pub fn values(&self) -> [(&'static str, String); 11] {
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
            ("buckets", or_none(&self.buckets)),
            ("batch_tokens and the costs", or_none(&self.bins)),
        ]
    }
}

fn selection_text(selection: &Option<String>) -> String {
    selection.clone().unwrap_or_else(|| "every sample once".into())
}

fn or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "None".into())
}

/// Progress of an epoch. All ranks have the same state except for `errors`. It takes a few hundred bytes as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The [`VERSION`] of the program that wrote the state.
    pub version: u32,
    /// The dataset's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// The seed of order and augmentation.
    pub seed: u64,
    /// The index of the epoch.
    pub epoch: u64,
    /// Number of positions of the epoch's order that are finished: the consumers of all ranks have received their
    /// samples.
    pub position: u64,
    /// Number of samples that all ranks together take in a step.
    pub global_batch: u64,
    /// The number of samples that an epoch draws.
    pub epoch_size: u64,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// Digest of the blocks of neighbouring samples, in hexadecimal, if the epoch shuffles blocks; `None` if it
    /// shuffles single samples.
    pub blocks: Option<String>,
    /// Number of ranks that the blocks are divided among.
    pub shuffle_ranks: Option<u32>,
    /// What happens to the samples that do not fill the last global batch: the name of a [`LastBatch`].
    pub last_batch: String,
    /// Digest of the selection that an epoch draws its samples from, in hexadecimal; `None` if an epoch draws every
    /// sample once.
    pub selection: Option<String>,
    /// How many times in a row each sample occurs; 1 in states without this field.
    #[serde(default = "once")]
    pub repeats: u32,
    /// How images are mixed, in JSON; `None` without mixing and in states without this field.
    pub mix: Option<String>,
    /// The buckets; not written without buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Box<BucketState>>,
    /// The bins; not written without `batch_tokens`. Positions and the global batch are then counted in bins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bins: Option<Box<BinState>>,
    /// Number of failures so far in this epoch on the rank that saved the state. Only this field differs between ranks.
    /// Each rank that resumes from the state counts these failures towards its `max_errors`.
    pub errors: u64,
}

/// What the state of an epoch by buckets has in addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketState {
    /// Digest of the buckets of all draws, in hexadecimal.
    pub digest: String,
    /// Number of steps of the epoch, which does not follow from its draws.
    pub steps: u64,
}

/// What the state of an epoch in bins has in addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinState {
    /// Digest of the costs of all draws and the budget of a bin, in hexadecimal.
    pub digest: String,
    /// Number of bins in a global step.
    pub step_bins: u32,
    /// Number of steps of the epoch on each rank.
    pub steps: u64,
}

fn once() -> u32 {
    1
}

impl State {
    /// Makes the state of `epoch` after `steps` steps of `schedule`, with `errors` failures.
    pub fn new(identity: &OrderIdentity, epoch: u64, schedule: &Schedule, steps: u64, errors: u64) -> Self {
        Self {
            version: VERSION,
            fingerprint: identity.fingerprint.clone(),
            seed: identity.seed,
            epoch,
            position: steps.saturating_mul(schedule.global_batch()).min(match &identity.buckets {
                Some(_) => schedule.order().len(),
                None if schedule.step_bins().is_some() => u64::MAX,
                None => identity.epoch_size,
            }),
            global_batch: schedule.global_batch(),
            epoch_size: identity.epoch_size,
            shuffle: identity.shuffle,
            blocks: identity.blocks.clone(),
            shuffle_ranks: schedule.order().parts(),
            last_batch: identity.last_batch.name().into(),
            selection: identity.selection.clone(),
            repeats: identity.repeats,
            mix: identity.mix.clone(),
            buckets: identity.buckets.clone().map(|digest| {
                let steps = schedule.steps();
                Box::new(BucketState { digest, steps })
            }),
            bins: identity.bins.clone().zip(schedule.step_bins()).map(|(digest, step_bins)| {
                let steps = schedule.steps();
                Box::new(BinState { digest, step_bins, steps })
            }),
            errors,
        }
    }

    /// Reads a state from JSON.
    ///
    /// # Errors
    /// [`Error::Config`] for `state` if the text is no state, or a state of another version.
    pub fn from_json(text: &str) -> Result<Self> {
        // Read the version first: another version may have other fields.
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u32>,
        }
        let unusable =
            |error: serde_json::Error| Error::config("state", format!("is not a loader state: {error}"));
        match serde_json::from_str(text).map_err(unusable)? {
            Versioned { version: Some(VERSION) } => {}
            Versioned { version: None } => {
                return Err(Error::config("state", "is not a loader state: it has no version"));
            }
            Versioned { version: Some(other) } => {
                let message = format!(
                    "has version {other}, but this Foreload supports version {VERSION}: load it with the Foreload that \
                     saved it, or start a new training run"
                );
                return Err(Error::config("state", message));
            }
        }
        let state: Self = serde_json::from_str(text).map_err(unusable)?;
        let sound = (1..=LARGEST_BATCH).contains(&state.global_batch) && state.position <= state.end();
        if !sound || !(state.is_through() || state.position.is_multiple_of(state.global_batch)) {
            let message = format!(
                "is damaged: position {} of {} samples does not fit global batches of {}",
                state.position, state.epoch_size, state.global_batch
            );
            return Err(Error::config("state", message));
        }
        Ok(state)
    }

    /// Returns the state as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }

    /// Checks that the state belongs to the sample order `here`.
    ///
    /// # Errors
    /// [`Error::Config`] that names all differences.
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
            or_none(&self.buckets.as_ref().map(|buckets| buckets.digest.clone())),
            or_none(&self.bins.as_ref().map(|bins| bins.digest.clone())),
        ];
        let differences: Vec<String> = std::iter::zip(saved, here.values())
            .filter(|(saved, (_, here))| saved != here)
            .map(|(saved, (what, here))| format!("{what} was {saved} and is {here}"))
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!(
            "was saved with another sample order: {}; use the dataset and settings that it was saved with, or start a \
             new training run",
            differences.join(", ")
        );
        Err(Error::config("state", message))
    }

    /// Returns the position after the last step: with buckets or bins, steps have places for padding.
    fn end(&self) -> u64 {
        let steps = self.buckets.as_deref().map(|buckets| buckets.steps);
        let steps = steps.or(self.bins.as_deref().map(|bins| bins.steps));
        steps.map_or(self.epoch_size, |steps| steps.saturating_mul(self.global_batch))
    }

    /// Whether the epoch has ended.
    pub fn is_through(&self) -> bool {
        let next = if self.last_batch == LastBatch::Drop.name() { self.global_batch } else { 1 };
        self.position.saturating_add(next) > self.end()
    }

    /// Returns this state if it was saved after `at_step` steps, or if `at_step` is `None`.
    ///
    /// # Errors
    /// [`Error::Config`] for `at_step` if the state was saved after another number of steps.
    pub fn at_step(self, at_step: Option<u64>) -> Result<Self> {
        let steps = self.position.div_ceil(self.global_batch);
        if at_step.is_none_or(|step| step == steps) {
            return Ok(self);
        }
        let message =
            format!("is {}, but no batch was yielded since step {steps}", at_step.unwrap_or_default());
        Err(Error::config("at_step", message))
    }

    /// Returns the step of `schedule` at which a run that resumes from this state begins.
    ///
    /// # Errors
    /// [`Error::Config`] if the epoch was begun with another global batch, another number of shuffle ranks or other
    /// global steps of bins. The message names values that fit.
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
                "is {here}, but the epoch was started with {begun}: set shuffle_ranks={begun} on every rank"
            );
            return Err(Error::config("shuffle_ranks", message));
        }
        if let Some(bins) = &self.bins {
            return self.first_step_of_bins(bins, schedule);
        }
        let (saved, here) = (self.global_batch, schedule.global_batch());
        let (batch_size, world_size) = (schedule.batch_size(), u64::from(schedule.world_size()));
        if saved != here {
            let begun = format!(
                "{batch_size} on each of {world_size} ranks is a global batch of {here}, but the epoch was started \
                 with {saved}"
            );
            return Err(match saved % world_size {
                0 => Error::config("batch_size", format!("{begun}: set batch_size={}", saved / world_size)),
                _ => Error::config(
                    "world_size",
                    format!(
                        "{begun}, which {world_size} ranks cannot divide evenly: use one of these world sizes: {}",
                        divisors(saved, world_size)
                    ),
                ),
            });
        }
        Ok(self.position / here)
    }

    fn first_step_of_bins(&self, bins: &BinState, schedule: &Schedule) -> Result<u64> {
        let (begun, here) = (bins.step_bins, schedule.step_bins().unwrap_or_default());
        if begun != here {
            let message = format!("is {here}, but the epoch was started with {begun}: set bins={begun}");
            return Err(Error::config("bins", message));
        }
        let (position, world_size) = (self.position, schedule.world_size());
        if !position.is_multiple_of(world_size.into()) {
            let message = format!(
                "is {world_size}, but the state was saved within a step of {begun} bins, after {position} bins of the \
                 epoch, which {world_size} ranks cannot divide evenly: use one of these world sizes: {}",
                divisors(position, world_size.into())
            );
            return Err(Error::config("world_size", message));
        }
        Ok(position / u64::from(world_size))
    }
}

/// Lists the divisors of `number` that are nearest to `near`: up to 4 below `near`, and up to 4 from `near` on.
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
