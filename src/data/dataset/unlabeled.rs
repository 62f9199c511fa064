//! Messages about a dataset without labels: which fields the dataset has, and how the user can add labels.

use super::cells::CellType;
use super::part::DatasetPart;
use super::{DatasetIndex, FieldKind, IMAGE, Layout};
use base::error::{Error, Result};
use base::names::NamedValue;
use std::borrow::Cow;

const NAMED: usize = 12;
const LONGEST: usize = 60;
const NONE_USUAL: &str =
    "none with a usual name such as \"label\" or \"class\" has class numbers or class names";

impl DatasetIndex {
    /// Advice on how to add labels, for a dataset without labels.
    pub fn to_label(&self) -> String {
        let unlabeled = || self.dataset_parts().find(|part| part.notes.unlabeled);
        match unlabeled().or_else(|| self.dataset_parts().next()) {
            Some(part) => part.to_label(),
            None => "send a class number with each sample: a member called cls, or a json member with label"
                .to_owned(),
        }
    }
}

impl DatasetPart {
    /// Checks that the labels come from the column, member or key that the user named.
    ///
    /// # Errors
    /// [`Error::Config`] for `label`. The message lists the columns or members that the samples have.
    pub(super) fn check_label(&self, asked: Option<&str>) -> Result<()> {
        let is_empty = self.empty_label().is_some();
        let Some(asked) = asked.filter(|asked| is_empty || self.notes.label_column.as_deref() != Some(asked))
        else {
            return Ok(());
        };
        let root = self.root.display();
        let message = match self.layout() {
            Layout::Folder | Layout::TarOfTars => format!(
                "is {asked:?}, but the labels of {root} are the names of its {}: omit label",
                if self.layout() == Layout::Folder { "directories" } else { "tars" }
            ),
            Layout::Packed => format!(
                "is {asked:?}, but packed samples keep the labels that they were packed with: pack {root} again with \
                 --label {asked}"
            ),
            _ => {
                let what = if self.is_table() { "column" } else { "member or key in .json members" };
                let empty = self.empty_label().filter(|name| name.as_str() == asked).map(|_| "has no values");
                let why = self.notes.not_labels.get(asked).map(String::as_str).or(empty).map_or_else(
                    || format!("which is not a {what} with class numbers or class names"),
                    |why| format!("a {what} that {why}"),
                );
                format!("is {asked:?}, {why}; samples of {root} have {}", self.described())
            }
        };
        Err(Error::config("label", message))
    }

    pub(super) fn to_label(&self) -> String {
        let layout = self.notes.packed_of.unwrap_or(self.layout());
        if layout == Layout::Parallel {
            return "parallel directories have no labels: labels=\"TABLE.csv\" adds labels".to_owned();
        }
        if layout.is_table() {
            return format!(
                "no column gives class labels: {}; samples have {}; {}{}",
                self.reasons().unwrap_or_else(|| NONE_USUAL.to_owned()),
                self.described(),
                match self.likely_label() {
                    Some(name) => format!("label={name:?} takes classes from a column, "),
                    None => "labels=\"TABLE.csv\" adds labels, ".to_owned(),
                },
                self.example(),
            );
        }
        match (layout, &self.notes.in_directory) {
            (Layout::Tar, Some(image)) if self.has_images_alone() => format!(
                "directories inside a tar are not classes (e.g. {image:?}): extract the tar, so that each class is a \
                 directory of its own, or write a .cls member with each image; {}",
                self.example()
            ),
            (Layout::Tar, _) => format!(
                "samples have {}; store a class number with each image (a .cls member, or a .json member with label); \
                 label=\"KEY\" takes classes from another member or key, {}",
                self.described(),
                self.example()
            ),
            (Layout::TfRecord, _) => "records that are read as files have no labels".to_owned(),
            _ => "keep each class in a directory of its own".to_owned(),
        }
    }

    fn has_images_alone(&self) -> bool {
        self.keys().iter().all(|key| FieldKind::of_key(key) == FieldKind::Image)
    }

    /// The reasons why columns with the usual name of a label are not the label; `None` if no such column exists.
    fn reasons(&self) -> Option<String> {
        let empty = self.empty_label().map(|name| format!("{name:?} has no values"));
        let not_labels = self.notes.not_labels.iter().map(|(name, why)| format!("{name:?} {why}"));
        let reasons: Vec<String> = empty.into_iter().chain(not_labels).collect();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }

