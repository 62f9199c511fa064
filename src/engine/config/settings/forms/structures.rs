//! Kinds of values for settings that are structures: fields, transforms, mixing and labels.

use super::{Description, ValueKind, is};
use crate::config::{ArrayOptions, FieldOptions, Fields, Labels, UserValue, label_numbers};
use base::error::Error;
use base::json;
use base::names::NamedValue;
use data::dataset::FieldKind;
use pixels::augment::{ImageTransforms, Mixing};
use serde_json::Value;

/// Returns the value as JSON: dicts, lists, strings and numbers; `None` if it contains anything else.
pub(crate) fn document(given: &UserValue) -> Option<Value> {
    Some(match given {
        UserValue::Nothing => Value::Null,
        UserValue::Truth(truth) => Value::from(*truth),
        UserValue::Whole(number) => Value::from(i64::try_from(*number).ok()?),
        // JSON has no NaN and no infinity.
        UserValue::Number(number) if !number.is_finite() => Value::from(number.to_string()),
        UserValue::Number(number) => Value::from(*number),
        UserValue::Text(text) => Value::from(text.as_str()),
        UserValue::List(_) | UserValue::Wholes(_) | UserValue::Numbers(_) => {
            Value::Array(given.items()?.map(|item| document(&item)).collect::<Option<_>>()?)
        }
        UserValue::Map(map) => {
            let entry = |(key, item): &(UserValue, UserValue)| match key {
                UserValue::Text(key) => Some((key.clone(), document(item)?)),
                _ => None,
            };
            Value::Object(map.iter().map(entry).collect::<Option<_>>()?)
        }
        UserValue::Path(_) | UserValue::Other(_) => return None,
    })
}

/// The fields of a batch: sources, or objects with options, such as `{"kind": "mask", "source": ...}` or `{"Mask":
/// {...}}`.
pub(in crate::config::settings) struct FieldList;

impl FieldList {
    fn field(given: &UserValue) -> Result<FieldOptions, String> {
        match given {
            UserValue::Text(source) if !source.is_empty() => Ok(FieldOptions::named(source)),
            UserValue::Map(map) => {
                let document = document(given).ok_or_else(|| format!("has {given}"))?;
                let document = match (&map[..], document) {
                    ([(UserValue::Text(class), _)], Value::Object(mut document))
                        if class.starts_with(char::is_uppercase) =>
                    {
                        let parameters = document.remove(class).unwrap_or_default();
                        of_class(class, parameters).map_err(|error| format!("has {given}: {error}"))?
                    }
                    (_, document) => document,
                };
                let document = with_array_options(with_source_and_name(document));
                serde_json::from_value(document).map_err(|error| format!("has {given}: {error}"))
            }
            _ => Err(format!("has {given}")),
        }
    }
}

/// Gives a field that has only a source this name, and a field that has only a name this source.
fn with_source_and_name(mut document: Value) -> Value {
    if let Value::Object(options) = &mut document {
        for (missing, given) in [("source", "name"), ("name", "source")] {
            if options.get(missing).is_none_or(Value::is_null)
                && let Some(given) = options.get(given).cloned()
            {
                options.insert(missing.to_owned(), given);
            }
        }
    }
    document
}

/// Moves the options of an array to an object of their own, because options of other kinds can have the same names.
fn with_array_options(mut document: Value) -> Value {
    if let Value::Object(options) = &mut document
        && options.get("kind").is_some_and(|kind| *kind == FieldKind::Array.name())
    {
        let given = ArrayOptions::NAMES.iter().filter_map(|name| options.remove_entry(*name));
        let given = given.filter(|(_, value)| !value.is_null()).collect();
        options.insert("array".to_owned(), Value::Object(given));
    }
    document
}

/// Converts a field that is written as its class with parameters, `{"Mask": {"source": "seg.png"}}`, to a dict with its
/// kind.
fn of_class(class: &str, parameters: Value) -> Result<Value, String> {
    let mut kinds = FieldKind::NAMES.iter();
    let Some((name, kind)) = kinds.find(|(name, _)| class_name(name) == class) else {
        let classes: Vec<String> = FieldKind::NAMES.iter().map(|(kind, _)| class_name(kind)).collect();
        return Err(format!("{class:?} is not one of {}", classes.join(", ")));
    };
    let Value::Object(mut document) = parameters else {
        return Err(format!("{class} needs parameters, {{\"source\": ...}}"));
    };
    let more = FieldOptions::parameters(*kind).iter().copied();
    let known: Vec<&str> = ["source", "name", "optional"].into_iter().chain(more).collect();
    if let Some(other) = document.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("{class} has no parameter {other:?}, only {}", known.join(", ")));
    }
    document.insert("kind".into(), (*name).into());
    Ok(Value::Object(document))
}

