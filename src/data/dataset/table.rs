//! Shards that are tables: columns with one cell for each sample, as the parsers of Parquet, Arrow, MDS and
//! `tf.Example` return them.
//!
//! Parsers return the locations of bytes, and small values. They never copy bytes that are read with a sample later,
//! such as its image.

use super::FieldKind;
use super::blocks::CompressedBlock;

/// The samples of a shard as a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardTable {
    /// The number of samples, which is the number of cells of every column.
    pub samples: u64,
    /// The columns. Their names are distinct.
    pub columns: Vec<TableColumn>,
    /// The compressed blocks that hold cells, sorted by address.
    pub blocks: Vec<CompressedBlock>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// The name by which a field selects it.
    pub name: String,
    /// The kind of its values, where the schema determines it.
    pub kind: FieldKind,
    /// The names for its integers 0, 1, and so on; empty if they are plain numbers.
    pub classes: Vec<String>,
    /// The cells, one for each sample; `None` for a sample without a value.
    pub cells: TableCells,
}

impl TableColumn {
    /// Whether its type has no values.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&self.cells, TableCells::Refused(reason) if reason == NULL_TYPE)
    }
}

/// Reason to refuse a column whose type has no values. Writers use this type for columns that are empty in one shard.
/// Other shards then determine the type.
pub(super) const NULL_TYPE: &str = "it holds no values at all, which cannot be read";

/// The cells of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum TableCells {
    /// Bytes stored verbatim in the shard, or at the addresses of a compressed block.
    Extents(Vec<Option<CellExtent>>),
    /// Booleans.
    Truths(Vec<Option<bool>>),
    /// Integers.
    Integers(Vec<Option<i64>>),
    /// Floating-point numbers.
    Floats(Vec<Option<f64>>),
    /// Lists of integers, with this many for each sample.
    IntegerLists(u32, Vec<Option<Box<[i64]>>>),
    /// Lists of floating-point numbers, with this many for each sample.
    FloatLists(u32, Vec<Option<Box<[f64]>>>),
    /// Short texts. Texts that are stored verbatim in the shard are extents instead.
    Texts(Vec<Option<Box<str>>>),
    /// A column that cannot be read, with the reason. A field that selects it is refused.
    Refused(String),
}

/// Location of a cell's bytes in the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellExtent {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}
