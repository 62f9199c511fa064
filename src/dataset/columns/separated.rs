//! Tables of separated values, CSV and TSV. The first line has the names of the columns.

use super::{Cell, Row, Table, TableFault};

/// Reads the table in `text`, the bytes of its file. Blanks around values are left out where these are `trimmed`.
pub(super) fn table(text: &[u8], separator: u8, trimmed: bool) -> Result<Table, TableFault> {
    if let Some(line) = open_quote(text, separator) {
        return Err(TableFault::at(line, "has a quote that is never closed"));
    }
    let trim = if trimmed { csv::Trim::All } else { csv::Trim::Headers };
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).trim(trim).from_reader(text);
    let broken = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        TableFault::at(line, format!("is no row of the table: {error}"))
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

/// The line of a quote that is never closed. The `csv` crate would take the rest of the file for its text.
fn open_quote(text: &[u8], separator: u8) -> Option<u64> {
    let (mut line, mut opened, mut begins) = (1, None, true);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        line += u64::from(byte == b'\n');
        match (byte, opened) {
            // Two quotes stand for one.
            (b'"', Some(_)) => opened = opened.filter(|_| bytes.next_if_eq(&b'"').is_some()),
            (b'"', None) if begins => opened = Some(line),
            _ => {}
        }
        begins = byte == separator || byte == b'\n' || byte == b'\r';
    }
    opened
}

/// Makes the text between two separators a cell.
fn cell(text: &str) -> Cell {
    if text.is_empty() { Cell::Empty } else { Cell::Bare(text.to_owned()) }
}
