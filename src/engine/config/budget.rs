//! Batches by budget: with `batch_tokens`, a batch is a bin of samples whose costs together are at most the budget. The
//! cost of a sample is the sum of columns of whole numbers, and of the patches of its image.

use super::buckets::set_of;
use super::{HeaderReading, LoaderConfig, LoaderOptions};
use base::error::{Error, Result};
use base::names::named;
use data::dataset::{ColumnValues, DatasetIndex, SampleColumn};
use data::schedule::{Assignment, CostTable, Selection, Shuffling};
use pixels::augment::Recipe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The cost of an image: the number of its patches.
const PATCHES: &str = "patches";

/// The patches of an image of unknown size.
const UNKNOWN: u32 = u32::MAX;

/// Policy for samples that cost more than `batch_tokens`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OverBudget {
    /// The loader is not made.
    #[default]
    Error,
    /// No epoch has them, and a warning reports their number.
    Skip,
}

named!(OverBudget: "error" => Error, "skip" => Skip);

impl LoaderOptions {
    /// Refuses settings that are not supported with `batch_tokens`, and settings that need it.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting.
    pub(super) fn check_budget(&self) -> Result<()> {
        let usual = LoaderOptions::default();
        if self.batch_tokens.is_none() {
            let given = [
                ("bins", self.bins.is_some()),
                ("cost", self.cost.is_some()),
                ("over_budget", self.over_budget != usual.over_budget),
            ];
            let refused = given.into_iter().find(|(_, is_given)| *is_given);
            return refused.map_or(Ok(()), |(setting, _)| Err(Error::config(setting, "needs batch_tokens")));
        }
        if self.cost.is_none() {
            let message = "is needed with batch_tokens: name the column of whole numbers that says what a sample \
                           costs, such as cost=\"length\", or use cost=\"patches\"";
            return Err(Error::config("cost", message));
        }
        let once = "cannot be used with batch_tokens, which draws each sample once: remove one of the two";
        let by_cost = "cannot be used with batch_tokens, with which the costs decide the samples of a batch: remove \
                       one of the two";
        let refused = [
            ("batch_size", self.batch_size != usual.batch_size, by_cost),
            ("buckets", self.buckets.is_set(), by_cost),
            (
                "shuffle",
                self.shuffling() == Shuffling::Blocks,
                "is \"blocks\", which cannot be used with batch_tokens: use shuffle=True",
            ),
            ("repeats", self.repeats > 1, once),
            ("weights", self.weights.is_some(), once),
            ("ratios", self.ratios.is_some(), once),
            ("epoch_size", self.epoch_size.is_some(), once),
            ("mix", self.mix.is_some(), by_cost),
            ("assignment", self.assignment != Assignment::Order, by_cost),
            ("shared", self.shared.is_some(), "cannot be used with batch_tokens: remove one of the two"),
            ("image_size_from", self.image_size_from.is_some(), by_cost),
            (
                "device",
                self.device.starts_with("cuda"),
                "cannot be a GPU with batch_tokens yet: use device=\"cpu\"",
            ),
        ];
        let refused = refused.into_iter().find(|(_, is_given, _)| *is_given);
        refused.map_or(Ok(()), |(setting, _, why)| Err(Error::config(setting, why)))
    }

    /// Returns the cost of each draw; `None` without `batch_tokens`. `columns` are the columns of `labels` and those of
    /// the dataset that are fields.
    ///
    /// # Errors
    /// [`Error::Config`] for columns that are not whole numbers, and for samples that cost more than the budget.
    pub(super) fn cost_table(
        &self,
        selection: &Selection,
        columns: &[SampleColumn],
        (recipe, reading): (&Recipe, Option<&HeaderReading>),
        index: &DatasetIndex,
    ) -> Result<Option<Arc<CostTable>>> {
        let (Some(budget), Some(names)) = (self.batch_tokens, &self.cost) else { return Ok(None) };
        let draws = selection.draws();
        if draws >= 1 << 32 {
            let message = format!("is for fewer than 2**32 samples, but an epoch draws {draws}");
            return Err(Error::config("batch_tokens", message));
        }
        let mut costs = vec![0u32; draws as usize];
        for name in names {
            if name == PATCHES {
                let patches = self.patches(selection, recipe, reading, index)?;
                costs.iter_mut().zip(patches).for_each(|(cost, more)| *cost = cost.saturating_add(more));
                continue;
            }
            let (column, values) = integers(name, columns)?;
            for (cost, draw) in costs.iter_mut().zip(0..) {
                let sample = selection.member(draw);
                let value = values[sample as usize];
                if value < 0 || !column.has(sample) {
                    let has = if value < 0 { format!("is {value}") } else { "has no value".to_owned() };
                    let path = index.shown_path(sample);
                    let message = format!(
                        "{name:?} {has} for sample {sample}, {}: leave it out with indices=",
                        path.display()
                    );
                    return Err(Error::config("cost", message));
                }
                *cost = cost.saturating_add(u32::try_from(value).unwrap_or(u32::MAX));
            }
        }
        let table = CostTable::new(costs, budget);
        let over = draws - table.fitting();
        let Some(first) = table.over_budget().next() else { return Ok(Some(Arc::new(table))) };
        let (sample, cost) = (selection.member(first), table.cost(first));
        let message = format!(
            "{over} of {draws} samples cost more than batch_tokens, which is {budget}; the first is sample {sample}, \
             {}, which costs {cost}",
            index.shown_path(sample).display()
        );
        if self.over_budget == OverBudget::Error {
            let message =
                format!("{message}: raise batch_tokens, or leave them out with over_budget=\"skip\"");
            return Err(Error::config("over_budget", message));
        }
        if table.fitting() == 0 {
            return Err(Error::config("batch_tokens", message));
        }
        index.notices().warn_once("over budget", || format!("{message}: they are left out of all epochs"));
        Ok(Some(Arc::new(table)))
    }
}

