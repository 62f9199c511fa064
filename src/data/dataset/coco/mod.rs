//! COCO annotations as a list of files: a row for each image, in the order of the document, and columns whose values
//! have different lengths, because an image may have any number of objects and captions.
//!
//! The names of files are relative to a directory of images. It is the one that the user names, or else one of the
//! usual places next to the document ([`PLACES`]).

mod document;

use super::FieldKind;
use super::layouts::is_relative_path;
use super::manifest::FileListing;
use super::table::{TableCells, TableColumn};
use crate::source::{DatasetSource, ManifestSource, is_url};
use base::error::{Error, Result};
use document::{CocoDocument, CocoObject};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Where the images may be, relative to the directory of the document. `{}` is the name of the document without
/// [`KINDS`], such as `train2017`.
const PLACES: [&str; 8] =
    ["", "{}/", "images/", "images/{}/", "../", "../{}/", "../images/", "../images/{}/"];

/// The beginnings of documents' names that say what is annotated.
const KINDS: [&str; 3] = ["instances_", "captions_", "person_keypoints_"];

/// The columns that are not read, with what COCO has in them.
const REFUSED: [(&str, &str); 2] = [("segmentation", "masks"), ("keypoints", "points")];

/// The images that a document lists.
pub(super) struct CocoImages {
    /// The names of the files, relative to the directory of the document.
    names: Vec<String>,
    ids: Vec<i64>,
    columns: Vec<TableColumn>,
}

impl FileListing for CocoImages {
    fn naming(&self) -> &str {
        "file_name"
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn place(&self, row: usize) -> String {
        format!("images[{row}] (id {})", self.ids[row])
    }

    fn file(&self, row: usize) -> Result<&str, String> {
        Ok(&self.names[row])
    }

    fn columns(&mut self) -> Vec<TableColumn> {
        std::mem::take(&mut self.columns)
    }

    fn remedy(&self) -> &'static str {
        "add the files, or take these images out of the annotations"
    }
}

impl CocoImages {
    /// Reads the annotations of `source`. Its images are in the directory `images`, or in one of [`PLACES`].
    ///
    /// # Errors
    /// [`Error::Dataset`] for a document that is damaged or contradicts itself (with the entry), and if the images are
    /// not found; [`Error::Config`] if `images` is no directory; [`Error::Io`] if the document cannot be read.
    pub(super) fn read(source: &ManifestSource, images: Option<&str>) -> Result<Self> {
        let wrong = |message: String| Error::dataset(source.path(&[]), message);
        let mut document = CocoDocument::read(source)?;
        let mut rows = HashMap::with_capacity(document.images.len());
        for (row, image) in (0u32..).zip(&document.images) {
            if let Some(first) = rows.insert(image.id, row) {
                let message =
                    format!("images[{row}] has the id {}, which images[{first}] has, too", image.id);
                return Err(wrong(message));
            }
            if !is_relative_path(&image.file_name) {
                return Err(wrong(format!(
                    "images[{row}] has the file name {:?}, which is not a path below the directory of the images",
                    image.file_name
                )));
            }
        }
        document.categories.sort_by_key(|category| category.id);
        if let Some(twice) = document.categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let [first, second] = [&twice[0].name, &twice[1].name];
            return Err(wrong(format!(
                "the categories {first:?} and {second:?} have the id {}",
                twice[0].id
            )));
        }
        let columns = columns(&mut document, &rows).map_err(wrong)?;
        let directory = match document.images.first() {
            Some(first) => directory_of_images(source, images, &first.file_name)?,
            None => String::new(),
        };
        let names = document.images.iter().map(|image| format!("{directory}{}", image.file_name)).collect();
        Ok(Self { names, ids: document.images.iter().map(|image| image.id).collect(), columns })
    }
}

