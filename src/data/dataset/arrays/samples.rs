//! Which arrays become fields, and how many samples they have.
//!
//! With rows as samples, all arrays that are chosen must have equally many rows. An array with another number of rows
//! is a column that cannot be read, so that a field that selects it fails with the reason, and `foreload index` shows
//! the reason.

use super::{MAX_ARRAYS, MAX_SAMPLES, ShardArray};
use crate::dataset::build::{SampleRow, ShardRows};
use crate::dataset::label_column::{self, LABELS};
use crate::dataset::layouts::ShardReadOptions;
use crate::dataset::rows_of_table::take_labels;
use crate::dataset::samples::ShardContents;
use crate::dataset::table::{TableCells, TableColumn};
use crate::dataset::{FieldKind, SampleAxis};
use crate::source::Malformed;
use pixels::arrays::MemoryOrder;
use std::collections::BTreeMap;

/// Converts the arrays and the small values of a shard to its rows in the index. A `column` has the name of an array
/// and its values, or the reason why it cannot be read.
///
/// # Errors
/// [`Malformed`] if arrays that the user chose cannot be read together.
pub(in crate::dataset) fn contents(
    arrays: Vec<ShardArray>,
    columns: Vec<TableColumn>,
    reading: &ShardReadOptions,
) -> Result<ShardContents, Malformed> {
    let mut found = ShardContents::default();
    (found.rows.arrays, found.rows.columns) = (arrays, columns);
    join(&mut [&mut found], reading).map_err(Malformed::refusal)?;
    Ok(found)
}

/// Makes the samples of a dataset in which each shard has some of the arrays of all samples. The samples belong to the
/// first shard. The shards must be sorted by their names.
///
/// # Errors
/// A message if arrays that the user chose cannot be read together.
pub(in crate::dataset) fn join(
    shards: &mut [&mut ShardContents],
    reading: &ShardReadOptions,
) -> Result<(), String> {
    if shards.is_empty() {
        return Ok(());
    }
    let is_chosen = |name: &str| reading.arrays.iter().flatten().any(|chosen| chosen == name);
    for column in shards.iter().flat_map(|shard| &shard.rows.columns).filter(|of| is_chosen(&of.name)) {
        if let TableCells::Refused(why) = &column.cells {
            return Err(format!("the array {:?} cannot be read: {why}", column.name));
        }
    }
    let samples = match reading.sample_axis {
        SampleAxis::File => {
            let has_values = |column: &TableColumn| column.count().is_some();
            let rows = |shard: &ShardRows| !shard.arrays.is_empty() || shard.columns.iter().any(has_values);
            u64::from(shards.iter().any(|shard| rows(&shard.rows)))
        }
        SampleAxis::Axis0 => rows(shards, is_chosen, reading.largest_array.as_deref())?,
    };
    if samples > MAX_SAMPLES {
        return Err(format!(
            "there are {samples} rows, but at most {MAX_SAMPLES} can be read: write several files"
        ));
    }
    for shard in &mut *shards {
        let rows = &mut shard.rows;
        let (arrays, others): (Vec<_>, Vec<_>) = std::mem::take(&mut rows.arrays)
            .into_iter()
            .map(|array| (refusal(&array, samples, reading.sample_axis), array))
            .partition(|(refusal, _)| refusal.is_none());
        rows.arrays = arrays.into_iter().map(|(_, array)| array).collect();
        rows.arrays.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
        if rows.arrays.len() > MAX_ARRAYS {
            return Err(format!(
                "a shard has {} arrays, but at most {MAX_ARRAYS} can be read",
                rows.arrays.len()
            ));
        }
        for column in &mut rows.columns {
            if let Some(count) = column.count().filter(|&count| count != samples) {
                column.cells = TableCells::Refused(other_rows(count, samples));
            }
        }
        for (refusal, array) in others {
            let name = array.facts.name;
            rows.columns.retain(|column| column.name != name);
            let cells = TableCells::Refused(refusal.unwrap_or_default());
            rows.columns.push(TableColumn { name, kind: FieldKind::Array, classes: Vec::new(), cells });
        }
    }
    let columns = shards.iter_mut().flat_map(|shard| std::mem::take(&mut shard.rows.columns)).collect();
    let Some(first) = shards.first_mut() else { return Ok(()) };
    (first.rows.array_samples, first.rows.columns) = (samples, columns);
    first.rows.columns.sort_by(|a, b| a.name.cmp(&b.name));
    // No name of a column makes it the label unless the user says so, because the names of arrays mean nothing.
    let of_label = |column: &&TableColumn| reading.label.as_ref() == Some(&column.name);
    let columns: Vec<TableColumn> = first.rows.columns.iter().filter(of_label).cloned().collect();
    let mut not_labels = BTreeMap::new();
    let labels = label_column::find(&columns, &[][..], &LABELS, reading, &mut not_labels);
    let labels = labels.map_err(|malformed| malformed.message)?;
    first.findings.notes.not_labels = not_labels;
    if labels.is_some() {
        first.rows.samples = vec![SampleRow { offset: 0, length: 0, label: 0 }; samples as usize];
    }
    take_labels(first, samples, labels);
    Ok(())
}

