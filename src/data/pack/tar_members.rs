//! Names for a sample in a tar shard: a key, and a member for each of its files and columns. Pure.
//!
//! Samples that are files keep their names. The values of a table's row become members with the names of their columns.
//! Numbers are an exception: they share one JSON document.

use super::source::SampleFiles;
use crate::dataset::kind::image_extension;
use crate::dataset::packed::PackedColumns;
use crate::dataset::table::{TableCells, TableColumn};
use crate::dataset::{FieldKind, Layout, is_ignored};
use crate::source::ManifestSource;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Member names that readers give a special meaning: the class number, and a JSON document.
const CLASS: &str = "cls";
const NUMBERS: &str = "json";
/// Member name for a column whose name has no usable character.
const NAMELESS: &str = "column";

/// A sample of a tar shard: the name of each member after the first dot, and the bytes of the member.
pub(super) type TarSample<'a> = Vec<(String, Cow<'a, [u8]>)>;

/// Rules for naming members, the same for all samples of a dataset.
pub(super) struct TarNames<'a> {
    /// Layout of the source; for a packed dataset, the layout before packing.
    layout: Layout,
    /// Whether to add a `cls` member with the class number to every sample.
    numbered: bool,
    table: &'a PackedColumns,
    /// The column with the samples' images; `None` if several columns contain images.
    image: Option<&'a str>,
    names: BTreeMap<&'a str, String>,
}

impl<'a> TarNames<'a> {
    /// Makes the names for samples with this `table`. `columns` are its columns of small values.
    pub(super) fn new(
        layout: Layout,
        numbered: bool,
        table: &'a PackedColumns,
        image: Option<&'a str>,
        columns: &'a [TableColumn],
    ) -> Self {
        let (mut names, mut taken) = (BTreeMap::new(), HashMap::new());
        for column in table.keys.iter().chain(columns.iter().map(|column| &column.name)) {
            if !names.contains_key(column.as_str()) {
                let name = match column.split_once('*').filter(|_| layout == Layout::Parallel) {
                    Some((before, after)) => before.to_owned() + after.split('.').next().unwrap_or_default(),
                    None => column.clone(),
                };
                names.insert(column.as_str(), unused(&safe_name(&name), &mut taken));
            }
        }
        Self { layout, numbered, table, image, names }
    }

    /// Returns the key of a sample: its name without unsafe characters, or its index if it has no name. Several samples
    /// may get the same key; the caller makes keys unique.
    pub(super) fn key(&self, sample: u64, files: &SampleFiles) -> String {
        let is_named = self.layout.is_of_single_files() || self.layout == Layout::Tar;
        let path = files.files.first().filter(|_| is_named).map_or(&b""[..], |file| &file.name);
        let stem = match self.layout {
            Layout::Folder | Layout::Parallel => without_ending(path),
            Layout::Manifest => without_ending(path_of(path)),
            _ => split_at_first_dot(path).0,
        };
        let slash = stem.iter().rposition(|&byte| byte == b'/');
        let (directories, base) = slash.map_or((&b""[..], stem), |at| (&stem[..at], &stem[at + 1..]));
        if base.is_empty() {
            return format!("{sample:09}");
        }
        let mut parts: Vec<String> = directories.split(|&byte| byte == b'/').map(safe_part).collect();
        parts.retain(|part| !matches!(part.as_str(), "" | "." | ".."));
        // Readers skip hidden directories, so rename them to visible ones.
        let ignored = parts.iter_mut().filter(|part| is_ignored(part.as_bytes()));
        ignored.for_each(|part| part.insert(0, '_'));
        // For readers, a key ends at the first dot of a name, so replace dots.
        parts.push(safe_part(base).replace('.', "_"));
        parts.join("/")
    }

