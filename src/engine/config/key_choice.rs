//! Fields whose source lists several keys, such as `jpg;png`: each sample uses the first key for which it has a member.

use super::FieldOptions;
use super::fields::LABEL;
use data::dataset::{FieldKind, IMAGE, choices};

impl FieldOptions {
    pub(super) fn check_choices(&self) -> Result<(), String> {
        let Self { source, kind, .. } = self;
        if !source.contains(';') {
            return Ok(());
        }
        if choices(source).any(str::is_empty) {
            return Err(format!("has {source:?} with an empty key between semicolons"));
        }
        if choices(source).any(|key| [IMAGE, LABEL].contains(&key)) {
            return Err(format!(
                "has {source:?}, but {IMAGE:?} and {LABEL:?} are not member keys: use keys such as \"jpg;png\""
            ));
        }
        let of_first = self.kind();
        match choices(source).find(|key| kind_of_key(key) != of_first) {
            Some(other) if kind.is_none() => Err(format!(
                "has {source:?}, but {other:?} implies another kind than the first key: choose a kind with \
                 foreload.fields, such as fields.Bytes({source:?})"
            )),
            _ => Ok(()),
        }
    }
}

pub(super) fn kind_of_key(key: &str) -> FieldKind {
    match key {
        IMAGE => FieldKind::Image,
        // In the samples of a stream, these two members identify the sample.
        "__key__" | "__stream__" => FieldKind::Text,
        key => FieldKind::of_key(key),
    }
}
