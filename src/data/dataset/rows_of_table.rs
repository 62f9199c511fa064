//! Converts a shard that is a table to rows of the index: table rows become samples, columns become members and small
//! values.

use super::FieldKind;
use super::build::SampleRow;
use super::label_column::{self, ColumnLabels, UsualLabels};
use super::layouts::ShardReadOptions;
use super::left_out::SkipReason;
use super::member::{MemberPlace, MemberRow};
use super::samples::ShardContents;
use super::selected_members::IMAGE;
use super::table::{CellExtent, ShardTable, TableCells, TableColumn};
use crate::source::{Malformed, ReadAt};
use std::collections::BTreeMap;

/// Converts the table of a shard, which has these `bytes`, to rows of the index. The labels are in a column with one of
/// the `usual` names, unless `reading` names another column.
///
/// A sample's image is in the column `image`, or else in the first column of images. A sample without an image has
/// length 0, and its offset is the end of the previous image.
///
/// # Errors
/// [`Malformed`] for an inconsistent table.
pub(super) fn contents<S: ReadAt + ?Sized>(
    mut table: ShardTable,
    bytes: &S,
    usual: &UsualLabels,
    reading: &ShardReadOptions,
) -> Result<ShardContents, Malformed> {
    table.columns.sort_by(|a, b| a.name.cmp(&b.name));
    check(&table)?;
    let mut found = ShardContents::default();
    let images: Vec<&TableColumn> =
        table.columns.iter().filter(|of| of.kind == FieldKind::Image && of.extents().is_some()).collect();
    let image = images.iter().find(|column| column.name == IMAGE).or(images.first()).copied();
    if let [_, _, ..] = images[..]
        && image.is_none_or(|image| image.name != IMAGE)
    {
        let names: Vec<String> = images.iter().map(|column| format!("{:?}", column.name)).collect();
        found.findings.notes.ambiguous = Some(names.join(", "));
    }
    found.findings.notes.image = image.map(|column| column.name.clone());
    let cells = image.and_then(TableColumn::extents).unwrap_or_default();
    found.findings.has_images = cells.iter().any(Option::is_some);
    found.findings.notes.images_missing =
        (0..table.samples as usize).any(|sample| cells.get(sample).is_none_or(Option::is_none));
    let mut end = 0;
    for sample in 0..table.samples as usize {
        let CellExtent { offset, length } =
            cells.get(sample).copied().flatten().unwrap_or(CellExtent { offset: end, length: 0 });
        end = offset + u64::from(length);
        found.rows.samples.push(SampleRow { offset, length, label: 0 });
    }
    let mut not_labels = BTreeMap::new();
    let labels = label_column::find(&table.columns, bytes, usual, reading, &mut not_labels)?;
    found.findings.notes.not_labels = not_labels;
    take_labels(&mut found, table.samples, labels);
    take_members(&mut found, &table);
    found.rows.blocks = std::mem::take(&mut table.blocks);
    found.rows.columns = table.columns.into_iter().filter(|column| column.extents().is_none()).collect();
    Ok(found)
}

impl TableColumn {
    fn extents(&self) -> Option<&[Option<CellExtent>]> {
        if let TableCells::Extents(extents) = &self.cells { Some(extents) } else { None }
    }

    /// The number of cells; `None` if the column cannot be read.
    pub(super) fn count(&self) -> Option<u64> {
        let count = match &self.cells {
            TableCells::Extents(cells) => Some(cells.len()),
            TableCells::Bools(cells) => Some(cells.len()),
            TableCells::Integers(cells) => Some(cells.len()),
            TableCells::Floats(cells) => Some(cells.len()),
            TableCells::IntegerLists(_, cells) => Some(cells.len()),
            TableCells::FloatLists(_, cells) => Some(cells.len()),
            TableCells::Texts(cells) => Some(cells.len()),
            TableCells::Bytes(cells) => Some(cells.len()),
            TableCells::Refused(_) => None,
        };
        count.map(|count| count as u64)
    }
}

fn check(table: &ShardTable) -> Result<(), Malformed> {
    let fail = |message: String| Err(Malformed { offset: 0, message });
    for pair in table.columns.windows(2) {
        if pair[0].name == pair[1].name {
            return fail(format!("there are two columns {:?}", pair[0].name));
        }
    }
    for column in &table.columns {
        if column.count().is_some_and(|count| count != table.samples) {
            return fail(format!("the column {:?} does not have one value for each sample", column.name));
        }
        let far = |cell: &&CellExtent| cell.offset > super::part::MAX_OFFSET;
        if let Some(cell) = column.extents().and_then(|cells| cells.iter().flatten().find(far)) {
            return fail(format!(
                "the column {:?} has a value at byte {}, which is too far from the beginning",
                column.name, cell.offset
            ));
        }
    }
    Ok(())
}

pub(super) fn take_labels(found: &mut ShardContents, samples: u64, labels: Option<ColumnLabels<'_>>) {
    let findings = &mut found.findings;
    let Some(ColumnLabels { column, numbers, classes, are_values }) = labels else {
        findings.unlabeled = (samples > 0).then(|| "0".to_owned());
        return;
    };
    // If classes have names, a number without a name is not a label.
    let most = if classes.is_empty() { u32::MAX } else { classes.len() as u32 };
    (findings.classes, findings.classes_are_values) = (classes, are_values);
    findings.label_column = Some(column.to_owned());
    for (number, (cell, row)) in numbers.iter().zip(&mut found.rows.samples).enumerate() {
        match cell.map(|label| u32::try_from(label).ok().filter(|&label| label < most).ok_or(label)) {
            Some(Ok(label)) => {
                row.label = label;
                findings.smallest_label = Some(findings.smallest_label.map_or(label, |of| of.min(label)));
                findings.labeled.get_or_insert_with(|| number.to_string());
            }
            Some(Err(label)) => {
                findings.unusable.get_or_insert_with(|| {
                    format!(
                        "sample {number} has {label} in the column {column:?}, which is not a class number"
                    )
                });
                findings.notes.skip(SkipReason::UnusableLabel, || label.to_string());
            }
            None => {
                findings.unlabeled.get_or_insert_with(|| number.to_string());
            }
        }
    }
}

