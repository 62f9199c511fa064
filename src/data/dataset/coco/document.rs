//! Parses a document of COCO annotations as a stream: what is not read, such as segmentations, is never in memory.

use crate::source::{DatasetSource, OpenFile, ReadAt};
use base::error::{Error, Result};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeSet, HashSet};
use std::fmt::{Display, Formatter};
use std::io::{BufReader, Read};
use std::marker::PhantomData;

/// The number of bytes that are read at a time. On a server, each read is a request.
const READ_UNIT: usize = 4 << 20;

/// The parts of a document that are read.
#[derive(Default)]
pub(super) struct CocoDocument {
    pub(super) images: Vec<CocoImage>,
    /// The annotations with a box.
    pub(super) objects: Vec<CocoObject>,
    pub(super) captions: Vec<CocoCaption>,
    pub(super) categories: Vec<CocoCategory>,
    /// The parts of annotations that occur, but are not read.
    pub(super) refused: BTreeSet<&'static str>,
    /// The ids of all annotations.
    ids: HashSet<i64>,
}

#[derive(Deserialize)]
pub(super) struct CocoImage {
    pub(super) id: i64,
    pub(super) file_name: String,
    pub(super) height: Option<i64>,
    pub(super) width: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct CocoCategory {
    pub(super) id: i64,
    pub(super) name: String,
}

#[derive(Deserialize)]
struct CocoAnnotation {
    id: i64,
    image_id: i64,
    category_id: Option<i64>,
    bbox: Option<[f64; 4]>,
    area: Option<f64>,
    iscrowd: Option<u8>,
    caption: Option<String>,
    segmentation: Option<IgnoredAny>,
    keypoints: Option<IgnoredAny>,
}

pub(super) struct CocoObject {
    pub(super) id: i64,
    pub(super) image: i64,
    pub(super) category: i64,
    /// Left, top, right and bottom in pixels.
    pub(super) corners: [f32; 4],
    pub(super) area: Option<f32>,
    pub(super) iscrowd: u8,
    /// The number of the image among all images. Known when the whole document was read.
    pub(super) row: u32,
    /// The number of the category in the order of ids. Known when the whole document was read.
    pub(super) label: i64,
}

pub(super) struct CocoCaption {
    pub(super) id: i64,
    pub(super) image: i64,
    pub(super) text: Box<str>,
}

impl CocoDocument {
    /// Reads the document at the root of `source`.
    ///
    /// # Errors
    /// [`Error::Dataset`] for bytes that are not COCO annotations, with the entry; [`Error::Io`] if the document cannot
    /// be read.
    pub(super) fn read(source: &dyn DatasetSource) -> Result<Self> {
        let path = source.path(&[]);
        let OpenFile { bytes, .. } = source.open(&[])?;
        let reader = BufReader::with_capacity(READ_UNIT, DocumentBytes { bytes: &*bytes, at: 0 });
        let mut document = Self::default();
        let mut json = serde_json::Deserializer::from_reader(reader);
        let read = json.deserialize_map(&mut document).and_then(|()| json.end());
        read.map_err(|error| match error.is_io() {
            true => Error::io("read", &path, error.into()),
            false => Error::dataset(&path, format!("cannot be read as COCO annotations: {error}")),
        })?;
        document.ids = HashSet::new();
        Ok(document)
    }

    fn add(&mut self, of: CocoAnnotation) -> Result<(), String> {
        let (id, image) = (of.id, of.image_id);
        if !self.ids.insert(id) {
            return Err(format!("has the id {id}, which another annotation has, too"));
        }
        self.refused.extend(of.segmentation.map(|_| "segmentation"));
        self.refused.extend(of.keypoints.map(|_| "keypoints"));
        let has_caption = of.caption.is_some();
        self.captions.extend(of.caption.map(|text| CocoCaption { id, image, text: text.into() }));
        let Some(bbox @ [left, top, width, height]) = of.bbox else {
            return if has_caption { Ok(()) } else { Err("has neither bbox nor caption".to_owned()) };
        };
        let category = of.category_id.ok_or("has a bbox, but no category_id")?;
        if width < 0.0 || height < 0.0 {
            return Err(format!("has the bbox {bbox:?}, whose width or height is negative"));
        }
        let corners = [left, top, left + width, top + height].map(|number| number as f32);
        let area = of.area.map(|area| area as f32);
        if !corners.iter().chain(&area).all(|number| number.is_finite()) {
            return Err("has a bbox or an area that exceeds the range of float32".to_owned());
        }
        let iscrowd = of.iscrowd.unwrap_or(0);
        self.objects.push(CocoObject { id, image, category, corners, area, iscrowd, row: 0, label: 0 });
        Ok(())
    }
}

impl<'de> Visitor<'de> for &mut CocoDocument {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with a list of images")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "images" => map.next_value_seed(Entries::new("images", |image| {
                    self.images.push(image);
                    Ok(())
                }))?,
                "categories" => map.next_value_seed(Entries::new("categories", |category| {
                    self.categories.push(category);
                    Ok(())
                }))?,
                "annotations" => map.next_value_seed(Entries::new("annotations", |of| self.add(of)))?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
            if let Some(twice) = known.replace(key) {
                return Err(A::Error::custom(format!("it has {twice:?} twice")));
            }
        }
        match known.contains("images") {
            true => Ok(()),
            false => Err(A::Error::custom("it has no list `images`")),
        }
    }
}

