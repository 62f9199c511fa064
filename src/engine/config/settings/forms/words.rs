//! Forms of single values other than numbers: True and False, names, sizes in bytes, paths.

use super::{Form, is, number_given_by};
use crate::config::device::is_device;
use crate::config::parse_bytes;
use crate::config::settings::Given;
use base::names::NamedValue;
use data::dataset::is_url;
use data::schedule::Shuffling;
use std::marker::PhantomData;
use std::path::PathBuf;

/// True or False.
pub(in crate::config::settings) struct Truth;

impl Form<bool> for Truth {
    fn read(&self, given: &Given) -> Result<bool, String> {
        match given {
            Given::Truth(value) => Ok(*value),
            other => is(other),
        }
    }

    fn show(&self, value: &bool) -> Given {
        Given::Truth(*value)
    }

    fn may_be(&self) -> String {
        "True or False".into()
    }

    fn annotation(&self) -> String {
        "bool".into()
    }

    fn placeholder(&self) -> String {
        "true|false".into()
    }

    fn given_by(&self, word: &str) -> Given {
        match word.to_ascii_lowercase().as_str() {
            "true" => Given::Truth(true),
            "false" => Given::Truth(false),
            _ => Given::Text(word.to_owned()),
        }
    }
}

/// True, False, or the text "blocks".
pub(in crate::config::settings) struct BoolOrBlocks;

/// The text that means [`Shuffling::Blocks`].
const BLOCKS: &str = "blocks";

impl Form<Shuffling> for BoolOrBlocks {
    fn read(&self, given: &Given) -> Result<Shuffling, String> {
        match given {
            Given::Truth(value) => Ok((*value).into()),
            Given::Text(text) if text == BLOCKS => Ok(Shuffling::Blocks),
            other => is(other),
        }
    }

    fn show(&self, value: &Shuffling) -> Given {
        match value {
            Shuffling::Off => Given::Truth(false),
            Shuffling::On => Given::Truth(true),
            Shuffling::Blocks => Given::Text(BLOCKS.to_owned()),
        }
    }

    fn may_be(&self) -> String {
        format!("True, False or {BLOCKS}")
    }

    fn annotation(&self) -> String {
        format!("bool | Literal[\"{BLOCKS}\"]")
    }

    fn placeholder(&self) -> String {
        format!("true|false|{BLOCKS}")
    }

    fn given_by(&self, word: &str) -> Given {
        Truth.given_by(word)
    }
}

/// A name, or True, which is stored as the empty name, or False or None.
pub(in crate::config::settings) struct BoolOrName;

impl Form<Option<String>> for BoolOrName {
    fn read(&self, given: &Given) -> Result<Option<String>, String> {
        match given {
            Given::Nothing | Given::Truth(false) => Ok(None),
            Given::Truth(true) => Ok(Some(String::new())),
            Given::Text(name) if !name.is_empty() => Ok(Some(name.clone())),
            other => is(other),
        }
    }

    fn show(&self, name: &Option<String>) -> Given {
        match name.as_deref() {
            None => Given::Truth(false),
            Some("") => Given::Truth(true),
            Some(name) => Given::Text(name.to_owned()),
        }
    }

    fn may_be(&self) -> String {
        "True, False or a name".into()
    }

    fn annotation(&self) -> String {
        "bool | str".into()
    }

    fn placeholder(&self) -> String {
        "true|NAME".into()
    }

    fn given_by(&self, word: &str) -> Given {
        Truth.given_by(word)
    }
}

/// One of the names of a [`NamedValue`] type.
pub(in crate::config::settings) struct OneOf<C>(PhantomData<C>);

impl<C: NamedValue> OneOf<C> {
    pub(in crate::config::settings) const fn names() -> Self {
        Self(PhantomData)
    }

    fn joined(&self, between: &str) -> String {
        C::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(between)
    }
}

impl<C: NamedValue> Form<C> for OneOf<C> {
    fn read(&self, given: &Given) -> Result<C, String> {
        let Given::Text(name) = given else { return is(given) };
        let found = C::NAMES.iter().find(|(known, _)| known == name);
        found.map_or_else(|| is(given), |(_, value)| Ok(*value))
    }

    fn show(&self, value: &C) -> Given {
        Given::Text(value.name().to_owned())
    }

