//! Common code of the parsers of tables: limits on the expanded size of a shard, and columns of bytes and strings that
//! are collected value by value.

use super::FieldKind;
use super::blocks::ShardBlocks;
use super::hugging_face::{DeclaredFeatures, Feature};
use super::table::{CellExtent, TableCells, TableColumn};
use super::value_kinds::{HEAD, ValueKinds};
use crate::source::{Malformed, ReadAt, Window};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum total size in bytes of a column's strings in the index.
const COLUMN_TEXTS: u64 = 256 << 20;
/// Maximum total size in bytes of a shard's strings in the index.
const SHARD_TEXTS: u64 = 1 << 30;
/// Maximum number of cells of a shard, summed over all columns.
pub(super) const MAX_CELLS: u64 = 1 << 27;
/// Maximum number of values of a column that are examined to detect the kind of the column.
const SAMPLED_VALUES: usize = 16;
/// Average length in bytes above which strings are not copied to the index, if the shard stores them verbatim.
const SHORT_TEXT_BYTES: u64 = 64;

pub(super) type TableFile<'a> = Window<'a, dyn ReadAt + 'a>;

#[derive(Debug)]
pub(super) enum ColumnFault {
    /// The column cannot be read, but the other columns of the table can.
    Refused(String),
    Damaged(Malformed),
}

impl From<Malformed> for ColumnFault {
    fn from(malformed: Malformed) -> Self {
        Self::Damaged(malformed)
    }
}

pub(super) fn damaged(offset: u64, what: &str) -> Malformed {
    Malformed { offset, message: format!("{what}: the shard is damaged") }
}

pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
}

/// Returns a float of two, four or eight bytes.
pub(super) fn float(bytes: &[u8]) -> f64 {
    match bytes {
        [a, b] => half::f16::from_le_bytes([*a, *b]).to_f64(),
        [a, b, c, d] => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        _ => f64::from_bits(little_endian(bytes)),
    }
}

impl ColumnFault {
    fn cells(self) -> Result<TableCells, Malformed> {
        match self {
            Self::Refused(why) => Ok(TableCells::Refused(why)),
            Self::Damaged(malformed) => Err(malformed),
        }
    }
}

/// What remains of the limits on the expanded size of a shard. Few bytes can encode many values, so a count in a shard
/// is accepted only if it is plausible for the size of the shard.
pub(super) struct TableLimits {
    cells: u64,
    bytes: u64,
    column_texts: u64,
    shard_texts: u64,
    /// The columns of which the index keeps all strings, however long the strings are.
    kept_columns: Vec<String>,
    keeps_all_texts: bool,
}

impl TableLimits {
    pub(super) fn of(size: u64) -> Self {
        Self {
            cells: size.saturating_mul(8).saturating_add(1 << 20).min(MAX_CELLS),
            bytes: size.saturating_mul(256).saturating_add(1 << 30),
            column_texts: COLUMN_TEXTS,
            shard_texts: SHARD_TEXTS,
            kept_columns: Vec::new(),
            keeps_all_texts: false,
        }
    }

    pub(super) fn begin_column(&mut self, path: &[String]) {
        self.column_texts = COLUMN_TEXTS;
        self.keeps_all_texts = !self.kept_columns.is_empty() && self.kept_columns.contains(&path.join("."));
    }

    /// Reserves `count` cells. `offset` is where the shard states the count.
    pub(super) fn take_cells(&mut self, count: u64, offset: u64) -> Result<(), Malformed> {
        let left = self.cells.checked_sub(count).ok_or_else(|| {
            let message = format!(
                "{count} more values are stated, which is implausible for a shard of this size: it is damaged, or \
                 should be written as several shards"
            );
            Malformed { offset, message }
        })?;
        self.cells = left;
        Ok(())
    }

    /// Reserves `size` bytes to read or decompress. `offset` is where the shard states the size. Without this limit, a
    /// shard in which many parts refer to the same bytes could be read forever.
    pub(super) fn take_bytes(&mut self, size: u64, offset: u64) -> Result<(), Malformed> {
        let left = self.bytes.checked_sub(size).ok_or_else(|| Malformed {
            offset,
            message: format!(
                "{size} more bytes must be read or decompressed, which is implausible for a shard of this size"
            ),
        })?;
        self.bytes = left;
        Ok(())
    }

