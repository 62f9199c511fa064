//! Arrow tables, as files and as streams: the locations of the bytes of their columns, and their small values.
//!
//! The format is that of Arrow's `docs/source/format/Columnar.rst`. Long values, such as images, are never read. Only
//! their offsets are.

mod columns;
mod flat;
mod messages;
mod schema;
mod views;

use super::FieldKind;
use super::gather::{self, TableShard};
use super::hugging_face::DeclaredFeatures;
use super::table::ShardTable;
use crate::source::{Malformed, ReadAt};
use messages::BatchUse;
use schema::{ArrowColumn, ArrowContent};

/// Returns the table in an Arrow file or stream. [`super::parquet::table`] documents how structs become columns, and
/// the meaning of `kept`.
///
/// # Errors
/// [`Malformed`] for a file that is neither an Arrow file nor a stream, or is damaged or truncated. A column that
/// cannot be read is [`super::table::TableCells::Refused`].
pub fn table(source: &dyn ReadAt, kept: &[String]) -> Result<ShardTable, Malformed> {
    let mut shard = TableShard::of(source, kept);
    let messages = messages::read(&mut shard)?;
    let features = DeclaredFeatures::read(messages.schema.hugging_face.as_deref());
    let rows = messages.batches.iter().filter(|batch| batch.what == BatchUse::Rows).map(|batch| batch.rows);
    let samples = rows.fold(0, u64::saturating_add);
    let mut columns = Vec::new();
    for column in &messages.schema.columns {
        let cells = columns::read(column, &messages.batches, &mut shard);
        let (path, kind) = (&column.path, kind(column));
        columns.extend(gather::column(path, column.in_bytes_and_path, kind, cells, &features, &mut shard)?);
    }
    Ok(ShardTable { samples, columns: gather::by_different_names(columns), blocks: shard.blocks.into_rows() })
}

fn kind(column: &ArrowColumn) -> FieldKind {
    match column.content {
        Ok(content) if content.is_text() => FieldKind::Text,
        Ok(ArrowContent::Float { .. }) => FieldKind::Float,
        Ok(ArrowContent::Integer { .. } | ArrowContent::Bool) => FieldKind::Integer,
        _ => FieldKind::Bytes,
    }
}
