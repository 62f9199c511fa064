//! The user's own labels (`labels=`), and the columns of the batch that they become.

use super::requested::{FieldSource, RequestedFields};
use super::{FieldContent, FieldOptions, LABEL, UserValue};
use crate::batch::{BatchLayout, Element, Raggedness};
use base::error::{Error, Result};
use data::dataset::{
    ColumnItem, ColumnValues, DatasetIndex, FieldKind, LabelTable, SampleColumn, typed_column,
};
use std::path::PathBuf;

/// The dataset's member that holds a sample's class number. A column of `labels=` may have this name and replace it.
const CLS: &str = "cls";

/// The user's own labels.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// The columns of a table in a file.
    File(PathBuf),
    /// One column, [`LABEL`], with a number or a list of numbers for each sample, in the order of the index. All lists
    /// have the same length.
    Values(UserValue),
}

/// Labels as they were read, before they are matched to the samples of a dataset.
#[derive(Debug)]
pub(super) enum ReadLabels<'a> {
    Table(LabelTable),
    Values(&'a UserValue),
}

impl Labels {
    pub(super) fn read(&self) -> Result<ReadLabels<'_>> {
        Ok(match self {
            Self::File(path) => ReadLabels::Table(LabelTable::read(path)?),
            Self::Values(values) => ReadLabels::Values(values),
        })
    }
}

impl ReadLabels<'_> {
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Table(table) => table.names(),
            Self::Values(_) => vec![LABEL.to_owned()],
        }
    }

    /// Returns the values of all columns for the samples of `index`, in the order of [`ReadLabels::names`]. `asked`
    /// gives the kind of each column that is a field.
    ///
    /// # Errors
    /// [`Error::Config`] for rows that do not fit the samples, and for values that do not fit a field's kind.
    pub(super) fn columns(&self, index: &DatasetIndex, asked: &[FieldOptions]) -> Result<Vec<SampleColumn>> {
        let kind = |name: &str| asked.iter().find(|field| field.source == name)?.kind;
        let values = match self {
            Self::Table(table) => return table.columns(index, kind),
            Self::Values(values) => *values,
        };
        let wrong = |message| Error::config("labels", message);
        let count = values.items().map_or(0, |items| items.len()) as u64;
        if count != index.len() {
            return Err(wrong(format!(
                "has {count} values, but the dataset has {} samples: give one value for each sample, in the order of \
                 the index",
                index.len()
            )));
        }
        let kind = kind(LABEL);
        if !matches!(kind, None | Some(FieldKind::Integer | FieldKind::Float)) {
            let message = format!(
                "has {LABEL:?}, whose numbers come from labels=, as a kind that numbers cannot have: use the plain \
                 name, or foreload.fields.Integer or Float"
            );
            return Err(Error::config("fields", message));
        }
        let (each, items) = numbers(values).map_err(wrong)?;
        let typed = typed_column(items.iter().copied(), each, kind).map_err(|(at, why)| {
            let sample = at / each.unwrap_or(1).max(1) as usize;
            let row = values.items().and_then(|mut items| items.nth(sample)).unwrap_or(UserValue::Nothing);
            let number = match each {
                Some(each) => row.items().and_then(|mut items| items.nth(at % each as usize)).unwrap_or(row),
                None => row,
            };
            wrong(format!("has {number} for sample {sample}, {why}"))
        })?;
        Ok(vec![SampleColumn { name: LABEL.to_owned(), values: typed, missing: None }])
    }
}

/// Checks that each field's source can be a member's name, or is the name of a column of `labels` and nothing else.
///
/// # Errors
/// [`Error::Config`] that names the field.
pub(super) fn check_names(asked: &RequestedFields<'_>) -> Result<()> {
    for (from, field) in asked.iter() {
        let (source, lower) = (&field.source, field.source.to_ascii_lowercase());
        // A kind that the user gave is checked later, together with the column's values.
        let by_name = match field.kind() {
            FieldKind::Image if field.kind.is_none() => Some("an image by its name"),
            FieldKind::Mask if field.kind.is_none() => Some("a mask by its name"),
            _ => None,
        };
        match (from, by_name) {
            (FieldSource::Column(_), Some(by_name)) => return Err(is_ambiguous(source, by_name)),
            (FieldSource::Column(_) | FieldSource::Label, _) => {}
            // Columns of tables may have any name. They are checked when the dataset is known. So are paths in a
            // container, which begin with a slash.
            (FieldSource::Member, _)
                if lower == *source || !lower.contains('.') || lower.starts_with('/') => {}
            (FieldSource::Member, _) => {
                let message = format!(
                    "has {source:?}, but member names are always in lower case, however files are named: use {lower:?}"
                );
                return Err(Error::config("fields", message));
            }
        }
    }
    Ok(())
}

/// Checks that no member of the samples has the same name as a requested `column`. Only class numbers may be replaced
/// by a column.
///
/// # Errors
/// [`Error::Config`] that names the column.
pub(super) fn check_no_member(index: &DatasetIndex, column: &str) -> Result<()> {
    if index.has_member(column) && ![LABEL, CLS].contains(&column) {
        return Err(is_ambiguous(column, "a member of the shards"));
    }
    Ok(())
}

fn is_ambiguous(name: &str, something: &str) -> Error {
    let message =
        format!("has {name:?}, which is both {something} and a column of labels=: rename the column");
    Error::config("fields", message)
}

/// Returns the numbers of a list of labels. The first value is the length of each sample's row; `None` if each sample
/// has a single number. The error says what is wrong with the list.
pub fn numbers(given: &UserValue) -> Result<(Option<u32>, Vec<ColumnItem>), String> {
    let item = |sample: usize, item: &UserValue| {
        Ok(match item {
            UserValue::Truth(truth) => ColumnItem::Bool(*truth),
            UserValue::Whole(number) => {
                i64::try_from(*number).map_or(ColumnItem::TooLarge(*number as f64), ColumnItem::Integer)
            }
            UserValue::Number(number) => ColumnItem::Float(*number),
            other => return Err(format!("has {other} for sample {sample}, which is not a number")),
        })
    };
    let Some(rows) = given.items().filter(|rows| rows.len() > 0) else { return Err(format!("is {given}")) };
    let (mut each, mut items) = (None, Vec::with_capacity(rows.len()));
    for (sample, row) in rows.enumerate() {
        let length = row.items().map(|items| items.len() as u32);
        if sample == 0 {
            each = length;
        } else if each != length {
            let has = |length: Option<u32>| {
                length.map_or("a number".to_owned(), |length| format!("a list of {length}"))
            };
            return Err(format!("has {} for sample {sample}, {} for sample 0", has(length), has(each)));
        }
        match row.items() {
            None => items.push(item(sample, &row)?),
            Some(row) => {
                for number in row {
                    items.push(item(sample, &number)?);
                }
            }
        }
    }
    Ok((each, items))
}

pub(super) fn content(column: &SampleColumn, of: usize, layout: &mut BatchLayout) -> FieldContent {
    let (each, element) = match &column.values {
        ColumnValues::Bools(each, _) => (each, Element::U8),
        ColumnValues::Integers(each, _) => (each, Element::I64),
        ColumnValues::Floats(each, _) => (each, Element::F32),
        ColumnValues::Texts(_) => {
            return FieldContent::ColumnTexts { of, value: layout.add_values(Raggedness::Never) };
        }
    };
    let shape = each.iter().copied().collect();
    FieldContent::ColumnNumbers { of, column: layout.add_column(element, shape) }
}
