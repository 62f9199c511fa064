//! Converts the cells of a column to values of one type.

use super::{Cell, ColumnValues, Row, wrong};
use crate::dataset::FieldKind;
use base::error::{Error, Result};
use base::json;
use std::path::Path;

/// A number from the user, in a table or in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnItem {
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A number too large for int64, as the nearest float, which can be infinite.
    TooLarge(f64),
    /// Any other number, including infinities and NaN.
    Float(f64),
}

impl ColumnItem {
    pub(super) fn written(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Integer).ok().or_else(|| text.parse().map(Self::TooLarge).ok());
        }
        let number: f64 = text.parse().ok()?;
        let is_large = number.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit());
        Some(if is_large { Self::TooLarge(number) } else { Self::Float(number) })
    }

    fn rounded(self) -> Result<f32, &'static str> {
        let (number, is_finite) = match self {
            Self::Bool(truth) => (f32::from(u8::from(truth)), true),
            Self::Integer(number) => (number as f32, true),
            Self::TooLarge(number) => (number as f32, true),
            Self::Float(number) => (number as f32, number.is_finite()),
        };
        if is_finite && number.is_infinite() { Err("which exceeds the range of float32") } else { Ok(number) }
    }

    /// Converts to float32. An integer that float32 cannot represent exactly is an error.
    fn float(self) -> Result<f32, &'static str> {
        let float = self.rounded()?;
        let rounds = match self {
            Self::Integer(number) => float as i128 != i128::from(number),
            other => matches!(other, Self::TooLarge(_)),
        };
        if !rounds {
            return Ok(float);
        }
        Err("which is an integer that float32, the type of columns with fractions, would round: use \
             foreload.fields.Float to accept the rounding")
    }

    fn integer(self) -> Result<i64, &'static str> {
        const TOO_LARGE: &str = "which exceeds the range of int64: foreload.fields.Float rounds it to float32, and for \
                                 a table foreload.fields.Text keeps it as text";
        match self {
            Self::Bool(truth) => Ok(i64::from(truth)),
            Self::Integer(number) => Ok(number),
            Self::TooLarge(_) => Err(TOO_LARGE),
            // Some programs write integers as floats. Above 2^53, a float can stand for several integers.
            Self::Float(number) if number.fract() == 0.0 && number.abs() <= (1u64 << 53) as f64 => {
                Ok(number as i64)
            }
            Self::Float(_) => Err("which is not an integer, as foreload.fields.Integer requires"),
        }
    }

    fn truth(self) -> Option<u8> {
        if let Self::Bool(truth) = self { Some(u8::from(truth)) } else { None }
    }
}

/// Converts numbers to values of one type. Each sample has a list of `each` numbers (`None`: a single number). `kind`
/// determines the type. Without a kind, the type is uint8 if all items are booleans, int64 if all are integers, else
/// float32.
///
/// # Errors
/// The index of a number that cannot be converted to this type, and the reason.
pub fn typed(
    items: impl Iterator<Item = ColumnItem> + Clone,
    each: Option<u32>,
    kind: Option<FieldKind>,
) -> Result<ColumnValues, (usize, &'static str)> {
    use ColumnItem::{Bool, Float, Integer, TooLarge};
    fn all<T>(
        items: impl Iterator<Item = ColumnItem>,
        of: impl Fn(ColumnItem) -> Result<T, &'static str>,
    ) -> Result<Vec<T>, (usize, &'static str)> {
        items.enumerate().map(|(at, item)| of(item).map_err(|why| (at, why))).collect()
    }
    let is = |like: fn(&ColumnItem) -> bool| items.clone().all(|item| like(&item));
    Ok(match kind {
        Some(FieldKind::Integer) => ColumnValues::Integers(each, all(items, ColumnItem::integer)?),
        Some(_) => ColumnValues::Floats(each, all(items, ColumnItem::rounded)?),
        None if is(|item| matches!(item, Bool(_))) => {
            ColumnValues::Bools(each, items.filter_map(ColumnItem::truth).collect())
        }
        None if is(|item| matches!(item, Bool(_) | Integer(_) | TooLarge(_))) => {
            ColumnValues::Integers(each, all(items, ColumnItem::integer)?)
        }
        None if is(|item| matches!(item, Float(_))) => {
            ColumnValues::Floats(each, all(items, ColumnItem::rounded)?)
        }
        None => ColumnValues::Floats(each, all(items, ColumnItem::float)?),
    })
}

