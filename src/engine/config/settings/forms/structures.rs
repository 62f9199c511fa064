//! Forms of settings that are structures: fields, transforms, mixing and labels.

use super::{Form, is};
use crate::config::{FieldOptions, Fields, Given, Labels, label_numbers};
use base::error::Error;
use base::json;
use base::names::NamedValue;
use data::dataset::FieldKind;
use pixels::augment::{ImageTransforms, Mixing};
use serde_json::Value;

/// Returns the value as a document of dicts, lists, texts and numbers; `None` for anything else.
pub(crate) fn document(given: &Given) -> Option<Value> {
    Some(match given {
        Given::Nothing => Value::Null,
        Given::Truth(truth) => Value::from(*truth),
        Given::Whole(number) => Value::from(i64::try_from(*number).ok()?),
        Given::Number(number) => Value::from(*number),
        Given::Text(text) => Value::from(text.as_str()),
        Given::List(_) | Given::Wholes(_) | Given::Numbers(_) => {
            Value::Array(given.items()?.map(|item| document(&item)).collect::<Option<_>>()?)
        }
        Given::Map(map) => {
            let entry = |(key, item): &(Given, Given)| match key {
                Given::Text(key) => Some((key.clone(), document(item)?)),
                _ => None,
            };
            Value::Object(map.iter().map(entry).collect::<Option<_>>()?)
        }
        Given::Path(_) | Given::Other(_) => return None,
    })
}

/// The fields of a batch: names, or objects with options, such as `{"kind": "mask", "name": ...}` or `{"Mask": {...}}`.
pub(in crate::config::settings) struct FieldList;

impl FieldList {
    fn field(given: &Given) -> Result<FieldOptions, String> {
        match given {
            Given::Text(name) if !name.is_empty() => Ok(FieldOptions::named(name)),
            Given::Map(map) => {
                let document = document(given).ok_or_else(|| format!("has {given}"))?;
                let document = match (&map[..], document) {
                    ([(Given::Text(class), _)], Value::Object(mut document))
                        if class.starts_with(char::is_uppercase) =>
                    {
                        let parameters = document.remove(class).unwrap_or_default();
                        of_class(class, parameters).map_err(|error| format!("has {given}: {error}"))?
                    }
                    (_, document) => document,
                };
                serde_json::from_value(document).map_err(|error| format!("has {given}: {error}"))
            }
            _ => Err(format!("has {given}")),
        }
    }
}

/// Returns the document of a field that is written as its class with parameters: `{"Mask": {"name": "seg.png"}}`.
fn of_class(class: &str, parameters: Value) -> Result<Value, String> {
    let mut kinds = FieldKind::NAMES.iter();
    let Some((name, kind)) = kinds.find(|(name, _)| class_name(name) == class) else {
        let classes: Vec<String> = FieldKind::NAMES.iter().map(|(kind, _)| class_name(kind)).collect();
        return Err(format!("{class:?} is not one of {}", classes.join(", ")));
    };
    let Value::Object(mut document) = parameters else {
        return Err(format!("{class} needs parameters, {{\"name\": ...}}"));
    };
    let more = FieldOptions::parameters(*kind).iter().copied();
    let known: Vec<&str> = ["name", "optional"].into_iter().chain(more).collect();
    if let Some(other) = document.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("{class} has no parameter {other:?}, only {}", known.join(", ")));
    }
    document.insert("kind".into(), (*name).into());
    Ok(Value::Object(document))
}

/// Returns the class of `foreload.fields` for a kind of field.
fn class_name(kind: &str) -> String {
    let (first, rest) = kind.split_at(1);
    first.to_uppercase() + rest
}

