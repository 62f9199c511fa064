//! The columns of small values that a loader reads from tables, with the values of all samples.

use super::cells::{CellType, CellValue, ColumnCells, ColumnFacts};
use super::columns::{ColumnItem, ColumnValues, SampleColumn, typed};
use super::format::Section;
use super::part::DatasetPart;
use super::selected_members::choices;
use super::summary::TableField;
use super::table::TableCells;
use super::{DatasetIndex, DirectoryField, FieldKind};
use base::error::{Error, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;

impl DatasetPart {
    pub(super) fn columns(&self) -> Vec<ColumnFacts> {
        serde_json::from_slice(self.file.section(Section::Columns)).unwrap_or_default()
    }

    /// The kinds of the members (image, text, and so on), in the order of their keys. Empty if the keys determine the
    /// kinds.
    pub(super) fn kinds(&self) -> Vec<FieldKind> {
        serde_json::from_slice(self.file.section(Section::Kinds)).unwrap_or_default()
    }

    pub(super) fn table_fields(&self) -> Vec<TableField> {
        let members = self.keys().into_iter().zip(self.kinds());
        let members = members.map(|(name, kind)| TableField { name, kind, refused: None });
        let columns = self.columns().into_iter().map(|ColumnFacts { name, kind, cells, .. }| {
            let refused = if let CellType::Refused(reason) = cells { Some(reason) } else { None };
            TableField { name, kind, refused }
        });
        // An array with one number for each sample is both, and such a field usually means its numbers.
        let mut fields: Vec<TableField> = columns.chain(members).collect();
        if let Some(DirectoryField { source, .. }) = self.notes.parallel.first() {
            fields.push(TableField { name: source.clone(), kind: FieldKind::Image, refused: None });
        }
        // A column can have small values in some shards and bytes in others, and so give two fields. Sort the refused
        // field first, so that `dedup_by` keeps it.
        fields.sort_by(|a, b| (&a.name, a.refused.is_none()).cmp(&(&b.name, b.refused.is_none())));
        fields.dedup_by(|second, first| second.name == first.name);
        fields
    }

    pub(super) fn without_images(&self) -> String {
        let field = |field: TableField| match field.refused {
            Some(reason) => format!("{:?} ({reason})", field.name),
            None => format!("{:?}", field.name),
        };
        let fields: Vec<String> = self.table_fields().into_iter().take(20).map(field).collect();
        let found = if self.layout().is_array() { "arrays" } else { "other columns" };
        format!("has no column of images; select {found} with fields=: {}", fields.join(", "))
    }

    /// Loads the columns with these names. The index file must have been loaded together with its columns.
    pub(super) fn select_columns(&mut self, names: &[String]) {
        let columns = self.columns();
        let section = self.file.section(Section::Cells);
        let wanted = (0..columns.len()).filter(|&of| names.contains(&columns[of].name));
        let read = |number| ColumnCells::of(&columns, number, section, self.len()).owned();
        self.selected_columns = wanted.map(read).collect();
    }

    /// Finds a column whose values in the index differ from `found`, which was read from the shard, and returns its
    /// name. The first sample in `found` is sample `first`. Only loaded columns are compared.
    pub(super) fn different_column(&self, first: u64, found: &super::build::ShardRows) -> Option<String> {
        // A column without a type has no values, so treat it like a missing column.
        let typed = || found.columns.iter().filter(|column| !column.is_nothing());
        let differs = |cells: &ColumnCells<'_>| {
            let own = typed().find(|column| column.name == cells.facts.name);
            let is_known = !matches!(cells.facts.cells, CellType::Refused(_));
            match own {
                Some(own) => {
                    let has_classes = matches!(own.cells, TableCells::Bytes(_));
                    let is_renamed = has_classes && own.classes != cells.facts.classes;
                    is_known && (is_renamed || cells.differs(first, &own.cells))
                }
                None => {
                    let samples = first..first + found.samples.len() as u64;
                    is_known && samples.into_iter().any(|sample| cells.get(sample).is_some())
                }
            }
        };
        if !self.file.has_members {
            let selected = self.selected_columns.iter().find(|cells| differs(cells));
            return selected.map(|cells| cells.facts.name.clone());
        }
        let columns = self.columns();
        let section = self.file.section(Section::Cells);
        let new = typed().find(|column| columns.iter().all(|known| known.name != column.name));
        let known = (0..columns.len())
            .find(|&number| differs(&ColumnCells::of(&columns, number, section, self.len())));
        new.map(|column| column.name.clone()).or_else(|| known.map(|number| columns[number].name.clone()))
    }
}

