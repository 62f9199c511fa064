//! Combines the classes of several datasets. The class numbers come from the datasets or from a list of the user.

use super::part::DatasetPart;
use super::{Contents, class_names};
use crate::source::{read_named, shown};
use base::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The combined classes: their names and numbers, and the mapping from each dataset's own numbers.
pub(super) struct Classes {
    pub(super) names: Vec<String>,
    pub(super) count: u32,
    /// Whether samples have labels. If false, their class numbers have no meaning.
    pub(super) labeled: bool,
    /// For each dataset, a map from its own class numbers to the combined numbers; `None` if the numbers are the same.
    maps: Vec<Option<Vec<u32>>>,
    /// The dataset's own classes and their indices in the user's list; `None` without a list.
    listed: Option<ListedClasses>,
}

struct ListedClasses {
    own: Vec<String>,
    numbers: Vec<u32>,
}

/// Number of a class that is not in the user's list. No listed class has it.
pub const UNLISTED: u32 = u32::MAX;

#[derive(PartialEq, Eq)]
enum LabelKind {
    Named,
    Numbered,
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
    /// Combines the labels of `parts`, as [`super::DatasetIndex::classes`] documents. Labels that cannot be combined
    /// are an error, or with `unasked` (labels are not needed) give a result without labels.
    pub(super) fn of(parts: &[DatasetPart], unasked: bool) -> Result<Self> {
        let labeled = parts.iter().all(|part| LabelKind::of(part) != LabelKind::Missing);
        let largest = parts.iter().map(DatasetPart::num_classes).max().unwrap_or(0);
        let names: Vec<&[u8]> = match parts {
            // Keep the order in which the dataset has the names. A schema can define it.
            [first, others @ ..] if others.iter().all(|part| part.class_names() == first.class_names()) => {
                first.class_names()
            }
            _ => {
                let names = parts.iter().flat_map(DatasetPart::class_names).collect::<BTreeSet<_>>();
                let mut names: Vec<&[u8]> = names.into_iter().collect();
                // Class names that are names of directories stay in byte order, as in torchvision's ImageFolder. Class
                // names from tables or members are sorted by value if all of them are integers.
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
            listed: None,
        };
        let Some((first, odd)) = different(parts) else { return Ok(classes) };
        let counted = classes.are_counted_by_numbers(parts);
        if first.file.header.contents == Contents::Files || unasked && !counted {
            let all_zero = |part: &DatasetPart| differing(vec![0; part.class_names().len().max(1)]);
            let maps = parts.iter().map(all_zero).collect();
            classes = Self { names: Vec::new(), count: 0, labeled: false, maps, listed: None };
        } else if !counted {
            let message = format!(
                "has {}, but {} has {}: datasets that are opened together need the same kind of labels; choose other \
                 labels with label=, or open each dataset separately",
                LabelKind::of(odd).words(),
                first.root.display(),
                LabelKind::of(first).words()
            );
            return Err(Error::dataset(&odd.root, message));
        }
        Ok(classes)
    }

    pub(super) fn of_stream(names: Vec<String>, labeled: bool) -> Self {
        let count = if labeled { names.len() as u32 } else { 0 };
        Self { names, count, labeled, maps: Vec::new(), listed: None }
    }

    /// The same classes, numbered by their indices in the list `names`.
    ///
    /// # Errors
    /// The reason why the classes have no names to look up in the list.
    pub(super) fn numbered_by(self, names: &[String]) -> std::result::Result<Self, &'static str> {
        if self.names.is_empty() {
            return Err(if self.labeled {
                "has class numbers without names, so the names in the list cannot be matched to them"
            } else {
                "has no class names"
            });
        }
        let places: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        let number = |name: &String| places.get(name.as_str()).copied().unwrap_or(UNLISTED);
        let numbers = self.names.iter().map(number).collect();
        let listed = Some(ListedClasses { own: self.names, numbers });
        let count = if self.labeled { names.len() as u32 } else { 0 };
        Ok(Self { names: names.to_vec(), count, listed, ..self })
    }

