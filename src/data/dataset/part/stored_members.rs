//! Members whose bytes are in the index, as parsers make them of values of different lengths.

use super::DatasetPart;
use crate::dataset::DatasetIndex;
use crate::dataset::cells::{CellType, CellValue, ColumnCells, ColumnFacts};
use crate::dataset::format::Section;
use base::error::{Error, Result};

pub(in crate::dataset) struct StoredMember {
    /// The index of the member among the selected members.
    member: usize,
    column: ColumnCells<'static>,
}

impl DatasetPart {
    /// The facts about a column whose values are members; `None` if there is no such column.
    pub(in crate::dataset) fn stored(&self, name: &str) -> Option<ColumnFacts> {
        self.columns().into_iter().find(|of| of.name == name && of.cells == CellType::Bytes)
    }

    /// Loads those of `members` whose bytes are in the index.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a member that has other classes in the dataset `first`.
    pub(in crate::dataset) fn store_members(
        &mut self,
        members: &[String],
        first: Option<&Self>,
    ) -> Result<()> {
        let columns = self.columns();
        for (member, name) in members.iter().enumerate() {
            let found = columns.iter().position(|of| of.name == *name && of.cells == CellType::Bytes);
            let Some(number) = found else { continue };
            if let Some(first) = first
                && first.stored(name).is_some_and(|of| of.classes != columns[number].classes)
            {
                let message = format!(
                    "numbers other classes in {name:?} than {}: open each dataset by itself, or give both the same \
                     categories",
                    first.root.display()
                );
                return Err(Error::dataset(&self.root, message));
            }
            let section = self.file.section(Section::Cells);
            let column = ColumnCells::of(&columns, number, section, self.len()).owned();
            self.stored_members.push(StoredMember { member, column });
        }
        Ok(())
    }
}

impl DatasetIndex {
    /// Whether the bytes of the field `name` are in the index of any dataset.
    pub fn is_stored(&self, name: &str) -> bool {
        self.dataset_parts().any(|part| part.stored(name).is_some())
    }

    /// The bytes of the member with index `field` (see [`DatasetIndex::member`]), if they are in the index. In that
    /// case [`DatasetIndex::member`] finds nothing.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn stored_member(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let (part, sample) = self.own_sample(sample)?;
        let stored = part.stored_members.iter().find(|stored| stored.member == field)?;
        if let Some(CellValue::Bytes(bytes)) = stored.column.get(sample) { Some(bytes) } else { None }
    }

    /// The names of the classes that a field numbers whose bytes are in the index, such as the classes of boxes; empty
    /// if no field does.
    pub fn classes_of_values(&self) -> &[String] {
        let stored = self.dataset_parts().flat_map(|part| &part.stored_members);
        let mut classes = stored.map(|stored| &stored.column.facts.classes[..]);
        classes.find(|classes| !classes.is_empty()).unwrap_or_default()
    }
}
