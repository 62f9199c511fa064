//! Tables as JSON lines: an object a line, its keys the names of the columns.

use super::{Cell, Row, Table, wrong};
use crate::error::Result;
use serde_json::Value;
use std::path::Path;

/// Reads the table in `text`, the bytes of the file at `path`. All lines have the keys of the first, or fewer.
pub(super) fn table(path: &Path, text: &[u8]) -> Result<Table> {
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let broken = |message: String| wrong(path, line, message);
        let object: serde_json::Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| broken(format!("is no JSON object: {error}")))?;
        if header.is_empty() {
            header = object.keys().cloned().collect();
        }
        if let Some(other) = object.keys().find(|key| !header.contains(key)) {
            return Err(broken(format!(
                "has {other:?}, which the first line has not: give all lines the same keys"
            )));
        }
        let of_key = |key: &String| match object.get(key) {
            None | Some(Value::Null) => Ok(Cell::Empty),
            Some(value) => cell(value).ok_or_else(|| {
                broken(format!("{key:?} is {value}, must be a number, a text or a list of numbers"))
            }),
        };
        rows.push(Row { line, cells: header.iter().map(of_key).collect::<Result<_>>()? });
    }
    Ok((header, rows))
}

/// What a value is as a cell; `None` for what can be none.
fn cell(value: &Value) -> Option<Cell> {
    match value {
        Value::Bool(truth) => Some(Cell::Integer(i64::from(*truth))),
        Value::Number(number) => {
            number.as_i64().map(Cell::Integer).or_else(|| number.as_f64().map(Cell::Float))
        }
        Value::String(text) => Some(Cell::Text(text.clone())),
        Value::Array(numbers) => numbers.iter().map(Value::as_f64).collect::<Option<_>>().map(Cell::Numbers),
        _ => None,
    }
}
