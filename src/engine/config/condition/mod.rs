//! The condition of `where`, which chooses samples by the sizes of their images and by the columns of the dataset.
//!
//! `parse.rs` has the grammar, `values.rs` the values and operators. A condition that depends on a missing value is
//! neither true nor false, as in SQL, and such a sample is not chosen. (→ tests/load/sizes.rs)

mod parse;
mod values;

use super::buckets::set_of;
use super::image_sizes::HeaderReading;
use base::error::{Error, Result};
use data::dataset::image_sizes::MeasuredSize;
use data::dataset::{ColumnReader, ColumnValues, DatasetIndex, SampleColumn, in_parallel};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use values::{Comparator, ConditionType, ConditionValue, Operation};

const SETTING: &str = "where";

/// The number of samples that a thread tests at a time, if no sizes are needed.
const RUN: u64 = 65_536;

/// Names that a condition gives to the size of the image.
const SIZES: [&str; 3] = ["width", "height", "aspect"];

/// A condition without syntax errors.
#[derive(Debug, Clone)]
pub(super) struct Condition(Expression);

/// A part of a condition, and its place: the number of the character at which it begins, from 1.
#[derive(Debug, Clone)]
struct Expression {
    at: usize,
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Literal(ConditionValue<'static>),
    /// `width`, `height` or `aspect`, by its number in [`SIZES`].
    Size(usize),
    Column(String),
    Not(Box<Expression>),
    Both(Box<[Expression; 2]>),
    Either(Box<[Expression; 2]>),
    Compare(Comparator, Box<[Expression; 2]>),
    Compute(Operation, Box<[Expression; 2]>),
    OneOf(Box<Expression>, Vec<ConditionValue<'static>>),
    /// Whether the second text contains the first.
    Within(Box<[Expression; 2]>),
    IsMissing(Box<Expression>),
    Length(Box<Expression>),
    Lower(Box<Expression>),
}

impl Expression {
    fn parts(&self) -> &[Expression] {
        match &self.node {
            Node::Literal(_) | Node::Size(_) | Node::Column(_) => &[],
            Node::Not(of) | Node::OneOf(of, _) | Node::IsMissing(of) | Node::Length(of) | Node::Lower(of) => {
                std::slice::from_ref(of)
            }
            Node::Both(of)
            | Node::Either(of)
            | Node::Compare(_, of)
            | Node::Compute(_, of)
            | Node::Within(of) => &of[..],
        }
    }

    fn each(&self, visit: &mut impl FnMut(&Expression)) {
        visit(self);
        self.parts().iter().for_each(|part| part.each(visit));
    }

    fn wrong(&self, message: impl std::fmt::Display) -> Error {
        Error::config(SETTING, format!("has a mistake at character {}: {message}", self.at))
    }

    /// Returns the kind of the value, after the kinds of all operands were checked.
    fn kind(&self, columns: &Columns<'_>) -> Result<ConditionType> {
        let expect = |of: &Expression, kind: ConditionType| match of.kind(columns)? {
            found if found == kind => Ok(()),
            found => Err(of.wrong(format!("this is {}, but {} is needed", found.name(), kind.name()))),
        };
        let alike = |a: &Expression, b: ConditionType| match a.kind(columns)? {
            found if found == b => Ok(()),
            found => Err(self.wrong(format!("{} cannot be compared with {}", found.name(), b.name()))),
        };
        Ok(match &self.node {
            Node::Literal(value) => value.kind(),
            Node::Size(_) => ConditionType::Number,
            Node::Column(name) => columns.kind(name).map_err(|why| self.wrong(why))?,
            Node::Not(of) => expect(of, ConditionType::Truth).map(|()| ConditionType::Truth)?,
            Node::Both(of) | Node::Either(of) => {
                of.iter().try_for_each(|of| expect(of, ConditionType::Truth))?;
                ConditionType::Truth
            }
            Node::Compare(_, of) => {
                alike(&of[0], of[1].kind(columns)?)?;
                ConditionType::Truth
            }
            Node::Compute(_, of) => {
                of.iter().try_for_each(|of| expect(of, ConditionType::Number))?;
                ConditionType::Number
            }
            Node::OneOf(of, values) => {
                values.iter().try_for_each(|value| alike(of, value.kind()))?;
                ConditionType::Truth
            }
            Node::Within(of) => {
                of.iter().try_for_each(|of| expect(of, ConditionType::Text))?;
                ConditionType::Truth
            }
            Node::IsMissing(of) => of.kind(columns).map(|_| ConditionType::Truth)?,
            Node::Length(of) => expect(of, ConditionType::Text).map(|()| ConditionType::Number)?,
            Node::Lower(of) => expect(of, ConditionType::Text).map(|()| ConditionType::Text)?,
        })
    }

    /// Returns the value for a sample; `None` if it depends on a missing value.
    fn value<'a>(&'a self, row: &TestedSample<'a>) -> Option<ConditionValue<'a>> {
        let truth = |of: &'a Expression| of.value(row).and_then(ConditionValue::truth);
        let both = |of: &'a [Expression; 2]| Some((of[0].value(row)?, of[1].value(row)?));
        // One operand can decide although the other is missing.
        let decided = |of: &'a [Expression; 2], by: bool| {
            let (a, b) = (truth(&of[0]), truth(&of[1]));
            let is_decided = a == Some(by) || b == Some(by);
            if is_decided { Some(by) } else { a.and(b).map(|_| !by) }
        };
        Some(match &self.node {
            Node::Literal(value) => value.clone(),
            Node::Size(which) => row.size(*which)?,
            Node::Column(name) => row.columns.value(name, row.sample)?,
            Node::Not(of) => ConditionValue::Truth(!truth(of)?),
            Node::Both(of) => ConditionValue::Truth(decided(of, false)?),
            Node::Either(of) => ConditionValue::Truth(decided(of, true)?),
            Node::Compare(by, of) => {
                let (a, b) = both(of)?;
                ConditionValue::Truth(by.holds(&a, &b)?)
            }
            Node::Compute(by, of) => {
                let (a, b) = both(of)?;
                by.result(&a, &b)?
            }
            Node::OneOf(of, values) => {
                let value = of.value(row)?;
                ConditionValue::Truth(
                    values.iter().any(|other| Comparator::Equal.holds(&value, other) == Some(true)),
                )
            }
            Node::Within(of) => {
                let (part, text) = both(of)?;
                ConditionValue::Truth(text.text()?.contains(part.text()?))
            }
            Node::IsMissing(of) => ConditionValue::Truth(of.value(row).is_none()),
            Node::Length(of) => ConditionValue::Whole(of.value(row)?.text()?.chars().count() as i64),
            Node::Lower(of) => ConditionValue::Text(Cow::Owned(of.value(row)?.text()?.to_lowercase())),
        })
    }
}

/// The columns that conditions can name: those of `labels`, and those of the dataset's tables.
struct Columns<'a> {
    own: &'a [SampleColumn],
    tables: Vec<(&'a str, ColumnReader<'a>)>,
    /// All columns of the dataset, for messages.
    known: Vec<String>,
}

