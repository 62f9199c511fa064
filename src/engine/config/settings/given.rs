//! A value as a user gave it, in Python or on the command line, before a setting checks it.

use data::dataset::without_secrets;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum number of items of a list, and of characters of a string, that a message shows.
const SHOWN_ITEMS: usize = 10;
const SHOWN_CHARACTERS: usize = 200;

/// An untyped value from Python or from the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum UserValue {
    /// `None`.
    Nothing,
    /// `True` or `False`. Neither is accepted as a number.
    Truth(bool),
    /// An integer.
    Whole(i128),
    /// Any other number, including infinities and NaN.
    Number(#[serde(with = "bits")] f64),
    /// A string.
    Text(String),
    /// A path that is not a string, such as a `pathlib.Path`.
    Path(PathBuf),
    /// A list, a tuple, or an array of any type.
    List(Vec<UserValue>),
    /// A list of integers only, stored compactly because it may have one integer for each sample of the dataset.
    Wholes(Vec<i64>),
    /// A list of numbers that are not all integers, stored compactly.
    Numbers(#[serde(with = "bits_of_list")] Vec<f64>),
    /// A dict.
    Map(Vec<(UserValue, UserValue)>),
    /// Anything else, as Python's `repr` shows it.
    Other(String),
}

/// Stores a float by its bits: JSON has no NaN and no infinity, and its parser does not return every float exactly.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        number.to_bits().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

/// Stores a list of floats by their bits.
mod bits_of_list {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|number| number.to_bits()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let bits = Vec::<u64>::deserialize(from)?;
        Ok(bits.into_iter().map(f64::from_bits).collect())
    }
}

impl UserValue {
    /// Returns an empty list, to be filled by [`UserValue::push`].
    pub fn empty_list() -> Self {
        Self::List(Vec::new())
    }

    /// Appends to a list. The list stays compact while all its items are integers, or all are other numbers.
    pub fn push(&mut self, item: Self) {
        match (&mut *self, item) {
            (Self::Wholes(list), Self::Whole(number)) if i64::try_from(number).is_ok() => {
                list.push(number as i64);
            }
            (Self::Numbers(list), Self::Number(number)) => list.push(number),
            (Self::List(list), Self::Whole(number)) if list.is_empty() && i64::try_from(number).is_ok() => {
                *self = Self::Wholes(vec![number as i64]);
            }
            (Self::List(list), Self::Number(number)) if list.is_empty() => {
                *self = Self::Numbers(vec![number]);
            }
            (Self::List(list), item) => list.push(item),
            (_, item) => {
                let mut items: Vec<_> = self.items().into_iter().flatten().collect();
                items.push(item);
                *self = Self::List(items);
            }
        }
    }

    /// Returns the items of a list, in order; `None` if this is not a list.
    pub fn items(&self) -> Option<Box<dyn ExactSizeIterator<Item = Self> + '_>> {
        match self {
            Self::List(list) => Some(Box::new(list.iter().cloned())),
            Self::Wholes(list) => Some(Box::new(list.iter().map(|number| Self::Whole(i128::from(*number))))),
            Self::Numbers(list) => Some(Box::new(list.iter().map(|number| Self::Number(*number)))),
            _ => None,
        }
    }

    /// Returns the value as a finite number; `None` for anything else, including `True` and `False`.
    pub fn finite(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) if number.is_finite() => Some(*number),
            _ => None,
        }
    }

    /// Whether a path can be passed to a system call: it is not empty and has no zero byte.
    pub fn is_usable_path(path: &Path) -> bool {
        let bytes = path.as_os_str().as_encoded_bytes();
        !bytes.is_empty() && !bytes.contains(&0)
    }

    /// Returns the value as a path; `None` if it is neither a path nor a string.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Text(text) => Some(Path::new(text)),
            Self::Path(path) => Some(path),
            _ => None,
        }
    }
}

/// Shows the value as Python writes it, for messages, signatures and documents. Long values are truncated.
impl fmt::Display for UserValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("None"),
            Self::Truth(true) => f.write_str("True"),
            Self::Truth(false) => f.write_str("False"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Text(text) => write!(f, "{:?}", shortened(&without_secrets(text))),
            Self::Path(path) => {
                write!(f, "{:?}", shortened(&without_secrets(&path.to_string_lossy())))
            }
            Self::Other(shown) => f.write_str(&shortened(&without_secrets(shown))),
            Self::List(_) | Self::Wholes(_) | Self::Numbers(_) => {
                let Some(items) = self.items() else { return Ok(()) };
                let count = items.len();
                let end = if count == 1 { ",)" } else { ")" };
                enclosed(f, "(", items.map(|item| item.to_string()), count, end)
            }
            Self::Map(map) => {
                let entries = map.iter().map(|(key, value)| format!("{key}: {value}"));
                enclosed(f, "{", entries, map.len(), "}")
            }
        }
    }
}

fn enclosed(
    f: &mut fmt::Formatter<'_>,
    begin: &str,
    items: impl Iterator<Item = String>,
    count: usize,
    end: &str,
) -> fmt::Result {
    let mut shown: Vec<_> = items.take(SHOWN_ITEMS).collect();
    if count > SHOWN_ITEMS {
        shown.push(format!("... {count} items"));
    }
    write!(f, "{begin}{}{end}", shown.join(", "))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: Vec<UserValue>) -> UserValue {
        let mut list = UserValue::empty_list();
        items.into_iter().for_each(|item| list.push(item));
        list
    }

    #[test]
    fn a_list_is_compact_while_its_items_are_alike() {
        assert_eq!(list(vec![UserValue::Whole(1), UserValue::Whole(-2)]), UserValue::Wholes(vec![1, -2]));
        assert_eq!(list(vec![UserValue::Number(1.5)]), UserValue::Numbers(vec![1.5]));
        for items in [
            vec![],
            vec![UserValue::Truth(true), UserValue::Whole(1)],
            vec![UserValue::Whole(1), UserValue::Number(0.5), UserValue::Text("x".into())],
            vec![UserValue::Whole(1), UserValue::Whole(1 << 70), UserValue::Nothing],
        ] {
            assert_eq!(list(items.clone()).items().unwrap().collect::<Vec<_>>(), items);
        }
    }

    #[test]
    fn numbers_survive_a_document_exactly() {
        for number in [0.1 + 0.2, -1.0 / 3.0, f64::NAN, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE] {
            for value in [UserValue::Number(number), list(vec![UserValue::Number(number)])] {
                let text = serde_json::to_string(&value).unwrap();
                let read: UserValue = serde_json::from_str(&text).unwrap();
                assert_eq!(format!("{read:?}"), format!("{value:?}"), "{text}");
            }
        }
    }

    #[test]
    fn it_is_shown_as_python_writes_it() {
        for (given, shown) in [
            (UserValue::Nothing, "None"),
            (UserValue::Truth(true), "True"),
            (UserValue::Number(1.0), "1.0"),
            (UserValue::Number(f64::NAN), "NaN"),
            (UserValue::Text("a \"b\"".into()), r#""a \"b\"""#),
            (UserValue::Wholes(vec![3]), "(3,)"),
            (UserValue::Wholes((0..12).collect()), "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 12 items)"),
            (UserValue::Map(vec![(UserValue::Text("a".into()), UserValue::Number(0.5))]), "{\"a\": 0.5}"),
        ] {
            assert_eq!(given.to_string(), shown);
        }
        assert!(UserValue::Text("x".repeat(1000)).to_string().len() < 250);
    }
}
