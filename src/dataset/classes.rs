//! The classes of several datasets as those of one.

use super::part::DatasetPart;
use super::{Contents, class_names};
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// The names and numbers of the classes of the whole, and the numbers that the parts' own numbers have there.
pub(super) struct Classes {
    pub(super) names: Vec<String>,
    /// The number of classes; 0 where samples have no labels.
    pub(super) count: u32,
    /// Whether samples have labels; otherwise their numbers mean nothing.
    pub(super) labeled: bool,
    /// For each part, the number in the whole by its own number; `None` where they are the same.
    maps: Vec<Option<Vec<u32>>>,
}

/// What the labels of a dataset are.
#[derive(PartialEq, Eq)]
enum LabelKind {
    Named,
    Numbered,
    /// There are no labels.
    Missing,
}

impl LabelKind {
    fn of(part: &DatasetPart) -> Self {
        match (part.class_names().is_empty(), part.notes.unlabeled) {
            (false, _) => Self::Named,
            (true, false) => Self::Numbered,
            (true, true) => Self::Missing,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Named => "class names",
            Self::Numbered => "class numbers without names",
            Self::Missing => "no labels",
        }
    }
}

impl Classes {
    /// Combines the labels of `parts`, as [`super::DatasetIndex::classes`] says. Labels that cannot be combined are an
    /// error; but if `unasked`, because nobody needs them, there are none then.
    pub(super) fn of(parts: &[DatasetPart], unasked: bool) -> Result<Self> {
        let labeled = parts.iter().all(|part| LabelKind::of(part) != LabelKind::Missing);
        let largest = parts.iter().map(DatasetPart::num_classes).max().unwrap_or(0);
        let names: Vec<&[u8]> = match parts {
            // The order of the names is the dataset's own, as a schema may have it.
            [first, others @ ..] if others.iter().all(|part| part.class_names() == first.class_names()) => {
                first.class_names()
            }
            _ => {
                let names = parts.iter().flat_map(DatasetPart::class_names).collect::<BTreeSet<_>>();
                let mut names: Vec<&[u8]> = names.into_iter().collect();
                // Directories have the order of torchvision's ImageFolder, names that are values their own.
                if !parts.iter().any(DatasetPart::has_classes_of_files) {
                    class_names::sort(&mut names, |name| name);
                }
                names
            }
        };
        let is_own = parts.iter().all(|part| part.class_names() == names);
        let places: HashMap<&[u8], u32> = names.iter().copied().zip(0..).collect();
        let own = |part: &DatasetPart| match is_own {
            true => (0..part.class_names().len() as u32).collect(),
            false => part.class_names().iter().map(|name| places[name]).collect(),
        };
        let mut classes = Self {
            names: names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            count: if labeled { largest.max(names.len() as u32) } else { 0 },
            labeled,
            maps: parts.iter().map(|part| differing(own(part))).collect(),
        };
        let Some((first, odd)) = different(parts) else { return Ok(classes) };
        let counted = classes.are_counted_by_numbers(parts);
        if first.file.header().contents == Contents::Files || unasked && !counted {
            let all_zero = |part: &DatasetPart| differing(vec![0; part.class_names().len().max(1)]);
            let maps = parts.iter().map(all_zero).collect();
            classes = Self { names: Vec::new(), count: 0, labeled: false, maps };
        } else if !counted {
            let message = format!(
                "has {}, but {} has {}: datasets that are read as one need labels of one kind",
                LabelKind::of(odd).words(),
                first.root.display(),
                LabelKind::of(first).words()
            );
            return Err(Error::dataset(&odd.root, message));
        }
        Ok(classes)
    }

    /// The classes of a stream: those called `names`, or numbers alone.
    pub(super) fn of_stream(names: Vec<String>, labeled: bool) -> Self {
        let count = if labeled { names.len() as u32 } else { 0 };
        Self { names, count, labeled, maps: Vec::new() }
    }

    /// Whether it is clear what numbers without names stand for: there is one list of names, and it is long enough.
    fn are_counted_by_numbers(&self, parts: &[DatasetPart]) -> bool {
        parts.iter().zip(&self.maps).all(|(part, map)| match LabelKind::of(part) {
            LabelKind::Named => map.is_none() && part.class_names().len() == self.names.len(),
            LabelKind::Numbered => part.num_classes() as usize <= self.names.len(),
            LabelKind::Missing => false,
        })
    }

    /// The number in the whole of the class `label` of a part.
    pub(super) fn of_part(&self, part: usize, label: u32) -> u32 {
        match &self.maps[part] {
            None if self.labeled => label,
            None => 0,
            Some(map) => map.get(label as usize).copied().unwrap_or(0),
        }
    }

    /// The numbers in a part of the class `label` of the whole.
    pub(super) fn in_part(&self, part: usize, label: u32) -> Vec<u32> {
        match &self.maps[part] {
            None => vec![label],
            Some(map) => (0..).zip(map).filter(|&(_, &whole)| whole == label).map(|(own, _)| own).collect(),
        }
    }
}

/// Two parts whose labels are of different kinds.
fn different(parts: &[DatasetPart]) -> Option<(&DatasetPart, &DatasetPart)> {
    let (first, others) = parts.split_first()?;
    others.iter().find(|part| LabelKind::of(part) != LabelKind::of(first)).map(|odd| (first, odd))
}

/// `map`, unless it maps every number to itself.
fn differing(map: Vec<u32>) -> Option<Vec<u32>> {
    let same = (0..).zip(&map).all(|(own, &whole)| own == whole);
    (!same).then_some(map)
}