fn columns(document: &mut CocoDocument, rows: &HashMap<i64, u32>) -> Result<Vec<TableColumn>, String> {
    let CocoDocument { images, objects, captions, categories, refused, .. } = document;
    let row = |id: i64, image: i64| {
        let unknown = || format!("the annotation {id} is of the image {image}, which `images` does not list");
        rows.get(&image).copied().ok_or_else(unknown)
    };
    for object in objects.iter_mut() {
        object.row = row(object.id, object.image)?;
        let label = categories.binary_search_by_key(&object.category, |category| category.id);
        object.label = label.map_err(|_| {
            let CocoObject { id, category, .. } = object;
            format!("the annotation {id} has the category {category}, which `categories` does not list")
        })? as i64;
    }
    let mut columns = Vec::new();
    let mut add = |name: &str, kind, classes, cells| {
        columns.push(TableColumn { name: name.to_owned(), kind, classes, cells });
    };
    let integers = |value: fn(&document::CocoImage) -> Option<i64>| {
        TableCells::Integers(images.iter().map(value).collect())
    };
    add("image_id", FieldKind::Integer, Vec::new(), integers(|image| Some(image.id)));
    add("height", FieldKind::Integer, Vec::new(), integers(|image| image.height));
    add("width", FieldKind::Integer, Vec::new(), integers(|image| image.width));
    // A document of captions has no objects, so that fields for them would always be empty.
    if !objects.is_empty() || captions.is_empty() {
        // Sorting is stable, so the objects of an image stay in the order of the document.
        objects.sort_by_key(|object| object.row);
        let objects = &**objects;
        let mut counts = vec![Some(0); images.len()];
        objects.iter().for_each(|object| *counts[object.row as usize].get_or_insert(0) += 1);
        add("num_boxes", FieldKind::Integer, Vec::new(), TableCells::Integers(counts));
        let array = |descr: &str, each: &str, value: fn(&CocoObject) -> Vec<u8>| {
            let npy = |own: &[CocoObject]| npy((descr, each), own.len(), own.iter().flat_map(value));
            cells(images.len(), objects, |object| object.row, npy)
        };
        let names = categories.iter().map(|category| category.name.clone()).collect();
        let corners = |of: &CocoObject| of.corners.map(f32::to_le_bytes).concat();
        add("boxes", FieldKind::Boxes, Vec::new(), array("<f4", "4", corners));
        let label = |of: &CocoObject| of.label.to_le_bytes().to_vec();
        add("labels", FieldKind::Array, names, array("<i8", "", label));
        let category = |of: &CocoObject| of.category.to_le_bytes().to_vec();
        add("category_ids", FieldKind::Array, Vec::new(), array("<i8", "", category));
        add(
            "annotation_ids",
            FieldKind::Array,
            Vec::new(),
            array("<i8", "", |of| of.id.to_le_bytes().to_vec()),
        );
        add("iscrowd", FieldKind::Array, Vec::new(), array("|u1", "", |of| vec![of.iscrowd]));
        let areas = match objects.iter().find(|object| object.area.is_none()) {
            Some(CocoObject { id, .. }) => TableCells::Refused(format!("the annotation {id} has no area")),
            None => array("<f4", "", |of| of.area.unwrap_or_default().to_le_bytes().to_vec()),
        };
        add("area", FieldKind::Array, Vec::new(), areas);
    }
    if !captions.is_empty() {
        let mut captions: Vec<(u32, &str)> = captions
            .iter()
            .map(|caption| Ok((row(caption.id, caption.image)?, &*caption.text)))
            .collect::<Result<_, String>>()?;
        captions.sort_by_key(|(row, _)| *row);
        let json = |own: &[(u32, &str)]| serde_json::Value::from_iter(own.iter().map(|(_, text)| *text));
        let json = |own: &[(u32, &str)]| json(own).to_string().into_bytes().into_boxed_slice();
        add("captions", FieldKind::Json, Vec::new(), cells(images.len(), &captions, |(row, _)| *row, json));
    }
    for (name, what) in REFUSED.into_iter().filter(|(name, _)| refused.contains(name)) {
        let why = format!("{what} of COCO annotations are not read");
        add(name, FieldKind::Bytes, Vec::new(), TableCells::Refused(why));
    }
    Ok(columns)
}

/// A cell for each of so many rows, made of the items of the row. Items are sorted by row.
fn cells<T>(
    rows: usize,
    items: &[T],
    row: impl Fn(&T) -> u32,
    cell: impl Fn(&[T]) -> Box<[u8]>,
) -> TableCells {
    let mut rest = items;
    let cells = (0..rows as u32).map(|number| {
        let own;
        (own, rest) = rest.split_at(rest.iter().take_while(|item| row(item) == number).count());
        Some(cell(own))
    });
    TableCells::Bytes(cells.collect())
}

