//! The part of a packed shard's footer for samples that were rows of tables: the keys and kinds of their members, and
//! their columns of small values. It is at the end of the footer.

use super::super::cells::{ColumnFacts, spilled, spilled_bytes, unspilled};
use super::super::format::u64_at;
use super::super::table::TableColumn;
use super::super::{FieldKind, Layout};
use serde::{Deserialize, Serialize};

/// The columns of the samples of a shard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackedColumns {
    /// The keys of all members in the source, sorted.
    pub keys: Vec<String>,
    /// The kinds of the members, by key; empty if the keys determine the kinds.
    pub kinds: Vec<FieldKind>,
    /// The key of the members that are images. `None` if there are no images. Also `None` if the source is not a table,
    /// because there the first member of each sample is an image.
    pub image: Option<String>,
    /// The columns of small values, sorted by name.
    pub columns: Vec<TableColumn>,
}

#[derive(Serialize, Deserialize)]
struct TableHead {
    keys: Vec<String>,
    kinds: Vec<FieldKind>,
    image: Option<String>,
    columns: Vec<ColumnFacts>,
}

impl PackedColumns {
    /// Encodes the columns for the footer: the length of a JSON document (u64), the document, and the values of each
    /// column.
    pub(super) fn encode(&self) -> Vec<u8> {
        let head = TableHead {
            keys: self.keys.clone(),
            kinds: self.kinds.clone(),
            image: self.image.clone(),
            columns: self.columns.iter().filter_map(ColumnFacts::of).collect(),
        };
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let mut bytes = Vec::from((head.len() as u64).to_le_bytes());
        bytes.extend(head);
        self.columns.iter().for_each(|column| bytes.extend(spilled(&column.cells)));
        bytes
    }

    /// Parses the result of [`PackedColumns::encode`] for this many samples. `bytes` must not contain other bytes.
    pub(super) fn decode(bytes: &[u8], samples: u64) -> Result<Self, String> {
        let wrong = |what: &str| format!("the packed shard's columns are damaged: {what}");
        let short = || wrong("they are too short");
        let (length, rest) = bytes.split_at_checked(8).ok_or_else(short)?;
        let length = usize::try_from(u64_at(length, 0)).map_err(|_| short())?;
        let (head, mut rest) = rest.split_at_checked(length).ok_or_else(short)?;
        let TableHead { keys, kinds, image, columns } =
            serde_json::from_slice(head).map_err(|error| wrong(&error.to_string()))?;
        let sorted = keys.is_sorted_by(|a, b| a < b) && columns.is_sorted_by(|a, b| a.name < b.name);
        if !sorted || !(kinds.is_empty() || kinds.len() == keys.len()) {
            return Err(wrong("their names and kinds contradict each other"));
        }
        let mut table = Self { keys, kinds, image, columns: Vec::new() };
        for facts in columns {
            let length = spilled_bytes(&facts, samples).and_then(|length| usize::try_from(length).ok());
            let (own, behind) = length.and_then(|length| rest.split_at_checked(length)).ok_or_else(short)?;
            rest = behind;
            let cells = unspilled(&facts, samples as usize, own);
            let cells = cells.ok_or_else(|| wrong(&format!("{:?} has invalid values", facts.name)))?;
            let ColumnFacts { name, kind, classes, .. } = facts;
            table.columns.push(TableColumn { name, kind, classes, cells });
        }
        if !rest.is_empty() {
            return Err(wrong("more bytes follow them"));
        }
        Ok(table)
    }

    /// Whether the first member of a sample is the sample's image, given the member's name and the layout of the
    /// source.
    pub(super) fn is_image(&self, name: &[u8], layout: Layout) -> bool {
        layout.is_of_single_files()
            || self.image.as_ref().map_or(!layout.is_table(), |image| image.as_bytes() == name)
    }
}
