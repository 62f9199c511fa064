//! Checks of datasets before they are combined into one index.

use super::cancel::{Cancel, OpeningWatch};
use super::cells::{CellType, ColumnFacts};
use super::part::DatasetPart;
use super::selected_members::{IMAGE, choices};
use super::spill::directory_of;
use super::summary::LabelFault;
use super::{IndexOptions, Layout};
use crate::source;
use base::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) fn faulty<'a>(
    parts: impl IntoIterator<Item = &'a DatasetPart>,
) -> Option<(&'a DatasetPart, &'a LabelFault)> {
    parts.into_iter().find_map(|part| Some((part, part.notes.label_fault.as_ref()?)))
}

const LABEL: &str = "label";

/// Maximum number of keys that a message names. A dataset can have as many keys as members.
const KEYS_NAMED: usize = 20;

/// Checks that each of these members occurs in at least one sample. If an optional member occurs in no sample, this
/// causes a warning.
pub(super) fn check_members(parts: &[DatasetPart], members: &[String], options: &IndexOptions) -> Result<()> {
    let keys: BTreeSet<String> = parts.iter().flat_map(DatasetPart::keys).collect();
    let columns = parts.iter().flat_map(DatasetPart::columns).map(|column| column.name);
    let with_columns: BTreeSet<String> = keys.iter().cloned().chain(columns).collect();
    let is_column = |name: &String| parts.iter().any(|part| part.columns().iter().any(|of| of.name == *name));
    let any_table = parts.iter().any(DatasetPart::is_table);
    for member in members {
        if is_column(member) {
            continue;
        }
        let has_key = keys.contains(member) || choices(member).any(|key| keys.contains(key));
        if has_key || parts.iter().any(|part| part.is_own_image(member) && !part.notes.imageless) {
            continue;
        }
        if member == LABEL && parts.iter().any(|part| !part.notes.unlabeled) {
            let message = "has \"label\", the dataset's class number, as a kind other than Integer";
            return Err(Error::config("fields", message));
        }
        let lower = member.to_ascii_lowercase();
        if lower != *member && !any_table {
            let message = format!(
                "has {member:?}, but member names are always in lower case, however files are named: use {lower:?}"
            );
            return Err(Error::config("fields", message));
        }
        let known = nearest_names(member, &with_columns);
        let root = parts[0].root.display();
        let message = match known.is_empty() {
            true => format!(
                "has {member:?}, but samples of {root} are single files with the fields \"image\" and \"label\" and \
                 the columns of labels=; several members per sample need tar shards"
            ),
            false => format!("has {member:?}, which no sample of {root} has; there are {known}"),
        };
        if options.optional.contains(member) {
            options.notices.warn_once("absent field", || {
                format!("fields: {message}; the field is optional, so it is absent in every sample")
            });
            continue;
        }
        return Err(Error::config("fields", message));
    }
    Ok(())
}

/// Lists names for a message. Of many names, the most similar ones are listed: those with the longest common beginning
/// and end. Slashes at the beginning of names, which users may leave out, do not count.
pub(super) fn nearest_names<'a>(name: &str, known: impl IntoIterator<Item = &'a String>) -> String {
    let bytes = |name: &'a str| name.trim_start_matches('/').as_bytes();
    let own = name.trim_start_matches('/').as_bytes();
    let mut known: Vec<&str> = known.into_iter().map(String::as_str).collect();
    let others = known.len().saturating_sub(KEYS_NAMED);
    if others > 0 {
        let same = |(a, b): &(&u8, &u8)| a.eq_ignore_ascii_case(b);
        known.sort_by_cached_key(|known| {
            let start = own.iter().zip(bytes(known)).take_while(same).count();
            let end = own.iter().rev().zip(bytes(known).iter().rev()).take_while(same).count();
            std::cmp::Reverse(start + end)
        });
        known.truncate(KEYS_NAMED);
    }
    let mut shown: Vec<String> = known.into_iter().map(|name| format!("{name:?}")).collect();
    if others > 0 {
        shown.push(format!("and {others} others"));
    }
    shown.join(", ")
}

