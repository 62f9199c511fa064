//! Class names that are values of a table or of members. All layouts number them in the same order.

use super::build::SampleRow;
use super::samples::ShardFindings;
use base::notices::{NoticeKind, Notices};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The maximum size of a name in bytes. A column with longer strings does not hold classes.
pub(super) const LONGEST_NAME: usize = 1024;
/// The maximum number of names. A column with more different strings does not hold classes.
const MAX_NAMES: usize = 1 << 20;

/// Names in the order in which they were found. The number of a name is provisional until all names are known.
#[derive(Debug, Default)]
pub(super) struct ClassNames {
    numbers: HashMap<Box<str>, u32>,
}

impl ClassNames {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.into(), number);
        number
    }

    /// Renumbers the samples of a shard. Before the call, the label of a sample is an index into `names`. After the
    /// call, it is the provisional number of that name.
    pub(super) fn renumber(&mut self, samples: &mut [SampleRow], names: &[String]) {
        let mut numbers = vec![None; names.len()];
        for sample in samples {
            let at = sample.label as usize;
            let number = || names.get(at).map_or(0, |name| self.number(name));
            sample.label = match numbers.get_mut(at) {
                Some(known) => *known.get_or_insert_with(number),
                None => 0,
            };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.numbers.len() > MAX_NAMES
    }

    pub(super) fn into_found(self) -> Vec<String> {
        let mut found: Vec<(Box<str>, u32)> = self.numbers.into_iter().collect();
        found.sort_unstable_by_key(|&(_, number)| number);
        found.into_iter().map(|(name, _)| name.into()).collect()
    }

    /// The sorted names, and a map from each provisional number to the class number.
    pub(super) fn into_classes(self) -> (Vec<String>, Vec<u32>) {
        let found = self.into_found();
        let mut order: Vec<u32> = (0..found.len() as u32).collect();
        sort(&mut order, |&number| found[number as usize].as_bytes());
        let mut classes = vec![0; found.len()];
        (0..).zip(&order).for_each(|(class, &number)| classes[number as usize] = class);
        (order.into_iter().map(|number| found[number as usize].clone()).collect(), classes)
    }
}

impl ShardFindings {
    /// Replaces labels that are class names by the index of each name in `known`, for the samples of a shard. Without
    /// `known`, all labels become 0. Returns a name that is not in `known`.
    pub(super) fn take_classes(
        &mut self,
        samples: &mut [SampleRow],
        known: Option<Vec<&[u8]>>,
    ) -> Option<String> {
        if !self.classes_are_values {
            return None;
        }
        let Some(known) = known else {
            samples.iter_mut().for_each(|sample| sample.label = 0);
            return None;
        };
        let known: HashMap<&[u8], u32> = known.into_iter().zip(0..).collect();
        let names = std::mem::take(&mut self.classes);
        let numbers: Vec<Option<u32>> =
            names.iter().map(|name| known.get(name.as_bytes()).copied()).collect();
        for sample in samples {
            let at = sample.label as usize;
            match numbers.get(at) {
                Some(Some(number)) => sample.label = *number,
                _ => return names.into_iter().nth(at),
            }
        }
        None
    }
}

pub(super) fn renumber(samples: &mut [SampleRow], numbers: &[u32]) {
    for sample in samples {
        sample.label = numbers.get(sample.label as usize).copied().unwrap_or(0);
    }
}

/// Sorts class names: by value if all are integers, else as strings.
pub(super) fn sort<'n, T>(items: &mut [T], name: impl Fn(&T) -> &'n [u8]) {
    if items.iter().all(|item| whole(name(item)).is_some()) {
        items.sort_by(|a, b| (whole(name(a)), name(a)).cmp(&(whole(name(b)), name(b))));
    } else {
        items.sort_by(|a, b| name(a).cmp(name(b)));
    }
}

