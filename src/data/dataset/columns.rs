//! Columns that a user's own table gives for the samples (`labels=`).
//!
//! A row belongs to the sample that its `file_name` (or `path`, `file`, `filename`, `image`) or `sample_id` names. All
//! other columns hold values. `matching.rs` finds the row of each sample, and `values.rs` determines the one type of a
//! column.

mod json_lines;
mod listed;
mod matching;
mod separated;
mod values;

pub(super) use listed::{LISTED_LABELS, ListingTable};
pub use values::{ColumnItem, typed};

use super::{DatasetIndex, FieldKind};
use crate::source::{TableFormat, read_named, shown, without_mark};
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

const SETTING: &str = "labels";

/// A column with a value per sample, in the order of sample ids.
#[derive(Debug, Clone)]
pub struct SampleColumn {
    /// The name of the column. The batch field has the same name.
    pub name: String,
    /// The values of the samples.
    pub values: ColumnValues,
    /// For each sample, whether its value is missing; `None` if all samples have a value.
    pub missing: Option<Vec<bool>>,
}

/// The values of a column, sample by sample.
#[derive(Debug, Clone)]
pub enum ColumnValues {
    /// Booleans as 0 or 1. `Some(n)`: a list of n booleans per sample; `None`: one boolean per sample.
    Bools(Option<u32>, Vec<u8>),
    /// Integers. `Some(n)`: a list of n integers per sample; `None`: one integer per sample.
    Integers(Option<u32>, Vec<i64>),
    /// Floating-point numbers. `Some(n)`: a list of n numbers per sample; `None`: one number per sample.
    Floats(Option<u32>, Vec<f32>),
    /// A string for each sample.
    Texts(Vec<String>),
}

/// Passes the bytes of numbers to `add`, many numbers per call, because a call costs more than adding a number.
fn add_in_parts<T: Copy, const N: usize>(
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
    add: &mut impl FnMut(&[u8]),
) {
    for part in values.chunks(1 << 16) {
        add(&part.iter().flat_map(|&value| bytes(value)).collect::<Vec<_>>());
    }
}

impl SampleColumn {
    /// Passes everything that identifies the column to `add`: its name, type, values and missing values.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        add(self.name.as_bytes());
        let missing = self.missing.iter().flatten().map(|missing| u8::from(*missing));
        add(&missing.collect::<Vec<_>>());
        match &self.values {
            ColumnValues::Bools(each, values) => {
                add(format!("truths {each:?}").as_bytes());
                add(values);
            }
            ColumnValues::Integers(each, values) => {
                add(format!("integers {each:?}").as_bytes());
                add_in_parts(values, i64::to_le_bytes, add);
            }
            ColumnValues::Floats(each, values) => {
                add(format!("floats {each:?}").as_bytes());
                add_in_parts(values, f32::to_le_bytes, add);
            }
            ColumnValues::Texts(values) => {
                add(b"texts");
                values.iter().for_each(|value| add(value.as_bytes()));
            }
        }
    }

    /// Whether a sample has a value.
    pub fn has(&self, sample: u64) -> bool {
        self.missing.as_ref().is_none_or(|missing| !missing[sample as usize])
    }
}

impl ColumnValues {
    /// The length of the list that each sample has; `None` for single values.
    pub fn each(&self) -> Option<u32> {
        match self {
            Self::Bools(each, _) | Self::Integers(each, _) | Self::Floats(each, _) => *each,
            Self::Texts(_) => None,
        }
    }

    /// A sample's single integer or boolean; 0 for other values.
    pub fn whole(&self, sample: u64) -> i64 {
        match self {
            Self::Bools(None, values) => i64::from(values[sample as usize]),
            Self::Integers(None, values) => values[sample as usize],
            _ => 0,
        }
    }

    /// A sample's numbers as float32; empty for strings.
    pub fn floats(&self, sample: u64) -> impl Iterator<Item = f32> {
        let each = self.each().unwrap_or(1) as usize;
        (sample as usize * each..(sample as usize + 1) * each).map_while(move |at| match self {
            Self::Bools(_, values) => Some(f32::from(values[at])),
            Self::Integers(_, values) => Some(values[at] as f32),
            Self::Floats(_, values) => Some(values[at]),
            Self::Texts(_) => None,
        })
    }

    /// The bytes of a sample's numbers, in this machine's byte order; empty for strings.
    pub fn bytes(&self, sample: u64) -> Vec<u8> {
        let row = |each: &Option<u32>| {
            let each = each.unwrap_or(1) as usize;
            sample as usize * each..(sample as usize + 1) * each
        };
        match self {
            Self::Bools(each, values) => values[row(each)].to_vec(),
            Self::Integers(each, values) => values[row(each)].iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Self::Floats(each, values) => values[row(each)].iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Self::Texts(_) => Vec::new(),
        }
    }
}

/// A cell of the table before conversion. The type of its value depends on all cells of the column.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Empty,
    /// Characters without quotes: a number, or in a CSV table possibly a string.
    Bare(String),
    Text(String),
    Bool(bool),
    /// A list of numbers or booleans, as JSON.
    List(String),
    /// Any other list, or an object, as JSON.
    Nested(String),
}

