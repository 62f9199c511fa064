//! The table of transforms, to which [`transform!`] adds rows. It makes Python's classes, their stub, and JSON's
//! defaults.
//!
//! A transform is written once: as a Rust type with its parameters, their defaults and the comments that users read.
//! `foreload.transforms` makes a class from each row, and `make stub` writes the classes to a stub for type checkers.

use super::Transform;
use crate::augment::{DType, Filter, Padding};
use base::names::NamedValue;
use base::text::wrapped;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// A transform as Python shows it: the name, base class, docstring and parameters of a class.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TransformRow {
    /// The name of the Python class, which is torchvision's.
    name: &'static str,
    base: &'static str,
    doc: String,
    parameters: Vec<TransformParameter>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct TransformParameter {
    name: &'static str,
    /// The default; `None` if the parameter must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    #[serde(flatten)]
    kind: ParameterKind,
    #[serde(skip)]
    lines: &'static [&'static str],
}

/// The values that a parameter takes, and how Python checks them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ParameterKind {
    annotation: String,
    /// The function of `python/foreload/transforms/_checks.py` that checks a value and converts it to its usual form.
    check: &'static str,
    /// The argument of that check function: what the parameter must be, as its error message states it.
    must: Option<String>,
    /// Whether the parameter can be None.
    optional: bool,
}

impl ParameterKind {
    pub(crate) fn new(annotation: &str, check: &'static str) -> Self {
        Self { annotation: annotation.into(), check, must: None, optional: false }
    }

    pub(crate) fn names<T: NamedValue>(annotation: &str) -> Self {
        let names: Vec<_> = T::NAMES.iter().map(|(name, _)| *name).collect();
        Self::new(annotation, "one_of").must(&names.join(", "))
    }

    /// Sets the text that an error uses for what the parameter must be; for named values, the list of allowed names.
    pub(crate) fn must(mut self, words: &str) -> Self {
        self.must = Some(words.into());
        self
    }

    /// Replaces the Python function that checks the value. This function also decides whether None is allowed.
    pub(crate) fn checked_by(mut self, function: &'static str) -> Self {
        (self.check, self.optional) = (function, false);
        self
    }

    pub(crate) fn typed(mut self, annotation: &str) -> Self {
        self.annotation = annotation.into();
        self
    }
}

pub(crate) trait ParameterType {
    fn kind() -> ParameterKind;
}

macro_rules! parameter_types {
    ($($type:ty: $kind:expr;)+) => {$(
        impl $crate::augment::recipe::table::ParameterType for $type {
            fn kind() -> $crate::augment::recipe::table::ParameterKind {
                $kind
            }
        }
    )+};
}

pub(crate) use parameter_types;

parameter_types! {
    f64: ParameterKind::new("float", "number");
    u32: ParameterKind::new("int", "whole");
    i32: ParameterKind::new("int", "integer");
    bool: ParameterKind::new("bool", "truth");
    [u32; 2]: ParameterKind::new("Sequence[int]", "rectangle");
    (f64, f64): ParameterKind::new("Sequence[float]", "two_numbers");
    [f64; 2]: ParameterKind::new("Sequence[float]", "two_numbers");
    [f32; 3]: ParameterKind::new("Sequence[float]", "three_numbers");
    Vec<f64>: ParameterKind::new("Sequence[float]", "list_of_numbers");
    Vec<Transform>: ParameterKind::new("Sequence[Transform]", "anything");
    DType: ParameterKind::new("Any", "dtype");
    Filter: ParameterKind::names::<Filter>("Any");
    Padding: ParameterKind::names::<Padding>("str");
}

impl<T: ParameterType> ParameterType for Option<T> {
    fn kind() -> ParameterKind {
        let kind = T::kind();
        ParameterKind { annotation: format!("{} | None", kind.annotation), optional: true, ..kind }
    }
}

/// A type that [`transform!`] defines.
pub(crate) trait TableTransform {
    /// The lines of the type's doc comment, which become the Python docstring.
    const LINES: &'static [&'static str];

    /// The class of `python/foreload/transforms/_base.py` from which the Python class is derived.
    const BASE: &'static str;

    fn parameters() -> Vec<TransformParameter>;
}

