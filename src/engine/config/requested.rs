//! Decides where the values of each requested field come from: a column of `labels`, the class number, or a member of
//! the sample. All other modules use the decision of this module.

use super::FieldOptions;
use super::LABEL;
use super::arrays::ArrayOptions;
use base::error::{Error, Result};
use data::dataset::{DatasetIndex, DirectoryField, FieldKind, IMAGE, SampleColumn};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSource {
    Column(usize),
    Label,
    /// A member of the sample, or a column of the dataset's tables.
    Member,
}

#[derive(Debug)]
pub(super) struct RequestedFields<'a>(Vec<(FieldSource, &'a FieldOptions)>);

impl<'a> RequestedFields<'a> {
    /// Finds the source of each field in `asked`. `columns` are the names of the columns of `labels`; they take
    /// precedence over the dataset's class number. All other fields are members.
    pub(super) fn new(asked: &'a [FieldOptions], columns: &[String]) -> Self {
        let with_source = |field: &'a FieldOptions| {
            let source = match columns.iter().position(|column| *column == field.source) {
                Some(column) => FieldSource::Column(column),
                // A container can have an array of this name, and a directory of masks can.
                None if field.source == LABEL
                    && !matches!(field.kind, Some(FieldKind::Array | FieldKind::Mask)) =>
                {
                    FieldSource::Label
                }
                None => FieldSource::Member,
            };
            (source, field)
        };
        Self(asked.iter().map(with_source).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FieldSource, &'a FieldOptions)> {
        self.0.iter().copied()
    }

    fn of_members(&self) -> impl Iterator<Item = &'a FieldOptions> {
        self.iter().filter(|(source, _)| *source == FieldSource::Member).map(|(_, field)| field)
    }

    /// Returns the members that are read from each sample, each once, even if several fields come from it; `None` if no
    /// field needs a member. With `None`, the loader reads the image.
    pub(super) fn members(&self) -> Option<Vec<String>> {
        let mut members: Vec<String> = Vec::new();
        for field in self.of_members() {
            if !members.contains(&field.source) {
                members.push(field.source.clone());
            }
        }
        Some(members).filter(|members| !members.is_empty())
    }

    /// Returns the members of which `holds` is true for every field that comes from them.
    fn members_where(&self, holds: impl Fn(&FieldOptions) -> bool) -> Vec<String> {
        let all = |member: &String| self.of_members().filter(|field| field.source == *member).all(&holds);
        self.members().unwrap_or_default().into_iter().filter(all).collect()
    }

    pub(super) fn optional(&self) -> Vec<String> {
        self.members_where(|field| field.optional)
    }

    pub(super) fn of_files(&self) -> Vec<String> {
        self.members_where(|field| field.kind.is_some_and(FieldKind::is_of_files))
    }

    /// Returns the fields that can be read as parallel directories: first the samples' images, which is the first field
    /// that can be an image, then the others in the order of their sources.
    pub(super) fn parallel(&self) -> Vec<DirectoryField> {
        let optional = self.optional();
        let field = |source: String| DirectoryField { optional: optional.contains(&source), source };
        let mut fields: Vec<DirectoryField> =
            self.members().unwrap_or_default().into_iter().map(field).collect();
        let may_be_image = |field: &FieldOptions| matches!(field.kind, None | Some(FieldKind::Image));
        let image = self.of_members().find(|field| may_be_image(field)).map(|field| &field.source);
        fields.sort_by_key(|field| (Some(&field.source) != image, field.source.clone()));
        fields
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
        let is_own = [IMAGE, LABEL].contains(&field.source.as_str());
        let by_schema = || if is_own { None } else { index.field_kind(&field.source) };
        FieldOptions { kind: field.kind.or_else(by_schema), ..field.clone() }
    };
    asked.iter().map(with_kind).collect()
}

/// Returns the requested table columns whose values are small, each once, except the columns that `labels` replaces.
///
/// # Errors
/// [`Error::Config`] for a column that is refused, or that cannot have the requested kind.
pub(super) fn columns_of_tables(
    asked: &[FieldOptions],
    labels: &[String],
    index: &DatasetIndex,
) -> Result<Vec<SampleColumn>> {
    let is_read = |(number, field): &(usize, &FieldOptions)| {
        let is_label = field.source == LABEL && index.is_labeled();
        let is_first = || asked[..*number].iter().all(|before| before.source != field.source);
        index.has_column(&field.source) && !labels.contains(&field.source) && !is_label && is_first()
    };
    let read = asked.iter().enumerate().filter(is_read);
    read.map(|(_, field)| index.column(&field.source, field.kind)).collect()
}

/// Checks that all fields that come from the same column as `field` have the same kind, because the column is converted
/// once. For the same reason, the field cannot have options of arrays.
///
/// # Errors
/// [`Error::Config`] that names the column.
pub(super) fn check_one_kind(asked: &RequestedFields<'_>, field: &FieldOptions) -> Result<()> {
    if field.array != ArrayOptions::default() {
        let shown = field.shown();
        let message =
            format!("has {shown} with options of arrays, but it is a column of numbers: remove them");
        return Err(Error::config("fields", message));
    }
    if asked.iter().all(|(_, other)| other.source != field.source || other.kind == field.kind) {
        return Ok(());
    }
    let source = &field.source;
    let message = format!("has the column {source:?} as two kinds: use the same kind in all of its fields");
    Err(Error::config("fields", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_goes_before_the_class_number_and_a_member_is_read_once() {
        let mut asked: Vec<FieldOptions> =
            ["age", "jpg", LABEL, "txt"].into_iter().map(FieldOptions::named).collect();
        asked.push(FieldOptions { name: "raw".to_owned(), optional: true, ..FieldOptions::named("jpg") });
        let sources = |columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
            let requested = RequestedFields::new(&asked, &columns);
            (requested.iter().map(|(source, _)| source).collect::<Vec<_>>(), requested.members().unwrap())
        };
        use FieldSource::{Column, Label, Member};
        let members = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = (vec![Member, Member, Label, Member, Member], members(&["age", "jpg", "txt"]));
        assert_eq!(sources(&[]), expected);
        let expected = (vec![Column(1), Member, Column(0), Member, Member], members(&["jpg", "txt"]));
        assert_eq!(sources(&[LABEL, "age"]), expected);
        let optional = |asked: &[FieldOptions]| RequestedFields::new(asked, &[]).optional();
        assert!(optional(&asked).is_empty(), "one of the two fields of jpg is not optional");
        asked.remove(1);
        assert_eq!(optional(&asked), members(&["jpg"]));
        let array = [FieldOptions { kind: Some(FieldKind::Array), ..FieldOptions::named(LABEL) }];
        assert_eq!(RequestedFields::new(&array, &[]).members(), Some(members(&[LABEL])));
    }
}
