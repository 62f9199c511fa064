//! The descriptions of columns that Hugging Face's `datasets` writes into the schema of a table, under the key
//! `huggingface`.

use serde_json::Value;

pub(super) const KEY: &[u8] = b"huggingface";

/// The features of `datasets` 5.2 that are neither Image, ClassLabel nor Value.
const OTHERS: [&str; 16] = [
    "Array2D",
    "Array3D",
    "Array4D",
    "Array5D",
    "Audio",
    "Json",
    "LargeList",
    "List",
    "Mesh",
    "Nifti",
    "Pdf",
    "Sequence",
    "TimeSeries",
    "Translation",
    "TranslationVariableLanguages",
    "Video",
];

/// The features of a dataset: `{"info": {"features": {NAME: {"_type": ...}}}}`.
pub(super) struct DeclaredFeatures(Value);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// Encoded images: bytes, or a struct of bytes and a path.
    Image,
    /// Integers that are class numbers. The item is the list of class names.
    Classes(Vec<String>),
    /// Plain values with the type of the schema.
    Value,
    /// Another feature, such as audio.
    Other,
}

impl DeclaredFeatures {
    pub(super) fn read(document: Option<&[u8]>) -> Self {
        let document = document.and_then(|document| serde_json::from_slice::<Value>(document).ok());
        let features = document.and_then(|mut document| Some(document.pointer_mut("/info/features")?.take()));
        Self(features.unwrap_or_default())
    }

    pub(super) fn of(&self, path: &[String]) -> Option<Feature> {
        let feature = path.iter().try_fold(&self.0, |at, name| at.get(name))?;
        let names = || {
            let names = feature.get("names")?.as_array()?;
            names.iter().map(|name| Some(name.as_str()?.to_owned())).collect::<Option<Vec<_>>>()
        };
        Some(match feature.get("_type")?.as_str()? {
            "Image" => Feature::Image,
            "ClassLabel" => names().map_or(Feature::Value, Feature::Classes),
            "Value" => Feature::Value,
            name if OTHERS.contains(&name) => Feature::Other,
            // Ignore a type that no version of `datasets` has.
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_path() {
        let document = br#"{"info": {"features": {"image": {"_type": "Image"}, "at": {"class":
            {"names": ["cat", "dog"], "_type": "ClassLabel"}, "sound": {"_type": "Audio"}}}}}"#;
        let features = DeclaredFeatures::read(Some(document));
        let of = |path: &[&str]| features.of(&path.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["image"]), Some(Feature::Image));
        assert_eq!(of(&["at", "class"]), Some(Feature::Classes(vec!["cat".to_owned(), "dog".to_owned()])));
        assert_eq!(of(&["at", "sound"]), Some(Feature::Other));
        let odd = DeclaredFeatures::read(Some(br#"{"info": {"features": {"a": {"_type": "Imige"}}}}"#));
        assert_eq!(odd.of(&["a".to_owned()]), None);
        assert_eq!((of(&["at"]), of(&["label"]), of(&["image", "bytes"])), (None, None, None));
        assert_eq!(DeclaredFeatures::read(Some(b"{")).of(&["image".to_owned()]), None);
        assert_eq!(DeclaredFeatures::read(None).of(&["image".to_owned()]), None);
    }
}