impl LoaderOptions {
    /// Whether the size of each image decides its cost.
    pub(super) fn costs_patches(&self) -> bool {
        self.batch_tokens.is_some() && self.cost.iter().flatten().any(|name| name == PATCHES)
    }

    /// Returns the number of patches of the first image of each draw, which `recipe` transforms. An image that cannot
    /// be read has the average number, so that others can replace it.
    fn patches(
        &self,
        selection: &Selection,
        recipe: &Recipe,
        reading: Option<&HeaderReading>,
        index: &DatasetIndex,
    ) -> Result<Vec<u32>> {
        let (Some(side), Some(reading)) = (recipe.patch(), reading) else {
            let message = "is \"patches\", but the transforms of the first image do not end with Patchify";
            return Err(Error::config("cost", message));
        };
        if let Some(name) = recipe.draws_size() {
            let message = format!(
                "is \"patches\", but {name} draws another size in each epoch: use transforms with which an image has \
                 the same size in all epochs"
            );
            return Err(Error::config("cost", message));
        }
        let in_patches = |width: u32, height: u32| width / side * (height / side);
        if let Some(size) = recipe.views()[0].size() {
            return Ok(vec![in_patches(size.width, size.height); selection.draws() as usize]);
        }
        let keys = recipe.keys(self.seed, 0);
        let of = |size: (u32, u32)| {
            let drawn = recipe.draw(&keys, 0, 0, size).ok()?;
            drawn.views().first().map(|view| in_patches(view.width, view.height))
        };
        let members = || (0..selection.members()).map(|number| selection.member(number) as u32);
        let wanted = (selection.members() < index.len()).then(|| set_of(members(), index));
        let of_samples: Vec<AtomicU32> = (0..index.len()).map(|_| AtomicU32::new(UNKNOWN)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        reading.sizes(index, wanted.as_ref())?.for_each_chunk(threads, |first, chunk| {
            for (size, patches) in chunk.iter().zip(&of_samples[first as usize..]) {
                patches
                    .store(size.shown(reading.is_applied).and_then(of).unwrap_or(UNKNOWN), Ordering::Relaxed);
            }
            Ok(())
        })?;
        let patches = |sample: u32| of_samples[sample as usize].load(Ordering::Relaxed);
        let found: Vec<Option<u32>> = members()
            .map(patches)
            .map(|patches| Some(patches).filter(|patches| *patches != UNKNOWN))
            .collect();
        let readable = found.iter().flatten().count() as u64;
        let total: u64 = found.iter().flatten().copied().map(u64::from).sum();
        let unreadable = found.len() as u64 - readable;
        if unreadable > 0 {
            index.notices().warn_once("budgets", || {
                format!(
                    "cost: {unreadable} of {} images cannot be read or transformed; they count as images of average \
                     size, and decoding them fails (see on_error)",
                    found.len()
                )
            });
        }
        let mean = total.div_ceil(readable.max(1)) as u32;
        Ok(found.into_iter().map(|patches| patches.unwrap_or(mean)).collect())
    }
}

/// Returns the column of this name, and its whole numbers by the sample.
fn integers<'a>(name: &str, columns: &'a [SampleColumn]) -> Result<(&'a SampleColumn, &'a [i64])> {
    let Some(column) = columns.iter().find(|column| column.name == name) else {
        let message = format!(
            "names {name:?}, which is no column: add it to fields=[...] if it is a column of the dataset's tables, or \
             give it with labels="
        );
        return Err(Error::config("cost", message));
    };
    match &column.values {
        ColumnValues::Integers(None, values) => Ok((column, values)),
        _ => {
            let message = format!("names {name:?}, which is not a column of single whole numbers");
            Err(Error::config("cost", message))
        }
    }
}

impl LoaderConfig {
    /// Returns the setting that limits a batch, with its value.
    pub fn size_of_batches(&self) -> String {
        match &self.cost_table {
            Some(table) => format!("batch_tokens={}", table.budget()),
            None => format!("batch_size={}", self.batch_size),
        }
    }
}
