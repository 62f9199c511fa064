//! Which samples of a dataset a job uses, and in which order: by id, by class, or by a list of files.

use super::DatasetIndex;
use base::error::{Error, Result};
use std::path::PathBuf;

pub(super) mod list;

/// A selection of samples. If several fields are set, a sample must satisfy all of them; if no field is set, all
/// samples are selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Select {
    /// The ids of the samples.
    pub indices: Option<Vec<u64>>,
    /// The classes of the samples.
    pub classes: Option<Vec<ClassRef>>,
    /// A text file that lists files of the dataset, one per line, such as a list of training files.
    ///
    /// Each line is a path below the dataset's directory, or an absolute path, with or without the extension. The path
    /// is that of a file, or of a shard, which selects all samples of the shard. White space and the class number can
    /// follow; the number must be the dataset's own number of the class. Empty lines, and lines that begin with `#`,
    /// are skipped.
    pub files: Option<PathBuf>,
}

/// A class by its name or number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassRef {
    /// The name of the class.
    Name(String),
    /// The number of the class, from 0.
    Number(u32),
}

impl ClassRef {
    /// The number of the class in `index`.
    ///
    /// # Errors
    /// [`Error::Config`] for `setting` if the dataset has no such class, or no labels.
    pub fn number(&self, setting: &'static str, index: &DatasetIndex) -> Result<u32> {
        index.check_labeled(setting)?;
        let count = index.num_classes();
        match self {
            Self::Number(number) if *number < count => Ok(*number),
            Self::Number(number) => {
                let last = count.saturating_sub(1);
                Err(Error::config(setting, format!("has {number}; the dataset's classes are 0 to {last}")))
            }
            Self::Name(name) => {
                let mut known = (0..).zip(index.classes()).filter(|(_, known)| *known == name);
                match (known.next(), known.next()) {
                    (Some((number, _)), None) => Ok(number),
                    (None, _) => Err(Error::config(setting, unknown_class(name, index))),
                    // Names that are not UTF-8 can look alike when they are displayed.
                    (Some((one, _)), Some((other, _))) => {
                        let message = format!(
                            "has {name:?}, which is the name of classes {one} and {other}: give the class number"
                        );
                        Err(Error::config(setting, message))
                    }
                }
            }
        }
    }
}

impl std::fmt::Display for ClassRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

const SHOWN: usize = 5;

impl Select {
    /// The ids of the selected samples, without duplicates, in the order of `indices`, else of `files`, else ascending.
    /// `None` if no field is set, which selects all samples.
    ///
    /// With `files`, this needs one pass over the names in the dataset. With `classes`, it needs no pass over loose
    /// files, because loose files are sorted by class.
    ///
    /// # Errors
    /// [`Error::Config`] for the setting at fault: a sample or class that the dataset does not have, a sample that is
    /// given twice, a list that cannot be read, or an empty selection. Also for a line that names no file, several
    /// files or a file of another class, and for a dataset of more than 2^32 samples. [`Error::Io`] if the dataset's
    /// names cannot be read.
    pub fn resolve(&self, index: &DatasetIndex) -> Result<Option<Vec<u32>>> {
        let Some(setting) = self.first_setting() else { return Ok(None) };
        if index.len() > 1 << 32 {
            let message = format!("can select from up to 2^32 samples, but the dataset has {}", index.len());
            return Err(Error::config(setting, message));
        }
        let classes = self.classes.as_ref().map(|classes| class_numbers(classes, index)).transpose()?;
        let mut listed = self.files.as_ref().map(|path| list::samples(path, index)).transpose()?;
        let mut chosen = match (&self.indices, &listed, &classes) {
            (Some(indices), ..) => checked(indices, index)?,
            (None, Some(_), _) => listed.take().unwrap_or_default(),
            (None, None, Some(classes)) => of_classes(classes, index),
            (None, None, None) => return Ok(None),
        };
        if let Some(listed) = listed {
            let mut kept = SampleSet::among(index.len());
            listed.into_iter().for_each(|sample| _ = kept.insert(sample));
            chosen.retain(|&sample| kept.has(sample));
        }
        if let (Some(classes), true) = (&classes, setting != "classes") {
            chosen.retain(|&sample| classes.binary_search(&index.label(u64::from(sample))).is_ok());
        }
        if chosen.is_empty() {
            return Err(Error::config(setting, self.nothing_left()));
        }
        Ok(Some(chosen))
    }