/// The kind of the single values in a column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Integers or floating-point numbers.
    Numbers,
    /// Strings.
    Texts,
    /// Booleans.
    Truths,
}

/// Reads the values of a loaded column.
pub struct ColumnReader<'a> {
    /// The column of each dataset, if it has the column, with the number of samples before and after the dataset.
    parts: Vec<(Range<u64>, Option<&'a ColumnCells<'static>>)>,
}

impl<'a> ColumnReader<'a> {
    /// Returns the kind of the values.
    ///
    /// # Errors
    /// A message if the column has lists, cannot be read, or has values of different kinds in different datasets.
    pub fn kind(&self) -> Result<ColumnKind, String> {
        let mut found = None;
        for column in self.parts.iter().filter_map(|(_, column)| *column) {
            let kind = match &column.facts.cells {
                CellType::Truths => ColumnKind::Truths,
                CellType::Integers | CellType::Floats => ColumnKind::Numbers,
                CellType::Texts => ColumnKind::Texts,
                CellType::IntegerLists(_) | CellType::FloatLists(_) | CellType::Bytes => {
                    return Err("has lists".to_owned());
                }
                CellType::Refused(why) => return Err(format!("cannot be read: {why}")),
            };
            if found.replace(kind).is_some_and(|other| other != kind) {
                return Err("has values of another kind in another dataset".to_owned());
            }
        }
        found.ok_or_else(|| "is in no dataset".to_owned())
    }

    /// Returns the value of a sample; `None` if it has none.
    pub fn get(&self, sample: u64) -> Option<CellValue<'a>> {
        let part = self.parts.partition_point(|(samples, _)| samples.end <= sample);
        let (samples, column) = self.parts.get(part)?;
        column.and_then(|column| column.get(sample - samples.start))
    }
}

