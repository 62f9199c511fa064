//! Kinds of values that hold several numbers or names: sides, bounds, channels, classes, weights and sample ids.

use super::{Description, ValueKind, is, parse_number};
use crate::config::Weights;
use crate::config::settings::UserValue;
use data::dataset::{ClassRef, read_class_names};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Type of a list of numbers for type checkers: a list, a tuple, or an array or tensor of any library.
const NUMBERS: &str = "Numbers";

/// Reads a word of the command line, such as `0.5,0.5,0.5`, as a list.
fn parse_list(word: &str) -> UserValue {
    let mut list = UserValue::empty_list();
    word.split(',').for_each(|item| list.push(parse_number(item)));
    list
}

fn exactly<const N: usize>(given: &UserValue) -> Option<[f64; N]> {
    let numbers: Option<Vec<f64>> = given.items()?.map(|item| item.finite()).collect();
    numbers?.try_into().ok()
}

pub(in crate::config::settings) struct SideLengths {
    pub to: u32,
}

impl ValueKind<(u32, u32)> for SideLengths {
    fn read(&self, given: &UserValue) -> Result<(u32, u32), String> {
        let side = |given: &UserValue| match given {
            UserValue::Whole(side) => u32::try_from(*side).ok().filter(|side| (1..=self.to).contains(side)),
            _ => None,
        };
        let sides = match given.items() {
            None => side(given).map(|side| (side, side)),
            Some(items) => match items.collect::<Vec<_>>().as_slice() {
                [height, width] => side(height).zip(side(width)),
                _ => None,
            },
        };
        sides.map_or_else(|| is(given), Ok)
    }

    fn show(&self, (height, width): &(u32, u32)) -> UserValue {
        if height == width {
            return UserValue::Whole((*height).into());
        }
        UserValue::Wholes(vec![(*height).into(), (*width).into()])
    }

    fn describe(&self) -> Description {
        Description::new(
            format!("a whole number from 1 to {}, or two of them, (height, width)", self.to),
            "int | Sequence[int]",
            "SIDE|HEIGHT,WIDTH",
        )
    }

    fn parse_word(&self, word: &str) -> UserValue {
        if word.contains(',') { parse_list(word) } else { parse_number(word) }
    }
}

/// Sizes of images by epoch. Each size is valid from its epoch until the next one in the map.
pub(in crate::config::settings) struct SizesByEpoch(pub SideLengths);

impl ValueKind<BTreeMap<u64, (u32, u32)>> for SizesByEpoch {
    fn read(&self, given: &UserValue) -> Result<BTreeMap<u64, (u32, u32)>, String> {
        let UserValue::Map(map) = given else { return is(given) };
        let entry = |(epoch, size): &(UserValue, UserValue)| match epoch {
            UserValue::Whole(epoch) => {
                Some((u64::try_from(*epoch).ok().filter(|epoch| *epoch > 0)?, self.0.read(size).ok()?))
            }
            _ => None,
        };
        map.iter().map(entry).collect::<Option<_>>().map_or_else(|| is(given), Ok)
    }

    fn show(&self, sizes: &BTreeMap<u64, (u32, u32)>) -> UserValue {
        let entry =
            |(epoch, size): (&u64, &(u32, u32))| (UserValue::Whole((*epoch).into()), self.0.show(size));
        UserValue::Map(sizes.iter().map(entry).collect())
    }

    fn describe(&self) -> Description {
        let size = self.0.describe();
        Description::new(
            format!("a dict that maps epochs, from 1, to {}", size.may_be),
            format!("Mapping[int, {}]", size.annotation),
            "EPOCH:SIDE;EPOCH:HEIGHT,WIDTH",
        )
    }

    fn parse_word(&self, word: &str) -> UserValue {
        let entry = |entry: &str| {
            let (epoch, size) = entry.split_once(':')?;
            Some((parse_number(epoch), self.0.parse_word(size)))
        };
        let entries: Option<_> = word.split(';').map(entry).collect();
        entries.map_or_else(|| UserValue::Text(word.to_owned()), UserValue::Map)
    }
}

pub(in crate::config::settings) struct Bounds {
    pub to: f64,
}

impl ValueKind<(f64, f64)> for Bounds {
    fn read(&self, given: &UserValue) -> Result<(f64, f64), String> {
        match exactly(given) {
            Some([low, high]) if 0.0 < low && low <= high && high <= self.to => Ok((low, high)),
            _ => is(given),
        }
    }