/// A list, whose entries are passed to `add` one by one.
struct Entries<T, F> {
    list: &'static str,
    add: F,
    of: PhantomData<T>,
}

impl<T, F: FnMut(T) -> Result<(), String>> Entries<T, F> {
    fn new(list: &'static str, add: F) -> Self {
        Self { list, add, of: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de> for Entries<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Entries<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "a list `{}`", self.list)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        for number in 0usize.. {
            let at = |why: &dyn Display| A::Error::custom(format!("{}[{number}]: {why}", self.list));
            match entries.next_element::<T>() {
                Ok(None) => break,
                Ok(Some(entry)) => (self.add)(entry).map_err(|why| at(&why))?,
                Err(error) => return Err(at(&error)),
            }
        }
        Ok(())
    }
}

/// The bytes of a document from its beginning to its end.
struct DocumentBytes<'a> {
    bytes: &'a (dyn ReadAt + Send + Sync),
    at: u64,
}

impl Read for DocumentBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.bytes.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    fn parsed(text: &str) -> Result<CocoDocument> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.json");
        std::fs::write(&path, text).unwrap();
        CocoDocument::read(&*source::at(&path)?)
    }

    #[test]
    fn a_document_may_have_its_lists_in_any_order_and_other_parts() {
        let document = parsed(
            r#"{"info": {"a": [1, {"b": 2}]}, "annotations": [
                {"id": 5, "image_id": 7, "category_id": 3, "bbox": [1, 2.5, 0, 4], "segmentation": [[1, 2]], "area": 0},
                {"id": 6, "image_id": 8, "caption": "a \u00fc"}],
                "categories": [{"id": 3, "name": "dog", "supercategory": "animal"}],
                "images": [{"id": 7, "file_name": "a.jpg", "width": null, "license": 2}]}"#,
        );
        let document = document.unwrap();
        let [CocoObject { image: 7, category: 3, corners, area: Some(0.0), iscrowd: 0, .. }] =
            document.objects[..]
        else {
            panic!("one object")
        };
        assert_eq!(corners, [1.0, 2.5, 1.0, 6.5]);
        assert_eq!(
            (&*document.captions[0].text, document.images.len(), document.categories.len()),
            ("a ü", 1, 1)
        );
        assert_eq!(document.refused, BTreeSet::from(["segmentation"]));
    }

    #[test]
    fn a_damaged_document_is_an_error_that_names_the_entry() {
        let annotation =
            |of: &str| format!(r#"{{"images": [], "annotations": [{{"id": 1, "image_id": 2, {of}}}]}}"#);
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("[]", "expected an object with a list of images"),
            ("{}", "it has no list `images`"),
            (r#"{"images": [], "images": []}"#, r#"it has "images" twice"#),
            (r#"{"images": []} x"#, "trailing characters"),
            (
                r#"{"images": [{"id": 1, "file_name": "a"}, {"id": 2}]}"#,
                "images[1]: missing field `file_name`",
            ),
            (r#"{"images": [{"id": "1"}]}"#, "images[0]: invalid type: string \"1\", expected i64"),
            (r#"{"images": {}}"#, "expected a list `images`"),
            (r#"{"images": [], "annotations": [{"id": 1, "#, "annotations[0]: EOF while parsing"),
            (&annotation(r#""bbox": [1, 2, 3]"#), "annotations[0]: invalid length 3"),
            (&annotation(r#""bbox": [1, 2, 3, 4]"#), "annotations[0]: has a bbox, but no category_id"),
            (&annotation(r#""bbox": [1, 2, -3, 4], "category_id": 1"#), "whose width or height is negative"),
            (&annotation(r#""bbox": [1, 2, 3e39, 4], "category_id": 1"#), "exceeds the range of float32"),
            (&annotation(r#""bbox": [1, 2, NaN, 4], "category_id": 1"#), "annotations[0]: expected value"),
            (&annotation(r#""iscrowd": 0"#), "annotations[0]: has neither bbox nor caption"),
        ] {
            let error = parsed(text).err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains("x.json"), "{text}: {error}");
        }
        let twice = r#"{"id": 4, "image_id": 1, "caption": "a"}"#;
        let error = parsed(&format!(r#"{{"images": [], "annotations": [{twice}, {twice}]}}"#)).err().unwrap();
        assert!(error.to_string().contains("annotations[1]: has the id 4"), "{error}");
    }
}
