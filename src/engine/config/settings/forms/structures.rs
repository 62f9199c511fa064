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
                let document = document(given).ok_or_else(|| wrong_value(map, given))?;
                let document = match (&map[..], document) {
                    ([(UserValue::Text(class), _)], Value::Object(mut document))
                        if class.starts_with(char::is_uppercase) =>
                    {
                        let parameters = document.remove(class).unwrap_or_default();
                        of_class(class, parameters).map_err(|error| format!("has {given}: {error}"))?
                    }
                    (_, document) => document,
                };
                let document = with_source_and_name(document);
                serde_json::from_value(with_array_options(document.clone())).map_err(|error| {
                    wrong_option(&document).unwrap_or_else(|| format!("has {given}: {error}"))
                })
            }
            _ => {
                Err(format!("has {given}, which is neither a field's name nor an object of foreload.fields"))
            }
        }
    }
}

/// What the values of a field's options must be. Other options have errors that say this.
fn must(option: &str) -> Option<&'static str> {
    Some(match option {
        "source" | "name" | "follows" => "a text",
        "optional" | "ragged" | "cf" | "shares" => "True or False",
        "scale" | "offset" => "a finite number",
        "mean" | "std" | "missing" => "a number, or a list of numbers",
        "axis" => "a whole number",
        "shape" => "a list of whole numbers, the length of each dimension",
        "window" => "a list of whole numbers, the length of each dimension, or None for the whole dimension",
        "at" => "\"random\", \"center\", or a list of whole numbers, the first index in each dimension",
        "pad" => "a number that fits float64",
        _ => return None,
    })
}

/// The error about the option of a field that no field can have; `None` if each of them alone is possible.
fn wrong_option(field: &Value) -> Option<String> {
    let options = field.as_object()?;
    let error = |option: &str, value: &Value| {
        let mut alone = serde_json::json!({"source": "x", "name": "x", "kind": options.get("kind")});
        alone[option] = value.clone();
        serde_json::from_value::<FieldOptions>(with_array_options(alone)).err()
    };
    // A wrong kind makes all options wrong.
    options.get_key_value("kind").into_iter().chain(options).find_map(|(option, value)| {
        let why = error(option, value)?.to_string();
        let of = format!("has {}", options.get("source").unwrap_or(&Value::Null));
        if why.starts_with("unknown field") {
            return Some(format!("{of}: {why}"));
        }
        let value = given(value.clone());
        let Some(must) = must(option) else { return Some(format!("{of}, whose {option} {why}")) };
        // Serde's own words are about types of Rust.
        let is_own = ["invalid ", "mean, std and missing", "at= must", "pad= is"]
            .iter()
            .any(|own| why.starts_with(own));
        let why = if is_own { String::new() } else { format!(": {why}") };
        Some(format!("{of} with {option}={value}, must be {must}{why}"))
    })
}

/// The error about the option of a field that JSON cannot have.
fn wrong_value(options: &[(UserValue, UserValue)], field: &UserValue) -> String {
    let named = |name: &str| options.iter().find(|(key, _)| *key == UserValue::Text(name.to_owned()));
    let wrong = options.iter().find_map(|(key, value)| match key {
        UserValue::Text(key) if document(value).is_none() => Some((key, value)),
        _ => None,
    });
    let Some((option, value)) = wrong else { return format!("has {field}") };
    let of = named("source").map_or(field, |(_, source)| source);
    let must = must(option).map_or_else(String::new, |must| format!(", must be {must}"));
    format!("has {of} with {option}={value}{must}")
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
        .of_parts()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LoaderOptions;
    use crate::config::settings::Setting;

    fn refusal(fields: &str) -> String {
        let setting = Setting::named("fields").expect("a setting");
        let given = given(serde_json::from_str(fields).expect("JSON"));
        setting.set(&mut LoaderOptions::default(), &given).expect_err(fields).to_string()
    }

    #[test]
    fn errors_of_options_name_field_option_and_what_it_must_be() {
        for (options, expected) in [
            (r#""scale": "big""#, r#"scale="big", must be a finite number"#),
            (r#""axis": 1.5"#, "axis=1.5, must be a whole number"),
            (r#""shape": 3"#, "shape=3, must be a list of whole numbers, the length of each dimension"),
            (r#""mean": {}"#, "mean={}, must be a number, or a list of numbers"),
            (r#""std": "much""#, r#"std="much", must be a number, or a list of numbers"#),
            (r#""cf": "yes""#, r#"cf="yes", must be True or False"#),
            (
                r#""window": [-1]"#,
                "window=(-1,), must be a list of whole numbers, the length of each dimension, or None",
            ),
            (r#""window": [1], "at": "left""#, r#"at="left", must be "random", "center", or a list"#),
            (r#""window": [1], "pad": "x""#, r#"pad="x", must be a number that fits float64"#),
            (r#""follows": 3"#, "follows=3, must be a text"),
        ] {
            let told = refusal(&format!(r#"[{{"Array": {{"source": "/x", {options}}}}}]"#));
            assert!(told.contains(&format!(r#"fields: has "/x" with {expected}"#)), "{told}");
            assert!(!told.contains("foreload.fields") && !told.contains("expected"), "{told}");
        }
        let told = refusal(r#"[{"Array": {"source": "/x", "dtype": "floot"}}]"#);
        assert!(told.contains(r#"has "/x", whose dtype is "floot", must be one of bool, int8"#), "{told}");
        assert!(told.ends_with("bfloat16"), "{told}");
        let told = refusal(r#"[{"source": "/x", "sise": 3}]"#);
        assert!(told.contains("has \"/x\": unknown field `sise`"), "{told}");
        let told = refusal(r#"[{"source": "/x", "kind": "arrays", "axis": 1}]"#);
        assert!(told.contains("has \"/x\", whose kind "), "{told}");
        let told = refusal(r#"[{"Array": {"source": "/x", "missing": -9223372036854775806}}]"#);
        assert!(
            told.ends_with(
                "must be a number, or a list of numbers: -9223372036854775806 does not fit float64 exactly"
            ),
            "{told}"
        );
    }

    #[test]
    fn only_errors_about_the_whole_list_say_what_the_list_must_be() {
        assert!(refusal("3").ends_with(
            "is 3, must be field names or objects of foreload.fields, without duplicates, or None"
        ));
        assert!(
            refusal("[3]")
                .ends_with("has 3, which is neither a field's name nor an object of foreload.fields")
        );
        let mut options =
            LoaderOptions { fields: Some(vec![FieldOptions::named("a"); 2]), ..LoaderOptions::default() };
        let check = |options: &LoaderOptions| {
            Setting::named("fields").expect("a setting").check(options).expect_err("wrong").to_string()
        };
        assert!(check(&options).ends_with("has \"a\" twice: give each field a name of its own"));
        options.fields = Some(Vec::new());
        assert!(check(&options).contains("is empty, must be field names or objects"));
    }
}