    pub(super) fn take_text(&mut self, length: u64) -> Result<(), ColumnFault> {
        let column = self.column_texts.checked_sub(length);
        let (Some(column), Some(shard)) = (column, self.shard_texts.checked_sub(length)) else {
            let most = COLUMN_TEXTS >> 20;
            return Err(ColumnFault::Refused(format!(
                "its texts exceed the limit of a shard, which is {most} MiB per column: write smaller shards, or write \
                 the column uncompressed and without a dictionary"
            )));
        };
        (self.column_texts, self.shard_texts) = (column, shard);
        Ok(())
    }
}

/// A shard that is read, what remains of its limits, and the compressed blocks that were found in it.
pub(super) struct TableShard<'a> {
    pub(super) file: TableFile<'a>,
    pub(super) limits: TableLimits,
    pub(super) blocks: ShardBlocks,
}

impl<'a> TableShard<'a> {
    /// Keeps all strings of the columns `kept`, because other shards do not store those strings verbatim.
    pub(super) fn of(source: &'a dyn ReadAt, kept: &[String]) -> Self {
        let size = source.size();
        let limits = TableLimits { kept_columns: kept.to_vec(), ..TableLimits::of(size) };
        Self { file: Window::new(source), limits, blocks: ShardBlocks::of(size) }
    }
}

#[derive(Debug, Clone)]
pub(super) enum ByteValue {
    Stored(CellExtent),
    /// A decoded copy of a string that the shard does not store verbatim.
    Text(Box<str>),
}

impl ByteValue {
    pub(super) fn text(bytes: &[u8], limits: &mut TableLimits) -> Result<Self, ColumnFault> {
        limits.take_text(bytes.len() as u64)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| ColumnFault::Refused("it holds texts that are not UTF-8".to_owned()))?;
        Ok(Self::Text(text.into()))
    }

    pub(super) fn duplicate(&self, limits: &mut TableLimits) -> Result<Self, ColumnFault> {
        if let Self::Text(text) = self {
            limits.take_text(text.len() as u64)?;
        }
        Ok(self.clone())
    }
}

pub(super) enum CollectedCells {
    Bools(Vec<Option<bool>>),
    Integers(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Bytes(Vec<Option<ByteValue>>),
}

impl CollectedCells {
    pub(super) fn finish(self, is_text: bool, shard: &mut TableShard<'_>) -> Result<TableCells, ColumnFault> {
        match self {
            Self::Bools(cells) => Ok(TableCells::Bools(cells)),
            Self::Integers(cells) => Ok(TableCells::Integers(cells)),
            Self::Floats(cells) => Ok(TableCells::Floats(cells)),
            Self::Bytes(cells) if is_text => text_cells(cells, shard),
            Self::Bytes(cells) => byte_cells(cells),
        }
    }
}

/// The cells of a column of bytes. All values must be stored verbatim in the shard.
fn byte_cells(values: Vec<Option<ByteValue>>) -> Result<TableCells, ColumnFault> {
    let extent = |value| match value {
        ByteValue::Stored(extent) => Ok(extent),
        ByteValue::Text(_) => {
            Err(ColumnFault::Refused("its bytes are not stored verbatim in the shard".to_owned()))
        }
    };
    let extents = values.into_iter().map(|value| value.map(extent).transpose());
    extents.collect::<Result<_, _>>().map(TableCells::Extents)
}

/// The cells of a column of strings. Strings stay in the shard if they are long on average, are all stored verbatim,
/// and need not be kept in the index. Otherwise they are read now.
fn text_cells(values: Vec<Option<ByteValue>>, shard: &mut TableShard<'_>) -> Result<TableCells, ColumnFault> {
    let (mut total, mut count, mut all_lie) = (0, 0, true);
    for value in values.iter().flatten() {
        match value {
            ByteValue::Stored(extent) => total += u64::from(extent.length),
            ByteValue::Text(_) => all_lie = false,
        }
        count += 1;
    }
    if all_lie && total > SHORT_TEXT_BYTES * count && !shard.limits.keeps_all_texts {
        return byte_cells(values);
    }
    let mut text = |value| match value {
        ByteValue::Text(text) => Ok(text),
        ByteValue::Stored(CellExtent { offset, length }) => {
            shard.limits.take_text(u64::from(length))?;
            let bytes = shard.file.read(offset, u64::from(length))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| ColumnFault::Refused(format!("the text at byte {offset} is not UTF-8")))?;
            Ok(text.into())
        }
    };
    let texts = values.into_iter().map(|value| value.map(&mut text).transpose());
    texts.collect::<Result<_, _>>().map(TableCells::Texts)
}