    /// The dataset's own number and name of each class that is not in the user's list.
    pub(super) fn unlisted(&self) -> impl Iterator<Item = (u32, &str)> {
        let listed = self.listed.iter();
        let own = listed.flat_map(|listed| (0..).zip(listed.own.iter().zip(&listed.numbers)));
        own.filter(|(_, (_, number))| **number == UNLISTED).map(|(own, (name, _))| (own, name.as_str()))
    }

    pub(super) fn own_count(&self) -> usize {
        self.listed.as_ref().map_or(self.count as usize, |listed| listed.own.len())
    }

    /// Whether numbers without names have a clear meaning: all datasets with names have the same list of names, and
    /// this list is long enough.
    fn are_counted_by_numbers(&self, parts: &[DatasetPart]) -> bool {
        parts.iter().zip(&self.maps).all(|(part, map)| match LabelKind::of(part) {
            LabelKind::Named => map.is_none() && part.class_names().len() == self.names.len(),
            LabelKind::Numbered => part.num_classes() as usize <= self.names.len(),
            LabelKind::Missing => false,
        })
    }

    /// Converts a dataset's class `label` to its number in the user's list, or without a list to the combined number.
    pub(super) fn of_part(&self, part: usize, label: u32) -> u32 {
        let own = self.own_of_part(part, label);
        match &self.listed {
            Some(listed) if self.labeled => listed.numbers.get(own as usize).copied().unwrap_or(UNLISTED),
            _ => own,
        }
    }

    /// Converts a dataset's class `label` to the combined number, regardless of the user's list.
    pub(super) fn own_of_part(&self, part: usize, label: u32) -> u32 {
        match &self.maps[part] {
            None if self.labeled => label,
            None => 0,
            Some(map) => map.get(label as usize).copied().unwrap_or(0),
        }
    }

    /// The class numbers in a dataset that [`Classes::of_part`] maps to `label`.
    pub(super) fn in_part(&self, part: usize, label: u32) -> Vec<u32> {
        let whole = self.listed.as_ref().map_or_else(|| vec![label], |listed| places(&listed.numbers, label));
        match &self.maps[part] {
            None => whole,
            Some(map) => whole.into_iter().flat_map(|label| places(map, label)).collect(),
        }
    }
}

fn places(numbers: &[u32], number: u32) -> Vec<u32> {
    (0..).zip(numbers).filter(|&(_, &other)| other == number).map(|(place, _)| place).collect()
}

/// Reads class names from the text file at `path`, one per line, in the order of their numbers.
///
/// # Errors
/// What is wrong with the file: a phrase that follows the name of the setting in the message.
pub fn read_class_names(path: &Path) -> std::result::Result<Vec<String>, String> {
    let fail = |message: String| format!("is the file {}, {message}", shown(path).display());
    let bytes = read_named(path).map_err(|error| fail(format!("which cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| fail("which is not UTF-8 text".to_owned()))?;
    let names: Vec<String> = text.trim_end_matches(['\r', '\n']).lines().map(str::to_owned).collect();
    match names.iter().position(String::is_empty) {
        // Without this check, all classes after the empty line would have wrong numbers.
        Some(line) => Err(fail(format!("whose line {} is empty", line + 1))),
        None => Ok(names),
    }
}

fn different(parts: &[DatasetPart]) -> Option<(&DatasetPart, &DatasetPart)> {
    let (first, others) = parts.split_first()?;
    others.iter().find(|part| LabelKind::of(part) != LabelKind::of(first)).map(|odd| (first, odd))
}

/// Returns `map`, or `None` if it maps every number to itself.
fn differing(map: Vec<u32>) -> Option<Vec<u32>> {
    let same = (0..).zip(&map).all(|(own, &whole)| own == whole);
    (!same).then_some(map)
}