impl DatasetIndex {
    /// Returns a reader of the column `name` of the dataset's tables. `None` if no such column was loaded: it must be
    /// among [`IndexOptions::members`] or [`IndexOptions::columns`].
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    /// [`IndexOptions::columns`]: crate::dataset::IndexOptions::columns
    pub fn column_reader(&self, name: &str) -> Option<ColumnReader<'_>> {
        let mut first = 0;
        let part = |part: &'_ DatasetPart| {
            let samples = first..first + part.len();
            first = samples.end;
            samples
        };
        let samples: Vec<Range<u64>> = self.dataset_parts().map(part).collect();
        let columns = self
            .dataset_parts()
            .map(|part| part.selected_columns.iter().find(|column| column.facts.name == name));
        let parts: Vec<_> = samples.into_iter().zip(columns).collect();
        parts.iter().any(|(_, column)| column.is_some()).then_some(ColumnReader { parts })
    }

    /// Returns the names of all columns of small values that can be read, loaded or not.
    pub fn column_names(&self) -> Vec<String> {
        let columns = self.dataset_parts().flat_map(DatasetPart::columns);
        let can_be_read =
            columns.filter(|column| !matches!(column.cells, CellType::Refused(_) | CellType::Bytes));
        can_be_read.map(|column| column.name).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether the samples of any dataset are rows of tables.
    pub fn has_tables(&self) -> bool {
        self.dataset_parts().any(DatasetPart::is_table)
    }

    /// Whether a column of small values with this name is loaded for any dataset.
    pub fn has_column(&self, name: &str) -> bool {
        self.dataset_parts().any(|part| part.selected_columns.iter().any(|column| column.facts.name == name))
    }

    /// The value of a sample in a loaded column, as JSON; null if the sample has no value.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn column_value(&self, name: &str, sample: u64) -> Value {
        let mut before = 0;
        for part in self.dataset_parts() {
            if sample < before + part.len() {
                let column = part.selected_columns.iter().find(|column| column.facts.name == name);
                return match column.and_then(|column| column.get(sample - before)) {
                    Some(CellValue::Bool(truth)) => Value::from(truth),
                    Some(CellValue::Integer(number)) => Value::from(number),
                    Some(CellValue::Float(number)) => Value::from(number),
                    Some(CellValue::IntegerList(raw)) => {
                        raw.iter().map(|raw| i64::from_le_bytes(*raw)).collect()
                    }
                    Some(CellValue::FloatList(raw)) => {
                        raw.iter().map(|raw| f64::from_le_bytes(*raw)).collect()
                    }
                    Some(CellValue::Text(text)) => Value::from(text),
                    Some(CellValue::Bytes(_)) | None => Value::Null,
                };
            }
            before += part.len();
        }
        panic!("sample {sample} of a dataset of {before}")
    }

    /// The kind of the field `name` in the schema of a table; `None` if no schema states it. If `name` consists of
    /// alternative keys (`jpg;png`), returns the kind of the first key that exists.
    pub fn field_kind(&self, name: &str) -> Option<FieldKind> {
        let fields: Vec<TableField> = self.dataset_parts().flat_map(DatasetPart::table_fields).collect();
        let of = |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.kind);
        of(name).or_else(|| choices(name).find_map(of))
    }

    /// A column of small values for all samples, as a field of this `kind` if a kind is given. The index must have been
    /// opened with the name of the column among the members.
    ///
    /// # Errors
    /// [`Error::Config`] for `fields` if the column is refused, or cannot have this kind.
    pub fn column(&self, name: &str, kind: Option<FieldKind>) -> Result<SampleColumn> {
        let wrong = |message: String| Error::config("fields", format!("has {name:?}, {message}"));
        let parts: Vec<(&DatasetPart, Option<&ColumnCells<'_>>)> = self
            .dataset_parts()
            .map(|part| (part, part.selected_columns.iter().find(|column| column.facts.name == name)))
            .collect();
        let (mut is_text, mut each) = (None, None);
        for (part, column) in &parts {
            let Some(column) = column else {
                if part.keys().iter().any(|key| key == name) {
                    let message =
                        format!("which is a column in one dataset and bytes in {}", part.root.display());
                    return Err(wrong(message));
                }
                continue;
            };
            if let CellType::Refused(reason) = &column.facts.cells {
                return Err(wrong(format!("a column that cannot be read: {reason}")));
            }
            let is = column.facts.cells == CellType::Texts;
            if is_text.replace(is).is_some_and(|others| others != is) {
                return Err(wrong("which holds texts in one dataset and numbers in another".to_owned()));
            }
            let own = column.facts.cells.each();
            if each.replace(own).is_some_and(|others| others != own) {
                let message = "which holds lists in one dataset, and single values or lists of another length in \
                               another";
                return Err(wrong(message.to_owned()));
            }
        }
        let cells = || {
            parts.iter().flat_map(|(part, column)| {
                (0..part.len()).map(move |sample| column.and_then(|column| column.get(sample)))
            })
        };
        let missing: Vec<bool> = cells().map(|cell| cell.is_none()).collect();
        let missing = missing.contains(&true).then_some(missing);
        let values = if is_text == Some(true) {
            if !matches!(kind, None | Some(FieldKind::Text)) {
                return Err(wrong(
                    "a column of texts, with another kind: select it by its plain name; only texts of a manifest can \
                     name files"
                        .to_owned(),
                ));
            }
            let text = |cell: Option<CellValue<'_>>| match cell {
                Some(CellValue::Text(text)) => text.to_owned(),
                _ => String::new(),
            };
            ColumnValues::Texts(cells().map(text).collect())
        } else {
            if !matches!(kind, None | Some(FieldKind::Integer | FieldKind::Float)) {
                let message = "a column of numbers, with another kind than Integer or Float: select it by its plain \
                               name";
                return Err(wrong(message.to_owned()));
            }
            let each = each.flatten();
            // A sample without a value gets zero, in the type of the column.
            let zero = match cells().flatten().next() {
                Some(CellValue::Bool(_)) => ColumnItem::Bool(false),
                Some(CellValue::Float(_) | CellValue::FloatList(_)) => ColumnItem::Float(0.0),
                _ => ColumnItem::Integer(0),
            };
            let item = |cell: Option<CellValue<'_>>| match cell {
                Some(CellValue::Bool(truth)) => ColumnItem::Bool(truth),
                Some(CellValue::Integer(number)) => ColumnItem::Integer(number),
                Some(CellValue::Float(number)) => ColumnItem::Float(number),
                _ => zero,
            };
            let list = |cell: Option<CellValue<'_>>| -> Vec<ColumnItem> {
                match cell {
                    Some(CellValue::IntegerList(raw)) => {
                        raw.iter().map(|raw| ColumnItem::Integer(i64::from_le_bytes(*raw))).collect()
                    }
                    Some(CellValue::FloatList(raw)) => {
                        raw.iter().map(|raw| ColumnItem::Float(f64::from_le_bytes(*raw))).collect()
                    }
                    _ => vec![zero; each.unwrap_or(1) as usize],
                }
            };
            let items: Vec<ColumnItem> = match each {
                Some(_) => cells().flat_map(list).collect(),
                None => cells().map(item).collect(),
            };
            typed(items.iter().copied(), each, kind).map_err(|(at, why)| {
                let sample = at / each.unwrap_or(1).max(1) as usize;
                wrong(format!("of which sample {sample} has a value {why}"))
            })?
        };
        Ok(SampleColumn { name: name.to_owned(), values, missing })
    }
}