/// Makes a column from the table's schema and from its description by `datasets`. For a struct of bytes and a path, the
/// column of the bytes gets the name of the struct. A column of bytes without any value or known kind is dropped,
/// because the values in another shard determine the kind.
pub(super) fn column(
    path: &[String],
    in_bytes_and_path: bool,
    kind: FieldKind,
    cells: Result<TableCells, ColumnFault>,
    features: &DeclaredFeatures,
    shard: &mut TableShard<'_>,
) -> Result<Option<TableColumn>, Malformed> {
    let cells = cells.or_else(ColumnFault::cells)?;
    let (path, is_picture) = match path.split_last() {
        Some((last, parent)) if in_bytes_and_path && last == "bytes" => (parent, true),
        _ => (path, false),
    };
    let feature = features.of(path);
    let kind = match (kind, &feature) {
        (FieldKind::Bytes, Some(Feature::Image)) => FieldKind::Image,
        (FieldKind::Bytes, None) if is_picture => FieldKind::Image,
        (FieldKind::Bytes, None | Some(Feature::Value)) => match &cells {
            TableCells::Extents(extents) => match kinds(extents, shard)? {
                kinds if kinds.is_unknown() => return Ok(None),
                kinds => kinds.kind_of_bytes(),
            },
            _ => kind,
        },
        (kind, _) => kind,
    };
    let classes = match feature {
        Some(Feature::Classes(names)) if matches!(cells, TableCells::Integers(_)) => names,
        _ => Vec::new(),
    };
    Ok(Some(TableColumn { name: path.join("."), kind, classes, cells }))
}

/// Makes the names of columns distinct. In some formats, a list gives several columns with one name. They become one
/// refused column.
pub(super) fn by_different_names(columns: Vec<TableColumn>) -> Vec<TableColumn> {
    let mut places = HashMap::<String, usize>::new();
    let mut different: Vec<TableColumn> = Vec::new();
    for column in columns {
        match places.entry(column.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(different.len());
                different.push(column);
            }
            Entry::Occupied(entry) => {
                let first = &mut different[*entry.get()];
                if !matches!(first.cells, TableCells::Refused(_)) {
                    first.cells =
                        TableCells::Refused("several columns have this name: rename one".to_owned());
                }
            }
        }
    }
    different
}

/// Examines the first bytes of some values that are spread over the column. Examines only a few values, because each
/// can need a separate read.
fn kinds(extents: &[Option<CellExtent>], shard: &mut TableShard<'_>) -> Result<ValueKinds, Malformed> {
    let mut kinds = ValueKinds::default();
    let values: Vec<CellExtent> =
        extents.iter().flatten().filter(|value| value.length > 0).copied().collect();
    for value in values.iter().step_by(values.len().div_ceil(SAMPLED_VALUES).max(1)) {
        let range = value.offset..value.offset + u64::from(value.length);
        match shard.blocks.head(&mut shard.file, range, HEAD as usize)? {
            Some(head) => kinds.look_at(&head, u64::from(value.length)),
            None => kinds.look(&mut shard.file, *value)?,
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_believed_as_far_as_its_size_goes() {
        let mut limits = TableLimits::of(1000);
        assert!(limits.take_cells((1 << 20) + 7000, 1).is_ok());
        assert_eq!(limits.take_cells(1001, 5).unwrap_err().offset, 5);
        assert!(limits.take_cells(1000, 1).is_ok());
        assert!(TableLimits::of(u64::MAX).take_cells(MAX_CELLS + 1, 1).is_err());
        assert!(limits.take_bytes((1 << 30) + 256_001, 1).is_err());
    }

    #[test]
    fn texts_are_kept_up_to_a_limit() {
        let mut limits = TableLimits::of(1000);
        let refused = |fault| matches!(fault, Err(ColumnFault::Refused(_)));
        assert!(limits.take_text(COLUMN_TEXTS).is_ok() && refused(limits.take_text(1)));
        for _ in 1..SHARD_TEXTS / COLUMN_TEXTS {
            limits.begin_column(&[]);
            assert!(limits.take_text(COLUMN_TEXTS).is_ok());
        }
        limits.begin_column(&[]);
        assert!(refused(limits.take_text(1)));
    }
}
