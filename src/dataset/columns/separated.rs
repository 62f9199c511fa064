//! Tables of separated values: CSV and TSV, with the names of the columns in the first line.

use super::{Cell, Row, Table, wrong};
use crate::error::Result;
use std::path::Path;

/// Reads the CSV table in `text`, the bytes of the file at `path`.
pub(super) fn commas(path: &Path, text: &[u8]) -> Result<Table> {
    table(path, text, b',')
}

/// The same with tabulators in place of commas.
pub(super) fn tabulators(path: &Path, text: &[u8]) -> Result<Table> {
    table(path, text, b'\t')
}

fn table(path: &Path, text: &[u8], separator: u8) -> Result<Table> {
    // Spreadsheets write a byte order mark, which is no part of the first name.
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).trim(csv::Trim::All).from_reader(text);
    let broken = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        wrong(path, line, format!("is no row of the table: {error}"))
    };
    let header = reader.headers().map_err(broken)?.iter().map(str::to_owned).collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push(Row { line, cells: record.iter().map(cell).collect() });
    }
    Ok((header, rows))
}

/// What stands between two separators.
fn cell(text: &str) -> Cell {
    match (text.parse(), text.parse()) {
        _ if text.is_empty() => Cell::Empty,
        (Ok(whole), _) => Cell::Integer(whole),
        (_, Ok(number)) => Cell::Float(number),
        _ => Cell::Text(text.to_owned()),
    }
}