    /// The column that has the usual name of a label but no values; `None` if samples have labels.
    fn empty_label(&self) -> Option<&String> {
        let is_empty = self.notes.unlabeled && self.notes.label_fault.is_none();
        self.notes.label_column.as_ref().filter(|_| is_empty && self.is_table())
    }

    fn sample_fields(&self) -> Vec<SampleField> {
        if !self.is_table() && self.notes.packed_of.is_none_or(|layout| !layout.is_table()) {
            let member = |name| SampleField { name, values: DescribedValues::Unknown };
            return self.keys().into_iter().map(member).collect();
        }
        let mut columns = self.columns();
        let fields = self.table_fields().into_iter().map(|field| {
            let column = columns.iter().position(|column| column.name == field.name);
            let values = match column.map(|at| columns.swap_remove(at).cells) {
                Some(cells) => DescribedValues::Column(cells),
                None => DescribedValues::Bytes(field.kind),
            };
            SampleField { name: field.name, values }
        });
        fields.collect()
    }

    fn described(&self) -> String {
        let fields = self.sample_fields();
        let mut names: Vec<String> = fields.iter().take(NAMED).map(SampleField::in_words).collect();
        if fields.len() > NAMED {
            names.push(format!("and {} others", fields.len() - NAMED));
        }
        if names.is_empty() { "nothing else".to_owned() } else { names.join(", ") }
    }

    /// A column that is possibly meant as the label: a column with a likely name, or else a column of integers.
    fn likely_label(&self) -> Option<String> {
        let fields = self.sample_fields();
        let tried = &[self.empty_label(), self.label_asked.as_ref()];
        let holding = |hold: fn(&DescribedValues) -> bool| {
            let names = fields.iter().filter(move |field| hold(&field.values)).map(|field| &field.name);
            names.filter(move |name| {
                !self.notes.not_labels.contains_key(*name) && !tried.contains(&Some(*name))
            })
        };
        let (integers, texts) =
            (|| holding(DescribedValues::are_integers), holding(DescribedValues::are_texts));
        let is_likely = |name: &&String| {
            ["label", "class", "categor", "target"].iter().any(|part| name.to_lowercase().contains(part))
        };
        integers().chain(texts).find(is_likely).or_else(|| integers().next()).cloned()
    }

    /// An example of the setting `fields` that reads the samples without labels. It uses one of their fields.
    fn example(&self) -> String {
        let is_other = |field: &SampleField| {
            Some(&field.name) != self.notes.image.as_ref()
                && Some(&field.name) != self.empty_label()
                && FieldKind::of_key(&field.name) != FieldKind::Image
                && field.name != IMAGE
                && field.values.are_readable()
        };
        let likely = self.likely_label();
        let mut others: Vec<String> =
            self.sample_fields().into_iter().filter(is_other).map(|field| field.name).collect();
        // A caption is a better example than the original path of an image, such as image.path.
        others.sort_by_key(|name| (name.contains('.'), Some(name) == likely.as_ref()));
        match others.first() {
            Some(array) if self.layout().is_array() => {
                format!("and fields=[{array:?}] reads the samples without labels")
            }
            Some(other) => format!("and fields=[\"image\", {other:?}] reads the samples without labels"),
            None => "and fields=[\"image\"] reads the images without labels".to_owned(),
        }
    }
}

struct SampleField {
    name: String,
    values: DescribedValues,
}

impl SampleField {
    fn in_words(&self) -> String {
        let name = shortened(&self.name);
        let words: Cow<'_, str> = match &self.values {
            DescribedValues::Unknown => return format!("{name:?}"),
            DescribedValues::Column(CellType::Refused(_)) => "not readable".into(),
            DescribedValues::Column(cells) => cells.words(),
            DescribedValues::Bytes(FieldKind::Image) => "images".into(),
            DescribedValues::Bytes(FieldKind::Text) => CellType::Texts.words(),
            DescribedValues::Bytes(kind) => kind.name().into(),
        };
        format!("{name:?} ({words})")
    }
}

enum DescribedValues {
    /// A member. The index does not contain its values.
    Unknown,
    Column(CellType),
    Bytes(FieldKind),
}

impl DescribedValues {
    fn are_integers(&self) -> bool {
        matches!(self, Self::Column(CellType::Integers))
    }

    fn are_texts(&self) -> bool {
        matches!(self, Self::Column(CellType::Texts) | Self::Bytes(FieldKind::Text))
    }

    fn are_readable(&self) -> bool {
        !matches!(self, Self::Column(CellType::Refused(_)))
    }
}

fn shortened(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &name[..end])
}