/// The integer that a name denotes. Some programs write integers with a fraction of zeros, such as `2.0`.
fn whole(name: &[u8]) -> Option<i64> {
    let name = std::str::from_utf8(name).ok()?.trim();
    match name.split_once('.') {
        Some((number, zeros)) if zeros.bytes().all(|digit| digit == b'0') => number.parse().ok(),
        Some(_) => None,
        None => name.parse().ok(),
    }
}

/// Warns of class names that are probably misunderstood: names that are numbers but differ from their class numbers,
/// and names that differ only in leading or trailing blanks.
pub(super) fn notify(names: &[String], root: &Path, notices: &Notices) {
    let root = root.display();
    let numbers: Vec<(usize, i64)> =
        names.iter().enumerate().filter_map(|(class, name)| Some((class, whole(name.as_bytes())?))).collect();
    let other = numbers.iter().find(|&&(class, number)| i64::try_from(class) != Ok(number));
    // If at most half of the names are numbers, they are probably meant as names, so do not warn.
    if let Some(&(class, _)) = other.filter(|_| 2 * numbers.len() > names.len()) {
        let text = names.iter().find(|name| whole(name.as_bytes()).is_none());
        let (which, remedy) = match text {
            None => (String::new(), "int(loader.classes[label]) is the number in the name".to_owned()),
            Some(text) => (
                format!(" (except {text:?}, for example)"),
                format!(
                    "if {text:?} is not a class, fix or remove its samples; then the numbers are the labels"
                ),
            ),
        };
        let message = format!(
            "{root}: class names look like numbers{which}, but differ from the class numbers: class {:?} has number \
             {class}. A label is the position of the name in loader.classes; {remedy}",
            names[class]
        );
        notices.notify(NoticeKind::Warning, message);
    }
    let mut trimmed: BTreeMap<Cow<'_, str>, &String> = BTreeMap::new();
    for name in names {
        if let Some(same) = trimmed.insert(name.trim().into(), name) {
            let message = format!(
                "{root}: the classes {same:?} and {name:?} differ only in leading or trailing white space, and count \
                 as two classes: give them one name if they are one class"
            );
            return notices.notify(NoticeKind::Warning, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_their_order_however_they_are_found() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&["dog", "cat", "dog", "ant"], &["ant", "cat", "dog"]),
            (&["10", "2", "1"], &["1", "2", "10"]),
            (&["07", "7", "-1"], &["-1", "07", "7"]),
            (&["10", "2", "x"], &["10", "2", "x"]),
            (&["10.0", "2.0", "1"], &["1", "2.0", "10.0"]),
        ];
        for (found, sorted) in cases {
            let mut names = ClassNames::default();
            let numbers: Vec<u32> = found.iter().map(|name| names.number(name)).collect();
            let (classes, places) = names.into_classes();
            assert_eq!(classes, sorted);
            for (name, number) in found.iter().zip(numbers) {
                assert_eq!(classes[places[number as usize] as usize], *name);
            }
        }
    }

    #[test]
    fn names_that_mislead_are_told_once() {
        let said = |names: &[&str]| {
            let (notices, names) = (Notices::default(), names.iter().map(|&name| name.to_owned()));
            notify(&names.collect::<Vec<_>>(), Path::new("/data"), &notices);
            std::iter::from_fn(|| notices.next()).map(|notice| notice.message).collect::<Vec<_>>()
        };
        assert_eq!(said(&["0", "1", "2"]), [""; 0]);
        assert_eq!(said(&["00", "01", "x"]), [""; 0]);
        assert_eq!(said(&["0", "1", "x"]), [""; 0]);
        assert_eq!(said(&["10", "cat", "dog"]), [""; 0]);
        let [only] = &said(&["1", "10", "2", "unknown"])[..] else { panic!("one message") };
        assert!(only.contains("(except \"unknown\"") && only.contains("class \"1\" has number 0"), "{only}");
        assert!(said(&["0", "1", "10", "2"])[0].contains("class \"10\" has number 2"));
        let [only] = &said(&["a", "a ", "b", "b ", "B"])[..] else { panic!("one message") };
        assert!(only.contains("\"a\" and \"a \""), "{only}");
    }
}