    /// Returns the members of a sample with this label; `row` is the sample's row in `columns`. The image comes first.
    pub(super) fn members<'f>(
        &self,
        files: &'f SampleFiles,
        label: u32,
        columns: &'f [TableColumn],
        row: usize,
    ) -> TarSample<'f> {
        let mut members: TarSample<'f> = Vec::new();
        for file in &files.files {
            let bytes = files.bytes(file);
            members.push((self.ending(&file.name, bytes), Cow::Borrowed(bytes)));
        }
        if self.numbered {
            let number = Cow::Owned(label.to_string().into_bytes());
            // Set the class number, even if the sample has one already. Readers use it rather than a label in a `.json`
            // member, so it must be up to date.
            match members.iter_mut().find(|(ending, _)| ending == CLASS) {
                Some((_, other)) => *other = number,
                None => members.push((CLASS.to_owned(), number)),
            }
        }
        // The members of a sample from a tar shard already contain its other values.
        if self.layout == Layout::Tar {
            return members;
        }
        if let Some(numbers) = numbers(columns, row) {
            members.push((NUMBERS.to_owned(), Cow::Owned(numbers.into_bytes())));
        }
        for column in columns {
            let bytes = match &column.cells {
                TableCells::Texts(cells) => cells[row].as_deref().map(str::as_bytes),
                TableCells::Bytes(cells) => cells[row].as_deref(),
                _ => None,
            };
            if let Some(bytes) = bytes {
                let ending = column.kind.extension(b"");
                let name = &self.names[column.name.as_str()];
                members.push((format!("{name}.{ending}"), Cow::Borrowed(bytes)));
            }
        }
        // A row without any value is still a sample.
        if members.is_empty() {
            members.push((NUMBERS.to_owned(), Cow::Borrowed(b"{}")));
        }
        members
    }

    /// Returns the member name (the part after the key) for a file of the source.
    fn ending(&self, name: &[u8], bytes: &[u8]) -> String {
        match self.layout {
            Layout::Folder => {
                let dot = name.iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
                safe_part(&name[dot..]).to_lowercase()
            }
            Layout::Tar => safe_part(split_at_first_dot(name).1).to_lowercase(),
            Layout::TarOfTars => safe_part(name).to_lowercase(),
            Layout::Manifest => image_ending(bytes).to_owned(),
            _ => {
                let column = String::from_utf8_lossy(name);
                // Name the member of the image column by an image extension instead of the column, because readers
                // recognise images by their extension.
                let is_file = self.layout == Layout::Parallel && !self.names.contains_key(&*column);
                if self.image == Some(&*column) || is_file {
                    return image_ending(bytes).to_owned();
                }
                let number = self.table.keys.binary_search_by(|key| key.as_str().cmp(&column));
                let kind = number.ok().and_then(|number| self.table.kinds.get(number));
                let name = self.names.get(&*column).map_or(NAMELESS, String::as_str);
                format!("{name}.{}", kind.copied().unwrap_or(FieldKind::Bytes).extension(bytes))
            }
        }
    }
}

/// Returns `name`, or `name` with a number appended if `name` is taken. `taken` maps each name to the last number that
/// was tried for it.
pub(super) fn unused(name: &str, taken: &mut HashMap<String, u64>) -> String {
    let (mut found, mut next) = (name.to_owned(), taken.get(name).copied().unwrap_or(1));
    while taken.contains_key(&found) {
        next += 1;
        found = format!("{name}_{next}");
    }
    taken.insert(found.clone(), 1);
    taken.insert(name.to_owned(), next);
    found
}

fn split_at_first_dot(name: &[u8]) -> (&[u8], &[u8]) {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match name[base..].iter().position(|&byte| byte == b'.') {
        Some(dot) => (&name[..base + dot], &name[base + dot + 1..]),
        None => (name, b""),
    }
}

fn without_ending(name: &[u8]) -> &[u8] {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    name[base..].iter().rposition(|&byte| byte == b'.').map_or(name, |dot| &name[..base + dot])
}

/// Returns a path for a file's name in a manifest: for a URL, its host and path.
fn path_of(name: &[u8]) -> &[u8] {
    if !ManifestSource::is_url(name) {
        return name;
    }
    let start = name.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
    let end = name.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(name.len());
    name.get(start..end).unwrap_or_default()
}

/// Returns the image ending for these bytes; a default ending if they are not a known image format.
fn image_ending(bytes: &[u8]) -> &'static str {
    image_extension(bytes).unwrap_or("jpg")
}

/// Replaces characters in a path component that could mislead programs or people.
fn safe_part(part: &[u8]) -> String {
    let sound = |c: char| match c {
        '/' | '\\' | char::REPLACEMENT_CHARACTER => '_',
        c if c.is_control() => '_',
        c => c,
    };
    String::from_utf8_lossy(part).chars().map(sound).collect()
}

/// Returns a column's name for use in a member's name. The result is in lower case, because readers compare member
/// names in lower case.
fn safe_name(column: &str) -> String {
    let name = safe_part(column.as_bytes()).to_lowercase();
    match name.trim_matches('.') {
        "" => NAMELESS.to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the numbers and booleans of a row as a JSON document in Python's dialect; `None` for a row without numbers
/// and booleans.
fn numbers(columns: &[TableColumn], row: usize) -> Option<String> {
    let float = |number: f64| match number {
        number if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        number => format!("{number:?}"),
    };
    let list = |numbers: Vec<String>| format!("[{}]", numbers.join(", "));
    let value = |column: &TableColumn| match &column.cells {
        TableCells::Bools(cells) => cells[row].map(|truth| truth.to_string()),
        TableCells::Integers(cells) => cells[row].map(|number| number.to_string()),
        TableCells::Floats(cells) => cells[row].map(float),
        TableCells::IntegerLists(_, cells) => {
            cells[row].as_ref().map(|numbers| list(numbers.iter().map(i64::to_string).collect()))
        }
        TableCells::FloatLists(_, cells) => {
            cells[row].as_ref().map(|numbers| list(numbers.iter().map(|&number| float(number)).collect()))
        }
        _ => None,
    };
    let entry = |column: &TableColumn| {
        let name = &column.name;
        value(column).map(|value| format!("{}: {value}", serde_json::Value::from(name.as_str())))
    };
    let entries: Vec<String> = columns.iter().filter_map(entry).collect();
    (!entries.is_empty()).then(|| format!("{{{}}}", entries.join(", ")))
}
