//! Columns of the user's own beside the samples: targets, attributes, captions, from a table in a file.
//!
//! A row names its sample: by the file's path below the dataset, with or without its extension, or by the sample's
//! number. Every sample needs a row; rows of other samples are passed over.

mod json_lines;
mod separated;

use super::DatasetIndex;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::Path;

/// Names of the column that says which sample a row is of, the best first.
const NAMES: [&str; 5] = ["file_name", "path", "file", "filename", "image"];
/// Name of the column that says its number.
const NUMBER: &str = "sample_id";
/// The setting that a message names.
const SETTING: &str = "labels";

/// A column: a value of each sample, by its number.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleColumn {
    /// Its name, that of its field.
    pub name: String,
    /// What it holds.
    pub values: ColumnValues,
}

/// The values of a column, sample by sample.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues {
    /// So many whole numbers for each sample; `None`: one number and no list.
    Integers(Option<u32>, Vec<i64>),
    /// The same of other numbers.
    Floats(Option<u32>, Vec<f32>),
    /// A text for each sample.
    Texts(Vec<String>),
}

impl ColumnValues {
    /// Of how many samples these are.
    pub fn samples(&self) -> u64 {
        let (each, values) = match self {
            Self::Integers(each, values) => (each, values.len()),
            Self::Floats(each, values) => (each, values.len()),
            Self::Texts(texts) => (&None, texts.len()),
        };
        (values / each.unwrap_or(1).max(1) as usize) as u64
    }

    /// The bytes of a sample's numbers, in this machine's order; none of texts.
    pub fn bytes(&self, sample: u64) -> Vec<u8> {
        let row = |each: &Option<u32>| {
            let each = each.unwrap_or(1) as usize;
            sample as usize * each..(sample as usize + 1) * each
        };
        match self {
            Self::Integers(each, values) => values[row(each)].iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Self::Floats(each, values) => values[row(each)].iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Self::Texts(_) => Vec::new(),
        }
    }
}

/// A cell of the table.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Empty,
    Integer(i64),
    Float(f64),
    Text(String),
    Numbers(Vec<f64>),
}

/// A row: where it stands in the file, and its cells in the order of the header.
struct Row {
    line: u64,
    cells: Vec<Cell>,
}

/// The columns of the file at `path`, for the samples of `index`.
///
/// # Errors
/// [`Error::Config`] for `labels` that names the line: a row that is none, a sample without a row or with two, a column
/// of numbers with something else in it. [`Error::Io`] when the file cannot be read.
pub(crate) fn read(path: &Path, index: &DatasetIndex) -> Result<Vec<SampleColumn>> {
    let (header, rows) = table(path)?;
    let naming = naming(path, &header)?;
    let samples = samples(path, &header, naming, &rows, index)?;
    let columns = (0..header.len()).filter(|&column| column != naming);
    columns.map(|column| values(path, &header[column], column, &rows, &samples)).collect()
}

fn wrong(path: &Path, line: u64, message: impl std::fmt::Display) -> Error {
    Error::config(SETTING, format!("{}, line {line}: {message}", path.display()))
}

/// The names of the columns, and the rows.
type Table = (Vec<String>, Vec<Row>);
/// Reads a table from the bytes of the file at a path.
type ReadTable = fn(&Path, &[u8]) -> Result<Table>;

/// How tables are written, by the extensions of their files.
const FORMATS: &[(&[&str], ReadTable)] = &[
    (&["csv"], separated::commas),
    (&["tsv"], separated::tabulators),
    (&["jsonl", "ndjson"], json_lines::table),
];

/// The table in the file at `path`.
fn table(path: &Path) -> Result<Table> {
    let read = format(path)?;
    let text = std::fs::read(path).map_err(|error| Error::io("read labels from", path, error))?;
    read(path, &text)
}

/// What reads the file at `path`.
fn format(path: &Path) -> Result<ReadTable> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let found = FORMATS.iter().find(|(extensions, _)| extensions.contains(&extension.as_str()));
    found.map(|(_, read)| *read).ok_or_else(|| {
        let known: Vec<String> = FORMATS.iter().flat_map(|(of, _)| *of).map(|of| format!(".{of}")).collect();
        Error::config(
            SETTING,
            format!("is {}, must be a file that ends in {}", path.display(), known.join(", ")),
        )
    })
}

/// The names of the columns of the file at `path`, but for the one that names the samples.
///
/// # Errors
/// The errors of [`read`], as far as it looks.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let (header, _) = table(path)?;
    let naming = naming(path, &header)?;
    Ok((0..header.len()).filter(|&column| column != naming).map(|column| header[column].clone()).collect())
}

impl Cell {
    /// As it stood in the file, or nearly.
    fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Numbers(numbers) => format!("{numbers:?}"),
        }
    }
}

/// Which column says what sample a row is of.
fn naming(path: &Path, header: &[String]) -> Result<usize> {
    let found =
        NAMES.iter().chain([&NUMBER]).find_map(|name| header.iter().position(|column| column == name));
    found.ok_or_else(|| {
        let message = format!(
            "{}: has no column that says which sample a row is of: call it {} (its path below the dataset), or \
             {NUMBER}",
            path.display(),
            NAMES.join(", ")
        );
        Error::config(SETTING, message)
    })
}

