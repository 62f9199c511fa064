//! The samples that an epoch draws from, with their weights and the ratios of datasets.

use super::LoaderOptions;
use base::error::{Error, Result};
use data::dataset::{ClassRef, DatasetIndex, Select};
use data::schedule::{Selection, Shuffling};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

/// The relative frequencies with which samples are drawn. Only the ratios of weights matter. A weight is 0, or from
/// 1e-50 to 1e50.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// All classes are drawn equally often.
    Balanced,
    /// The weight of each sample of a class; 1 for classes that are not named.
    Classes(Vec<(ClassRef, f64)>),
    /// The weight of each sample of the dataset, by its id.
    Samples(Vec<f64>),
}

/// Range of weights and ratios other than 0. Within it, products and sums neither overflow nor become 0.
const SCALE: RangeInclusive<f64> = 1e-50..=1e50;

/// Selects samples by the options, and of these the samples that `filter` keeps. It gets and returns `None` for all
/// samples.
pub(super) fn select(
    options: &LoaderOptions,
    index: &DatasetIndex,
    filter: impl FnOnce(Option<Vec<u32>>) -> Result<Option<Vec<u32>>>,
) -> Result<Selection> {
    // With `classes`, samples of other classes are never drawn, so those classes need no number.
    if options.classes.is_none() {
        index.check_listed()?;
    }
    let part = Select {
        indices: options.indices.clone(),
        classes: options.classes.clone(),
        files: options.files.clone(),
    };
    let mut chosen = filter(part.resolve(index)?)?;
    let shuffled = options.shuffling() != Shuffling::Off;
    if options.weights.is_some() || options.ratios.is_some() {
        let setting = if options.weights.is_some() { "weights" } else { "ratios" };
        if !shuffled {
            return Err(Error::config(setting, "needs shuffle=True, because samples are drawn by weight"));
        }
        let weigh = Weighting::new(options, index)?;
        let strata = weigh.strata(index, chosen, setting)?;
        return Ok(with_epoch_size(Selection::of_strata(index.len(), strata), options));
    }
    if shuffled {
        // The order of a shuffled selection must not depend on the order in which the user listed the samples.
        chosen.iter_mut().for_each(|members| members.sort_unstable());
    }
    let selection = match chosen {
        None => Selection::all(index.len()),
        Some(members) => Selection::listed(index.len(), members),
    };
    Ok(with_epoch_size(selection, options))
}

fn with_epoch_size(selection: Selection, options: &LoaderOptions) -> Selection {
    match options.epoch_size {
        None => selection,
        Some(draws) => selection.with_draws(draws),
    }
}

struct Weighting<'a> {
    by: WeightRule<'a>,
    /// The sample range and the share of each dataset, if datasets are mixed by ratios. Otherwise one entry with all
    /// samples.
    parts: Vec<(Range<u64>, f64)>,
}

enum WeightRule<'a> {
    Nothing,
    Class,
    Classes(Vec<f64>),
    Samples(&'a [f64]),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StratumKey {
    part: usize,
    /// The class number if classes are balanced, else the bits of the weight.
    weight: u64,
}

impl<'a> Weighting<'a> {
    fn new(options: &'a LoaderOptions, index: &DatasetIndex) -> Result<Self> {
        if let Some(Weights::Balanced | Weights::Classes(_)) = options.weights {
            index.check_labeled("weights")?;
        }
        let by = match &options.weights {
            None => WeightRule::Nothing,
            Some(Weights::Balanced) => WeightRule::Class,
            Some(Weights::Classes(given)) => WeightRule::Classes(class_weights(given, index)?),
            Some(Weights::Samples(weights)) if weights.len() as u64 != index.len() => {
                let (given, samples) = (weights.len(), index.len());
                let message = format!("are {given}, must be one for each of the dataset's {samples} samples");
                return Err(Error::config("weights", message));
            }
            Some(Weights::Samples(weights)) => {
                weights
                    .iter()
                    .enumerate()
                    .try_for_each(|(sample, weight)| usable(*weight, || format!("sample {sample}")))?;
                WeightRule::Samples(weights)
            }
        };
        let parts = match &options.ratios {
            None => vec![(0..index.len(), 1.0)],
            Some(ratios) => {
                let parts: Vec<_> = index.parts().map(|(_, samples)| samples).collect();
                if ratios.len() != parts.len() {
                    let message =
                        format!("are {}, must be one for each of the {} datasets", ratios.len(), parts.len());
                    return Err(Error::config("ratios", message));
                }
                if !ratios.iter().all(|ratio| SCALE.contains(ratio)) {
                    let message = format!("are {ratios:?}, must be numbers from 1e-50 to 1e50");
                    return Err(Error::config("ratios", message));
                }
                parts.into_iter().zip(ratios.iter().copied()).collect()
            }
        };
        Ok(Self { by, parts })
    }