impl<'a> Columns<'a> {
    fn own(&self, name: &str) -> Option<&'a SampleColumn> {
        self.own.iter().find(|column| column.name == name)
    }

    fn table(&self, name: &str) -> Option<&ColumnReader<'a>> {
        self.tables.iter().find(|(known, _)| *known == name).map(|(_, reader)| reader)
    }

    fn kind(&self, name: &str) -> Result<ConditionType, String> {
        if let Some(column) = self.own(name) {
            return match &column.values {
                values if values.each().is_some() => Err(format!("the column {name:?} has lists")),
                ColumnValues::Bools(..) => Ok(ConditionType::Truth),
                ColumnValues::Integers(..) | ColumnValues::Floats(..) => Ok(ConditionType::Number),
                ColumnValues::Texts(_) => Ok(ConditionType::Text),
            };
        }
        let Some(reader) = self.table(name) else {
            let mut known = self.known.clone();
            known.extend(self.own.iter().map(|column| column.name.clone()));
            let columns = match known.len() {
                0 => "it has no columns".to_owned(),
                _ => format!("it has {}", known.join(", ")),
            };
            return Err(format!(
                "the dataset has no column {name:?}: use width, height or aspect of the image, or a column ({columns})"
            ));
        };
        reader.kind().map(ConditionType::of_column).map_err(|why| format!("the column {name:?} {why}"))
    }

    fn value(&self, name: &str, sample: u64) -> Option<ConditionValue<'_>> {
        if let Some(column) = self.own(name) {
            return column.has(sample).then(|| ConditionValue::of_own(&column.values, sample));
        }
        self.table(name)?.get(sample).map(ConditionValue::of_cell)
    }
}

/// A sample for which a condition is tested.
struct TestedSample<'a> {
    sample: u64,
    /// Width and height of its image; `None` if they are not needed or not known.
    size: Option<(u32, u32)>,
    columns: &'a Columns<'a>,
}