/// Returns a document's value as Python would give it.
fn given(document: Value) -> Given {
    match document {
        Value::Null => Given::Nothing,
        Value::Bool(truth) => Given::Truth(truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Given::Whole(whole.into()),
            None => Given::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Given::Text(text),
        Value::Array(items) => Given::List(items.into_iter().map(given).collect()),
        Value::Object(entries) => {
            Given::Map(entries.into_iter().map(|(key, value)| (Given::Text(key), given(value))).collect())
        }
    }
}

impl Form<Vec<FieldOptions>> for FieldList {
    fn read(&self, given: &Given) -> Result<Vec<FieldOptions>, String> {
        match given {
            Given::Text(_) | Given::Map(_) => Ok(vec![Self::field(given)?]),
            _ => match given.items() {
                Some(items) => items.map(|item| Self::field(&item)).collect(),
                None => is(given),
            },
        }
    }

    fn show(&self, fields: &Vec<FieldOptions>) -> Given {
        Given::List(fields.iter().map(|field| Given::Text(field.name.clone())).collect())
    }

    fn shows_all(&self) -> bool {
        false
    }

    fn check(&self, fields: &Vec<FieldOptions>) -> Result<(), String> {
        Fields::check_list(fields)
    }

    fn may_be(&self) -> String {
        "field names or objects of foreload.fields, without duplicates".into()
    }

    fn annotation(&self) -> String {
        "Sequence[str | Field]".into()
    }

    fn placeholder(&self) -> String {
        "NAME,...|JSON".into()
    }

    fn given_by(&self, word: &str) -> Given {
        // A member name that begins like this can be written as JSON.
        if word.trim_start().starts_with('[') {
            return match json::settings(word) {
                Ok(document) => given(document),
                Err(wrong) => Given::Other(wrong),
            };
        }
        Given::List(word.split(',').map(|name| Given::Text(name.trim().to_owned())).collect())
    }
}

/// The transforms of images, as JSON: a list of transforms, views of one image, or either of these for each image field
/// by name.
pub(in crate::config::settings) struct TransformList;

impl Form<ImageTransforms> for TransformList {
    fn read(&self, given: &Given) -> Result<ImageTransforms, String> {
        let Given::Text(text) = given else { return is(given) };
        ImageTransforms::from_json(text).map_err(|error| match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    fn show(&self, _: &ImageTransforms) -> Given {
        Given::Other("a list of transforms".into())
    }

    fn shows_all(&self) -> bool {
        false
    }

    /// The list is checked when it is compiled, where the error can name the transform.
    fn check(&self, _: &ImageTransforms) -> Result<(), String> {
        Ok(())
    }

    fn may_be(&self) -> String {
        "a list of foreload.transforms, or Views, or a dict with one of these for each image field".into()
    }

    fn annotation(&self) -> String {
        "Transforms | Mapping[str, Transforms]".into()
    }

    fn placeholder(&self) -> String {
        "JSON".into()
    }

    fn text_by(&self) -> Option<(&'static str, &'static str)> {
        Some(("foreload.transforms", "to_json"))
    }
}

/// The mixing of images: a list of one transform, as JSON.
pub(in crate::config::settings) struct MixList;

impl Form<Mixing> for MixList {
    fn read(&self, given: &Given) -> Result<Mixing, String> {
        let Given::Text(text) = given else { return is(given) };
        Mixing::from_json(text).map_err(|error| match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    fn show(&self, mixing: &Mixing) -> Given {
        Given::Text(mixing.text().to_owned())
    }

    fn may_be(&self) -> String {
        "a list with one of foreload.transforms.MixUp, CutMix, or a RandomChoice of these".into()
    }

    fn annotation(&self) -> String {
        "Mixing | Sequence[Mixing]".into()
    }

    fn placeholder(&self) -> String {
        "JSON".into()
    }

    fn text_by(&self) -> Option<(&'static str, &'static str)> {
        Some(("foreload.transforms", "mix_to_json"))
    }
}

/// The user's own labels: a file's path, or numbers for each sample.
pub(in crate::config::settings) struct LabelSource;

impl Form<Labels> for LabelSource {
    fn read(&self, given: &Given) -> Result<Labels, String> {
        if let Some(path) = given.path() {
            return if Given::is_usable_path(path) { Ok(Labels::File(path.into())) } else { is(given) };
        }
        // A flat list of numbers can be checked only when its type is known.
        if !matches!(given, Given::Wholes(_) | Given::Numbers(_)) {
            label_numbers(given)?;
        }
        Ok(Labels::Values(given.clone()))
    }

    fn show(&self, labels: &Labels) -> Given {
        match labels {
            Labels::File(path) => Given::Path(path.clone()),
            Labels::Values(_) => Given::Other("an array".into()),
        }
    }

    fn shows_all(&self) -> bool {
        false
    }

    fn check(&self, _: &Labels) -> Result<(), String> {
        Ok(())
    }

    fn may_be(&self) -> String {
        "the path or URL of a table, or for each sample a number or truth value, or for each sample a list of these, \
         all of one length"
            .into()
    }

    fn annotation(&self) -> String {
        "str | os.PathLike[str] | Sequence[float] | Sequence[Sequence[float]] | Array".into()
    }

    fn takes_iterables(&self) -> bool {
        true
    }

    fn placeholder(&self) -> String {
        "FILE".into()
    }
}
