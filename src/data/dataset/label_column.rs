//! The label column of a table, and the class numbers of its cells.
//!
//! In every layout with columns, integers are class numbers and strings are class names.

use super::FieldKind;
use super::class_names::{ClassNames, LONGEST_NAME};
use super::layouts::ShardReadOptions;
use super::table::{CellExtent, TableCells, TableColumn};
use crate::source::{Malformed, ReadAt, Window};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Usual names of the label column in tables of Parquet, Arrow and MDS.
pub const LABELS: UsualLabels = UsualLabels { names: &["label", "cls", "class"], numbers_first: true };

/// Less usual names of the label column. A column with such a name is the label if no column with a usual name has
/// labels, and no other column has a name from this list.
pub const MORE_LABELS: [&str; 2] = ["labels", "class_id"];

/// The usual names of the label column in a layout.
pub struct UsualLabels {
    /// The names, in order of preference.
    pub names: &'static [&'static str],
    /// Whether integers are preferred: a column of integers with any of the names comes before a column of other
    /// labels, even if the name of that column is earlier in `names`.
    pub(super) numbers_first: bool,
}

/// The limit up to which float64 represents every integer.
const EXACT: f64 = (1_u64 << 53) as f64;

#[derive(Debug)]
pub(super) struct ColumnLabels<'a> {
    pub(super) column: &'a str,
    /// The class number of each sample; `None` for a sample without a label.
    pub(super) numbers: Cow<'a, [Option<i64>]>,
    pub(super) classes: Vec<String>,
    /// Whether the names are values of the column, so that other shards can have other names.
    pub(super) are_values: bool,
}

/// Finds the labels: in the column that the user named, or else in the best column with a `usual` name, or else in the
/// only column that [`MORE_LABELS`] names. Among columns with these names, floating-point columns are the last choice.
/// Columns whose values cannot be labels are recorded in `not_labels`.
///
/// # Errors
/// [`Malformed`] if strings in the shard cannot be read.
pub(super) fn find<'a, S: ReadAt + ?Sized>(
    columns: &'a [TableColumn],
    bytes: &S,
    usual: &UsualLabels,
    reading: &ShardReadOptions,
    not_labels: &mut BTreeMap<String, String>,
) -> Result<Option<ColumnLabels<'a>>, Malformed> {
    let column = |name: &str| {
        let found = columns.iter().find(|column| column.name == name);
        found.filter(|_| !reading.not_labels.contains_key(name))
    };
    let mut labels = |name: &str| match column(name).map(|column| of_column(column, bytes)).transpose()? {
        Some(Err(why)) => {
            not_labels.insert(name.to_owned(), why.to_owned());
            Ok(None)
        }
        found => Ok(found.and_then(Result::unwrap_or_default)),
    };
    if let Some(asked) = &reading.label {
        return labels(asked);
    }
    let ranks: [fn(&TableCells) -> bool; 3] = [
        |cells| matches!(cells, TableCells::Integers(_)),
        |cells| !matches!(cells, TableCells::Floats(_)),
        |_| true,
    ];
    for is_of_rank in &ranks[usize::from(!usual.numbers_first)..] {
        for name in usual.names.iter().filter(|name| column(name).is_some_and(|of| is_of_rank(&of.cells))) {
            if let Some(found) = labels(name)? {
                return Ok(Some(found));
            }
        }
    }
    let more: Vec<&str> = MORE_LABELS.into_iter().filter(|name| column(name).is_some()).collect();
    if let [only] = more[..] { labels(only) } else { Ok(None) }
}

/// Returns the labels of a column, `None` for a type that cannot be a label, or the reason why its values cannot be
/// labels.
fn of_column<'a, S: ReadAt + ?Sized>(
    column: &'a TableColumn,
    bytes: &S,
) -> Result<Result<Option<ColumnLabels<'a>>, &'static str>, Malformed> {
    let labels = |numbers, classes, are_values| {
        Some(ColumnLabels { column: &column.name, numbers, classes, are_values })
    };
    Ok(match &column.cells {
        TableCells::Integers(cells) => Ok(labels(Cow::Borrowed(&cells[..]), column.classes.clone(), false)),
        TableCells::Bools(cells) => {
            let numbers = cells.iter().map(|cell| cell.map(i64::from)).collect();
            Ok(labels(Cow::Owned(numbers), Vec::new(), false))
        }
        TableCells::Floats(cells) => {
            // Pandas writes NaN for a missing value.
            let there = || cells.iter().map(|cell| cell.filter(|number| !number.is_nan()));
            match there().flatten().all(|number| number.fract() == 0.0 && number.abs() <= EXACT) {
                true => {
                    let numbers = there().map(|cell| cell.map(|number| number as i64)).collect();
                    Ok(labels(Cow::Owned(numbers), Vec::new(), false))
                }
                false => Err("has numbers with fractions, which cannot be class numbers"),
            }
        }
        // An empty text is no class in any layout.
        TableCells::Texts(cells) => {
            let mut names = ClassNames::default();
            let mut number = |text: &str| (text.len() <= LONGEST_NAME).then(|| i64::from(names.number(text)));
            let there = cells.iter().map(|cell| cell.as_deref().filter(|text| !text.is_empty()));
            // A text that is too long ends the collection.
            let cell =
                |text: Option<&str>| text.map(&mut number).map_or(Some(None), |number| number.map(Some));
            match there.map(cell).collect() {
                Some(numbers) => Ok(labels(Cow::Owned(numbers), names.into_found(), true)),
                None => Err(TOO_LONG),
            }
        }
        TableCells::Extents(cells) if column.kind == FieldKind::Text => {
            if cells.iter().flatten().any(|cell| cell.length as usize > LONGEST_NAME) {
                return Ok(Err(TOO_LONG));
            }
            let (mut bytes, mut names) = (Window::new(bytes), ClassNames::default());
            let mut numbers = Vec::with_capacity(cells.len());
            for cell in cells {
                let Some(CellExtent { offset, length }) = cell.filter(|cell| cell.length > 0) else {
                    numbers.push(None);
                    continue;
                };
                let text = bytes.read(offset, u64::from(length))?;
                let Ok(text) = std::str::from_utf8(&text) else {
                    return Ok(Err("has texts that are not UTF-8, which cannot be class names"));
                };
                numbers.push(Some(i64::from(names.number(text))));
            }
            Ok(labels(Cow::Owned(numbers), names.into_found(), true))
        }
        _ => Ok(None),
    })
}

const TOO_LONG: &str = "has texts of more than 1024 bytes, which cannot be class names";