impl TestedSample<'_> {
    fn size(&self, which: usize) -> Option<ConditionValue<'static>> {
        let (width, height) = self.size?;
        Some(match which {
            0 => ConditionValue::Whole(width.into()),
            1 => ConditionValue::Whole(height.into()),
            _ => ConditionValue::Number(f64::from(width) / f64::from(height)),
        })
    }
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// [`Error::Config`] for `where`, with the place of the mistake.
    pub(super) fn read(text: &str) -> Result<Self> {
        parse::condition(text).map(Self).map_err(|why| Error::config(SETTING, why))
    }

    /// Returns the columns that the condition names.
    pub(super) fn columns(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        self.0.each(&mut |part| {
            if let Node::Column(name) = &part.node {
                names.insert(name.clone());
            }
        });
        names.into_iter().collect()
    }

    fn needs_sizes(&self) -> bool {
        let mut needs = false;
        self.0.each(&mut |part| needs |= matches!(part.node, Node::Size(_)));
        needs
    }

    /// Returns the samples for which the condition is true: those of `chosen` in their order, or of the whole dataset.
    /// `reading` is `None` if samples have no image.
    ///
    /// # Errors
    /// [`Error::Config`] for `where` if it names a column that does not exist, compares a text with a number, or is
    /// true for no sample; the errors of [`HeaderReading::sizes`].
    pub(super) fn choose(
        &self,
        index: &DatasetIndex,
        chosen: Option<Vec<u32>>,
        own: &[SampleColumn],
        reading: Option<&HeaderReading>,
    ) -> Result<Vec<u32>> {
        if index.len() > 1 << 32 {
            let message = format!("can select from up to 2^32 samples, but the dataset has {}", index.len());
            return Err(Error::config(SETTING, message));
        }
        let names = self.columns();
        let tables =
            names.iter().filter_map(|name| Some((name.as_str(), index.column_reader(name)?))).collect();
        let columns = Columns { own, tables, known: index.column_names() };
        if self.0.kind(&columns)? != ConditionType::Truth {
            return Err(self
                .0
                .wrong("the whole is a value, but a condition is needed, such as width >= 512"));
        }
        let among = chosen.as_ref().map(|chosen| set_of(chosen.iter().copied(), index));
        let found = Mutex::new(Vec::new());
        let unreadable = Mutex::new(0u64);
        let test = |first: u64, count: usize, sizes: Option<(&[MeasuredSize], bool)>| {
            let (mut of_run, mut without_size) = (Vec::new(), 0);
            for number in 0..count {
                let sample = first + number as u64;
                if among.as_ref().is_some_and(|among| !among.has(sample as u32)) {
                    continue;
                }
                let size = sizes.and_then(|(sizes, is_applied)| sizes[number].shown(is_applied));
                without_size += u64::from(sizes.is_some() && size.is_none());
                let row = TestedSample { sample, size, columns: &columns };
                if self.0.value(&row).and_then(ConditionValue::truth) == Some(true) {
                    of_run.push(sample as u32);
                }
            }
            *unreadable.lock().unwrap_or_else(PoisonError::into_inner) += without_size;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((first, of_run));
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        if self.needs_sizes() {
            let reading = reading.ok_or_else(|| {
                Error::config(SETTING, "uses the sizes of images, but none of the fields is an image")
            })?;
            let sizes = reading.sizes(index, among.as_ref())?;
            sizes.for_each_chunk(threads, |first, sizes| {
                test(first, sizes.len(), Some((sizes, reading.is_applied)))
            })?;
        } else {
            in_parallel(threads, index.len().div_ceil(RUN) as usize, |run| {
                let first = run as u64 * RUN;
                test(first, RUN.min(index.len() - first) as usize, None)
            })?;
        }
        let unreadable = unreadable.into_inner().unwrap_or_else(PoisonError::into_inner);
        if unreadable > 0 {
            index.notices().warn_once("where", || {
                format!(
                    "where: the sizes of {unreadable} images cannot be read; such an image counts as one without a \
                     size, and conditions on its size do not choose it"
                )
            });
        }
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable_by_key(|(first, _)| *first);
        let mut found: Vec<u32> = found.into_iter().flat_map(|(_, samples)| samples).collect();
        if found.is_empty() {
            let among = if chosen.is_some() { " of the selected samples" } else { "" };
            return Err(Error::config(SETTING, format!("is true for none{among}")));
        }
        if let Some(mut chosen) = chosen {
            let holds = set_of(found.iter().copied(), index);
            chosen.retain(|sample| holds.has(*sample));
            found = chosen;
        }
        Ok(found)
    }
}
