//! A shard that is a table: columns with a cell for each sample, as the parsers of Parquet, Arrow, MDS and `tf.Example`
//! find them.
//!
//! Parsers say where bytes lie and what small values are; they never copy what is read of a sample later, such as its
//! image.

use super::FieldKind;
use super::blocks::StoredBlock;

/// The samples of a shard as a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardTable {
    /// The number of samples, which is the number of cells of every column.
    pub samples: u64,
    /// The columns, by different names.
    pub columns: Vec<TableColumn>,
    /// The compressed blocks that extents of cells lie in, by their addresses.
    pub blocks: Vec<StoredBlock>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// The name by which a field asks for it.
    pub name: String,
    /// The kind of its values, as far as the schema says it.
    pub kind: FieldKind,
    /// The names that its whole numbers stand for, from 0 on; none where they are numbers.
    pub classes: Vec<String>,
    /// The cells, one for each sample. A sample without a value has `None`.
    pub cells: TableCells,
}

impl TableColumn {
    /// Whether it is of a type without values.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&self.cells, TableCells::Refused(reason) if reason == NO_VALUES)
    }
}

/// Why a column is refused whose type has no values. Writers give it to columns that are empty in one shard, so that
/// other shards say what its values are.
pub(super) const NO_VALUES: &str = "it holds no values at all, which cannot be read";

/// The cells of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum TableCells {
    /// Bytes that lie in the shard as they are, or at the addresses of a compressed block.
    Extents(Vec<Option<CellExtent>>),
    /// Truth values.
    Truths(Vec<Option<bool>>),
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Other numbers.
    Floats(Vec<Option<f64>>),
    /// A list of so many whole numbers for each sample.
    IntegerLists(u32, Vec<Option<Box<[i64]>>>),
    /// A list of so many other numbers for each sample.
    FloatLists(u32, Vec<Option<Box<[f64]>>>),
    /// Texts, which are short: those that lie in the shard as they are, are extents.
    Texts(Vec<Option<Box<str>>>),
    /// What cannot be read, and why: it is refused where a field asks for it.
    Refused(String),
}

/// Where a cell's bytes lie in the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellExtent {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}
