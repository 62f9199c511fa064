//! The order of an epoch: the kind of shuffling that the settings request, the checks of `shuffle="blocks"`, and the
//! blocks of neighbouring samples that are read together (`NeighbourBlocks`).

use super::{LoaderConfig, LoaderOptions};
use base::error::{Error, Result};
use data::dataset::{DatasetIndex, MAX_NEIGHBOUR_BLOCK_BYTES, NeighbourBlocks, is_for_evaluation};
use data::schedule::{Assignment, LastBatch, RankRanges, Selection, Shuffling};
use std::collections::HashMap;
use std::sync::Arc;
use store::io::MAX_REMOTE_THREADS;

impl LoaderOptions {
    pub(super) fn shuffling(&self) -> Shuffling {
        self.shuffle.unwrap_or(self.trains().into())
    }

    /// Whether the loader is for training. If `train` is not set, the name of the split decides.
    pub fn trains(&self) -> bool {
        self.train.unwrap_or_else(|| !self.split.as_deref().is_some_and(is_for_evaluation))
    }

    pub(super) fn last_batch_or_default(&self) -> LastBatch {
        let usual = if self.trains() { LastBatch::Drop } else { LastBatch::Partial };
        self.last_batch.unwrap_or(usual)
    }

    pub(super) fn check_blocks(&self) -> Result<()> {
        if self.shuffling() != Shuffling::Blocks {
            return match self.shuffle_ranks {
                Some(_) => Err(Error::config("shuffle_ranks", "needs shuffle=\"blocks\"")),
                None => Ok(()),
            };
        }
        let by_place =
            "cannot be used with shuffle=\"blocks\", which draws each sample once: use shuffle=True";
        let asked = [
            ("weights", self.weights.is_some()),
            ("ratios", self.ratios.is_some()),
            ("epoch_size", self.epoch_size.is_some()),
            ("repeats", self.repeats > 1),
            ("assignment", self.assignment != Assignment::Order),
        ];
        let refused = asked.into_iter().find(|(_, is_requested)| *is_requested);
        refused.map_or(Ok(()), |(setting, _)| Err(Error::config(setting, by_place)))
    }

    pub(super) fn warn_about_evaluation(&self, index: &DatasetIndex) {
        let warn = |setting: &'static str, what: String| {
            index.notices().warn_once(("evaluation", setting), || {
                format!(
                    "{what}. Remove {setting}, or set train=True if this is training (with shuffle=False and \
                     last_batch=\"partial\" it still keeps the order of the files and all samples)"
                )
            });
        };
        if self.trains() {
            return;
        }
        if let repeats @ 2.. = self.repeats {
            let what = format!(
                "repeats is {repeats} with train=False: an epoch covers only 1/{repeats} of the samples"
            );
            warn("repeats", what);
        }
        if self.mix.is_some() {
            warn(
                "mix",
                "mix is set with train=False: images and labels are mixed with each other".to_owned(),
            );
        }
    }

    /// Returns the blocks of neighbouring samples that are read together. There are blocks only if the epoch is
    /// shuffled by blocks, or if it is sequential and reads from servers, where one request fetches several neighbours.
    pub(super) fn neighbour_blocks(
        &self,
        selection: &Selection,
        index: &DatasetIndex,
    ) -> Option<Arc<NeighbourBlocks>> {
        let most = match self.shuffling() {
            Shuffling::Blocks => MAX_NEIGHBOUR_BLOCK_BYTES,
            // A block that crosses the end of a batch also reads samples of another rank's batch. A quarter of a batch
            // keeps that share small. Each thread reads one block at a time, so the queue depth is divided among the
            // threads.
            Shuffling::Off if index.has_remote() && self.batch_tokens.is_none() => {
                let mean = index.mean_bytes();
                let samples = (self.batch_size / 4).min(self.depth_for(index) / MAX_REMOTE_THREADS as u32);
                (mean * u64::from(samples)).min(MAX_NEIGHBOUR_BLOCK_BYTES)
            }
            _ => return None,
        };
        let neighbour_blocks =
            NeighbourBlocks::new(index, selection.members(), |number| selection.member(number), most);
        if self.shuffling() == Shuffling::Blocks {
            warn_about_blocks(&neighbour_blocks, selection, index);
        } else if !neighbour_blocks.has_neighbours() {
            return None;
        }
        Some(Arc::new(neighbour_blocks))
    }
}