    /// The first setting that is given. It determines the order of the samples.
    fn first_setting(&self) -> Option<&'static str> {
        let given = [
            ("indices", self.indices.is_some()),
            ("files", self.files.is_some()),
            ("classes", self.classes.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    fn nothing_left(&self) -> String {
        let given = [self.indices.is_some(), self.files.is_some(), self.classes.is_some()];
        match given.iter().filter(|&&given| given).count() {
            1 => "selects no sample".to_owned(),
            _ => "selects no sample together with the other settings (of indices, files, classes)".to_owned(),
        }
    }
}

fn checked(indices: &[u64], index: &DatasetIndex) -> Result<Vec<u32>> {
    let mut seen = SampleSet::among(index.len());
    let check = |(at, &sample): (usize, &u64)| {
        if sample >= index.len() {
            let message =
                format!("has {sample} at position {at}; the dataset's samples are 0 to {}", index.len() - 1);
            return Err(Error::config("indices", message));
        }
        if !seen.insert(sample as u32) {
            let first = indices.iter().position(|&known| known == sample).unwrap_or(at);
            let message =
                format!("has sample {sample} at positions {first} and {at}: use weights to repeat samples");
            return Err(Error::config("indices", message));
        }
        Ok(sample as u32)
    };
    indices.iter().enumerate().map(check).collect()
}

fn class_numbers(classes: &[ClassRef], index: &DatasetIndex) -> Result<Vec<u32>> {
    let number = |class: &ClassRef| class.number("classes", index);
    let mut numbers = classes.iter().map(number).collect::<Result<Vec<u32>>>()?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn unknown_class(name: &str, index: &DatasetIndex) -> String {
    let names = index.classes();
    if names.is_empty() {
        let last = index.num_classes().saturating_sub(1);
        return format!("has {name:?}, but this dataset's classes have only numbers: 0 to {last}");
    }
    let lower = name.to_lowercase();
    let is_like = |known: &&String| {
        let known = known.to_lowercase();
        known.contains(&lower) || lower.contains(&known)
    };
    let mut shown: Vec<&String> = names.iter().filter(is_like).take(SHOWN).collect();
    if shown.is_empty() {
        shown = names.iter().take(SHOWN).collect();
    }
    format!("has {name:?}, which is not one of the {} classes, such as {shown:?}", names.len())
}

fn of_classes(classes: &[u32], index: &DatasetIndex) -> Vec<u32> {
    let mut samples = Vec::new();
    index.each_of_classes(classes, |range| samples.extend(range.map(|sample| sample as u32)));
    samples.sort_unstable();
    samples
}

/// A set of samples of a dataset: a bit for each sample.
#[derive(Debug, Clone)]
pub struct SampleSet(Vec<u64>);

impl SampleSet {
    /// Makes the empty set for a dataset of this many samples.
    pub fn among(samples: u64) -> Self {
        Self(vec![0; samples.div_ceil(64) as usize])
    }

    /// Whether the set has a sample.
    ///
    /// # Panics
    /// Panics if the dataset has no such sample.
    pub fn has(&self, sample: u32) -> bool {
        self.0[sample as usize / 64] >> (sample % 64) & 1 == 1
    }

    /// Adds a sample. Returns whether it is new.
    ///
    /// # Panics
    /// Panics if the dataset has no such sample.
    pub fn insert(&mut self, sample: u32) -> bool {
        let new = !self.has(sample);
        self.0[sample as usize / 64] |= 1 << (sample % 64);
        new
    }
}