    fn show(&self, (low, high): &(f64, f64)) -> UserValue {
        UserValue::Numbers(vec![*low, *high])
    }

    fn describe(&self) -> Description {
        Description::new(format!("two numbers, 0 < low <= high <= {}", self.to), NUMBERS, "LOW,HIGH")
    }

    fn parse_word(&self, word: &str) -> UserValue {
        parse_list(word)
    }
}

pub(in crate::config::settings) enum Channels {
    Finite,
    /// Finite numbers above 0, because images are divided by them.
    Positive,
}

impl ValueKind<[f32; 3]> for Channels {
    fn read(&self, given: &UserValue) -> Result<[f32; 3], String> {
        let channels = exactly(given).map(|numbers: [f64; 3]| numbers.map(|number| number as f32));
        let usable = |number: &f32| number.is_finite() && (matches!(self, Self::Finite) || *number > 0.0);
        channels.filter(|numbers| numbers.iter().all(usable)).map_or_else(|| is(given), Ok)
    }

    fn show(&self, value: &[f32; 3]) -> UserValue {
        // Use the shortest text of the number, so that 0.485 does not become 0.48500001430511475.
        let number = |value: &f32| value.to_string().parse().unwrap_or(f64::from(*value));
        UserValue::Numbers(value.iter().map(number).collect())
    }

    fn describe(&self) -> Description {
        let numbers = match self {
            Self::Finite => "three finite numbers, for red, green and blue",
            Self::Positive => "three finite numbers above 0, for red, green and blue",
        };
        Description::new(numbers, NUMBERS, "RED,GREEN,BLUE")
    }

    fn parse_word(&self, word: &str) -> UserValue {
        parse_list(word)
    }
}

/// Returns the error for a wrong item of a list, with its index. The message does not show the whole list, because it
/// may have a million numbers.
fn has<T>(number: usize, item: &UserValue) -> Result<T, String> {
    Err(format!("has {item} at index {number}"))
}

fn each<T>(given: &UserValue, read: impl Fn(&UserValue) -> Option<T>) -> Result<Vec<T>, String> {
    let Some(items) = given.items() else { return is(given) };
    let item = |(number, item): (usize, UserValue)| read(&item).map_or_else(|| has(number, &item), Ok);
    items.enumerate().map(item).collect()
}

pub(in crate::config::settings) struct Indices;