/// Warns if `shuffle="blocks"` has no benefit for this dataset, or makes its order worse.
fn warn_about_blocks(neighbour_blocks: &NeighbourBlocks, selection: &Selection, index: &DatasetIndex) {
    let warn = |what: &'static str, message: String| {
        let root = index.root().display();
        index.notices().warn_once(("blocks", what), || format!("{root}: {message}"));
    };
    let no_use = if !neighbour_blocks.has_neighbours() {
        Some("cannot read samples together, because each is a separate file or as large as a block")
    } else if !index.has_blocks() && !index.has_remote() {
        Some("is meant for compressed blocks and for servers, and this dataset uses neither")
    } else {
        None
    };
    if let Some(why) = no_use {
        warn(
            "no use",
            format!("shuffle=\"blocks\" {why}. Use shuffle=True, which mixes better at the same cost"),
        );
    }
    if let Some(largest) = neighbour_blocks.largest_if_few_fit() {
        warn(
            "large",
            format!(
                "compressed blocks have up to {} MB when decompressed, so shuffle=\"blocks\" can mix only few of them \
                 at a time: write the dataset with smaller blocks",
                largest / 1_000_000
            ),
        );
    }
    if are_sorted(selection, index) {
        let message = "neighbouring samples mostly have the same class, so batches with shuffle=\"blocks\" contain few \
            classes, which hurts training: shuffle the samples when you write the dataset, or use shuffle=True with a \
            cache";
        warn("sorted", message.to_owned());
    }
}

const COMPARED: u64 = 10_000;

/// Whether the dataset looks sorted by class: the share of neighbours with the same class is closer to 1 than to the
/// share in a random order.
fn are_sorted(selection: &Selection, index: &DatasetIndex) -> bool {
    let members = selection.members();
    if !index.is_labeled() || members < 2 {
        return false;
    }
    let label = |member| index.label(selection.member(member));
    let step = (members / COMPARED).max(1);
    let pairs = (0..members - 1).step_by(step as usize).map(|member| (label(member), label(member + 1)));
    let (mut counts, mut alike, mut all) = (HashMap::new(), 0.0, 0.0);
    for (one, other) in pairs {
        *counts.entry(one).or_insert(0.0) += 1.0;
        alike += f64::from(u8::from(one == other));
        all += 1.0;
    }
    let by_chance: f64 = counts.values().map(|count: &f64| (count / all).powi(2)).sum();
    alike / all > by_chance + (1.0 - by_chance) / 2.0
}

impl LoaderConfig {
    /// Returns the blocks of neighbouring samples by which the epoch is shuffled; `None` if it is not shuffled by
    /// blocks.
    pub fn blocks(&self) -> Option<&Arc<NeighbourBlocks>> {
        self.neighbour_blocks.as_ref().filter(|_| self.shuffling == Shuffling::Blocks)
    }

    /// Whether `shuffle="blocks"` is compatible with the other settings.
    pub fn can_shuffle_blocks(&self) -> bool {
        !self.selection.is_weighted()
            && self.selection.draws() == self.selection.members()
            && self.repeats == 1
            && self.assignment == Assignment::Order
    }

    /// Returns how blocks are divided among `world_size` ranks.
    ///
    /// # Errors
    /// [`Error::Config`] for a `shuffle_ranks` that does not divide the global batch.
    pub fn divided(&self, world_size: u32) -> Result<RankRanges> {
        let parts = self.shuffle_ranks.unwrap_or(world_size);
        let global_batch = u64::from(self.batch_size) * u64::from(world_size);
        if parts == 0 || !global_batch.is_multiple_of(parts.into()) {
            let message = format!(
                "is {parts}, must be a divisor of the global batch of {global_batch} samples ({world_size} ranks × \
                 batch_size={})",
                self.batch_size
            );
            return Err(Error::config("shuffle_ranks", message));
        }
        Ok(RankRanges { parts, global_batch })
    }
}