fn take_members(found: &mut ShardContents, table: &ShardTable) {
    let columns = table.columns.iter().filter_map(|column| Some((column, column.extents()?)));
    let columns: Vec<(&TableColumn, &[Option<CellExtent>])> = columns.collect();
    let rows = &mut found.rows;
    rows.keys = columns.iter().map(|(column, _)| column.name.clone()).collect();
    rows.kinds = columns.iter().map(|(column, _)| column.kind).collect();
    if columns.is_empty() {
        return;
    }
    for sample in 0..table.samples as usize {
        let (image, first) = (rows.samples[sample].offset, rows.members.len());
        for (key, (_, cells)) in (0..).zip(&columns) {
            let Some(CellExtent { offset, length }) = cells[sample] else { continue };
            if length >= MemberPlace::DUPLICATE {
                found.findings.notes.skip(SkipReason::LargeMember, || format!("sample {sample}"));
                continue;
            }
            match MemberPlace::new(image, offset, length) {
                Some(place) => rows.members.push(MemberRow { key, place }),
                None => found.findings.notes.skip(SkipReason::MemberFarAway, || format!("sample {sample}")),
            }
        }
        rows.counts.push((rows.members.len() - first) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: UsualLabels = UsualLabels { names: &["label", "class"], numbers_first: true };

    fn column(name: &str, kind: FieldKind, cells: TableCells) -> TableColumn {
        TableColumn { name: name.to_owned(), kind, classes: Vec::new(), cells }
    }

    fn extents(extents: &[Option<(u64, u32)>]) -> TableCells {
        let extent = |cell: &Option<(u64, u32)>| cell.map(|(offset, length)| CellExtent { offset, length });
        TableCells::Extents(extents.iter().map(extent).collect())
    }

    fn rows(columns: Vec<TableColumn>) -> ShardContents {
        let table = ShardTable { samples: 3, columns, ..ShardTable::default() };
        contents(table, &[][..], &USUAL, &ShardReadOptions::default()).unwrap()
    }

    #[test]
    fn the_image_is_the_column_of_that_name_or_the_only_one() {
        let one = || extents(&[Some((90, 5)), None, Some((10, 7))]);
        let found = rows(vec![column("b", FieldKind::Image, one()), column("c", FieldKind::Text, one())]);
        let places: Vec<_> = found.rows.samples.iter().map(|row| (row.offset, row.length)).collect();
        assert_eq!(places, [(90, 5), (95, 0), (10, 7)]);
        let notes = &found.findings.notes;
        assert_eq!((notes.image.as_deref(), notes.images_missing), (Some("b"), true));
        assert_eq!((found.rows.keys.len(), &found.rows.counts[..]), (2, &[2, 0, 2][..]));
        let image = |name| column(name, FieldKind::Image, one());
        let several = rows(vec![image("left"), image("depth")]).findings.notes;
        assert_eq!(several.ambiguous.as_deref(), Some("\"depth\", \"left\""));
        let named = rows(vec![image("left"), image("image")]).findings.notes;
        assert_eq!((named.ambiguous, named.image.as_deref()), (None, Some("image")));
    }

    #[test]
    fn labels_are_whole_numbers_that_have_names_where_any_have() {
        let labels = |cells: [Option<i64>; 3], classes: &[&str]| {
            let mut labels = column("class", FieldKind::Integer, TableCells::Integers(cells.to_vec()));
            labels.classes = classes.iter().map(|name| (*name).to_owned()).collect();
            let other = column("label", FieldKind::Float, TableCells::Floats(vec![Some(0.5); 3]));
            rows(vec![other, labels])
        };
        let found = labels([Some(1), Some(0), Some(1)], &["cat", "dog"]);
        assert_eq!(found.rows.samples.iter().map(|row| row.label).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(found.findings.classes, ["cat", "dog"]);
        assert_eq!((found.findings.unlabeled, found.findings.unusable), (None, None));
        let odd = |cells, classes| labels(cells, classes).findings.unusable.unwrap_or_default();
        assert!(odd([Some(1), Some(2), Some(1)], &["cat", "dog"]).contains("sample 1 has 2"));
        assert!(odd([Some(1), Some(2), Some(-1)], &[]).contains("sample 2 has -1"));
        assert_eq!(labels([Some(1), None, Some(1)], &[]).findings.unlabeled.as_deref(), Some("1"));
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let table = |columns| ShardTable { samples: 3, columns, ..ShardTable::default() };
        let reading = ShardReadOptions::default();
        let wrong = |columns| contents(table(columns), &[][..], &USUAL, &reading).unwrap_err().message;
        let short = || column("a", FieldKind::Integer, TableCells::Integers(vec![None]));
        assert!(wrong(vec![short()]).contains("does not have one value for each sample"));
        assert!(wrong(vec![short(), short()]).contains("two columns \"a\""));
        let far = extents(&[Some((u64::MAX - 1, 5)), None, None]);
        assert!(wrong(vec![column("a", FieldKind::Bytes, far)]).contains("has a value at byte"));
    }
}