/// Defines a transform: a type with its parameters, `name: type = default, clause("...");`, its row of the table, and
/// its JSON, in which omitted parameters get their defaults. A default is written as JSON, and the Python class has the
/// same default. The comments become the Python docstring. A name in parentheses is the base of the Python class, if
/// the base is not `Transform`.
macro_rules! transform {
    (
        $(#[doc = $line:literal])+
        $(#[derive($also:ident)])?
        $seen:vis $name:ident $(($base:ident))? {$(
            $(#[doc = $about:literal])+
            $visible:vis $field:ident: $type:ty $(= $default:expr)? $(, $clause:ident($words:literal))*;
        )*}
    ) => {
        $(#[doc = $line])+
        #[derive(Debug, Clone, PartialEq, serde::Deserialize $(, serde::$also)?)]
        #[serde(deny_unknown_fields, remote = "Self")]
        $seen struct $name {
            $($(#[doc = $about])+ $visible $field: $type,)*
        }

        impl $crate::augment::recipe::table::TableTransform for $name {
            const LINES: &'static [&'static str] = &[$($line),+];
            const BASE: &'static str = [$(stringify!($base),)? "Transform"][0];

            fn parameters() -> Vec<$crate::augment::recipe::table::TransformParameter> {
                vec![$($crate::augment::recipe::table::TransformParameter::new(
                    stringify!($field),
                    &[$($about),+],
                    &[$(stringify!($default))?],
                    <$type as $crate::augment::recipe::table::ParameterType>::kind()$(.$clause($words))*,
                )),*]
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let given = $crate::augment::recipe::table::with_defaults::<Self, D>(deserializer)?;
                Self::deserialize(given).map_err(serde::de::Error::custom)
            }
        }

        $(impl serde::$also for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        })?
    };
}

pub(crate) use transform;

/// Returns a transform's parameters as JSON: the given parameters, and the defaults of the others.
pub(crate) fn with_defaults<'de, T: TableTransform, D: Deserializer<'de>>(
    given: D,
) -> Result<Value, D::Error> {
    let mut given = Value::deserialize(given)?;
    if let Value::Object(given) = &mut given {
        for TransformParameter { name, default, .. } in T::parameters() {
            if let (Some(default), false) = (default, given.contains_key(name)) {
                given.insert(name.into(), default);
            }
        }
    }
    Ok(given)
}

impl TransformParameter {
    pub(crate) fn new(
        name: &'static str,
        lines: &'static [&'static str],
        default: &[&str],
        kind: ParameterKind,
    ) -> Self {
        let default = default.first().map(|text| serde_json::from_str(text).expect("a default is JSON"));
        Self { name, default, kind, lines }
    }
}

/// The maximum width of a docstring's line, before the stub indents the line.
const WIDTH: usize = 116;

impl TransformRow {
    pub(crate) fn of<T: TableTransform>(name: &'static str) -> Self {
        let parameters = T::parameters();
        let mut lines: Vec<String> = Vec::new();
        for paragraph in T::LINES.split(|line| line.is_empty()) {
            lines.extend(wrapped(&paragraph.concat(), "", "", WIDTH));
            lines.push(String::new());
        }
        if !parameters.is_empty() {
            lines.push("Args:".into());
            for TransformParameter { name, lines: about, .. } in &parameters {
                lines.extend(wrapped(&format!("{name}:{}", about.concat()), "    ", "        ", WIDTH));
            }
        }
        Self { name, base: T::BASE, doc: lines.join("\n").trim_end().to_owned(), parameters }
    }

    /// Formats the class for the stub file, which type checkers and editors read.
    fn stub(&self) -> String {
        let by_name = if self.base == "Mix" { ", kw_only=True" } else { "" };
        let mut stub = format!("@dataclass(frozen=True{by_name})\nclass {}({}):\n", self.name, self.base);
        let doc = format!("\"\"\"{}", self.doc);
        for line in doc.lines() {
            stub += &if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        }
        // The closing quotes of a one-line docstring follow its text on the same line.
        stub =
            if doc.contains('\n') { stub + "    \"\"\"\n" } else { stub.trim_end().to_owned() + "\"\"\"\n" };
        for TransformParameter { name, default, kind, .. } in &self.parameters {
            let default = default.as_ref().map(|default| format!(" = {}", in_python(default)));
            stub += &format!("\n    {name}: {}{}", kind.annotation, default.unwrap_or_default());
        }
        stub.trim_end().to_owned() + "\n"
    }
}

/// Formats a JSON value as Python, a list as a tuple.
fn in_python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(items) => format!("({})", items.iter().map(in_python).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// Returns the table as JSON, from which `foreload.transforms` makes its classes.
pub fn transforms_json() -> String {
    json!(super::transform_table()).to_string()
}

/// Returns the stub `python/foreload/transforms/_made.pyi`: the classes of all rows.
pub fn transforms_stub() -> String {
    let mut stub = STUB_HEAD.to_owned();
    let rows = super::transform_table();
    let names: Vec<_> = rows.iter().map(|row| format!("    \"{}\",\n", row.name)).collect();
    stub += &format!("\n__all__ = [\n{}]\n", names.concat());
    for row in &rows {
        stub += &format!("\n{}", row.stub());
    }
    stub
}

const STUB_HEAD: &str = r#""""The transforms that `_made.py` makes of the core's table. `make stub` writes this file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreload.transforms._base import Choice, Container, Mix, TimmSpecs, Transform
"#;

#[cfg(test)]
mod tests {
    use super::super::{CROP_RATIO, CROP_SCALE, transform_table};
    use super::*;

    #[test]
    fn defaults_are_values_that_their_parameters_take() {
        for TransformRow { name, parameters, .. } in transform_table() {
            let must_be_given = parameters.iter().find(|parameter| parameter.default.is_none());
            let read = match name {
                "MixUp" | "CutMix" => {
                    crate::augment::Mixing::from_json(&format!(r#"[{{"{name}": {{}}}}]"#)).map(drop)
                }
                _ => crate::augment::Transforms::from_json(&format!(r#"[{{"{name}": {{}}}}]"#)).map(drop),
            };
            match (read, must_be_given) {
                (Ok(()), None) => {}
                // A parameter that allows None may be omitted in JSON.
                (Ok(()), Some(TransformParameter { kind, .. })) => {
                    assert!(kind.annotation.ends_with("None"), "{name}")
                }
                (Err(error), Some(TransformParameter { name: parameter, .. })) => {
                    let missing = format!("missing field `{parameter}`");
                    assert!(error.to_string().ends_with(&missing), "{name}: {error}");
                }
                (Err(error), None) => panic!("{name}: {error}"),
            }
        }
    }

    #[test]
    fn the_crop_has_the_defaults_of_the_settings() {
        let crop: super::super::RandomResizedCrop = serde_json::from_str(r#"{"size": 9}"#).unwrap();
        assert_eq!((crop.scale, crop.ratio), (CROP_SCALE, CROP_RATIO));
    }
}
