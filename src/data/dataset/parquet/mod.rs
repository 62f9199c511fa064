//! Parquet files: the locations of the bytes of their columns, and their small values.
//!
//! The format is that of Apache's `parquet-format`. Existing reader crates return values but not their locations, so
//! footer, page headers and encodings are parsed here. Only the codecs of pages come from other crates. Of long values,
//! such as images, only the lengths are read.

mod columns;
mod encodings;
mod footer;
mod pages;
mod schema;
mod thrift;
mod values;

use super::FieldKind;
use super::gather::{self, ColumnFault, TableShard};
use super::hugging_face::DeclaredFeatures;
use super::table::ShardTable;
use crate::source::{Malformed, ReadAt};
use footer::ParquetFooter;
use schema::{LeafContent, SchemaLeaf};

/// Parses a Parquet file into a table. A struct of bytes and a path becomes one column for the bytes, with the struct's
/// name, and one column for the path. Other structs have a column for each value, `STRUCT.VALUE`. Reads all strings of
/// the columns in `kept`. In other columns, long strings stay in the shard.
///
/// # Errors
/// [`Malformed`] for a file that is not Parquet, or is damaged or encrypted. A column that cannot be read is
/// [`super::table::TableCells::Refused`].
pub fn table(source: &dyn ReadAt, kept: &[String]) -> Result<ShardTable, Malformed> {
    let mut shard = TableShard::of(source, kept);
    let footer = footer::read(&mut shard.file)?;
    let leaves = schema::leaves(&footer.schema, footer.at)?;
    check_groups(&footer, &leaves)?;
    let features = DeclaredFeatures::read(footer.hugging_face.as_deref());
    let samples = footer.groups.iter().map(|group| group.rows).sum();
    let mut columns = Vec::new();
    for (number, leaf) in leaves.iter().enumerate() {
        let chunks: Vec<_> = footer.groups.iter().map(|group| &group.chunks[number]).collect();
        let cells = match &leaf.content {
            Err(why) => Err(ColumnFault::Refused(why.clone())),
            Ok(content) => columns::read(leaf, *content, &chunks, &mut shard),
        };
        let (path, kind) = (&leaf.path, kind(leaf));
        columns.extend(gather::column(path, leaf.in_bytes_and_path, kind, cells, &features, &mut shard)?);
    }
    Ok(ShardTable { samples, columns: gather::by_different_names(columns), blocks: shard.blocks.into_rows() })
}

/// Checks that each row group has a chunk of each column, with a cell per row.
fn check_groups(footer: &ParquetFooter, leaves: &[SchemaLeaf]) -> Result<(), Malformed> {
    let wrong = |what: &str| Err(gather::damaged(footer.at, what));
    for group in &footer.groups {
        if group.chunks.len() != leaves.len() {
            return wrong("a row group has other columns than the schema");
        }
        for (chunk, leaf) in group.chunks.iter().zip(leaves) {
            let name = leaf.path.join(".");
            if chunk.physical != leaf.physical {
                return wrong(&format!("column {name:?} is of another type than the schema says"));
            }
            // Checksums cover pages only. A damaged schema can shift the values of a column, because pages of a
            // nullable column begin with definition levels. The statistics show this damage, if the writer stored
            // statistics.
            let has_other_levels = chunk.levels.is_some_and(|levels| levels != leaf.present as usize + 1);
            let has_forbidden_nulls = leaf.present == 0 && chunk.nulls.is_some_and(|nulls| nulls > 0);
            if leaf.content.is_ok() && (has_other_levels || has_forbidden_nulls) {
                return wrong(&format!("the statistics of column {name:?} contradict its schema"));
            }
            if leaf.content.is_ok() && chunk.values != group.rows {
                return wrong(&format!("column {name:?} does not have one value for each row"));
            }
        }
    }
    Ok(())
}

fn kind(leaf: &SchemaLeaf) -> FieldKind {
    match leaf.content {
        Err(_) | Ok(LeafContent::Bytes | LeafContent::FixedBytes(_)) => FieldKind::Bytes,
        Ok(LeafContent::Text) => FieldKind::Text,
        Ok(LeafContent::Json) => FieldKind::Json,
        Ok(LeafContent::Half | LeafContent::Float | LeafContent::Double) => FieldKind::Float,
        Ok(_) => FieldKind::Integer,
    }
}
