//! Kinds of values (`ValueKind`): which values a setting accepts, how they are read from the user's input, and how they
//! are described.

mod buckets;
mod lists;
mod peers;
mod structures;
mod tiers;
mod words;

pub(super) use buckets::BucketRuleOrSizes;
pub(super) use lists::{
    Bounds, Channels, ClassList, ClassNameList, CostList, Indices, Ratios, SideLengths, SizesByEpoch,
    WeightsValue,
};
pub(super) use peers::PeersChoice;
pub(super) use structures::{FieldList, LabelSource, MixList, TransformList};
pub(super) use tiers::TierList;
pub(super) use words::{
    AnyPath, AnyText, BoolOrBlocks, BoolOrName, ByteCount, DeviceName, OneOf, OwnDirectory, RowOrFile, Truth,
};

use super::UserValue;

/// A kind of values of type `T`, such as a range of numbers, a list of names or a path. It reads, checks and describes
/// the values of a setting.
pub(crate) trait ValueKind<T> {
    /// Converts the user's value.
    ///
    /// # Errors
    /// A message that says what is wrong with the value, in words that precede "must be", such as "is -1".
    fn read(&self, given: &UserValue) -> Result<T, String>;

    fn show(&self, value: &T) -> UserValue;

    /// Checks a value that was set in Rust and not read from the user's input.
    ///
    /// # Errors
    /// The errors of [`ValueKind::read`].
    fn check(&self, value: &T) -> Result<(), String> {
        self.read(&self.show(value)).map(|_| ())
    }

    fn describe(&self) -> Description;

    /// Returns the value that a word of the command line means.
    fn parse_word(&self, word: &str) -> UserValue {
        UserValue::Text(word.to_owned())
    }
}

/// The description of a [`ValueKind`] without its Rust type, for signatures, documents and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The accepted values, in words that follow "must be".
    pub may_be: String,
    /// The type in Python.
    pub annotation: String,
    /// The value in the help of the command line.
    pub placeholder: String,
    /// Whether any iterable, such as a generator, is read as a list of values.
    pub takes_iterables: bool,
    /// The Python function, by module and name, that turns the user's objects into a string. Such objects cannot be
    /// read in Rust.
    pub text_by: Option<(&'static str, &'static str)>,
    /// For Python objects that stand for the value: the name of their attribute that holds the value.
    pub attribute: Option<&'static str>,
    /// Whether errors that begin with "has" are about a part of the value, and say what this part must be.
    pub(in crate::config) has_parts: bool,
}

impl Description {
    fn new(may_be: impl Into<String>, annotation: impl Into<String>, placeholder: impl Into<String>) -> Self {
        let (may_be, annotation, placeholder) = (may_be.into(), annotation.into(), placeholder.into());
        Self {
            may_be,
            annotation,
            placeholder,
            takes_iterables: false,
            text_by: None,
            attribute: None,
            has_parts: false,
        }
    }

    fn of_iterables(self) -> Self {
        Self { takes_iterables: true, ..self }
    }

    fn of_parts(self) -> Self {
        Self { has_parts: true, ..self }
    }

    /// The description of these values or `None`.
    pub(super) fn or_none(self) -> Self {
        let may_be = format!("{}, or None", self.may_be);
        Self { may_be, annotation: format!("{} | None", self.annotation), ..self }
    }
}

fn is<T>(given: &UserValue) -> Result<T, String> {
    Err(format!("is {given}"))
}

fn parse_number(word: &str) -> UserValue {
    let word = word.trim();
    match (word.parse(), word.parse()) {
        (Ok(whole), _) => UserValue::Whole(whole),
        (_, Ok(number)) => UserValue::Number(number),
        _ => UserValue::Text(word.to_owned()),
    }
}

/// A value of kind `F`, or `None`, with which Foreload chooses the value.
pub(super) struct Maybe<F>(pub F);

impl<T, F: ValueKind<T>> ValueKind<Option<T>> for Maybe<F> {
    fn read(&self, given: &UserValue) -> Result<Option<T>, String> {
        match given {
            UserValue::Nothing => Ok(None),
            given => self.0.read(given).map(Some),
        }
    }

    fn show(&self, value: &Option<T>) -> UserValue {
        value.as_ref().map_or(UserValue::Nothing, |value| self.0.show(value))
    }

    fn check(&self, value: &Option<T>) -> Result<(), String> {
        value.as_ref().map_or(Ok(()), |value| self.0.check(value))
    }

    fn describe(&self) -> Description {
        self.0.describe().or_none()
    }

    fn parse_word(&self, word: &str) -> UserValue {
        if word.eq_ignore_ascii_case("none") { UserValue::Nothing } else { self.0.parse_word(word) }
    }
}

pub(super) struct WholeNumber {
    from: u64,
    to: u64,
}

impl WholeNumber {
    pub(super) const fn any() -> Self {
        Self::from(0)
    }

    pub(super) const fn from(from: u64) -> Self {
        Self { from, to: u64::MAX }
    }

    pub(super) const fn to(self, to: u64) -> Self {
        Self { to, ..self }
    }

    fn in_range(&self, given: &UserValue, largest: u64) -> Result<u64, String> {
        let number = match given {
            UserValue::Whole(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        match number.filter(|number| (self.from..=self.to.min(largest)).contains(number)) {
            Some(number) => Ok(number),
            None => is(given),
        }
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => { $(
        impl ValueKind<$type> for WholeNumber {
            fn read(&self, given: &UserValue) -> Result<$type, String> {
                Ok(self.in_range(given, <$type>::MAX.into())? as $type)
            }

            fn show(&self, value: &$type) -> UserValue {
                UserValue::Whole((*value).into())
            }

            fn describe(&self) -> Description {
                let to = self.to.min(<$type>::MAX.into());
                Description::new(format!("a whole number from {} to {to}", self.from), "int", "N")
            }

            fn parse_word(&self, word: &str) -> UserValue {
                parse_number(word)
            }
        }
    )* };
}

whole_numbers!(u32, u64);

pub(super) struct Probability;

pub(super) struct ShareOfOne;

pub(super) struct FromOne;

macro_rules! numbers {
    ($($form:ident: $taken:expr, $may_be:literal, $placeholder:literal;)*) => { $(
        impl ValueKind<f64> for $form {
            fn read(&self, given: &UserValue) -> Result<f64, String> {
                let taken: fn(&f64) -> bool = $taken;
                given.finite().filter(taken).map_or_else(|| is(given), Ok)
            }

            fn show(&self, value: &f64) -> UserValue {
                UserValue::Number(*value)
            }

            fn describe(&self) -> Description {
                Description::new($may_be, "float", $placeholder)
            }

            fn parse_word(&self, word: &str) -> UserValue {
                parse_number(word)
            }
        }
    )* };
}

numbers! {
    Probability: |number| (0.0..=1.0).contains(number), "a number from 0 to 1", "P";
    ShareOfOne: |number| *number > 0.0 && *number <= 1.0, "a number above 0, at most 1", "SHARE";
    FromOne: |number| (1.0..=1000.0).contains(number), "a number from 1 to 1000", "RATIO";
}
