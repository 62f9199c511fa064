//! Tables of JSON lines. Each line is an object whose keys are the names of the columns.

use super::values::items;
use super::{Cell, Row, Table, TableFault};
use base::json;

/// Reads the table in `text`, the bytes of its file. Every key must occur in the first line.
pub(super) fn table(text: &[u8]) -> Result<Table, TableFault> {
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let broken = |message: String| TableFault::at(line, message);
        let entries = object(text).map_err(broken)?;
        if header.is_empty() {
            header = entries.iter().map(|(key, _)| key.clone()).collect();
        }
        let mut cells = vec![None; header.len()];
        for (key, cell) in entries {
            let Some(column) = header.iter().position(|known| *known == key) else {
                let message =
                    format!("has {key:?}, which the first line does not have: give all lines the same keys");
                return Err(broken(message));
            };
            if cells[column].replace(cell).is_some() {
                return Err(broken(format!("has {key:?} twice")));
            }
        }
        rows.push(Row { line, cells: cells.into_iter().map(|cell| cell.unwrap_or(Cell::Empty)).collect() });
    }
    Ok((header, rows))
}

fn object(text: &[u8]) -> Result<Vec<(String, Cell)>, String> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err("is not a JSON object: it does not begin with a brace".to_owned());
    }
    let mut entries = Vec::new();
    let scanned = json::utf8(text).and_then(|text| {
        json::scan(&text, |key, value| {
            let shown = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
            let key = key.map_or_else(String::new, |key| json::text(key).unwrap_or_else(|| shown(key)));
            entries.push((key, cell(value)));
        })
    });
    scanned.map_err(|error| format!("is not a JSON object: {error}"))?;
    Ok(entries)
}

fn cell(value: &[u8]) -> Cell {
    let written = || String::from_utf8_lossy(value).into_owned();
    match value {
        b"null" => Cell::Empty,
        b"true" => Cell::Bool(true),
        b"false" => Cell::Bool(false),
        [b'"', ..] => Cell::Text(json::text(value).unwrap_or_else(written)),
        [b'[', ..] if items(value).is_some() => Cell::List(written()),
        [b'[' | b'{', ..] => Cell::Nested(written()),
        _ => Cell::Bare(written()),
    }
}
