//! What the index keeps of a shard that is a table: its rows are samples, its columns members and small values.

use super::FieldKind;
use super::build::SampleRow;
use super::left_out::LeftOut;
use super::member::{MemberPlace, MemberRow};
use super::samples::ShardContents;
use super::selected_members::IMAGE;
use super::table::{CellExtent, ShardTable, TableCells, TableColumn};
use crate::source::Malformed;

/// The contents of a shard that is this table. The first of the `labels` that is a column of whole numbers gives the
/// class numbers of its samples.
///
/// A sample's image is in the column `image`, or in the only column of images. A sample without one has its place
/// behind the image of the sample before it.
///
/// # Errors
/// [`Malformed`] for a table that contradicts itself.
pub(super) fn contents(mut table: ShardTable, labels: &[&str]) -> Result<ShardContents, Malformed> {
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
    take_labels(&mut found, &table, labels);
    take_members(&mut found, &table);
    found.rows.columns = table.columns.into_iter().filter(|column| column.extents().is_none()).collect();
    Ok(found)
}

impl TableColumn {
    fn extents(&self) -> Option<&[Option<CellExtent>]> {
        if let TableCells::Extents(extents) = &self.cells { Some(extents) } else { None }
    }

    /// The number of its cells; `None` where it is refused.
    fn count(&self) -> Option<usize> {
        match &self.cells {
            TableCells::Extents(cells) => Some(cells.len()),
            TableCells::Truths(cells) => Some(cells.len()),
            TableCells::Integers(cells) => Some(cells.len()),
            TableCells::Floats(cells) => Some(cells.len()),
            TableCells::Texts(cells) => Some(cells.len()),
            TableCells::Refused(_) => None,
        }
    }
}

/// Checks what the index relies on.
fn check(table: &ShardTable) -> Result<(), Malformed> {
    let fail = |message: String| Err(Malformed { offset: 0, message });
    for pair in table.columns.windows(2) {
        if pair[0].name == pair[1].name {
            return fail(format!("there are two columns {:?}", pair[0].name));
        }
    }
    for column in &table.columns {
        if column.count().is_some_and(|count| count as u64 != table.samples) {
            return fail(format!("the column {:?} has not one value for each sample", column.name));
        }
        let far = |cell: &&CellExtent| cell.offset > super::part::MAX_OFFSET;
        if let Some(cell) = column.extents().and_then(|cells| cells.iter().flatten().find(far)) {
            return fail(format!("the column {:?} has a value at byte {}", column.name, cell.offset));
        }
    }
    Ok(())
}

/// The labels of the samples, and the names of their classes.
fn take_labels(found: &mut ShardContents, table: &ShardTable, labels: &[&str]) {
    let integers = labels.iter().find_map(|name| {
        let column = table.columns.iter().find(|column| column.name == *name)?;
        if let TableCells::Integers(cells) = &column.cells { Some((column, cells)) } else { None }
    });
    let findings = &mut found.findings;
    let Some((column, cells)) = integers else {
        findings.unlabeled = (table.samples > 0).then(|| "0".to_owned());
        return;
    };
    findings.classes.clone_from(&column.classes);
    findings.label_column = Some(column.name.clone());
    for (number, (cell, row)) in cells.iter().zip(&mut found.rows.samples).enumerate() {
        // A number without a name is none where classes have names.
        let most = if column.classes.is_empty() { u32::MAX } else { column.classes.len() as u32 };
        match cell.map(|label| u32::try_from(label).ok().filter(|&label| label < most).ok_or(label)) {
            Some(Ok(label)) => {
                row.label = label;
                findings.smallest_label = Some(findings.smallest_label.map_or(label, |of| of.min(label)));
                findings.labeled.get_or_insert_with(|| number.to_string());
            }
            Some(Err(label)) => {
                findings.unusable.get_or_insert_with(|| {
                    format!("sample {number} has {label} in the column {:?}, which is no class", column.name)
                });
                findings.notes.skip(LeftOut::UnusableLabel, || label.to_string());
            }
            None => {
                findings.unlabeled.get_or_insert_with(|| number.to_string());
            }
        }
    }
}

/// The members of the samples, which are the values that lie in the shard.
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
            if length >= MemberPlace::TWICE {
                found.findings.notes.skip(LeftOut::LargeMember, || format!("sample {sample}"));
                continue;
            }
            match MemberPlace::new(image, offset, length) {
                Some(place) => rows.members.push(MemberRow { key, place }),
                None => found.findings.notes.skip(LeftOut::MemberFarAway, || format!("sample {sample}")),
            }
        }
        rows.counts.push((rows.members.len() - first) as u32);
    }
}
