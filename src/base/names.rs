//! Values that users write by name: in settings, parameters of transforms, kinds of fields. The names of a type are
//! listed once, next to the type, for Python, the command line, JSON and messages.

use crate::error::{Error, Result};
use serde::{Serialize, Serializer};

/// Serialises pairs as a map, in their order.
///
/// # Errors
/// The errors of `to`.
pub fn as_map<K: Serialize, V: Serialize, S: Serializer>(pairs: &[(K, V)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// A type whose values have names. Implement it with [`named!`].
pub trait NamedValue: Copy + PartialEq + 'static {
    /// All values, each with the name that users write.
    const NAMES: &'static [(&'static str, Self)];

    /// The value called `name`.
    ///
    /// # Errors
    /// A message with the valid names.
    fn find(name: &str) -> Result<Self, String> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("is {name:?}, must be one of {}", known.join(", "))
        })
    }

    /// The value called `name` of the setting `setting`.
    ///
    /// # Errors
    /// [`Error::Config`] with the valid names.
    fn parse(setting: &'static str, name: &str) -> Result<Self> {
        Self::find(name).map_err(|is| Error::config(setting, is))
    }

    /// The name of this value.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("?", |(name, _)| name)
    }
}

/// Implements [`NamedValue`] for an enum, and serialises each variant as its name. Users cannot select a variant for
/// which the macro call has no name.
#[macro_export]
macro_rules! named {
    ($type:ident: $($name:literal => $variant:ident $(($content:literal))?),+ $(,)?) => {
        impl $crate::names::NamedValue for $type {
            const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$variant $(($content))?)),+];
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::names::NamedValue::name(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                $crate::names::NamedValue::find(&name).map_err(serde::de::Error::custom)
            }
        }
    };
}

pub use crate::named;