    /// Groups the samples by weight into strata. Returns each stratum with its share of the draws.
    fn strata(
        &self,
        index: &DatasetIndex,
        chosen: Option<Vec<u32>>,
        setting: &'static str,
    ) -> Result<Vec<(f64, Vec<u32>)>> {
        if index.len() > 1 << 32 {
            let message = format!("are for datasets of up to 2^32 samples, this one has {}", index.len());
            return Err(Error::config(setting, message));
        }
        let mut strata: BTreeMap<StratumKey, Vec<u32>> = BTreeMap::new();
        let mut sort = |sample: u32| {
            let key = self.key(index, sample);
            if f64::from_bits(key.weight) != 0.0 || matches!(self.by, WeightRule::Class) {
                strata.entry(key).or_default().push(sample);
            }
        };
        match chosen {
            None => (0..index.len()).for_each(|sample| sort(sample as u32)),
            Some(mut members) => {
                members.sort_unstable();
                members.into_iter().for_each(sort);
            }
        }
        let mut totals = vec![0.0; self.parts.len()];
        for (key, members) in &strata {
            totals[key.part] += self.mass(key, members);
        }
        if let Some(empty) = totals.iter().position(|total| *total <= 0.0) {
            let root =
                index.parts().nth(empty).map(|(root, _)| root.display().to_string()).unwrap_or_default();
            let message = format!("exclude all samples of {root}");
            return Err(Error::config(setting, message));
        }
        let share = |key: &StratumKey, members: &[u32]| {
            self.parts[key.part].1 * self.mass(key, members) / totals[key.part]
        };
        Ok(strata.into_iter().map(|(key, members)| (share(&key, &members), members)).collect())
    }

    fn key(&self, index: &DatasetIndex, sample: u32) -> StratumKey {
        let number = u64::from(sample);
        let part = self.parts.partition_point(|(samples, _)| samples.end <= number);
        let weight = match &self.by {
            WeightRule::Nothing => 1.0f64.to_bits(),
            // Use the dataset's own class number, so that the order of the epoch does not depend on `class_names`.
            WeightRule::Class => u64::from(index.own_label(number)),
            WeightRule::Classes(weights) => weights[index.label(number) as usize].to_bits(),
            WeightRule::Samples(weights) => weights[sample as usize].to_bits(),
        };
        StratumKey { part, weight }
    }

    fn mass(&self, key: &StratumKey, members: &[u32]) -> f64 {
        match self.by {
            WeightRule::Class => 1.0,
            _ => f64::from_bits(key.weight) * members.len() as f64,
        }
    }
}

fn class_weights(given: &[(ClassRef, f64)], index: &DatasetIndex) -> Result<Vec<f64>> {
    let mut weights = vec![1.0; index.num_classes() as usize];
    let mut named = vec![false; weights.len()];
    for (class, weight) in given {
        let number = class.number("weights", index)?;
        usable(*weight, || format!("class {class}"))?;
        if std::mem::replace(&mut named[number as usize], true) {
            return Err(Error::config(
                "weights",
                format!("names class {class} twice, by name and by number"),
            ));
        }
        weights[number as usize] = *weight;
    }
    Ok(weights)
}

fn usable(weight: f64, whose: impl Fn() -> String) -> Result<()> {
    if weight == 0.0 || SCALE.contains(&weight) {
        return Ok(());
    }
    Err(Error::config("weights", format!("{} has {weight:?}, must be 0, or from 1e-50 to 1e50", whose())))
}