    /// Accepts every value. A value without a name cannot be given here, but another setting may set it, as `immutable`
    /// does.
    fn check(&self, _: &C) -> Result<(), String> {
        Ok(())
    }

    fn may_be(&self) -> String {
        format!("one of {}", self.joined(", "))
    }

    fn annotation(&self) -> String {
        format!("Literal[\"{}\"]", self.joined("\", \""))
    }

    fn placeholder(&self) -> String {
        self.joined("|")
    }
}

/// A number of bytes, or a size as a text with a unit.
pub(in crate::config::settings) struct ByteCount;

impl Form<u64> for ByteCount {
    fn read(&self, given: &Given) -> Result<u64, String> {
        let bytes = match given {
            Given::Whole(number) => u64::try_from(*number).ok(),
            Given::Text(text) => parse_bytes("", text).ok(),
            _ => None,
        };
        bytes.filter(|bytes| *bytes > 0).map_or_else(|| is(given), Ok)
    }

    fn show(&self, value: &u64) -> Given {
        Given::Whole((*value).into())
    }

    fn may_be(&self) -> String {
        "a number of bytes above 0, or a size such as \"300MB\" or \"1.5GiB\"".into()
    }

    fn annotation(&self) -> String {
        "int | str".into()
    }

    fn placeholder(&self) -> String {
        "BYTES".into()
    }

    fn given_by(&self, word: &str) -> Given {
        match number_given_by(word) {
            whole @ Given::Whole(_) => whole,
            _ => Given::Text(word.to_owned()),
        }
    }
}

/// The name of a device.
pub(in crate::config::settings) struct DeviceName;

impl Form<String> for DeviceName {
    fn read(&self, given: &Given) -> Result<String, String> {
        match given {
            Given::Text(name) if is_device(name) => Ok(name.clone()),
            other => is(other),
        }
    }

    fn show(&self, value: &String) -> Given {
        Given::Text(value.clone())
    }

    fn may_be(&self) -> String {
        "auto, cpu, cuda or cuda:N".into()
    }

    fn annotation(&self) -> String {
        "str".into()
    }

    fn placeholder(&self) -> String {
        "auto|cpu|cuda|cuda:N".into()
    }
}

/// A text that is not empty.
pub(in crate::config::settings) struct AnyText;

impl Form<String> for AnyText {
    fn read(&self, given: &Given) -> Result<String, String> {
        match given {
            Given::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => is(given),
        }
    }

    fn show(&self, value: &String) -> Given {
        Given::Text(value.clone())
    }

    fn may_be(&self) -> String {
        "a text that is not empty".into()
    }

    fn annotation(&self) -> String {
        "str".into()
    }

    fn placeholder(&self) -> String {
        "NAME".into()
    }
}

/// A path, which need not exist.
pub(in crate::config::settings) struct AnyPath;

impl Form<PathBuf> for AnyPath {
    fn read(&self, given: &Given) -> Result<PathBuf, String> {
        match given.path() {
            Some(path) if Given::is_usable_path(path) => Ok(path.to_owned()),
            _ => is(given),
        }
    }

    fn show(&self, value: &PathBuf) -> Given {
        value.to_str().map_or_else(|| Given::Path(value.clone()), |text| Given::Text(text.to_owned()))
    }

    fn may_be(&self) -> String {
        "a path or a URL".into()
    }

    fn annotation(&self) -> String {
        "str | os.PathLike[str]".into()
    }

    fn placeholder(&self) -> String {
        "PATH".into()
    }
}

/// The path of a directory of this machine; URLs are refused.
pub(in crate::config::settings) struct OwnDirectory;

impl Form<PathBuf> for OwnDirectory {
    fn read(&self, given: &Given) -> Result<PathBuf, String> {
        match AnyPath.read(given)? {
            path if is_url(&path) => is(given),
            path => Ok(path),
        }
    }

    fn show(&self, value: &PathBuf) -> Given {
        AnyPath.show(value)
    }

    fn may_be(&self) -> String {
        "the path of a directory on this machine".into()
    }

    fn annotation(&self) -> String {
        AnyPath.annotation()
    }

    fn placeholder(&self) -> String {
        AnyPath.placeholder()
    }
}