#[derive(Debug)]
struct Row {
    line: u64,
    cells: Vec<Cell>,
}

/// A table that was read from its file, before its rows are matched to samples.
#[derive(Debug)]
pub struct LabelTable {
    path: PathBuf,
    header: Vec<String>,
    rows: Vec<Row>,
    naming: matching::NamingColumns,
}

impl LabelTable {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`Error::Config`] for `labels`, with the line, if the file cannot be read, a row cannot be parsed, or no column
    /// names the samples.
    pub fn read(path: &Path) -> Result<Self> {
        let (header, rows) = table(path)?;
        let path = &*shown(path);
        for row in &rows {
            let nested = row.cells.iter().position(|cell| matches!(cell, Cell::Nested(_)));
            if let Some(column) = nested {
                let (name, cell) = (&header[column], &row.cells[column]);
                let message = format!("{name:?} is {cell}, must be a number, a text or a list of numbers");
                return Err(wrong(path, row.line, message));
            }
        }
        let naming = matching::NamingColumns::of(path, &header)?;
        Ok(Self { path: path.to_path_buf(), header, rows, naming })
    }

    fn of_values(&self) -> impl Iterator<Item = usize> {
        (0..self.header.len()).filter(|&column| !self.naming.names_samples(column))
    }

    /// The names of the columns that hold values. Columns that name the samples are not included.
    pub fn names(&self) -> Vec<String> {
        self.of_values().map(|column| self.header[column].clone()).collect()
    }

    /// The columns in [`LabelTable::names`] for the samples of `index`. `kind` returns the kind of field that the user
    /// requests for a column, if any. Rows that belong to no sample are skipped, with a warning.
    ///
    /// # Errors
    /// [`Error::Config`] for `labels`, with the line, if a sample has no row or several rows, or if the values of a
    /// column cannot have one type.
    pub fn columns(
        &self,
        index: &DatasetIndex,
        kind: impl Fn(&str) -> Option<FieldKind>,
    ) -> Result<Vec<SampleColumn>> {
        let Self { path, header, rows, naming } = self;
        let samples = naming.rows_of_samples(path, header, rows, index)?;
        let column = |column: usize| {
            let name = &header[column];
            let values = values::values(path, name, column, rows, &samples, kind(name))?;
            Ok(SampleColumn { name: name.clone(), values, missing: None })
        };
        self.of_values().map(column).collect()
    }
}

fn wrong(path: &Path, line: u64, message: impl std::fmt::Display) -> Error {
    TableFault::at(line, message).of_labels(path)
}

#[derive(Debug)]
pub(super) struct TableFault {
    /// The line, counted from 1; `None` if the fault is not in a single line.
    line: Option<u64>,
    message: String,
}

impl TableFault {
    fn at(line: u64, message: impl std::fmt::Display) -> Self {
        Self { line: Some(line), message: message.to_string() }
    }

    pub(super) fn message(self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message,
        }
    }

    fn of_labels(self, path: &Path) -> Error {
        let place = if self.line.is_some() { ", " } else { ": " };
        Error::config(SETTING, format!("{}{place}{}", path.display(), self.message()))
    }
}

type Table = (Vec<String>, Vec<Row>);

fn table(path: &Path) -> Result<Table> {
    let format = TableFormat::of(path).ok_or_else(|| {
        let path = shown(path);
        let message =
            format!("is {}, must be a file that ends in {}", path.display(), TableFormat::endings());
        Error::config(SETTING, message)
    })?;
    let unread = |error| Error::config(SETTING, format!("{} cannot be read: {error}", shown(path).display()));
    let text = read_named(path).map_err(unread)?;
    parsed(format, &text, true).map_err(|fault| fault.of_labels(&shown(path)))
}

/// Parses the bytes of a table. With `trimmed`, blanks around separated values are removed.
fn parsed(format: TableFormat, text: &[u8], trimmed: bool) -> Result<Table, TableFault> {
    let text = without_mark(text);
    let (header, rows) = match format {
        TableFormat::Commas => separated::table(text, b',', trimmed),
        TableFormat::Tabulators => separated::table(text, b'\t', trimmed),
        TableFormat::JsonLines => json_lines::table(text),
        TableFormat::Coco => {
            let message = "is one JSON document, must be a table: write JSON lines".to_owned();
            return Err(TableFault { line: None, message });
        }
    }?;
    for (at, name) in header.iter().enumerate() {
        if header[..at].contains(name) {
            return Err(TableFault { line: None, message: format!("has two columns {name:?}") });
        }
    }
    Ok((header, rows))
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Bare(text) | Self::Text(text) | Self::List(text) | Self::Nested(text) => text.clone(),
            Self::Bool(truth) => truth.to_string(),
        }
    }
}

/// Formats a cell for messages, with strings in quotes.
impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bare(_) | Self::Bool(_) | Self::List(_) | Self::Nested(_) => f.write_str(&self.text()),
        }
    }
}