/// An `.npy` file of `count` rows.
fn npy((descr, each): (&str, &str), count: usize, elements: impl Iterator<Item = u8>) -> Box<[u8]> {
    let header = format!("{{'descr':'{descr}','fortran_order':False,'shape':({count},{each})}}\n");
    let length = (header.len() as u16).to_le_bytes();
    let header = [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes()].concat();
    header.into_iter().chain(elements).collect()
}

/// The directory of the images, relative to that of the document, or a URL; with a slash at its end. `first` is the
/// file name of an image.
fn directory_of_images(source: &ManifestSource, images: Option<&str>, first: &str) -> Result<String> {
    match images {
        Some(images) if is_url(Path::new(images)) || source.is_remote() => {
            return Ok(format!("{}/", images.trim_end_matches('/')));
        }
        Some(images) => return relative(&source.canonical()?, images),
        None => {}
    }
    let path = source.path(&[]);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = KINDS.iter().find_map(|kind| stem.strip_prefix(kind)).unwrap_or(&stem);
    let mut found: Vec<(String, _)> = Vec::new();
    for place in PLACES.map(|place| place.replace("{}", name)) {
        // A document on a server names only files below its directory.
        if source.is_remote() && place.starts_with("..") {
            continue;
        }
        let file = format!("{place}{first}");
        let is_file = source.size(file.as_bytes())?.is_some();
        let stamp = source.stamp(file.as_bytes())?;
        // Two of the places may be the same directory.
        if is_file && (source.is_remote() || found.iter().all(|(_, known)| *known != stamp)) {
            found.push((place, stamp));
        }
    }
    let shown = |place: &str| if place.is_empty() { "./".to_owned() } else { place.to_owned() };
    match &found[..] {
        [(only, _)] => Ok(only.clone()),
        [(one, _), (other, _), ..] => Err(Error::dataset(
            &path,
            format!(
                "names {first}, which is in {} and in {}: set images= to the directory of the images",
                shown(one),
                shown(other)
            ),
        )),
        [] => Err(Error::dataset(
            &path,
            format!(
                "names {first}, which is in none of the usual places next to it ({}): set images= to the directory of \
                 the images",
                PLACES.map(|place| shown(&place.replace("{}", name))).join(", ")
            ),
        )),
    }
}

/// The path of the directory `images` relative to the directory of `document`, with a slash at its end. Both are
/// resolved before, because `..` after a link would lead to another place.
fn relative(document: &Path, images: &str) -> Result<String> {
    let wrong = |why: String| Error::config("images", format!("is {images}, {why}"));
    let there = Path::new(images)
        .canonicalize()
        .map_err(|error| wrong(format!("which cannot be opened: {error}")))?;
    if !there.is_dir() {
        return Err(wrong("which is not a directory".to_owned()));
    }
    let own = document.parent().unwrap_or(document);
    let shared = own.components().zip(there.components()).take_while(|(own, there)| own == there).count();
    let up = std::iter::repeat_n(OsStr::new(".."), own.components().count() - shared);
    let path: PathBuf = up.chain(there.components().skip(shared).map(Component::as_os_str)).collect();
    let path = path.to_str().ok_or_else(|| wrong("whose path is not UTF-8".to_owned()))?;
    Ok(if path.is_empty() { String::new() } else { format!("{path}/") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_images_is_named_from_that_of_the_document() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["coco/annotations", "coco/train", "elsewhere"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let document = root.join("coco/annotations/x.json");
        let of = |images: &str| relative(&document, root.join(images).to_str().unwrap()).unwrap();
        assert_eq!(of("coco/train"), "../train/");
        assert_eq!(of("coco/annotations"), "");
        assert_eq!(of("coco"), "../");
        assert_eq!(of("elsewhere"), "../../elsewhere/");
        std::os::unix::fs::symlink(root.join("elsewhere"), root.join("coco/link")).unwrap();
        assert_eq!(of("coco/link"), "../../elsewhere/");
        let none = relative(&document, "/no/such").unwrap_err().to_string();
        assert!(none.contains("images") && none.contains("cannot be opened"), "{none}");
    }
}
