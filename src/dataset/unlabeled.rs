//! What a dataset without labels has instead, and how its samples get labels.

use super::cells::CellType;
use super::part::DatasetPart;
use super::{DatasetIndex, FieldKind, IMAGE, Layout};
use crate::error::{Error, Result};

/// The number of columns or members that a message names.
const NAMED: usize = 12;
/// The bytes of a name in a message.
const LONGEST: usize = 60;

impl DatasetIndex {
    /// Says what gives the samples labels, where they have none.
    pub(crate) fn to_label(&self) -> String {
        let unlabeled = || self.dataset_parts().find(|part| part.notes.unlabeled);
        match unlabeled().or_else(|| self.dataset_parts().next()) {
            Some(part) => part.to_label(),
            None => "send a class number with each sample: a member called cls, or a json member with label"
                .to_owned(),
        }
    }
}

impl DatasetPart {
    /// Checks that the labels are those of the column, member or key that the user named.
    ///
    /// # Errors
    /// [`Error::Config`] for `label`, with what there is.
    pub(super) fn check_label(&self, asked: Option<&str>) -> Result<()> {
        let Some(asked) = asked.filter(|asked| self.notes.label_column.as_deref() != Some(asked)) else {
            return Ok(());
        };
        let root = self.root.display();
        let message = match self.layout() {
            Layout::Folder | Layout::TarOfTars => format!(
                "is {asked:?}, but the labels of {root} are the names of its {}: leave label out",
                if self.layout() == Layout::Folder { "directories" } else { "tars" }
            ),
            Layout::Packed => format!(
                "is {asked:?}, but packed samples keep the labels that they were packed with: pack {root} again with \
                 --label {asked}"
            ),
            _ => {
                let what = if self.is_table() { "column" } else { "member or key in .json members" };
                let why = self.notes.not_labels.get(asked).map_or_else(
                    || format!("which is no {what} with class numbers or names of classes"),
                    |why| format!("a {what} that {why}"),
                );
                format!("is {asked:?}, {why}; samples of {root} have {}", self.described())
            }
        };
        Err(Error::config("label", message))
    }

    /// Says what gives the samples labels, where they have none.
    pub(super) fn to_label(&self) -> String {
        let layout = self.notes.packed_of.unwrap_or(self.layout());
        if layout.is_table() {
            return format!(
                "no column is the label by its name ({}); samples have {}; {}{}",
                self.reasons().unwrap_or_else(|| "such as \"label\" or \"class\"".to_owned()),
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
                "directories within a tar are no classes ({image:?} for one): unpack the tar, so that each class is a \
                 directory of its own, or write a .cls member with each image; {}",
                self.example()
            ),
            (Layout::Tar, _) => format!(
                "samples have {}; put the number of its class with each image (a .cls member, or a .json member with \
                 label); label=\"KEY\" takes classes from another member or key, {}",
                self.described(),
                self.example()
            ),
            (Layout::TfRecord, _) => "records that are read as files have none".to_owned(),
            _ => "keep each class in a directory of its own".to_owned(),
        }
    }

    /// Whether samples in tars have no member but images.
    fn has_images_alone(&self) -> bool {
        self.keys().iter().all(|key| FieldKind::of_key(key) == FieldKind::Image)
    }

    /// Why columns that the label is looked for in are not it.
    fn reasons(&self) -> Option<String> {
        let reasons: Vec<String> =
            self.notes.not_labels.iter().map(|(name, why)| format!("{name:?} {why}")).collect();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }

    /// The names of all columns or members with what they hold, in words.
    fn fields_in_words(&self) -> Vec<(String, String)> {
        if !self.is_table() && self.notes.packed_of.is_none_or(|layout| !layout.is_table()) {
            return self.keys().into_iter().map(|key| (key, String::new())).collect();
        }
        let columns = self.columns();
        let fields = self.table_fields().into_iter().map(|field| {
            let column = columns.iter().find(|column| column.name == field.name);
            let words = match column.map(|column| &column.cells) {
                Some(CellType::Refused(_)) => "not readable".to_owned(),
                Some(cells) => cells.words().into_owned(),
                None => match field.kind {
                    FieldKind::Image => "images".to_owned(),
                    FieldKind::Text => CellType::Texts.words().into_owned(),
                    kind => format!("{kind:?}").to_lowercase(),
                },
            };
            (field.name, format!(" ({words})"))
        });
        fields.collect()
    }

    /// What samples have, in words.
    fn described(&self) -> String {
        let fields = self.fields_in_words();
        let name = |(name, words): &(String, String)| format!("{:?}{words}", shortened(name));
        let mut names: Vec<String> = fields.iter().take(NAMED).map(name).collect();
        if fields.len() > NAMED {
            names.push(format!("and {} others", fields.len() - NAMED));
        }
        if names.is_empty() { "nothing else".to_owned() } else { names.join(", ") }
    }

    /// A column that may be meant as the label: one by whose name that is likely, or else one of whole numbers.
    fn likely_label(&self) -> Option<String> {
        let fields = self.fields_in_words();
        let holding = |of: CellType| {
            let words = format!(" ({})", of.words());
            let names = fields.iter().filter(move |(_, of)| *of == words).map(|(name, _)| name);
            names.filter(|name| !self.notes.not_labels.contains_key(*name))
        };
        let is_likely = |name: &&String| {
            ["label", "class", "categor", "target"].iter().any(|part| name.to_lowercase().contains(part))
        };
        let likely = holding(CellType::Integers).chain(holding(CellType::Texts)).find(is_likely);
        likely.or_else(|| holding(CellType::Integers).next()).cloned()
    }

    /// What reads samples without labels, with a field that they have.
    fn example(&self) -> String {
        let is_other = |name: &String| {
            Some(name) != self.notes.image.as_ref()
                && FieldKind::of_key(name) != FieldKind::Image
                && name != IMAGE
        };
        let likely = self.likely_label();
        let mut others: Vec<String> = self
            .fields_in_words()
            .into_iter()
            .filter(|(name, words)| is_other(name) && !words.contains("not readable"))
            .map(|(name, _)| name)
            .collect();
        // The caption of an image tells more than the path that it had.
        others.sort_by_key(|name| (name.contains('.'), Some(name) == likely.as_ref()));
        match others.first() {
            Some(other) => format!("and fields=[\"image\", {other:?}] reads what there is without labels"),
            None => "and fields=[\"image\"] reads the images without labels".to_owned(),
        }
    }
}

/// A name, cut where it is long.
fn shortened(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &name[..end])
}
