//! Tables of JSON lines, each of which is an object whose keys are the names of the columns.

use super::values::items;
use super::{Cell, Row, Table, wrong};
use crate::error::Result;
use crate::json;
use std::path::Path;

/// Reads the table in `text`, the bytes of the file at `path`. The first line has all keys that the others may have.
pub(super) fn table(path: &Path, text: &[u8]) -> Result<Table> {
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let broken = |message: String| wrong(path, line, message);
        let entries = object(text).map_err(broken)?;
        if header.is_empty() {
            header = entries.iter().map(|(key, _)| key.clone()).collect();
        }
        let mut cells = vec![None; header.len()];
        for (key, cell) in entries {
            let Some(column) = header.iter().position(|known| *known == key) else {
                let message =
                    format!("has {key:?}, which the first line has not: give all lines the same keys");
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

/// Parses the keys and values of an object, or says what is wrong with it.
fn object(text: &[u8]) -> Result<Vec<(String, Cell)>, String> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err("is no JSON object: it does not begin with a brace".to_owned());
    }
    let mut entries = Vec::new();
    let scanned = json::utf8(text).and_then(|text| {
        json::scan(&text, |key, value| {
            let shown = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
            let key = key.map_or_else(String::new, |key| json::text(key).unwrap_or_else(|| shown(key)));
            entries.push((key, cell(value).ok_or_else(|| shown(value))));
        })
    });
    scanned.map_err(|error| format!("is no JSON object: {error}"))?;
    let whole = |(key, cell): (String, Result<Cell, String>)| match cell {
        Ok(cell) => Ok((key, cell)),
        Err(value) => Err(format!("{key:?} is {value}, must be a number, a text or a list of numbers")),
    };
    entries.into_iter().map(whole).collect()
}

/// Makes a value a cell; `None` for what a cell cannot hold.
fn cell(value: &[u8]) -> Option<Cell> {
    let written = || String::from_utf8_lossy(value).into_owned();
    Some(match value {
        b"null" => Cell::Empty,
        b"true" => Cell::Truth(true),
        b"false" => Cell::Truth(false),
        [b'"', ..] => Cell::Text(json::text(value).unwrap_or_else(written)),
        [b'[', ..] => {
            items(value)?;
            Cell::List(written())
        }
        [b'{', ..] => return None,
        _ => Cell::Bare(written()),
    })
}
