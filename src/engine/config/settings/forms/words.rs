//! Kinds of single values other than numbers: True and False, names, sizes in bytes, paths.

use super::{Description, ValueKind, is, parse_number};
use crate::config::device::is_device;
use crate::config::parse_bytes;
use crate::config::settings::UserValue;
use base::names::NamedValue;
use data::dataset::{SampleAxis, is_url};
use data::schedule::Shuffling;
use std::marker::PhantomData;
use std::path::PathBuf;

pub(in crate::config::settings) struct Truth;

impl ValueKind<bool> for Truth {
    fn read(&self, given: &UserValue) -> Result<bool, String> {
        match given {
            UserValue::Truth(value) => Ok(*value),
            other => is(other),
        }
    }

    fn show(&self, value: &bool) -> UserValue {
        UserValue::Truth(*value)
    }

    fn describe(&self) -> Description {
        Description::new("True or False", "bool", "true|false")
    }

    fn parse_word(&self, word: &str) -> UserValue {
        match word.to_ascii_lowercase().as_str() {
            "true" => UserValue::Truth(true),
            "false" => UserValue::Truth(false),
            _ => UserValue::Text(word.to_owned()),
        }
    }
}

pub(in crate::config::settings) struct BoolOrBlocks;

const BLOCKS: &str = "blocks";

impl ValueKind<Shuffling> for BoolOrBlocks {
    fn read(&self, given: &UserValue) -> Result<Shuffling, String> {
        match given {
            UserValue::Truth(value) => Ok((*value).into()),
            UserValue::Text(text) if text == BLOCKS => Ok(Shuffling::Blocks),
            other => is(other),
        }
    }

    fn show(&self, value: &Shuffling) -> UserValue {
        match value {
            Shuffling::Off => UserValue::Truth(false),
            Shuffling::On => UserValue::Truth(true),
            Shuffling::Blocks => UserValue::Text(BLOCKS.to_owned()),
        }
    }

    fn describe(&self) -> Description {
        Description::new(
            format!("True, False or {BLOCKS}"),
            format!("bool | Literal[\"{BLOCKS}\"]"),
            format!("true|false|{BLOCKS}"),
        )
    }

    fn parse_word(&self, word: &str) -> UserValue {
        Truth.parse_word(word)
    }
}

/// 0 for rows, or `file`.
pub(in crate::config::settings) struct RowOrFile;

impl ValueKind<SampleAxis> for RowOrFile {
    fn read(&self, given: &UserValue) -> Result<SampleAxis, String> {
        match given {
            UserValue::Whole(0) => Ok(SampleAxis::Axis0),
            UserValue::Text(name) => SampleAxis::find(name).or_else(|_| is(given)),
            other => is(other),
        }
    }

    fn show(&self, value: &SampleAxis) -> UserValue {
        match value {
            SampleAxis::Axis0 => UserValue::Whole(0),
            SampleAxis::File => UserValue::Text(value.name().to_owned()),
        }
    }

    fn describe(&self) -> Description {
        Description::new("0 or file", "Literal[0, \"file\"]", "0|file")
    }
}

/// A name, stored as such; True, stored as the empty name; False or None, stored as `None`.
pub(in crate::config::settings) struct BoolOrName;

impl ValueKind<Option<String>> for BoolOrName {
    fn read(&self, given: &UserValue) -> Result<Option<String>, String> {
        match given {
            UserValue::Nothing | UserValue::Truth(false) => Ok(None),
            UserValue::Truth(true) => Ok(Some(String::new())),
            UserValue::Text(name) if !name.is_empty() => Ok(Some(name.clone())),
            other => is(other),
        }
    }

    fn show(&self, name: &Option<String>) -> UserValue {
        match name.as_deref() {
            None => UserValue::Truth(false),
            Some("") => UserValue::Truth(true),
            Some(name) => UserValue::Text(name.to_owned()),
        }
    }

    fn describe(&self) -> Description {
        Description::new("True, False or a name", "bool | str", "true|NAME")
    }

    fn parse_word(&self, word: &str) -> UserValue {
        Truth.parse_word(word)
    }
}

pub(in crate::config::settings) struct OneOf<C>(PhantomData<C>);