/// The row of each sample.
fn samples(
    path: &Path,
    header: &[String],
    naming: usize,
    rows: &[Row],
    index: &DatasetIndex,
) -> Result<Vec<u32>> {
    const NO_ROW: u32 = u32::MAX;
    let mut found = vec![NO_ROW; index.len() as usize];
    let mut take = |sample: u64, row: u32| match std::mem::replace(&mut found[sample as usize], row) {
        NO_ROW => Ok(()),
        first => {
            let first = rows[first as usize].line;
            Err(wrong(path, rows[row as usize].line, format!("is of the same sample as line {first}")))
        }
    };
    if header[naming] == NUMBER {
        for (number, row) in (0..).zip(rows) {
            match row.cells[naming] {
                Cell::Integer(sample) if (0..index.len() as i64).contains(&sample) => {
                    take(sample as u64, number)?
                }
                ref other => {
                    let message =
                        format!("{NUMBER} is {:?}, must be from 0 to {}", other.text(), index.len() - 1);
                    return Err(wrong(path, row.line, message));
                }
            }
        }
    } else if index.is_sharded() {
        let message = format!(
            "{}: names samples by {:?}, but those in shards have no files of their own: name them by {NUMBER}, their \
             numbers in the index, or write the labels into the shards",
            path.display(),
            header[naming]
        );
        return Err(Error::config(SETTING, message));
    } else {
        let texts: Vec<String> = rows.iter().map(|row| row.cells[naming].text()).collect();
        let mut by_name: HashMap<&[u8], u32> = HashMap::with_capacity(rows.len());
        for (number, text) in (0..).zip(&texts) {
            let name = text.strip_prefix("./").unwrap_or(text).as_bytes();
            if let Some(first) = by_name.insert(name, number) {
                let (first, line) = (rows[first as usize].line, rows[number as usize].line);
                return Err(wrong(path, line, format!("names {text:?}, as line {first} does")));
            }
        }
        let mut outcome = Ok(());
        index.each_path(|file, name| {
            let stem = name.iter().rposition(|&byte| byte == b'.').map(|dot| &name[..dot]);
            let row = by_name.get(name).or_else(|| by_name.get(stem?));
            if let (Some(&row), Ok(())) = (row, &outcome) {
                outcome = index.samples_of(file).try_for_each(|sample| take(sample, row));
            }
        });
        outcome?;
    }
    let missing = found.iter().filter(|&&row| row == NO_ROW).count();
    if let Some(first) = found.iter().position(|&row| row == NO_ROW) {
        let file = index.path(index.extent(first as u64).file);
        let message = format!(
            "{}: has no row for {missing} of {} samples, for one number {first} ({}): add rows, or leave the samples \
             out of the dataset's directory",
            path.display(),
            found.len(),
            file.display()
        );
        return Err(Error::config(SETTING, message));
    }
    Ok(found)
}

/// The values of a column, of one type for all samples.
fn values(path: &Path, name: &str, column: usize, rows: &[Row], samples: &[u32]) -> Result<SampleColumn> {
    let cells = || rows.iter().map(|row| (row.line, &row.cells[column]));
    let of = |row: &u32| &rows[*row as usize].cells[column];
    let made = |values| Ok(SampleColumn { name: name.to_owned(), values });
    let each = cells().find_map(|(_, cell)| match cell {
        Cell::Numbers(numbers) => Some(numbers.len()),
        _ => None,
    });
    if let Some(each) = each {
        if let Some((line, cell)) =
            cells().find(|(_, cell)| !matches!(cell, Cell::Numbers(list) if list.len() == each))
        {
            return Err(wrong(
                path,
                line,
                format!("{name:?} is {}, must be a list of {each} numbers as before", cell.text()),
            ));
        }
        let all = samples.iter().flat_map(|row| match of(row) {
            Cell::Numbers(list) => list.as_slice(),
            _ => &[],
        });
        let whole = all.clone().all(|number| number.fract() == 0.0 && number.abs() < 9e15);
        let width = Some(each as u32);
        return made(match whole {
            true => ColumnValues::Integers(width, all.map(|&number| number as i64).collect()),
            false => ColumnValues::Floats(width, all.map(|&number| number as f32).collect()),
        });
    }
    if cells().any(|(_, cell)| matches!(cell, Cell::Text(_))) {
        return made(ColumnValues::Texts(samples.iter().map(|row| of(row).text()).collect()));
    }
    if let Some((line, _)) = cells().find(|(_, cell)| **cell == Cell::Empty) {
        return Err(wrong(
            path,
            line,
            format!("{name:?} is empty, must be a number as in other lines (\"nan\" for none)"),
        ));
    }
    if cells().all(|(_, cell)| matches!(cell, Cell::Integer(_))) {
        let whole = |row| match of(row) {
            Cell::Integer(number) => *number,
            _ => 0,
        };
        return made(ColumnValues::Integers(None, samples.iter().map(whole).collect()));
    }
    let number = |row| match of(row) {
        Cell::Integer(number) => *number as f32,
        Cell::Float(number) => *number as f32,
        _ => f32::NAN,
    };
    made(ColumnValues::Floats(None, samples.iter().map(number).collect()))
}