/// Refuses a store of zarr whose samples could not be found because no array in it has one of the chosen names.
/// `documents` are the documents of its arrays.
pub(super) fn check_array_names(root: &Path, documents: &[Vec<u8>], chosen: &[String]) -> Result<()> {
    let own = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = |document: &Vec<u8>| match directory_of(document).strip_suffix(b"/") {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => own.clone(),
    };
    let known: Vec<String> = documents.iter().map(name).collect();
    let is_known = |chosen: &&String| {
        let name = chosen.strip_prefix('/').unwrap_or(chosen);
        matches!(name, "" | ".") || known.iter().any(|known| known == name)
    };
    let unknown = chosen.iter().find(|chosen| !is_known(chosen) && !known.is_empty());
    let Some(unknown) = unknown else { return Ok(()) };
    let known = nearest_names(unknown, &known);
    let message = format!("has {unknown:?}, which is no array of {}; there are {known}", root.display());
    Err(Error::config("fields", message))
}

/// Divides the requested names into columns of small values, which at least one of `parts` has, and members.
pub(super) fn columns_and_members(
    parts: &[DatasetPart],
    options: &IndexOptions,
) -> (Vec<String>, Option<Vec<String>>) {
    let small = |of: ColumnFacts| (of.cells != CellType::Bytes).then_some(of.name);
    let names: BTreeSet<String> =
        parts.iter().flat_map(|part| part.columns().into_iter().filter_map(small)).collect();
    // The name `image` selects a sample's image, whatever the image's column is called.
    let is_column = |name: &String| {
        let is_image = || *name == IMAGE && parts.iter().any(|part| part.notes.image.is_some());
        names.contains(name)
            && !is_image()
            && !are_files(parts, name, options)
            && !parts.iter().any(|part| part.stored(name).is_some())
            && !are_arrays(parts, name, options)
    };
    let asked = options.members.iter().flatten();
    let mut columns: Vec<String> = asked.clone().filter(|name| is_column(name)).cloned().collect();
    if options.label_column && names.contains(LABEL) && parts.iter().any(|part| part.notes.unlabeled) {
        columns.push(LABEL.to_owned());
    }
    for name in &options.columns {
        if names.contains(name) && !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    let members = options.members.as_ref();
    (columns, members.map(|_| asked.filter(|name| !is_column(name)).cloned().collect()))
}

/// Whether the values of column `name` in a manifest are names of files, and the user requests the contents of these
/// files.
fn are_files(parts: &[DatasetPart], name: &str, options: &IndexOptions) -> bool {
    let may_be =
        |part: &DatasetPart| part.columns().iter().all(|of| of.name != name || part.may_name_files(of));
    let is_asked = options.of_files.iter().any(|file| file == name)
        || parts.iter().any(|part| part.layout() == Layout::Parallel);
    is_asked && parts.iter().all(may_be)
}

/// Whether the user requests `name` as an array, and it is one.
fn are_arrays(parts: &[DatasetPart], name: &String, options: &IndexOptions) -> bool {
    let has = |part: &DatasetPart| part.layout().is_array() && part.keys().contains(name);
    options.of_files.contains(name) && parts.iter().any(has)
}

/// Refuses datasets that overlap, because an epoch would draw the samples that they share twice by mistake.
pub(super) fn refuse_repeated(
    roots: &[impl AsRef<Path>],
    cancel: &Cancel,
    options: &IndexOptions,
) -> Result<()> {
    if roots.is_empty() {
        return Err(Error::config("path", "names no dataset"));
    }
    let mut known: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for root in roots.iter().map(AsRef::as_ref) {
        let shown = source::shown(root).into_owned();
        let source = source::at(root)?;
        let _watch = OpeningWatch::new(&*source, root, cancel, options);
        let places = source.places().map_err(|error| cancel.check(&shown).err().unwrap_or(error))?;
        for place in places {
            let above = place.ancestors().find_map(|above| known.get_key_value(above));
            let below = || known.range(place.clone()..).next().filter(|(path, _)| path.starts_with(&place));
            let Some((path, other)) = above.or_else(below) else {
                known.insert(place, shown.clone());
                continue;
            };
            let other = other.display();
            let message = if *path == place {
                format!("is given twice, first as {other}: give each dataset once")
            } else {
                format!("overlaps with {other}, so samples would be drawn twice: give only one of them")
            };
            return Err(Error::dataset(shown, message));
        }
    }
    Ok(())
}