fn class_name(kind: &str) -> String {
    let (first, rest) = kind.split_at(1);
    first.to_uppercase() + rest
}

/// Converts JSON to the value that Python would pass.
fn given(document: Value) -> UserValue {
    match document {
        Value::Null => UserValue::Nothing,
        Value::Bool(truth) => UserValue::Truth(truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => UserValue::Whole(whole.into()),
            None => UserValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => UserValue::Text(text),
        Value::Array(items) => UserValue::List(items.into_iter().map(given).collect()),
        Value::Object(entries) => UserValue::Map(
            entries.into_iter().map(|(key, value)| (UserValue::Text(key), given(value))).collect(),
        ),
    }
}

impl ValueKind<Vec<FieldOptions>> for FieldList {
    fn read(&self, given: &UserValue) -> Result<Vec<FieldOptions>, String> {
        match given {
            UserValue::Text(_) | UserValue::Map(_) => Ok(vec![Self::field(given)?]),
            _ => match given.items() {
                Some(items) => items.map(|item| Self::field(&item)).collect(),
                None => is(given),
            },
        }
    }

    fn show(&self, fields: &Vec<FieldOptions>) -> UserValue {
        UserValue::List(fields.iter().map(|field| UserValue::Text(field.source.clone())).collect())
    }

    fn check(&self, fields: &Vec<FieldOptions>) -> Result<(), String> {
        Fields::check_list(fields)
    }

    fn describe(&self) -> Description {
        Description::new(
            "field names or objects of foreload.fields, without duplicates",
            "Sequence[str | Field]",
            "NAME,...|JSON",
        )
    }

    fn parse_word(&self, word: &str) -> UserValue {
        // A bracket begins JSON. Write JSON also for a member whose name begins with a bracket.
        if word.trim_start().starts_with('[') {
            return match json::settings(word) {
                Ok(document) => given(document),
                Err(wrong) => UserValue::Other(wrong),
            };
        }
        UserValue::List(word.split(',').map(|name| UserValue::Text(name.trim().to_owned())).collect())
    }
}

/// The transforms of images, as JSON: a list of transforms, views of one image, or a dict with one of these for each
/// image field.
pub(in crate::config::settings) struct TransformList;

impl ValueKind<ImageTransforms> for TransformList {
    fn read(&self, given: &UserValue) -> Result<ImageTransforms, String> {
        let UserValue::Text(text) = given else { return is(given) };
        ImageTransforms::from_json(text).map_err(|error| match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    fn show(&self, _: &ImageTransforms) -> UserValue {
        UserValue::Other("a list of transforms".into())
    }

    /// Checks nothing: the list is checked when it is compiled, where the error can name the transform.
    fn check(&self, _: &ImageTransforms) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> Description {
        Description {
            text_by: Some(("foreload.transforms", "to_json")),
            ..Description::new(
                "a list of foreload.transforms, or Views, or a dict with one of these for each image field",
                "Transforms | Mapping[str, Transforms]",
                "JSON",
            )
        }
    }
}

pub(in crate::config::settings) struct MixList;

impl ValueKind<Mixing> for MixList {
    fn read(&self, given: &UserValue) -> Result<Mixing, String> {
        let UserValue::Text(text) = given else { return is(given) };
        Mixing::from_json(text).map_err(|error| match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    fn show(&self, mixing: &Mixing) -> UserValue {
        UserValue::Text(mixing.text().to_owned())
    }

    fn describe(&self) -> Description {
        Description {
            text_by: Some(("foreload.transforms", "mix_to_json")),
            ..Description::new(
                "a list with one of foreload.transforms.MixUp, CutMix, or a RandomChoice of these",
                "Mixing | Sequence[Mixing]",
                "JSON",
            )
        }
    }
}

pub(in crate::config::settings) struct LabelSource;

impl ValueKind<Labels> for LabelSource {
    fn read(&self, given: &UserValue) -> Result<Labels, String> {
        if let Some(path) = given.path() {
            return if UserValue::is_usable_path(path) { Ok(Labels::File(path.into())) } else { is(given) };
        }
        // A flat list of numbers is checked later, when the type of its column is known.
        if !matches!(given, UserValue::Wholes(_) | UserValue::Numbers(_)) {
            label_numbers(given)?;
        }
        Ok(Labels::Values(given.clone()))
    }

    fn show(&self, labels: &Labels) -> UserValue {
        match labels {
            Labels::File(path) => UserValue::Path(path.clone()),
            Labels::Values(_) => UserValue::Other("an array".into()),
        }
    }

    fn check(&self, _: &Labels) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> Description {
        Description::new(
            "the path or URL of a table, or for each sample a number or truth value, or for each sample a list of \
            these, all of one length",
            "str | os.PathLike[str] | Sequence[float] | Sequence[Sequence[float]] | Array",
            "FILE",
        )
        .of_iterables()
    }
}