pub(super) fn values(
    path: &Path,
    name: &str,
    column: usize,
    rows: &[Row],
    samples: &[u32],
    kind: Option<FieldKind>,
) -> Result<ColumnValues> {
    check_kind(name, kind)?;
    let row = |sample: usize| &rows[samples[sample] as usize];
    let cells = (0..samples.len()).map(|sample| &row(sample).cells[column]);
    let wrong = |sample: usize, message: String| {
        let (line, cell) = (row(sample).line, &row(sample).cells[column]);
        wrong(path, line, format!("{name:?} is {cell}{message}"))
    };
    if kind == Some(FieldKind::Text) {
        return Ok(ColumnValues::Texts(cells.map(Cell::text).collect()));
    }
    let lists = cells.clone().find_map(|cell| match cell {
        Cell::List(list) => Some(items_of(list).len()),
        _ => None,
    });
    if let Some(each) = lists {
        let fits = |cell: &Cell| matches!(cell, Cell::List(list) if items_of(list).len() == each);
        if let Some(sample) = cells.clone().position(|cell| !fits(cell)) {
            return Err(wrong(sample, format!(", must be a list of {each} numbers as in other lines")));
        }
        let items = cells.flat_map(|cell| match cell {
            Cell::List(list) => items_of(list),
            _ => Vec::new(),
        });
        let typed = typed(items, Some(each as u32), kind);
        return typed.map_err(|(at, why)| {
            wrong(at / each.max(1), format!(", where item {} is a number {why}", at % each))
        });
    }
    let texts = |cell: &Cell| *cell != Cell::Empty && cell.number().is_none();
    match (cells.clone().position(texts), kind) {
        (None, _) => {}
        (Some(_), None) => return Ok(ColumnValues::Texts(cells.map(Cell::text).collect())),
        (Some(sample), Some(kind)) => {
            let kind = if kind == FieldKind::Float { "a number" } else { "a whole number" };
            return Err(wrong(sample, format!(", must be {kind}")));
        }
    }
    if let Some(sample) = cells.clone().position(|cell| *cell == Cell::Empty) {
        let message = ", must be a number as in other lines (write \"nan\" for a missing value)";
        return Err(wrong(sample, message.to_owned()));
    }
    typed(cells.filter_map(Cell::number), None, kind)
        .map_err(|(sample, why)| wrong(sample, format!(", {why}")))
}

fn items_of(list: &str) -> Vec<ColumnItem> {
    items(list.as_bytes()).unwrap_or_default()
}

/// Parses a list of numbers and booleans in JSON; `None` if the list holds anything else.
pub(super) fn items(list: &[u8]) -> Option<Vec<ColumnItem>> {
    let mut items = Some(Vec::new());
    let scanned = json::scan(list, |_, value| {
        let item = match value {
            b"true" => Some(ColumnItem::Bool(true)),
            b"false" => Some(ColumnItem::Bool(false)),
            other => std::str::from_utf8(other).ok().and_then(ColumnItem::written),
        };
        match (&mut items, item) {
            (Some(items), Some(item)) => items.push(item),
            _ => items = None,
        }
    });
    scanned.ok().and(items)
}

fn check_kind(name: &str, kind: Option<FieldKind>) -> Result<()> {
    if let None | Some(FieldKind::Integer | FieldKind::Float | FieldKind::Text) = kind {
        return Ok(());
    }
    let message = format!(
        "has {name:?}, a column of labels=, with a kind that it cannot have: use its plain name, or \
         foreload.fields.Integer, Float or Text"
    );
    Err(Error::config("fields", message))
}
