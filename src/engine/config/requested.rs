//! Decides where the values of each requested field come from: a column of `labels`, the class number, or a member of
//! the sample. All other modules use the decision of this module.

use super::LABEL;
use super::fields::FieldOptions;
use base::error::Result;
use data::dataset::{DatasetIndex, FieldKind, IMAGE, SampleColumn};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSource {
    Column(usize),
    Label,
    /// A member, by its index in the list of members that are read from each sample.
    Member(usize),
}

#[derive(Debug)]
pub(super) struct RequestedFields<'a>(Vec<(FieldSource, &'a FieldOptions)>);

impl<'a> RequestedFields<'a> {
    /// Finds the source of each field in `asked`. `columns` are the names of the columns of `labels`; they take
    /// precedence over the dataset's class number. All other fields are members.
    pub(super) fn new(asked: &'a [FieldOptions], columns: &[String]) -> Self {
        let mut members = 0;
        let with_source = |field: &'a FieldOptions| {
            let source = match columns.iter().position(|column| *column == field.name) {
                Some(column) => FieldSource::Column(column),
                None if field.name == LABEL => FieldSource::Label,
                None => {
                    members += 1;
                    FieldSource::Member(members - 1)
                }
            };
            (source, field)
        };
        Self(asked.iter().map(with_source).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FieldSource, &'a FieldOptions)> {
        self.0.iter().copied()
    }

    fn of_members(&self) -> impl Iterator<Item = &'a FieldOptions> {
        self.iter().filter(|(source, _)| matches!(source, FieldSource::Member(_))).map(|(_, field)| field)
    }

    /// Returns the names of the members that are read from each sample; `None` if no field needs a member. With `None`,
    /// the loader reads the image.
    pub(super) fn members(&self) -> Option<Vec<String>> {
        Some(self.of_members().map(|field| field.name.clone()).collect())
            .filter(|members: &Vec<String>| !members.is_empty())
    }

    pub(super) fn optional(&self) -> Vec<String> {
        self.iter().filter(|(_, field)| field.optional).map(|(_, field)| field.name.clone()).collect()
    }

    pub(super) fn of_files(&self) -> Vec<String> {
        let is_file = |field: &&FieldOptions| field.kind.is_some_and(FieldKind::is_of_files);
        self.of_members().filter(is_file).map(|field| field.name.clone()).collect()
    }

    /// Whether every stem of a shard is a sample, even without a plain image such as `jpg`. This is so if the fields
    /// need other members (`left.jpg`, for instance) and do not require a plain image.
    pub(super) fn take_every_stem(&self) -> bool {
        let needed = |field: &FieldOptions| !field.optional && field.is_plain_image();
        self.members().is_some() && !self.of_members().any(needed)
    }

    pub(super) fn want_labels(&self) -> bool {
        self.iter().any(|(source, _)| source == FieldSource::Label)
    }
}

/// Returns the fields with their kinds. If the user gave no kind, the schema of the dataset's tables does.
pub(super) fn with_kinds(asked: &[FieldOptions], index: &DatasetIndex) -> Vec<FieldOptions> {
    let with_kind = |field: &FieldOptions| {
        let is_own = [IMAGE, LABEL].contains(&field.name.as_str());
        let by_schema = || if is_own { None } else { index.field_kind(&field.name) };
        FieldOptions { kind: field.kind.or_else(by_schema), ..field.clone() }
    };
    asked.iter().map(with_kind).collect()
}

/// Returns the requested table columns whose values are small, except the columns that `labels` replaces.
///
/// # Errors
/// [`base::error::Error::Config`] for a column that is refused, or that cannot have the requested kind.
pub(super) fn columns_of_tables(
    asked: &[FieldOptions],
    labels: &[String],
    index: &DatasetIndex,
) -> Result<Vec<SampleColumn>> {
    let is_read = |field: &&FieldOptions| {
        let is_label = field.name == LABEL && index.is_labeled();
        index.has_column(&field.name) && !labels.contains(&field.name) && !is_label
    };
    asked.iter().filter(is_read).map(|field| index.column(&field.name, field.kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_goes_before_the_class_number_and_members_are_numbered_among_themselves() {
        let asked: Vec<FieldOptions> =
            ["age", "jpg", LABEL, "txt"].into_iter().map(FieldOptions::named).collect();
        let sources = |columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
            let requested = RequestedFields::new(&asked, &columns);
            (requested.iter().map(|(source, _)| source).collect::<Vec<_>>(), requested.members().unwrap())
        };
        use FieldSource::{Column, Label, Member};
        let members = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = (vec![Member(0), Member(1), Label, Member(2)], members(&["age", "jpg", "txt"]));
        assert_eq!(sources(&[]), expected);
        let expected = (vec![Column(1), Member(0), Column(0), Member(1)], members(&["jpg", "txt"]));
        assert_eq!(sources(&[LABEL, "age"]), expected);
    }
}
