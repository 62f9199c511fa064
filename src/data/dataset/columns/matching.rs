//! Finds the row of a table that belongs to each sample.

use super::{Cell, Row, SETTING, wrong};
use crate::dataset::DatasetIndex;
use crate::dataset::select::list::{ambiguous_name, stem};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// Names of a column with the paths of samples, in order of preference.
pub(super) const NAMES: [&str; 5] = ["file_name", "path", "file", "filename", "image"];
const NUMBER: &str = "sample_id";

/// The columns that identify the sample of a row. At least one of them exists.
#[derive(Debug)]
pub(super) struct NamingColumns {
    by_name: Option<usize>,
    by_number: Option<usize>,
}

struct FoundRows<'a> {
    path: &'a Path,
    rows: &'a [Row],
    row: Vec<u32>,
}

#[derive(Debug, Clone)]
struct NamedFile {
    samples: Range<u64>,
    /// Whether the row gives the file name without its extension.
    is_stem: bool,
    /// The first sample of another file that the name in the row also matches.
    other: Option<u64>,
}

const NO_ROW: u32 = u32::MAX;

impl NamingColumns {
    pub(super) fn of(path: &Path, header: &[String]) -> Result<Self> {
        let place = |name: &&str| header.iter().position(|column| column == name);
        let found = Self { by_name: NAMES.iter().find_map(place), by_number: place(&NUMBER) };
        if found.by_name.is_none() && found.by_number.is_none() {
            let message = format!(
                "{}: has no column that identifies the sample of a row: call it {} (its path below the dataset), or \
                 {NUMBER}",
                path.display(),
                NAMES.join(", ")
            );
            return Err(Error::config(SETTING, message));
        }
        Ok(found)
    }

    pub(super) fn names_samples(&self, column: usize) -> bool {
        self.by_name == Some(column) || self.by_number == Some(column)
    }

    pub(super) fn rows_of_samples(
        &self,
        path: &Path,
        header: &[String],
        rows: &[Row],
        index: &DatasetIndex,
    ) -> Result<Vec<u32>> {
        let mut found = FoundRows { path, rows, row: vec![NO_ROW; index.len() as usize] };
        match (self.by_name, self.by_number) {
            (Some(column), None) if !index.has_sample_names() => {
                let message = format!(
                    "{}: identifies samples by {:?}, but samples in shards have no files of their own: identify them \
                     by {NUMBER}, their numbers in the index, or write the labels into the shards",
                    path.display(),
                    header[column]
                );
                return Err(Error::config(SETTING, message));
            }
            (Some(column), number) if index.has_sample_names() => {
                found.by_name(column, index)?;
                if let Some(number) = number {
                    found.check_numbers(number, column, index)?;
                }
            }
            (_, Some(column)) => found.by_number(column, index)?,
            (_, None) => {
                return Err(Error::Internal("a table without a column that identifies samples".to_owned()));
            }
        }
        found.whole(index)
    }
}

