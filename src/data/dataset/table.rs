//! Shards that are tables: columns with one cell per sample, as the parsers of Parquet, Arrow, MDS and `tf.Example`
//! return them.
//!
//! Parsers return the locations of bytes, and small values. They never copy bytes that are read together with a sample
//! later, such as its image.

use super::FieldKind;
use super::blocks::CompressedBlock;

/// The samples of a shard as a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardTable {
    /// The number of samples. Every column has this number of cells.
    pub samples: u64,
    /// The columns. The names are distinct.
    pub columns: Vec<TableColumn>,
    /// The compressed blocks that hold cells, sorted by address.
    pub blocks: Vec<CompressedBlock>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// The name by which a field selects the column.
    pub name: String,
    /// The kind of the column's values, if the schema determines it.
    pub kind: FieldKind,
    /// The class names for the integers 0, 1, and so on; empty if the integers are plain numbers.
    pub classes: Vec<String>,
    /// The cells, one per sample; `None` for a sample without a value.
    pub cells: TableCells,
}

impl TableColumn {
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
    Bools(Vec<Option<bool>>),
    /// Integers.
    Integers(Vec<Option<i64>>),
    /// Floating-point numbers.
    Floats(Vec<Option<f64>>),
    /// Lists of integers. All lists have this length.
    IntegerLists(u32, Vec<Option<Box<[i64]>>>),
    /// Lists of floating-point numbers. All lists have this length.
    FloatLists(u32, Vec<Option<Box<[f64]>>>),
    /// Strings that were read from the shard. Long strings can be `Extents`, if the shard stores them verbatim.
    Texts(Vec<Option<Box<str>>>),
    /// Values of different lengths that the parser made: for each sample an `.npy` file or a JSON document, as the kind
    /// of the column says. They are copied to the index, which gives them to the fields as members of the sample. Boxes
    /// are left, top, right and bottom.
    Bytes(Vec<Option<Box<[u8]>>>),
    /// A column that cannot be read, with the reason. A field that selects the column fails with an error.
    Refused(String),
}

impl TableCells {
    /// The kind of values that these cells are, where the schema says nothing else.
    pub(super) fn kind(&self) -> FieldKind {
        match self {
            Self::Bools(_) | Self::Integers(_) | Self::IntegerLists(..) => FieldKind::Integer,
            Self::Floats(_) | Self::FloatLists(..) => FieldKind::Float,
            Self::Texts(_) => FieldKind::Text,
            Self::Extents(_) | Self::Bytes(_) | Self::Refused(_) => FieldKind::Bytes,
        }
    }

    /// The cells of a column of whole numbers.
    pub(super) fn integers(&self) -> Option<Vec<Option<i64>>> {
        match self {
            Self::Integers(cells) => Some(cells.clone()),
            Self::Bools(cells) => Some(cells.iter().map(|cell| cell.map(i64::from)).collect()),
            _ => None,
        }
    }
}

/// Location of a cell's bytes in the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellExtent {
    /// The offset of the cell's first byte.
    pub offset: u64,
    /// The size of the cell in bytes.
    pub length: u32,
}