impl<C: NamedValue> OneOf<C> {
    pub(in crate::config::settings) const fn names() -> Self {
        Self(PhantomData)
    }

    fn joined(&self, between: &str) -> String {
        C::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(between)
    }
}

impl<C: NamedValue> ValueKind<C> for OneOf<C> {
    fn read(&self, given: &UserValue) -> Result<C, String> {
        let UserValue::Text(name) = given else { return is(given) };
        let found = C::NAMES.iter().find(|(known, _)| known == name);
        found.map_or_else(|| is(given), |(_, value)| Ok(*value))
    }

    fn show(&self, value: &C) -> UserValue {
        UserValue::Text(value.name().to_owned())
    }

    /// Accepts every value, even one without a name. Users cannot request such a value, but another setting can cause
    /// it, as `immutable` does.
    fn check(&self, _: &C) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> Description {
        Description::new(
            format!("one of {}", self.joined(", ")),
            format!("Literal[\"{}\"]", self.joined("\", \"")),
            self.joined("|"),
        )
    }
}

pub(in crate::config::settings) struct ByteCount;

impl ValueKind<u64> for ByteCount {
    fn read(&self, given: &UserValue) -> Result<u64, String> {
        let bytes = match given {
            UserValue::Whole(number) => u64::try_from(*number).ok(),
            UserValue::Text(text) => parse_bytes("", text).ok(),
            _ => None,
        };
        bytes.filter(|bytes| *bytes > 0).map_or_else(|| is(given), Ok)
    }

    fn show(&self, value: &u64) -> UserValue {
        UserValue::Whole((*value).into())
    }

    fn describe(&self) -> Description {
        Description::new(
            "a number of bytes above 0, or a size such as \"300MB\" or \"1.5GiB\"",
            "int | str",
            "BYTES",
        )
    }

    fn parse_word(&self, word: &str) -> UserValue {
        match parse_number(word) {
            whole @ UserValue::Whole(_) => whole,
            _ => UserValue::Text(word.to_owned()),
        }
    }
}

pub(in crate::config::settings) struct DeviceName;

impl ValueKind<String> for DeviceName {
    fn read(&self, given: &UserValue) -> Result<String, String> {
        match given {
            UserValue::Text(name) if is_device(name) => Ok(name.clone()),
            other => is(other),
        }
    }

    fn show(&self, value: &String) -> UserValue {
        UserValue::Text(value.clone())
    }

    fn describe(&self) -> Description {
        Description::new("auto, cpu, cuda or cuda:N", "str", "auto|cpu|cuda|cuda:N")
    }
}

pub(in crate::config::settings) struct AnyText;

impl ValueKind<String> for AnyText {
    fn read(&self, given: &UserValue) -> Result<String, String> {
        match given {
            UserValue::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => is(given),
        }
    }

    fn show(&self, value: &String) -> UserValue {
        UserValue::Text(value.clone())
    }

    fn describe(&self) -> Description {
        Description::new("a text that is not empty", "str", "NAME")
    }
}

pub(in crate::config::settings) struct AnyPath;

impl ValueKind<PathBuf> for AnyPath {
    fn read(&self, given: &UserValue) -> Result<PathBuf, String> {
        match given.path() {
            Some(path) if UserValue::is_usable_path(path) => Ok(path.to_owned()),
            _ => is(given),
        }
    }

    fn show(&self, value: &PathBuf) -> UserValue {
        value.to_str().map_or_else(|| UserValue::Path(value.clone()), |text| UserValue::Text(text.to_owned()))
    }

    fn describe(&self) -> Description {
        Description::new("a path or a URL", "str | os.PathLike[str]", "PATH")
    }
}

/// The path of a directory of this machine; URLs are refused.
pub(in crate::config::settings) struct OwnDirectory;

impl ValueKind<PathBuf> for OwnDirectory {
    fn read(&self, given: &UserValue) -> Result<PathBuf, String> {
        match AnyPath.read(given)? {
            path if is_url(&path) => is(given),
            path => Ok(path),
        }
    }

    fn show(&self, value: &PathBuf) -> UserValue {
        AnyPath.show(value)
    }

    fn describe(&self) -> Description {
        let path = AnyPath.describe();
        Description::new("the path of a directory on this machine", path.annotation, path.placeholder)
    }
}
