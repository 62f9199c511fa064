//! Compares the classes of two datasets, for instance of training and validation.

use base::error::{Error, Result};
use base::notices::Notices;
use data::dataset::{DatasetIndex, IndexOptions};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize)]
pub(super) struct ClassComparison {
    other: PathBuf,
    classes: [usize; 2],
    /// The classes that only the other dataset has.
    missing: Vec<String>,
    /// The classes that the other dataset lacks.
    extra: Vec<String>,
    /// The classes of both datasets whose indices differ.
    renumbered: Vec<RenumberedClass>,
}

#[derive(Debug, Serialize)]
struct RenumberedClass {
    name: String,
    here: usize,
    there: usize,
}

/// The maximum number of classes in each line of the text output. JSON lists all.
const CLASSES_LISTED: usize = 10;

/// Compares the classes of `index` with the classes of the dataset at `other`, or of that dataset's `split`. Opens the
/// other dataset with the same `options`.
///
/// # Errors
/// The errors of [`DatasetIndex::open`]; [`Error::Config`] if one of the datasets has no class names.
pub(super) fn compare(
    index: &DatasetIndex,
    other: &Path,
    split: Option<String>,
    options: &IndexOptions,
) -> Result<ClassComparison> {
    let notices = Notices::default();
    let options = IndexOptions { class_names: None, split, notices, ..options.clone() };
    let other = DatasetIndex::open(other, &options)?;
    for index in [index, &other] {
        index.check_labeled("compare")?;
        if index.classes().is_empty() {
            let message = format!(
                "needs class names, but {} has only numbers: set --label to a column or member with names, or compare \
                 the datasets that both were made from",
                index.root().display()
            );
            return Err(Error::config("compare", message));
        }
    }
    let (here, there) = (index.classes(), other.classes());
    let numbers = |names: &[String]| -> HashMap<String, usize> { names.iter().cloned().zip(0..).collect() };
    let (ours, theirs) = (numbers(here), numbers(there));
    let only = |names: &[String], others: &HashMap<String, usize>| -> Vec<String> {
        names.iter().filter(|name| !others.contains_key(*name)).cloned().collect()
    };
    let renumbered = |name: &String| {
        let (here, there) = (*ours.get(name)?, *theirs.get(name)?);
        (here != there).then(|| RenumberedClass { name: name.clone(), here, there })
    };
    Ok(ClassComparison {
        classes: [here.len(), there.len()],
        missing: only(there, &ours),
        extra: only(here, &theirs),
        renumbered: here.iter().filter_map(renumbered).collect(),
        other: other.root().to_path_buf(),
    })
}

impl ClassComparison {
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { other, classes: [here, there], missing, extra, renumbered } = self;
        let mut lines = vec![format!("classes: {here}, compared with the {there} of {}", other.display())];
        let number = |class: &RenumberedClass| {
            format!("{:?} is {} here and {} there", class.name, class.here, class.there)
        };
        lines.extend(line("missing", missing, |name| format!("{name:?}")));
        lines.extend(line("only here", extra, |name| format!("{name:?}")));
        lines.extend(line("renumbered", renumbered, number));
        lines.push(match (renumbered.is_empty(), extra.is_empty()) {
            (true, true) => "  the same     all classes have the same numbers".to_owned(),
            _ => "  remedy       use class_names= (--class-names) to number both alike".to_owned(),
        });
        lines
    }
}

fn line<T>(title: &str, items: &[T], text: impl Fn(&T) -> String) -> Option<String> {
    let shown: Vec<String> = items.iter().take(CLASSES_LISTED).map(text).collect();
    let more = match items.len().checked_sub(CLASSES_LISTED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} others"),
    };
    let count = items.len();
    (count > 0).then(|| format!("  {title:12} {count}: {}{more}", shown.join(", ")))
}