impl ValueKind<Vec<u64>> for Indices {
    fn read(&self, given: &UserValue) -> Result<Vec<u64>, String> {
        each(given, |item| match item {
            UserValue::Whole(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    }

    /// Always shows an empty list, because there may be millions of ids.
    fn show(&self, _: &Vec<u64>) -> UserValue {
        UserValue::empty_list()
    }

    fn describe(&self) -> Description {
        Description::new("sample numbers, starting at 0", "Sequence[int] | Array", "NUMBER,...")
            .of_iterables()
    }

    fn parse_word(&self, word: &str) -> UserValue {
        parse_list(word)
    }
}

pub(in crate::config::settings) struct Ratios;

impl ValueKind<Vec<f64>> for Ratios {
    fn read(&self, given: &UserValue) -> Result<Vec<f64>, String> {
        each(given, UserValue::finite)
    }

    fn show(&self, value: &Vec<f64>) -> UserValue {
        UserValue::Numbers(value.clone())
    }

    fn describe(&self) -> Description {
        Description::new("one finite number for each dataset", NUMBERS, "SHARE,...").of_iterables()
    }

    fn parse_word(&self, word: &str) -> UserValue {
        parse_list(word)
    }
}

fn class(given: &UserValue) -> Option<ClassRef> {
    match given {
        UserValue::Text(name) => Some(ClassRef::Name(name.clone())),
        UserValue::Whole(number) => u32::try_from(*number).ok().map(ClassRef::Number),
        _ => None,
    }
}

pub(in crate::config::settings) struct ClassList;

impl ValueKind<Vec<ClassRef>> for ClassList {
    fn read(&self, given: &UserValue) -> Result<Vec<ClassRef>, String> {
        each(given, class)
    }

    fn show(&self, value: &Vec<ClassRef>) -> UserValue {
        let shown = |class: &ClassRef| match class {
            ClassRef::Name(name) => UserValue::Text(name.clone()),
            ClassRef::Number(number) => UserValue::Whole((*number).into()),
        };
        UserValue::List(value.iter().map(shown).collect())
    }

    fn describe(&self) -> Description {
        Description::new("a list of class names or class numbers", "Sequence[str | int]", "CLASS,...")
            .of_iterables()
    }

    fn parse_word(&self, word: &str) -> UserValue {
        parse_list(word)
    }
}

pub(in crate::config::settings) struct ClassNameList;

impl ValueKind<Vec<String>> for ClassNameList {
    fn read(&self, given: &UserValue) -> Result<Vec<String>, String> {
        let names = match given {
            UserValue::Text(path) => read_class_names(Path::new(path))?,
            UserValue::Path(path) => read_class_names(path)?,
            list => each(list, |item| match item {
                UserValue::Text(name) => Some(name.clone()),
                _ => None,
            })?,
        };
        if names.is_empty() {
            return Err("has no class names".into());
        }
        let mut places = HashMap::new();
        for (place, name) in names.iter().enumerate() {
            if let Some(first) = places.insert(name, place) {
                return Err(format!("has {name:?} at the indices {first} and {place}"));
            }
        }
        Ok(names)
    }

    fn show(&self, value: &Vec<String>) -> UserValue {
        UserValue::List(value.iter().cloned().map(UserValue::Text).collect())
    }

    fn describe(&self) -> Description {
        Description {
            takes_iterables: true,
            attribute: Some("classes"),
            ..Description::new(
                "a list of all class names in the order of their numbers, without duplicates, a file with one name \
                per line, or an object with such a list as `classes`",
                "Sequence[str] | str | os.PathLike[str] | WithClasses",
                "FILE|CLASS,CLASS,...",
            )
        }
    }

    /// A word without a comma is the path of a file. Names are not parsed as numbers: `7` is a name.
    fn parse_word(&self, word: &str) -> UserValue {
        if !word.contains(',') {
            return UserValue::Text(word.to_owned());
        }
        UserValue::List(word.split(',').map(|name| UserValue::Text(name.to_owned())).collect())
    }
}

/// Names of columns, each once.
pub(in crate::config::settings) struct CostList;

impl ValueKind<Vec<String>> for CostList {
    fn read(&self, given: &UserValue) -> Result<Vec<String>, String> {
        let names = match given {
            UserValue::Text(name) => vec![name.clone()],
            list => each(list, |item| match item {
                UserValue::Text(name) => Some(name.clone()),
                _ => None,
            })?,
        };
        let is_usable = |(place, name): (usize, &String)| !name.is_empty() && !names[..place].contains(name);
        match !names.is_empty() && names.iter().enumerate().all(is_usable) {
            true => Ok(names),
            false => is(given),
        }
    }

    fn show(&self, value: &Vec<String>) -> UserValue {
        match value.as_slice() {
            [name] => UserValue::Text(name.clone()),
            names => UserValue::List(names.iter().cloned().map(UserValue::Text).collect()),
        }
    }

    fn describe(&self) -> Description {
        Description::new("the name of a column, or a list of different names", "str | Sequence[str]", "NAME")
    }
}

pub(in crate::config::settings) struct WeightsValue;

impl ValueKind<Weights> for WeightsValue {
    fn read(&self, given: &UserValue) -> Result<Weights, String> {
        match given {
            UserValue::Text(word) if word == "balanced" => Ok(Weights::Balanced),
            UserValue::Map(map) => {
                let weight = |(key, value): &(UserValue, UserValue)| match (class(key), value.finite()) {
                    (Some(class), Some(weight)) => Ok((class, weight)),
                    _ => Err(format!("has {key}: {value}")),
                };
                map.iter().map(weight).collect::<Result<_, _>>().map(Weights::Classes)
            }
            list => each(list, UserValue::finite).map(Weights::Samples),
        }
    }

    /// Always shows the word "balanced". Weights need not be shown: they have no default, and there may be millions.
    fn show(&self, _: &Weights) -> UserValue {
        UserValue::Text("balanced".into())
    }

    fn describe(&self) -> Description {
        Description::new(
            "\"balanced\", a dict from classes to finite weights, or one finite weight for each sample",
            format!("Literal[\"balanced\"] | Mapping[str, float] | Mapping[int, float] | {NUMBERS}"),
            "balanced",
        )
        .of_iterables()
    }
}
