//! Labels of the user's own: what was given, and the columns that it becomes.

use super::{FieldContent, LABEL};
use crate::batch::{BatchLayout, Column, Element, Raggedness};
use crate::dataset::{ColumnValues, DatasetIndex, SampleColumn, column_names, read_columns};
use crate::error::{Error, Result};
use std::path::PathBuf;

/// Labels of the user's own.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// The columns of a table in a file.
    File(PathBuf),
    /// One column, [`LABEL`]: the values of each sample, by its number in the index.
    Values(ColumnValues),
}

impl Labels {
    /// The names of the columns.
    ///
    /// # Errors
    /// As reading the file.
    pub fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::File(path) => column_names(path),
            Self::Values(_) => Ok(vec![LABEL.to_owned()]),
        }
    }

    /// The columns, for the samples of `index`.
    ///
    /// # Errors
    /// [`Error::Config`] for rows that do not fit the samples; as reading the file.
    pub fn columns(&self, index: &DatasetIndex) -> Result<Vec<SampleColumn>> {
        let values = match self {
            Self::File(path) => return read_columns(path, index),
            Self::Values(values) => values,
        };
        let count = values.samples();
        if count != index.len() {
            let message = format!(
                "has {count} values, the dataset {} samples: give one for each, in the index's order",
                index.len()
            );
            return Err(Error::config("labels", message));
        }
        Ok(vec![SampleColumn { name: LABEL.to_owned(), values: values.clone() }])
    }
}

impl SampleColumn {
    /// What it is in a batch, as column number `of` of `labels`.
    pub(super) fn content(&self, of: usize, layout: &mut BatchLayout) -> FieldContent {
        let (each, element) = match &self.values {
            ColumnValues::Integers(each, _) => (each, Element::I64),
            ColumnValues::Floats(each, _) => (each, Element::F32),
            ColumnValues::Texts(_) => {
                layout.values.push(Raggedness::Never);
                return FieldContent::GivenTexts { of, value: layout.values.len() - 1 };
            }
        };
        layout.columns.push(Column { element, shape: each.iter().copied().collect() });
        FieldContent::GivenNumbers { of, column: layout.columns.len() - 1 }
    }
}