impl FoundRows<'_> {
    fn take(&mut self, sample: u64, row: u32) -> Result<()> {
        match std::mem::replace(&mut self.row[sample as usize], row) {
            NO_ROW => Ok(()),
            first => {
                let [first, line] = [first, row].map(|row| self.rows[row as usize].line);
                Err(wrong(self.path, line, format!("is for the same sample as line {first}")))
            }
        }
    }

    fn by_number(&mut self, column: usize, index: &DatasetIndex) -> Result<()> {
        for (number, row) in (0..).zip(self.rows) {
            let sample = self.number_in(row, column, index)?;
            self.take(sample, number)?;
        }
        Ok(())
    }

    fn number_in(&self, row: &Row, column: usize, index: &DatasetIndex) -> Result<u64> {
        let cell = &row.cells[column];
        let number = match cell {
            Cell::Bare(text) => text.parse().ok(),
            _ => None,
        };
        number.filter(|&sample: &u64| sample < index.len()).ok_or_else(|| {
            let what = if matches!(cell, Cell::Text(_)) { ", a text" } else { "" };
            let last = index.len() - 1;
            let message = format!("{NUMBER} is {cell}{what}, must be a whole number from 0 to {last}");
            wrong(self.path, row.line, message)
        })
    }

    fn by_name(&mut self, column: usize, index: &DatasetIndex) -> Result<()> {
        let rows = self.rows;
        let texts: Vec<String> = rows.iter().map(|row| row.cells[column].text()).collect();
        let mut by_name: HashMap<&[u8], u32> = HashMap::with_capacity(rows.len());
        for (number, text) in (0..).zip(&texts) {
            let name = text.strip_prefix("./").unwrap_or(text).as_bytes();
            if let Some(first) = by_name.insert(name, number) {
                let (first, line) = (rows[first as usize].line, rows[number as usize].line);
                return Err(wrong(self.path, line, format!("names {text:?}, as line {first} does")));
            }
        }
        let mut files: Vec<Option<NamedFile>> = vec![None; rows.len()];
        index.each_name(|samples, name| {
            for (is_stem, name) in [(false, Some(name)), (true, stem(name))] {
                let Some(&row) = name.and_then(|name| by_name.get(name)) else { continue };
                let known = &mut files[row as usize];
                match known {
                    Some(better) if is_stem && !better.is_stem => {}
                    Some(same) if same.is_stem == is_stem => same.other = Some(samples.start),
                    _ => *known = Some(NamedFile { samples: samples.clone(), is_stem, other: None }),
                }
            }
        })?;
        for ((number, row), file) in (0..).zip(rows).zip(&files) {
            let Some(NamedFile { samples, is_stem, other }) = file else { continue };
            if let Some(other) = *other {
                let remedy = match is_stem {
                    true => "write its extension, or name the samples by sample_id instead",
                    false => "name the samples by sample_id instead",
                };
                let message = ambiguous_name(index, samples.start, other, remedy);
                return Err(wrong(self.path, row.line, format!("{:?} {message}", texts[number as usize])));
            }
            // A row can name the file of a sample with or without its extension. A second row for the same sample is an
            // error.
            samples.clone().try_for_each(|sample| self.take(sample, number))?;
        }
        let unused = files.iter().filter(|file| file.is_none()).count();
        if let Some(first) = files.iter().position(Option::is_none) {
            // A table can cover more than this dataset, for example training and validation data together.
            index.notices().warn_once("rows without a sample", || {
                format!(
                    "labels: {}: {unused} of {} rows match no sample of {} and are skipped, e.g. line {}: {:?}",
                    self.path.display(),
                    rows.len(),
                    index.root().display(),
                    rows[first].line,
                    texts[first]
                )
            });
        }
        Ok(())
    }

    /// Checks that the sample id in each row is the id of the sample whose path is in the row.
    fn check_numbers(&self, column: usize, name: usize, index: &DatasetIndex) -> Result<()> {
        for (sample, &row) in (0..).zip(&self.row).filter(|(_, row)| **row != NO_ROW) {
            let row = &self.rows[row as usize];
            let number = self.number_in(row, column, index)?;
            if number != sample {
                let named = &row.cells[name].text();
                let message = format!(
                    "{NUMBER} is {number}, but {named:?} is sample {sample}: remove one of the two columns"
                );
                return Err(wrong(self.path, row.line, message));
            }
        }
        Ok(())
    }

    fn whole(self, index: &DatasetIndex) -> Result<Vec<u32>> {
        let missing = self.row.iter().filter(|&&row| row == NO_ROW).count();
        if let Some(first) = self.row.iter().position(|&row| row == NO_ROW) {
            let file = index.shown_path(first as u64);
            let message = format!(
                "{}: has no row for {missing} of {} samples, e.g. sample {first} ({}): add rows, or remove these \
                 samples from the dataset's directory",
                self.path.display(),
                self.row.len(),
                file.display()
            );
            return Err(Error::config(SETTING, message));
        }
        Ok(self.row)
    }
}