/// The largest array of a shard that has rows.
pub(in crate::dataset) fn largest<'a>(
    arrays: impl Iterator<Item = &'a ShardArray>,
) -> Option<&'a ShardArray> {
    let with_rows = arrays.filter(|array| refusal_of_order(array).is_none());
    with_rows.max_by_key(|array| (array.stored_bytes(), std::cmp::Reverse(&array.facts.name)))
}

/// The number of rows of the chosen arrays. If none is chosen, the number of rows of the array `of_all`, or of the
/// largest array.
fn rows(
    shards: &[&mut ShardContents],
    is_chosen: impl Fn(&str) -> bool,
    of_all: Option<&str>,
) -> Result<u64, String> {
    let arrays = || shards.iter().flat_map(|shard| &shard.rows.arrays);
    let of_columns = shards.iter().flat_map(|shard| &shard.rows.columns);
    let of_columns = of_columns.filter_map(|column| Some((column.name.as_str(), column.count()?)));
    let lengths: BTreeMap<&str, u64> = arrays()
        .filter_map(|array| Some((array.facts.name.as_str(), *array.shape.first()?)))
        .chain(of_columns)
        .filter(|(name, _)| is_chosen(name))
        .collect();
    let Some(&rows) = lengths.values().next() else {
        let rows = |array: &ShardArray| array.shape.first().copied().unwrap_or(0);
        let Some(name) = of_all else { return Ok(largest(arrays()).map_or(0, rows)) };
        let found = arrays().find(|array| array.facts.name == name);
        return found.map(rows).ok_or_else(|| {
            format!(
                "it has no readable array {name:?}, whose rows are the samples of the first file: choose arrays with \
                 fields="
            )
        });
    };
    if lengths.values().any(|&other| other != rows) {
        let lengths: Vec<String> =
            lengths.iter().map(|(name, rows)| format!("{name:?} has {rows}")).collect();
        let lengths = lengths.join(", ");
        return Err(format!(
            "the arrays have different numbers of rows ({lengths}), but a sample is a row of each: choose arrays of \
             equal length with fields=, or set sample_axis=\"file\""
        ));
    }
    let refused = arrays().filter(|array| is_chosen(&array.facts.name)).find_map(|array| {
        let why = refusal(array, rows, SampleAxis::Axis0)?;
        Some(format!("the array {:?} cannot be read: {why}", array.facts.name))
    });
    refused.map_or(Ok(rows), Err)
}

/// Why an array cannot be a field of samples of which there are `samples`; `None` if it can.
fn refusal(array: &ShardArray, samples: u64, axis: SampleAxis) -> Option<String> {
    let is_ragged = matches!(array.storage, super::ArrayStorage::Rows { .. });
    match axis {
        SampleAxis::File if is_ragged => {
            Some("its rows have different lengths, so a file cannot be a sample".to_owned())
        }
        SampleAxis::File => None,
        SampleAxis::Axis0 => refusal_of_order(array).or_else(|| {
            let rows = array.shape.first().copied().unwrap_or(0);
            (rows != samples).then(|| other_rows(rows, samples))
        }),
    }
}

fn other_rows(rows: u64, samples: u64) -> String {
    format!("it has {rows} rows, but there are {samples} samples")
}

fn refusal_of_order(array: &ShardArray) -> Option<String> {
    match array.shape.len() {
        0 => Some("it is a single number, not a list of rows".to_owned()),
        1 => None,
        _ if array.facts.order == MemoryOrder::RowMajor => None,
        _ => Some(
            "is in column-major order, so a row is spread over the whole file: save numpy.ascontiguousarray(x), or \
             use sample_axis=\"file\""
                .to_owned(),
        ),
    }
}
